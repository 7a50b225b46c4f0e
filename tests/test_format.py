"""The written HTML, decoded by an independent reader, contains every column of the snapshot exactly."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import breadth
import corpus
import numpy as np
import oracle
import pytest
import strategies
from decoder import ALPHABET, DecodedDevice, Report, base85, blob, decompress
from hypothesis import given, settings
from hypothesis import strategies as st

import snapreport
from snapreport.packing.base85 import encode
from snapreport.packing.blob import pack_text
from snapreport.packing.columns import Column


@given(st.binary(max_size=70))
def test_base85_round_trip(data: bytes) -> None:
    text = encode(data)
    assert set(text) <= set(ALPHABET) and base85(text) == data


integers = st.one_of(
    st.lists(st.integers(0, 3), max_size=80),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=80),
    st.lists(st.integers(-(2**53) + 1, 2**53 - 1), max_size=80),
    st.lists(st.sampled_from([5, 2**40, -1]), max_size=300),
    st.builds(
        lambda a, n, d: [a + i * d for i in range(n)], st.integers(0, 2**40), st.integers(0, 300), st.integers(-5, 900)
    ),
    st.builds(lambda n, v: [v] * n, st.integers(1, 300), st.integers(-(2**53) + 1, 2**53 - 1)),
)


@given(st.lists(integers, max_size=4), st.lists(st.text() | st.sampled_from(strategies.NASTY), max_size=5))
def test_columns_round_trip(columns: list[list[int]], texts: list[str]) -> None:
    text = pack_text(
        [
            *(Column(f"c{i}", np.array(c, dtype=np.int64), "f64") for i, c in enumerate(columns)),
            Column("t", texts, "json"),
        ],
        {"meta": {"x": 1}},
    )
    header, decoded = blob(decompress(text))
    assert header["meta"] == {"x": 1} and decoded["t"] == texts
    for i, values in enumerate(columns):
        assert decoded[f"c{i}"].tolist() == values


def named(values: list[str], indices: np.ndarray) -> list[str | None]:
    return [values[i] or None for i in indices.tolist()]


def assert_written(report: Report, index: int, device: oracle.Device) -> DecodedDevice:
    """Device ``index`` of a decoded report equals the oracle's replay."""
    found, info = report.device(index), report.manifest["devices"][index]
    rows = device.allocations
    assert (info["device"], info["events"], info["allocations"]) == (device.device, len(device.events), len(rows))
    origins = [a.origin for a in rows]
    assert (info["ghosts"], info["freed"]) == (origins.count("ghost"), origins.count("freed"))
    for name, values in zip(("alloc_event", "free_requested_event", "free_event"), found.lifetimes(), strict=True):
        assert values.tolist() == [getattr(a, name) for a in rows], name
    assert found["size"].tolist() == [a.size for a in rows]
    assert found.addresses() == [a.addr for a in rows]
    assert named(info["streams"], found["stream"]) == [None if a.stream is None else str(a.stream) for a in rows]
    assert named(info["contexts"], found["context"]) == [a.compile_context for a in rows]
    assert named(info["metadata"], found["metadata"]) == [a.user_metadata for a in rows]
    stacks = report.stacks()
    assert [stacks[i] for i in found["stack"]] == [a.stack for a in rows]
    assert [stacks[i] for i in found["free_stack"]] == [a.free_stack for a in rows]
    assert found.allocated().tolist() == device.allocated
    assert found.reserved().tolist() == device.reserved
    assert (info["peak_bytes"], info["peak_event"]) == (device.peak_bytes, device.peak_event)
    assert_other_events(found, device, stacks)
    assert_segments(found, device)
    assert_times(found, device)
    for key, value in device.stats().items():
        assert info["stats"][key] == value, key
    return found


def assert_other_events(found: DecodedDevice, device: oracle.Device, stacks: list[oracle.Frames]) -> None:
    events = [device.events[i] for i in device.other_events]
    assert found["other_event"].tolist() == device.other_events
    assert [found.info["actions"][a] for a in found["other_action"]] == [e["action"] for e in events]
    assert found["other_size"].tolist() == [e["size"] for e in events]
    assert found.addresses("other_addr") == [e.get("addr") or 0 for e in events]
    assert [stacks[i] for i in found["other_stack"]] == [oracle.frames_of(e) for e in events]
    pools = [found.info["pools"][index] for index in found["other_pool"]]
    assert pools == [str(e.get("pool_id", e.get("segment_pool_id", ""))) for e in events]
    assert found["other_free"].tolist() == [e["device_free"] + 1 if "device_free" in e else 0 for e in events]


def assert_segments(found: DecodedDevice, device: oracle.Device) -> None:
    segments = device.segments
    assert found.addresses("seg_addr") == [s["address"] for s in segments]
    assert found["seg_size"].tolist() == [s["total_size"] for s in segments]
    assert found["seg_large"].tolist() == [int(s.get("segment_type") == "large") for s in segments]
    assert found["seg_expandable"].tolist() == [int(bool(s.get("is_expandable"))) for s in segments]


def assert_times(found: DecodedDevice, device: oracle.Device) -> None:
    times = [e.get("time_us") for e in device.events]
    if all(t is None for t in times):
        assert found.info["time0"] is None and "time" not in found
        return
    written = (found["time"] + found.info["time0"]).tolist()
    assert len(written) == len(times)
    assert [w for w, t in zip(written, times, strict=True) if t is not None] == [t for t in times if t is not None]


def test_every_column(snapshot_path: Path, report_of: Callable[..., Path]) -> None:
    report = Report(report_of(snapshot_path).read_text(encoding="utf-8"))
    devices = corpus.replayed(snapshot_path)
    assert [d["device"] for d in report.manifest["devices"]] == sorted(devices)
    for index, number in enumerate(sorted(devices)):
        assert_written(report, index, devices[number])


def test_several_files(report_of: Callable[..., Path]) -> None:
    """Two snapshots in one report: stacks are numbered across them, and every device still names its own."""
    paths = [corpus.path_of("small"), corpus.path_of("multi-gpu")]
    report = Report(report_of(*paths).read_text(encoding="utf-8"))
    assert [s["file"] for s in report.manifest["snapshots"]] == [p.name for p in paths]
    wanted = [(n, d) for n, path in enumerate(paths) for d in sorted(corpus.replayed(path).items())]
    assert [(d["snapshot"], d["device"]) for d in report.manifest["devices"]] == [
        (n, number) for n, (number, _) in wanted
    ]
    for index, (_, (_, device)) in enumerate(wanted):
        assert_written(report, index, device)


@settings(max_examples=breadth.examples(25))
@given(strategies.snapshots, strategies.protocols)
def test_random_traces(snapshot: Any, protocol: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "random.pickle", Path(folder) / "random.html"
        path.write_bytes(strategies.pickled(snapshot, protocol))
        snapreport.write_report([snapreport.load(path)], out)
        report = Report(out.read_text(encoding="utf-8"))
    for index, (_, device) in enumerate(sorted(oracle.replay(snapshot).items())):
        assert_written(report, index, device)


@pytest.mark.parametrize("text", strategies.NASTY)
def test_hostile_strings_stay_text(tmp_path: Path, text: str) -> None:
    """In the static page they are escaped, in the blobs they are exact; none of them becomes an element."""
    from html.parser import HTMLParser

    from test_bad_input import ALLOC, GOOD

    path, out = tmp_path / "hostile.pickle", tmp_path / "hostile.html"
    frames = [{"filename": text + ".py", "line": 1, "name": text}]
    event = ALLOC | {"frames": frames, "user_metadata": text, "compile_context": text, "addr": 9, "size": 1 << 20}
    path.write_bytes(
        strategies.pickled(
            GOOD
            | {
                "device_traces": [[event, {"action": text or "x", "addr": 1, "size": 1, "stream": 0}]],
                "allocator_settings": {"conf" + text: text},
                "external_annotations": [{"name": text, "stage": "START", "device": 0, "time_us": 1}],
            },
            4,
        )
    )
    snapreport.write_report([snapreport.load(path)], out, title=text or None)
    html = out.read_text(encoding="utf-8")
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(html)
    assert tags.count("script") == 1 + len(Report(html).blobs)
    assert "alert(1)" not in html or "&lt;script&gt;alert(1)" in html
    report, text = Report(html), oracle.text(text)
    assert any(frame[2] == text and frame[0] == text + ".py" for stack in report.stacks() for frame in stack)
    device = report.device(0)
    assert text in device.info["metadata"] and (text or "x") in device.info["actions"]
    assert report.manifest["snapshots"][0]["settings"] == {"conf" + text: text}
    assert report.manifest["annotations"][0][1] == text
