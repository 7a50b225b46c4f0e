"""What a program does, and what its trace has lost, at each limit of a rule: on a few events, by hand."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec import UNSET
from test_life_phases import table_of

import snapreport
from snapreport.reading.recording import Part
from snapreport.timeline import recording_gaps as gaps
from snapreport.timeline.activity import (
    GRAPH_DROPPED,
    INFERENCE,
    TRAINING,
    UNKNOWN,
    Activity,
    device_activity,
    engine_allocations,
    program_activity,
)
from snapreport.timeline.annotations import _regions
from snapreport.timeline.categories import StackCategories, apply_recorded, stack_and_free_categories
from snapreport.timeline.module_tree import modules_source
from snapreport.timeline.own_code import own_functions
from snapreport.timeline.phases import BACKWARD, FORWARD, NONE, OPTIMIZER_STEP, PHASES, StackPhases
from snapreport.timeline.recorded_totals import RecordedPeaks, recorded_peaks
from snapreport.vocabulary import CATEGORIES, CATEGORY_SOURCES

MIB = 1 << 20
LINES = 40
"""Stacks from 1 on, half of them: lines of forward passes. Then lines of the program, with a backward pass and a step.
"""
OTHER, STEPS, BACKWARDS = LINES, LINES + 1, LINES + 2


def phases() -> StackPhases:
    innermost = np.array([NONE, *[FORWARD] * (LINES - 1), NONE, OPTIMIZER_STEP, BACKWARD], np.uint8)
    return StackPhases(innermost, (1 << innermost).astype(np.uint8), np.zeros(len(innermost)), innermost > 99)


def activity(*groups: tuple[list[int], bool, int], older: tuple[int, ...] = (), oom: bool = False) -> tuple[str, int]:
    """(kind, bytes of the graph) of groups (stacks, whether they are freed together at their end, stack that frees).
    Before the trace, others are by ``older``.
    """
    events: list[tuple[str, int]] = []
    lives = [(-1, -1, stack, 0) for stack in older]
    for stacks, is_freed, by in groups:
        born = len(events)
        events += [("alloc", stack) for stack in stacks]
        if oom:
            events.append(("oom", 0))
        for at, stack in enumerate(stacks):
            lives.append((born + at, len(events) if is_freed else -1, stack, by if is_freed else 0))
            if is_freed:
                events.append(("free_completed", by))
    alloc, free, stack, free_stack = (np.array(column, np.int32) for column in zip(*lives, strict=True))
    table = pl.DataFrame({
        "alloc_event": alloc, "free_requested_event": np.full(len(alloc), -1, np.int32), "free_event": free,
        "size": np.full(len(alloc), 8), "stack": stack, "free_stack": free_stack,
    })  # fmt: skip
    found = device_activity(table_of(events), table, phases())
    return found.kind, found.graph_bytes


def test_graphs_that_are_dropped() -> None:
    """Sixteen allocations of five lines that the program frees together."""
    graph = [1, 2, 3, 4, 5] * 4
    assert activity((graph[:16], True, OTHER)) == (GRAPH_DROPPED, 16 * 8)
    assert activity((graph[:15], True, OTHER)) == (INFERENCE, 0)
    assert activity((graph[:16], True, 1)) == (INFERENCE, 0)  # a forward pass frees its temporaries
    assert activity((graph[:16], True, OTHER), (graph, True, OTHER)) == (GRAPH_DROPPED, 20 * 8)  # the largest
    assert activity(([1, 2, 3] * 6, True, OTHER))[0] == GRAPH_DROPPED
    assert activity(([1, 2] * 9, True, OTHER))[0] == INFERENCE


@pytest.mark.parametrize(("others", "kind"), [(2, GRAPH_DROPPED), (3, INFERENCE)])
def test_few_lines_are_a_graph_if_most_are_in_it(others: int, kind: str) -> None:
    """Three of five lines that a forward pass runs, the others free what they make."""
    events: list[tuple[str, int]] = []
    lives = []
    for at in range(18):
        lives.append([len(events), -1, 1 + at % 3, OTHER])
        events.append(("alloc", 1 + at % 3))
        if 0 < at <= others:
            lives.append([len(events), len(events) + 1, 9 + at, 9 + at])
            events += [("alloc", 9 + at), ("free_completed", 9 + at)]
    for life in lives:
        if life[1] < 0:
            life[1] = len(events)
            events.append(("free_completed", OTHER))
    alloc, free, stack, free_stack = (np.array(column, np.int32) for column in zip(*lives, strict=True))
    none = np.full(len(alloc), -1, np.int32)
    columns = {"alloc_event": alloc, "free_requested_event": none, "free_event": free, "stack": stack}
    table = pl.DataFrame(columns | {"size": np.full(len(alloc), 8), "free_stack": free_stack})
    assert device_activity(table_of(events), table, phases()).kind == kind


def test_a_pass_that_never_ended_leaves_the_question_open() -> None:
    graph = [1, 2, 3, 4, 5] * 4
    assert activity((graph, False, 0)) == (UNKNOWN, 0)
    assert activity((graph, False, 0), older=(BACKWARDS,)) == (TRAINING, 0)
    assert activity((graph, False, 0), older=(STEPS,)) == (TRAINING, 0)
    assert activity((graph, False, 0), older=(OTHER, 3)) == (UNKNOWN, 0)
    assert activity((graph, True, OTHER), oom=True) == (UNKNOWN, 0)  # it ran out of memory before
    # A tenth of all that forward passes allocate.
    assert activity(([7] * 180, True, 7), (graph, False, 0)) == (UNKNOWN, 0)
    assert activity(([7] * 181, True, 7), (graph, False, 0)) == (INFERENCE, 0)


def test_few_allocations_say_nothing() -> None:
    assert activity(([1] * 10, True, 1)) == (INFERENCE, 0) and activity(([1] * 9, True, 1)) == (UNKNOWN, 0)
    assert activity(([OTHER] * 30, True, OTHER)) == (UNKNOWN, 0)
    assert activity(([STEPS], True, STEPS)) == (TRAINING, 0)


@pytest.mark.parametrize(("count", "kind"), [(7, UNKNOWN), (8, TRAINING)])
def test_allocations_of_the_engine_are_training(count: int, kind: str) -> None:
    assert activity(([OTHER] + [0] * count, True, OTHER))[0] == kind
    assert activity(([0] * 20, True, 0))[0] == UNKNOWN  # no stack traces at all
    assert engine_allocations(table_of([("alloc", 0), ("alloc", 1), ("oom", 0)])).tolist() == [True, False, False]
    assert not engine_allocations(table_of([("alloc", 0), ("oom", 1)])).any()


def test_events_by_phase() -> None:
    """Those of the engine are of the backward pass; a step that is innermost nowhere runs around others."""
    innermost, every = np.array([NONE, NONE, FORWARD, BACKWARD, FORWARD], np.uint8), [0, 0, 2, 4, 2 + 8]
    table = pl.DataFrame({"stack": np.array([4], np.int32)})

    def found(*stacks: int) -> tuple[str, dict[str, int], tuple[str, ...]]:
        one = device_activity(
            table_of([("alloc", stack) for stack in stacks]),
            table,
            StackPhases(innermost, np.array(every, np.uint8), np.zeros(5), np.zeros(5, bool)),
        )
        return one.kind, one.events, one.outer

    assert found(1, 3, 3, 2) == (TRAINING, {"forward": 1, "backward": 2}, ())
    assert found(1, *[0] * 8) == (TRAINING, {"backward": 8}, ())
    assert found(3, *[0] * 8) == (TRAINING, {"backward": 9}, ())
    assert found(3, *[0] * 7) == (TRAINING, {"backward": 1}, ())
    assert found(4, 4) == (TRAINING, {"forward": 2}, ("optimizer step",))


@pytest.mark.parametrize(
    ("own", "others", "kind"),
    [
        (INFERENCE, [TRAINING], INFERENCE),  # a teacher
        (UNKNOWN, [TRAINING], TRAINING),
        (INFERENCE, [UNKNOWN], UNKNOWN),
        (INFERENCE, [GRAPH_DROPPED, UNKNOWN], GRAPH_DROPPED),
        (UNKNOWN, [INFERENCE], UNKNOWN),
        (INFERENCE, [INFERENCE], INFERENCE),
        (INFERENCE, [], INFERENCE),
        ("idle", [INFERENCE], UNKNOWN),
        ("idle", [GRAPH_DROPPED], UNKNOWN),
        ("idle", [TRAINING], UNKNOWN),
        (INFERENCE, ["idle"], INFERENCE),
    ],
)
def test_devices_of_a_program_do_the_same(own: str, others: list[str], kind: str) -> None:
    """``idle``: without a forward pass."""

    def one(name: str) -> Activity:
        return Activity(UNKNOWN, {}) if name == "idle" else Activity(name, {"forward": 9})

    assert program_activity(one(own), [one(name) for name in others]).kind == kind


def timeline(events: int = 1000, **more: Any) -> Any:
    """Of a device with these attributes; ``part``: (first, end, all) of its events, ``options`` of the recorder."""
    part = Part(*more["part"]) if "part" in more else None
    stats = {f"{what}_bytes.all.peak": size for what, size in more.get("peaks", {}).items()}
    recorder = SimpleNamespace(options=more.get("options", {}), devices={0: SimpleNamespace(stats=stats)})
    recording = SimpleNamespace(
        devices={0: SimpleNamespace(part=part)}, settings=more.get("settings", {}),
        recorder=recorder if "options" in more or "peaks" in more else None,
    )  # fmt: skip
    return SimpleNamespace(
        recording=recording, device=0, kind=more.get("kind", "cuda"), events=range(events), peak_bytes=100,
        overflowed=more.get("overflowed"), reserved=np.array([more.get("reserved", 5), 300, 20]),
    )  # fmt: skip


def test_which_numbers_of_events_are_limits() -> None:
    limits = [100, 300, 900, 1000, 1024, 1500, 2048, 2500, 7500, 20_000, 25_000, 65_536, 100_000, 150_000]
    others = [1, 10, 64, 90, 99, 101, 110, 150, 512, 750, 1100, 1200, 1300, 3500, 65_535, 65_537, 25_001]
    assert [count for count in sorted(limits + others) if gaps._is_round(count)] == limits


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"overflowed": True}, "overflowed"),
        ({"overflowed": False}, None),
        ({}, "full"),
        ({"reserved": 0}, None),
        ({"events": 1001}, None),
        ({"settings": {gaps.MAX_ENTRIES: 1000}, "reserved": 0}, "full"),
        ({"settings": {gaps.MAX_ENTRIES: 1001}}, None),
        ({"settings": {gaps.MAX_ENTRIES: 1}}, "full"),
        ({"settings": {gaps.MAX_ENTRIES: True}, "events": 1001}, None),
        ({"settings": {gaps.MAX_ENTRIES: 0}, "events": 1001}, None),
        ({"options": {"max_entries": "900"}, "events": 901}, "full"),
        ({"options": {"max_entries": "9000"}}, None),
        ({"options": {"max_entries": "many"}, "events": 1001}, None),
        ({"options": {}, "events": 1001}, None),
        ({"part": (0, 10, 1000), "events": 10}, "full"),
        ({"part": (0, 1000, 1001)}, None),
    ],
)
def test_whether_a_ring_is_full(given: dict[str, Any], key: str | None) -> None:
    found = gaps._ring(timeline(**given))
    assert (found and found.key) == key
    assert gaps.lost_events(timeline(**given)) == (key is not None)


def test_parts_begin_later_and_end_earlier() -> None:
    whole, early, late = timeline(7), timeline(7, part=(0, 7, 9)), timeline(7, part=(1, 8, 8))
    starts = ["before recording started", "before recording started", "before the first event"]
    ends = ["when recording stopped", "at the end of this part", "when recording stopped"]
    assert [gaps.recording_start(one) for one in (whole, early, late)] == starts
    assert [gaps.recording_end(one) for one in (whole, early, late)] == ends


@pytest.mark.parametrize(
    ("reserved", "peak", "is_earlier"),
    [
        (256, 192, True), (256, 193, False), (100, 36, True), (100, 37, False), (1024, 768, True), (1024, 769, False),
        (63, 0, False), (64, 0, True),
    ],
)  # fmt: skip
def test_more_was_reserved_than_is_ever_filled(reserved: int, peak: int, is_earlier: bool) -> None:
    """64 MiB, and a quarter of what was reserved."""
    assert gaps.shows_earlier_peak(reserved * MIB, peak * MIB) is is_earlier


PEAKS = {"requested": 100, "allocated": 120, "reserved": 300}


@pytest.mark.parametrize(
    ("given", "is_known"),
    [
        ({}, True),
        ({"requested": 99}, False),
        ({"reserved": 299}, False),
        ({"requested": 99, "reserved": 299}, False),
        ({"requested": 900, "reserved": 900}, True),
    ],
)
def test_peaks_that_the_recorder_noted(given: dict[str, int], is_known: bool) -> None:
    """Not where the trace has more: the program has reset them."""
    found = recorded_peaks(timeline(peaks=PEAKS | given))
    assert found == (RecordedPeaks(*(PEAKS | given).values()) if is_known else None)
    assert recorded_peaks(timeline(peaks=PEAKS | given, kind="host")) is recorded_peaks(timeline()) is None


def test_a_peak_that_was_lost() -> None:
    higher = PEAKS | {"requested": 101}
    assert gaps.lost_peaks(timeline(peaks=higher)) == RecordedPeaks(101, 120, 300)
    assert gaps.lost_peaks(timeline(peaks=PEAKS)) is None
    assert gaps.lost_peaks(timeline(peaks=higher, overflowed=False)) is None
    assert gaps.lost_peaks(timeline(peaks=higher, part=(0, 10, 1000))) is None
    assert recorded_peaks(timeline(peaks={"requested": 900, "reserved": 900})) is None


def test_an_earlier_peak_was_higher() -> None:
    """Not where the recorder noted the same one: then a private pool has reserved the rest."""
    found = gaps._earlier_peak(timeline(reserved=256 * MIB, events=999))
    assert found and found.remedy == gaps.START_EARLY and found.sentence.startswith("256 MiB were already reserved")
    full = gaps._earlier_peak(timeline(reserved=256 * MIB))
    assert full and full.remedy == ""  # no earlier start helps a ring that is full
    assert gaps._earlier_peak(timeline()) is None
    same = {"requested": 100, "allocated": 120, "reserved": 256 * MIB}
    assert gaps._earlier_peak(timeline(reserved=256 * MIB, peaks=same)) is None
    assert gaps._earlier_peak(timeline(reserved=256 * MIB, peaks=same | {"requested": 101})) is not None


def test_a_total_of_its_own() -> None:
    one = timeline()
    one.allocated = np.array([0, 10, 20, 15])
    for counted, said in (([10, 20, 15], ""), ([10, 23, 11], "up to 4 B"), ([6, 20, 15], "up to 4 B"), (None, "")):
        one.recording.devices[0].counted_allocated = None if counted is None else np.array(counted)
        found = gaps._other_total(one)
        assert (said in found.sentence) if found else not said


def older(*rows: tuple[int, int], segments: list[tuple[int, int, int, int]], events: int = 10) -> str:
    """What is said of blocks of 8 bytes at (address, event of the free) that count as older than the trace.
    ``segments``: (address, size, event of the allocation, of the free).
    """
    address, freed = (np.array(column) for column in zip(*rows, strict=True))
    one: Any = SimpleNamespace(events=range(events))
    one.allocations = pl.DataFrame({
        "addr": address.astype(np.uint64), "size": np.full(len(rows), 8), "alloc_event": np.full(len(rows), -1),
        "free_event": freed,
    })  # fmt: skip
    names = {"address": pl.UInt64, "size": pl.Int64, "alloc_event": pl.Int32, "free_event": pl.Int32}
    one.segment_history = pl.DataFrame(segments, names, orient="row")
    found = gaps._missing_allocations(one)
    return found.sentence if found else ""


def test_blocks_in_a_segment_of_the_trace_were_allocated_in_it() -> None:
    new, old = (100, 50, 3, -1), (200, 50, -1, -1)
    assert older((120, 5), (210, 5), segments=[new, old]).startswith("1 allocation of 8 B in all")
    assert older((120, -1), (100, 4), (149, 8), segments=[new, old]).startswith("3 allocations of 24 B")
    assert older((150, 5), (99, 5), (120, 3), segments=[new, old]) == ""  # beside it, or before it was there
    assert older((120, 9), segments=[(100, 50, 9, -1), old]) == "" != older((120, -1), segments=[(100, 50, 9, -1), old])
    assert older((120, 9), segments=[(100, 50, 3, 9), old]) != "" == older((120, 9), segments=[(100, 50, 3, 8), old])
    assert older((120, 5), segments=[]) == older((210, 0), segments=[old]) == ""


def test_addresses_that_were_still_in_use() -> None:
    one: Any = SimpleNamespace(events=table_of([("alloc", 1), ("alloc", 1), ("free_completed", 1), ("alloc", 1)]))
    for freed, said in (([0, 2], "1 free "), ([1, 3], "2 frees "), ([2, -1], ""), ([-1], "")):
        one.allocations = pl.DataFrame({"free_event": freed})
        found = gaps._missing_frees(one)
        assert found.sentence.startswith(said) if found else not said


@pytest.mark.parametrize("has_times", [True, False])
def test_regions_that_lie_outside_of_the_trace(has_times: bool) -> None:
    """Five events, at 10 to 50 µs; (name, stage, time)."""
    given = [
        ("before", "START", 1), ("before", "END", 2), ("in", "START", 15), ("within", "START", 20),
        ("within", "END", 30), ("in", "END", 45), ("early", "END", 35), ("none", "END", 9), ("late", "START", 40),
        ("after", "START", 51), ("after", "END", 60), ("none", "START", 55), ("in", "MIDDLE", 5), ("in", "END", None),
    ]  # fmt: skip
    clock = np.arange(10, 60, 10)
    name, stage, when = (list(column) for column in zip(*given, strict=True))
    times = np.array([0 if time is None else time for time in when])
    boundaries = pl.DataFrame({
        "group": np.zeros(len(given), np.int64), "name": name, "stage": stage, "when": when,
        "first": np.searchsorted(clock, times, "left"), "after": np.searchsorted(clock, times, "right"),
    })  # fmt: skip
    spans, broken = _regions(boundaries, len(clock), clock if has_times else None)
    assert broken == {
        "unknown_stage": 1, "untimed": 1, "unpaired_starts": 2, "unpaired_ends": 2, "outside": 4,
    }  # fmt: skip
    found = spans.select("name", "first_event", "last_event", "depth", "start_us", "end_us").rows()
    expected = [
        ("early", 0, 2, 0, None, 35), ("in", 1, 3, 1, 15, 45), ("within", 1, 2, 2, 20, 30), ("late", 3, 4, 0, 40, None),
    ]  # fmt: skip
    assert found == [row if has_times else (*row[:4], None, None) for row in expected]


def test_categories_that_the_recording_states() -> None:
    codes, source = np.array([1, 2, 3, 4], np.uint8), np.array([2, 2, 2, 2], np.uint8)
    apply_recorded(codes, source, pl.Series(["Grads", None, "kv_cache", "something"]))
    assert [CATEGORIES[code] for code in codes.tolist()] == ["gradient", CATEGORIES[2], "kv cache", "unknown"]
    assert source.tolist() == [1, 2, 1, 0]


@pytest.mark.parametrize("seed", range(4))
def test_categories_of_stacks_and_frees(seed: int) -> None:
    """Allocation by allocation, on random tables: what its stack makes, in a short life or a long one, and how it is
    freed.
    """
    rng = np.random.default_rng(seed)
    stacks, count = 24, 800

    def some(*values: int, size: int = stacks) -> np.ndarray:
        return rng.choice(np.array(values, np.uint8), size)

    is_own, limit = some(0, 0, 1).astype(bool), rng.integers(1, 9, stacks).astype(np.int32)
    phase, long, short, freed = some(*range(7)), some(0, 0, *range(10)), some(0, *range(10)), some(0, 0, 2, 4)
    of_stacks = StackPhases(phase, phase, np.zeros(stacks), phase > 99)
    uncertain = some(0, 0, 1).astype(bool)
    table = pl.DataFrame({
        "alloc_event": rng.integers(-1, 5, count), "free_event": rng.integers(-1, 14, count),
        "stack": rng.integers(0, stacks, count), "free_stack": rng.integers(0, stacks, count),
    })  # fmt: skip
    lives: Any = SimpleNamespace(
        engine=some(0, 0, 0, 1, size=count) > 0, within=some(0, 1, size=count) > 0,
        freed=some(*range(7), size=count), born=some(*range(7), size=count),
    )  # fmt: skip
    by_stack = StackCategories(long, short, is_own, limit, freed, of_stacks, uncertain)
    codes, sources = stack_and_free_categories(by_stack, table, lives)
    for row, (alloc, free, stack, by) in enumerate(table.rows()):
        engine, end = bool(lives.engine[row]), PHASES[lives.freed[row]]
        runs = "backward" if engine else PHASES[phase[stack]]
        is_short = alloc >= 0 and 0 < free - alloc <= limit[stack]
        if runs in ("backward", "optimizer step") and not is_own[stack]:
            is_short = bool(lives.within[row])
        elif runs == "forward" and not is_own[stack]:
            is_short = is_short and end == "forward"
        category = CATEGORIES[(short if is_short else long)[stack]]
        source = "inferred" if uncertain[stack] and not is_short else "stack" if category != "unknown" else "unknown"
        before = category
        if end == "zero_grad" and not is_own[stack] and PHASES[lives.born[row]] != "zero_grad":
            category = "gradient"
        elif category == "unknown" and freed[by] and by != stack:
            category = CATEGORIES[freed[by]]
        elif category == "unknown" and not engine and end == "backward":
            category = "activation"
        elif category == "unknown" and not engine and end == "optimizer step" and alloc < 0:
            category = "temporary" if lives.within[row] else "optimizer state"
        elif category == "kv cache" and end == "backward" and not is_own[stack]:
            category = "activation"
        source = source if category == before else "freed in"
        assert (CATEGORIES[codes[row]], sources[row]) == (category, CATEGORY_SOURCES.index(source))


def test_the_line_of_the_program_names_a_stack(tmp_path: Path) -> None:
    """Its innermost; without one PyTorch's innermost of Python, and without Python a node of autograd or a function."""
    torch = "/env/site-packages/torch/nn/modules/linear.py"
    stacks = {
        "net model.py": ((torch, "forward"), ("/app/model.py", "net"), ("/app/train.py", "step")),
        "forward linear.py": ((torch, "forward"), (torch, "_call_impl")),
        "MulBackward0::apply": (("??", "at::native::empty_cuda(long)"), ("??", "MulBackward0::apply(int)")),
    }
    events = [
        {"action": "alloc", "addr": (at + 1) << 20, "size": 512, "stream": 0,
         "frames": [{"filename": file, "line": 7, "name": name} for file, name in frames]}
        for at, frames in enumerate(stacks.values())
    ]  # fmt: skip
    path = tmp_path / "stacks.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}))
    snapshot = snapreport.load(path)
    names = own_functions(snapshot.recording).to_list()
    assert [names[stack] for stack in snapshot.events(0)["stack"].to_list()] == list(stacks)


def test_how_modules_are_known() -> None:
    def source(*values: str | None) -> Any:
        table = pl.DataFrame({"module_source": pl.Series(values, dtype=pl.String)})
        return modules_source(SimpleNamespace(allocations=table))  # type: ignore[arg-type]

    assert source(None, "recorded") == "recorded" and source("inferred", None) == "inferred" and source(None) is UNSET
