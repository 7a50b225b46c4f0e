"""A part of a trace against the whole: the oracle's replay of every event, of which only a range is looked at."""

from __future__ import annotations

import itertools
import pickle
import re
from pathlib import Path
from typing import Any

import answers
import cli
import corpus
import numpy as np
import polars as pl
import pytest

import snapreport
from snapreport.findings.run import findings
from snapreport.report.build import build_report
from snapreport.report.stats_text import stats_text
from snapreport.timeline.state import state_at

OOM = "expandable_oom_3gpu.pickle"
NAMES = ["small", "oom", "expandable", "pools", "churn", "leak", "multi-gpu", "layout-2.1", "no-stacks"]
NAMES += [name for name in (OOM, "trimmed_inconsistent.pickle") if name in corpus.real_names()]


def ranges(count: int) -> list[tuple[int, int]]:
    """Beginning, middle and end of a trace, one event, and all of it."""
    third = count // 3
    return [(0, third), (third, 2 * third), (third, third + 1), (2 * third, count), (0, count)]


@pytest.mark.parametrize("name", NAMES)
def test_a_part_is_what_the_whole_shows_there(name: str) -> None:
    path = corpus.path_of(name)
    snapshot = snapreport.load(path)
    wholes = corpus.replayed(path)
    for first, end in ranges(max(len(whole.events) for whole in wholes.values())):
        if first == end:
            continue
        part = snapshot.part(events=(first, end))
        for device, whole in wholes.items():
            begin, stop = min(first, len(whole.events)), min(end, len(whole.events))
            timeline = part.timeline(device)
            assert timeline.allocated.tolist() == whole.allocated[begin : stop + 1]
            assert timeline.reserved.tolist() == whole.reserved[begin : stop + 1]
            assert timeline.events["action"].to_list() == [event["action"] for event in whole.events[begin:stop]]
            for position in sorted({-1, (stop - begin) // 2 - 1, stop - begin - 1}):
                live = [whole.allocations[i] for i in whole.live_at(position + begin)]
                rows = timeline.allocations.filter(
                    (pl.col("alloc_event") <= position)
                    & ((pl.col("free_event") < 0) | (pl.col("free_event") > position))
                )
                found = [
                    (row["addr"], row["size"], row["alloc_event"], row["free_event"], part.frames(row["stack"]).rows())
                    for row in rows.iter_rows(named=True)
                ]
                wanted = [
                    (
                        a.addr, a.size, max(a.alloc_event - begin, -1),
                        a.free_event - begin if 0 <= a.free_event < stop else -1, list(a.stack),
                    )
                    for a in live
                ]  # fmt: skip
                assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_at_the_end_of_a_part(name: str) -> None:
    snapshot = snapreport.load(corpus.path_of(name))
    for device in snapshot.devices:
        whole = snapshot.timeline(device)
        count = len(whole.events)
        if count < 3:
            continue
        part = snapshot.part(events=(count // 3, 2 * count // 3)).timeline(device)
        there, here = state_at(whole, 2 * count // 3 - 1), state_at(part, len(part.events) - 1)
        assert here.segments.equals(there.segments)
        columns = ["segment", "address", "size", "requested", "state"]
        assert here.blocks.select(columns).equals(there.blocks.select(columns))
        final = snapshot.part(last=2).recording.devices[device]
        assert final.blocks.drop("stack").equals(snapshot.recording.devices[device].blocks.drop("stack"))


@pytest.mark.parametrize("name", ["small", "multi-gpu", "oom"])
def test_categories_are_those_of_the_whole(name: str) -> None:
    snapshot = snapreport.load(corpus.path_of(name))
    for device in snapshot.devices:
        whole = snapshot.allocations(device)
        first = len(snapshot.events(device)) // 2
        part = snapshot.part(events=(first, None)).allocations(device)
        seen = whole.filter((pl.col("free_event") < 0) | (pl.col("free_event") >= first))
        columns = ["addr", "size", "category", "category_source", "user_metadata"]
        assert part.select(columns).sort(columns).equals(seen.select(columns).sort(columns))
        assert len(part.filter(pl.col("category") != "unknown"))


def test_an_address_that_is_used_again_over_the_cut() -> None:
    """The same address belongs to an allocation before the cut, to one over it, and to one after it."""

    def event(action: str, size: int, time: int) -> dict[str, Any]:
        frames = [{"filename": f"{size}.py", "line": size, "name": "f"}]
        return {"action": action, "addr": 512, "size": size, "stream": 0, "time_us": time, "frames": frames}

    events = []
    for size in (100, 200, 300):
        events += [event(action, size, len(events)) for action in ("alloc", "free_requested", "free_completed")]
    snapshot = {"segments": [], "device_traces": [events]}
    folder = corpus.scratch()
    (folder / "reused.pickle").write_bytes(pickle.dumps(snapshot))
    whole = snapreport.load(folder / "reused.pickle")
    for first, end in itertools.combinations(range(10), 2):
        part = whole.part(events=(first, end))
        want = [
            (size, max(born - first, -1), born + 2 - first if born + 2 < end else -1)
            for size, born in ((100, 0), (200, 3), (300, 6))
            if born < end and born + 2 >= first
        ]
        rows = part.allocations(0).select("size", "alloc_event", "free_event").rows()
        assert sorted(rows) == want
        assert [part.frames(stack).rows() for stack in part.allocations(0)["stack"]] == [
            [(f"{size}.py", size, "f")] for size, _, _ in rows
        ]
        assert part.curve(0)["allocated"].to_list() == whole.curve(0)["allocated"].to_list()[first : end + 1]
    # With completions cut off: the request alone must not count as the end of the block.
    assert whole.part(events=(3, 5)).allocations(0)["free_event"].to_list() == [-1]


@pytest.mark.parametrize("name", ["small", "leak", "oom", "overlap"])
def test_findings_of_parts_that_end_anywhere(name: str) -> None:
    """Also between the request of a free and its completion."""
    snapshot = snapreport.load(corpus.path_of(name))
    count = len(snapshot.events(snapshot.devices[0]))
    for cut in range(1, count, count // 6):
        for part in (snapshot.part(events=(None, cut)), snapshot.part(events=(cut, None))):
            peaks = {f.device: f.evidence["peak_bytes"] for f in findings(part) if f.kind == "peak"}
            assert all(size == part.peak(device)["allocated"] for device, size in peaks.items())


@pytest.mark.parametrize(("ninth", "length"), [*enumerate([7, 9, 14, 20, 31, 46, 70, 97, 142])])
def test_findings_of_short_parts(ninth: int, length: int) -> None:
    """So many events anywhere in recordings of ours, some without one allocation."""
    rng = np.random.default_rng(1)
    for path in answers.paths()[ninth::9]:
        snapshot = snapreport.load(path)
        count = max(len(snapshot.events(device)) for device in snapshot.devices)
        for first in rng.integers(0, max(1, count - length), 3).tolist() if count else ():
            findings(snapshot.part(events=(first, min(count, first + length))))


def test_steps_keep_their_numbers() -> None:
    snapshot = snapreport.load(corpus.path_of("multi-gpu"))
    device = snapshot.devices[0]
    steps = snapshot.steps(device)
    number, name, first, last = steps.select("step", "name", "first_event", "last_event").row(1)
    part = snapshot.part(steps=(number, number + 1))
    assert part.steps(device).select("step", "name", "first_event", "last_event").rows() == [
        (number, name, 0, last - first)
    ]
    assert part.events(device)["time_us"].to_list() == snapshot.events(device)["time_us"].to_list()[first : last + 1]


def test_steps_and_spans_are_cut_where_the_part_is() -> None:
    snapshot = snapreport.load(corpus.path_of("zeroed.pickle.xz"))
    whole = snapshot.timeline(0).annotated.spans
    first, last = whole.select("first_event", "last_event").row(0)
    cuts = [(first, last + 1), (first + 1, last + 1), (first, last), (first + 3, last - 4)]
    for begin, end in cuts:
        part = snapshot.part(events=(begin, end))
        (span,) = part.timeline(0).annotated.spans.rows(named=True)
        starts, ends = begin == first, end == last + 1
        assert (span["first_event"], span["last_event"]) == (0, end - 1 - begin)
        assert (span["starts"], span["ends"]) == (starts, ends)
        assert (span["start_us"], span["end_us"]) == (
            whole["start_us"][0] if starts else None,
            whole["end_us"][0] if ends else None,
        )
        steps = snapshot.steps(0).filter((pl.col("first_event") < end) & (pl.col("last_event") >= begin))
        assert part.steps(0).select("first_event", "last_event").rows() == [
            (max(one, begin) - begin, min(other, end - 1) - begin)
            for one, other in steps.select("first_event", "last_event").rows()
        ]


def test_only_what_is_freed_in_the_part_has_a_free() -> None:
    part = snapreport.load(corpus.path_of("small")).part(events=(1000, 2000))
    table = part.allocations(0)
    is_freed = (table["free_event"] >= 0) | (table["free_requested_event"] >= 0)
    assert 0 < is_freed.sum() < len(table)
    assert (table.filter(~is_freed)["free_stack"] == 0).all() and (table.filter(is_freed)["free_stack"] > 0).all()


def test_lost_events_are_those_before_the_first() -> None:
    snapshot = snapreport.load(corpus.path_of("truncated"))
    overflowed = snapshot.timeline(0).overflowed
    assert overflowed is not False
    parts = [snapshot.part(events=cut).timeline(0).overflowed for cut in ((0, 50), (1, 50), (None, None))]
    assert parts == [overflowed, False, overflowed]


def test_the_failure_at_the_end_stays() -> None:
    path = corpus.path_of("oom")
    whole, part = snapreport.load(path), snapreport.load(path, last=50)
    device = next(d for d in whole.devices if whole.timeline(d).oom_events)
    count = len(whole.events(device))
    assert part.timeline(device).oom_events == [e - count + 50 for e in whole.timeline(device).oom_events]
    first = [stats_text(snapshot).splitlines()[2].partition(".")[0] for snapshot in (whole, part)]
    assert first[0] == first[1] and first[0].startswith("Out of memory on ")


def test_the_page_and_the_text_say_what_was_left_out() -> None:
    snapshot = snapreport.load(corpus.path_of("small"))
    part = snapshot.part(events=(10, 210))
    count = len(snapshot.events(0))
    said = f"events 10 to 209 of {count:,}, numbered from 0 here"
    for text in (stats_text(part), build_report([part]).decode()):
        plain = re.sub(r"\s+", " ", text)
        assert said in plain and "a part of its trace" in plain
    assert "<h1>small.pickle, a part of its trace</h1>" in build_report([part]).decode()
    assert part.stats()["notes"]["part"] == f"cuda:0 has {said}"
    text = re.sub(r"\s+", " ", stats_text(part))
    for wrong in ("recording started", "recording stopped", "blocks of the final state", "Frees without"):
        assert wrong not in text
    assert len(build_report([part])) < len(build_report([snapshot]))


def test_stacks_that_nothing_uses_are_left_out() -> None:
    snapshot = snapreport.load(corpus.path_of("small"))
    part = snapshot.part(last=20).recording
    assert len(part.stack_offsets) < len(snapshot.recording.stack_offsets)
    assert set(np.unique(part.stack_frames)) == set(range(len(part.frames)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--events", "5:3"], "'5:3' is not a range of numbers from 0"),
        (["--events", "x"], "'x' is not a range of numbers from 0"),
        (["--steps", "1:2", "--last", "3"], "--last and --steps choose different parts of a trace"),
        (["--events", "999999:"], "nothing is in the chosen part: cuda:0 has "),
        (["--steps", "77:78"], "nothing is in the chosen part: "),
    ],
)
def test_parts_that_are_none(arguments: list[str], message: str) -> None:
    done = cli.in_process("stats", corpus.path_of("small"), *arguments)
    assert done.code == 2
    assert message in done.err and done.err.count("\n") == 1


def test_the_command_line(tmp_path: Path) -> None:
    path = corpus.path_of("small")
    whole = cli.in_process("stats", path, "--json").json["snapshots"][0]["devices"][0]
    part = cli.in_process("stats", path, "--json", "--last", 100).json["snapshots"][0]["devices"][0]
    assert (part["events"], part["end_allocated_bytes"]) == (100, whole["end_allocated_bytes"])
    output = tmp_path / "part.html"
    assert cli.in_process(path, "-o", output, "--events", ":100").code == 0
    assert "events 0 to 99 of" in output.read_text()
