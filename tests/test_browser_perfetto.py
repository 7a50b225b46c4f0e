"""Exports in Perfetto's own reader: its SQL finds what the snapshot says, and its page shows the devices in order."""

from __future__ import annotations

import re
from pathlib import Path

import corpus
import numpy as np
import perfetto_reader
import pytest
from cli import in_process
from pages import Opened
from playwright.sync_api import Browser
from served import served

import snapreport

pytestmark = pytest.mark.skipif(not perfetto_reader.web_folder(), reason=perfetto_reader.REASON)

# The query of the page, and its like for Chrome traces.
PEAKS = {
    "perfetto": re.findall(r"```sql\n(.*?)```", (corpus.ROOT / "docs" / "export.md").read_text("utf-8"), re.DOTALL)[0],
    "chrome-trace": """
        SELECT process.name, REPLACE(track.name, ' bytes', ''), MAX(value) FROM counter
        JOIN track ON track.id = track_id JOIN process ON process.upid = EXTRACT_ARG(track.dimension_arg_set_id, 'upid')
        GROUP BY track.id
    """,
}
SLICES = """
    SELECT {device}, {group}, slice.name, ts, dur, EXTRACT_ARG(slice.arg_set_id, '{prefix}.bytes'),
           EXTRACT_ARG(slice.arg_set_id, '{prefix}.line')
    FROM slice JOIN {table} ON slice.track_id = {table}.id {join} ORDER BY slice.id
"""
# Where the two formats have the device and the name of a row.
OF = {
    "perfetto": {
        "device": "device.name", "group": "track.name", "prefix": "debug", "table": "track",
        "join": "JOIN track device ON device.id = track.parent_id",
    },
    "chrome-trace": {
        "device": "process.name", "group": "thread.name", "prefix": "args", "table": "thread_track",
        "join": "JOIN thread USING (utid) JOIN process USING (upid)",
    },
}  # fmt: skip
# Each title is there twice.
SHOWN = "titles => [...new Set(document.body.innerText.split('\\n'))].filter(line => titles.includes(line))"
RECORDINGS = [corpus.SAMPLES / f"{name}.pickle.xz" for name in ("training", "two_devices", "serving")]
RECORDINGS.append(corpus.ROOT / "tests" / "recordings" / "modules.pickle.xz")


def exported(path: Path, kind: str, tmp_path: Path) -> bytes:
    run = in_process("export", path, "--to", kind, "-o", tmp_path / "trace")
    assert run.code == 0, run.err
    return (tmp_path / "trace").read_bytes()


@pytest.mark.parametrize("kind", OF)
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_sql_finds_what_the_snapshot_says(path: Path, kind: str, chromium: Browser, tmp_path: Path) -> None:
    snapshot = snapreport.load(path)
    with perfetto_reader.opened(chromium, exported(path, kind, tmp_path)) as query:
        assert query("SELECT name, value FROM stats WHERE severity != 'info' AND value > 0") == []
        found = query(PEAKS[kind])
        rows = query(SLICES.format(**OF[kind]))
        failures = query("SELECT name FROM slice WHERE name GLOB 'out of memory:*'")
    most = {(device, name): value for device, name, value in found}
    assert {device for device, _ in most} == {f"cuda:{device}" for device in snapshot.devices}
    for device in snapshot.devices:
        name, timeline = f"cuda:{device}", snapshot.timeline(device)
        curve = snapshot.curve(device)
        times = np.maximum.accumulate(snapshot.events(device)["time_us"].to_numpy().astype(np.int64))
        last = np.flatnonzero(np.append(times[1:] != times[:-1], True))  # the last event of each moment
        for column in ("allocated", "reserved"):
            assert most[name, column] == curve[column].to_numpy()[1:][last].max()
        ending = np.append(timeline.steps["last_event"].to_numpy() + 1, len(times) - 1).clip(max=len(times) - 1)
        starts = times[timeline.steps["first_event"].to_numpy()]
        assert sorted((ts, ts + dur) for d, group, _, ts, dur, *_ in rows if (d, group) == (name, "steps")) == [
            (start * 1000, times[end] * 1000) for start, end in zip(starts, ending, strict=False)
        ]
        shown = [row[2:] for row in rows if row[:2] == (name, "spans")]
        spans = timeline.annotated.spans.rows(named=True)
        assert sorted(row[:1] for row in shown) == sorted((span["name"],) for span in spans)
        whole = {(span["name"], span["start_us"] * 1000): span for span in spans if span["starts"] and span["ends"]}
        for label, ts, dur, *_ in shown:
            span = whole.get((label, ts))
            assert not span or dur == max(0, span["end_us"] - span["start_us"]) * 1000
        allocations = snapshot.allocations(device)
        born, freed, size = (allocations[c].to_numpy() for c in ("alloc_event", "free_event", "size"))
        large = np.flatnonzero(size >= timeline.allocated.max() / 1000)
        assert len(large) <= 2000
        begin, end = times[born[large].clip(min=0)], times[freed[large]]  # -1, never freed, is the last event
        assert sorted((ts, dur, n) for d, group, _, ts, dur, n, _ in rows if (d, group) == (name, "allocations")) == (
            sorted(zip(begin * 1000, (end - begin) * 1000, size[large], strict=True))
        )
    assert len(failures) == sum(len(snapshot.timeline(device).oom_events) for device in snapshot.devices)
    lines = [row[6] for row in rows if row[1] == "allocations" and row[6]]
    assert lines and all(re.search(r":\d+$", line) for line in lines)


@pytest.mark.parametrize(
    ("path", "titles"),
    [
        (RECORDINGS[0], ["cuda:0", "steps", "spans", "out of memory", "allocated", "reserved", "input", "allocations"]),
        (RECORDINGS[1], ["cuda:0", "cuda:1"]),  # of several, the page opens none
    ],
)
def test_the_page_shows_devices_and_their_tracks_in_order(
    path: Path, titles: list[str], chromium: Browser, tmp_path: Path
) -> None:
    files = {"/vizviewer_info": b"{}", "/file_info": b"{}", "/localtrace": exported(path, "perfetto", tmp_path)}
    with served(perfetto_reader.web_folder(), files) as address:
        page = chromium.new_context(viewport={"width": 1300, "height": 1400}).new_page()
        page.goto(f"{address}/#!/")

        opened = Opened(page, path)
        opened.until(f"titles => ({SHOWN})(titles).length === titles.length", titles)
        assert opened.js(SHOWN, titles) == titles
        page.context.close()
