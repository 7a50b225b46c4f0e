"""What repeats and what grows with it, on tables of a few allocations: by plain loops, or by hand at each limit."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scripted import Script
from test_findings_advice import FORWARD, OPTIMIZER, WEIGHTS

import snapreport
from snapreport.findings import allocation_growth, loop_end, loop_lines, reference_cycles, repetition
from snapreport.findings.allocation_growth import LoopMemory, levels_of, loop_allocations, loop_memory, single_growths
from snapreport.findings.repetition import Repetitions
from snapreport.reading.recording import ACTIONS
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.curves import allocated_curve

MIB = 1 << 20
STEPS, LENGTH = 8, 20  # repetitions, and events of each


@dataclass(eq=False)
class Recorded:
    """What is read of a recording here."""

    frames: pl.DataFrame
    stack_offsets: np.ndarray
    stack_frames: np.ndarray


Row = tuple[int, int, int, int, str]  # stack, bytes, event of its allocation, of its free, category


def table_of(rows: list[Row]) -> pl.DataFrame:
    kinds = {"stack": pl.Int32, "size": pl.Int64, "alloc_event": pl.Int32, "free_event": pl.Int32}
    table = pl.DataFrame(rows, {**kinds, "category": pl.String}, orient="row")
    return table.with_columns(free_requested_event=pl.col("free_event"), pool=pl.lit(None, pl.String))


def timeline_of(rows: list[Row], events: int = STEPS * LENGTH, oom_events: list[int] | None = None) -> Any:
    table = table_of(rows)
    born, freed, size = (table[name].to_numpy() for name in ("alloc_event", "free_event", "size"))
    allocated = allocated_curve(born, freed, size, events)
    return SimpleNamespace(
        allocations=table, allocated=allocated, peak_bytes=int(allocated.max()), oom_events=oom_events or []
    )


def loop(count: int = STEPS, **more: Any) -> Repetitions:
    return Repetitions(np.arange(count + 1) * LENGTH, "step", "annotations", **more)


def memory(rows: list[Row], repetitions: Repetitions | None = None, **more: Any) -> LoopMemory:
    return loop_memory(timeline_of(rows, **more), repetitions or loop())


def at(step: int, place: int) -> int:
    return step * LENGTH + place


def test_which_repetition_a_place_is_of() -> None:
    three = Repetitions(np.array([4, 9, 10, 20]), "cycle", "", unfinished=1)
    assert (three.count, three.finished) == (3, 2)
    assert three.of(np.array([-1, 2, 3, 7, 8, 9, 18, 19, 99])).tolist() == [-1, -1, 0, 0, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("seed", range(4))
def test_sums_and_levels_by_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    events = rng.permutation(STEPS * LENGTH)[:60].tolist()
    rows: list[Row] = []
    for first, second in zip(events[::2], events[1::2], strict=True):
        born, freed = sorted((first, second))
        born, freed = (born if rng.integers(6) else -1), (freed if rng.integers(3) else -1)
        rows.append((int(rng.integers(1, 5)), int(rng.integers(1, 99)), born, freed, "activation"))
    rows.sort(key=lambda row: row[2])
    repetitions = Repetitions(np.array([7, 30, 41, 80, 121]), "step", "")
    bounds = repetitions.bounds.tolist()

    table, stacks = table_of(rows), np.array([1, 3, 4])
    sums = allocation_growth._bytes_by_repetition(table, stacks, repetitions)
    lowest = levels_of(table, stacks, repetitions)
    for at_row, stack in enumerate(stacks.tolist()):
        mine = [row for row in rows if row[0] == stack]
        live = [sum(size for _, size, b, f, _ in mine if b + 1 <= p and (f < 0 or f + 1 > p)) for p in range(170)]
        within = [range(first, last) for first, last in itertools.pairwise(bounds)]
        born = [sum(size for _, size, b, _, _ in mine if b + 1 in places) for places in within]
        assert sums[at_row].tolist() == born
        floors = [min(live[place] for place in places) for places in within]
        left = [live[places[-1]] for places in within]
        after = left[-1] if left[-1] > max(left[:-1]) else floors[-1]
        assert lowest[at_row].tolist() == [*floors, after]


def test_what_a_loop_leaves() -> None:
    rows: list[Row] = [
        (1, MIB, 5, 170, "activation"),  # freed after the loop
        (1, MIB, 6, 158, "activation"),
        (1, MIB, 7, 159, "activation"),
        (2, MIB, 159, -1, "activation"),  # the event after its last
        (3, MIB, 8, -1, "workspace"),
        (4, MIB, -1, -1, "activation"),
    ]
    timeline = timeline_of(rows, 200)
    assert loop_allocations(timeline, loop()).select("stack", "free_event").rows() == [
        (1, -1), (1, 158), (1, -1), (4, -1),
    ]  # fmt: skip


def test_parameters_and_state_settle() -> None:
    rows: list[Row] = [(1, 6, 0, -1, "parameter"), (1, 5, 1, -1, "activation"), (2, 5, 2, -1, "optimizer state")]
    rows += [(2, 5, 3, -1, "gradient"), (3, 5, 4, -1, "gradient")]
    assert allocation_growth._settled(table_of(rows), np.array([1, 2, 3, 4])).tolist() == [True, False, False, False]


STEADY: list[Row] = [(9, 40 * MIB, at(step, 3), at(step, 9), "activation") for step in range(STEPS)]


def leak(steps: list[int], size: int = 4 * MIB, stack: int = 1, category: str = "activation") -> list[Row]:
    return [(stack, size, at(step, 5), -1, category) for step in steps]


def test_a_line_that_leaves_something_in_each_step() -> None:
    (found,) = memory([*STEADY, *leak(list(range(STEPS)))]).growing
    assert (found.stack, found.bytes, found.count, found.growths) == (1, STEPS * 4 * MIB, STEPS, STEPS)
    assert (found.per_repetition, found.every, found.is_suspect, found.replaced) == (4 * MIB, 1, False, False)
    assert np.diff(found.staircase).tolist() == [4 * MIB] * (STEPS - 1)


def test_most_bytes_first() -> None:
    rows = [
        *STEADY,
        *leak(list(range(STEPS))),
        *leak(list(range(STEPS)), 6 * MIB, 2),
        *leak(list(range(STEPS)), stack=3),
    ]
    assert [growth.stack for growth in memory(sorted(rows, key=lambda row: row[2])).growing] == [2, 1, 3]


def test_growth_that_does_not_show_together_is_none() -> None:
    """What one line adds in each step, another one frees: more than half of it must show."""

    def rows(freed: int) -> list[Row]:
        before = [(2, freed, -1, at(step, 6), "unknown") for step in range(STEPS)]
        return [*before, *sorted([*STEADY, *leak(list(range(STEPS)))], key=lambda row: row[2])]

    assert [growth.stack for growth in memory(rows(2 * MIB)).growing] == [1]
    assert not memory(rows(2 * MIB + 1024)).growing


def test_a_short_growth_is_suspected() -> None:
    assert [one.is_suspect for one in memory([*STEADY, *leak([5, 6, 7])]).growing] == [True]
    assert not memory([*STEADY, *leak([6])]).growing


def test_state_of_a_loop_without_steps_settles() -> None:
    rows = sorted([*STEADY, *leak(list(range(STEPS)), category="optimizer state")], key=lambda row: row[2])
    assert memory(rows).growing
    assert not memory(rows, Repetitions(loop().bounds, "iteration", "")).growing


def longer(
    steps: int = STEPS, copied: int = 2, category: str = "activation", lines: int = 1, grows: bool = False
) -> list[Row]:
    """A tensor that each step replaces by one that is 4 MiB longer, ``copied`` events before the old one goes."""
    rows = list(STEADY)
    for step in range(steps):
        end = at(step + 1, 5) + copied if step + 1 < steps else -1
        rows.append((1, 4 * MIB * (step + 1), at(step, 5), end, category))
        rows += [
            (20 + line, MIB * (4 + (8 * step if grows else 0)), at(step, 12), at(step, 14), "activation")
            for line in range(lines)
        ]
    return sorted(rows, key=lambda row: row[2])


def test_a_tensor_that_is_replaced_by_a_longer_one() -> None:
    (found,) = memory(longer()).growing
    assert (found.stack, found.replaced, found.copied, found.growths) == (1, True, True, STEPS)
    (found,) = memory(longer(copied=9)).growing
    assert found.replaced and not found.copied
    assert not memory(longer(grows=True)).growing, "the inputs grow"
    assert memory(longer(grows=True, category="kv cache")).growing


def test_too_few_repetitions_show_no_replaced_tensor() -> None:
    for count in (4, 5):
        rows = [row for row in longer(count) if row[2] < count * LENGTH]
        found = memory(rows, loop(count), events=count * LENGTH).growing
        assert [one.replaced for one in found] == [True] * (count == 5)


def test_lines_that_grow_once() -> None:
    rows = [*STEADY, *leak([2], 20 * MIB), *leak([3], 30 * MIB, 2), *leak([5], 20 * MIB, 3), *leak([6], 20 * MIB, 4)]
    rows += [*leak([4], 20 * MIB, 5, "optimizer state"), *leak([0], 20 * MIB, 6), *leak([7], 20 * MIB, 7)]
    rows += leak([4], 17 * MIB, 8)
    rows.sort(key=lambda row: row[2])
    every = memory(rows)
    found = [(stack, growth.at, growth.bytes // MIB, growth.is_open) for stack, growth in single_growths(every)]
    # Those that may come again first, then the largest. The last step may have what it still works with.
    again = [(3, 5, 20, True), (4, 6, 20, True), (7, 7, 20, True), (8, 4, 17, True)]
    assert found == [*again, (2, 3, 30, False), (1, 2, 20, False)]
    for more, last in (({"unfinished": 1}, 5), ({}, 7)):
        assert max(growth.at for _, growth in single_growths(memory(rows, loop(**more)))) == last
    of_loop = Repetitions(loop().bounds, "iteration", "")
    assert max(growth.at for _, growth in single_growths(memory(rows, of_loop))) == 6
    for event, last in ((at(7, 0) - 1, 6), (at(7, 0) - 2, 7)):
        failed = memory(rows, oom_events=[3, event])
        assert max(growth.at for _, growth in single_growths(failed)) == last


def test_what_an_earlier_step_left_as_much_of_is_no_growth() -> None:
    """Gradients that the next step frees, but for the last: their level rises once."""
    rows = [*STEADY, *((1, 20 * MIB, at(step, 5), at(step + 1, 2), "gradient") for step in range(4))]
    rows.append((1, 20 * MIB, at(5, 5), -1, "gradient"))
    assert single_growths(memory(sorted(rows, key=lambda row: row[2]))) == []
    rows[-1] = (1, 20 * MIB + 1024, at(5, 5), -1, "gradient")
    assert [stack for stack, _ in single_growths(memory(sorted(rows, key=lambda row: row[2])))] == [1]


def recurs(repetitions: list[list[tuple[int, int]]], before: int = 0) -> bool:
    """By repetition: the stacks that allocate in it, and bytes."""
    rows = [(stack, size, number) for number, each in enumerate(repetitions) for stack, size in each]
    rows.sort(key=lambda row: row[0])
    stack, size, number = (np.array(column) for column in zip(*rows, strict=True))
    births = repetition._Births(np.diff(stack, prepend=-1) != 0, before + number * LENGTH + 3, size)
    return repetition._recurs(births, before + np.arange(len(repetitions) + 1) * LENGTH)


SAME = [(1, 70), (2, 30)]


@pytest.mark.parametrize(
    ("repetitions", "is_one"),
    [
        ([SAME] * 4, True),
        ([SAME] * 3, False),
        ([[(1, 70), (10 + number, 30)] for number in range(4)], True),
        ([[(1, 69), (10 + number, 31)] for number in range(4)], False),
        ([SAME] * 4 + [[(5, 9)]], True),  # three of four
        ([SAME] * 3 + [[(5, 9)], [(6, 9)]], False),
        ([[(number % 2, 50)] for number in range(8)], False),  # each does what the one before the last did
        ([SAME, SAME, SAME, [], SAME], False),
    ],
)
@pytest.mark.parametrize("before", [0, 7])
def test_most_repetitions_do_what_the_one_before_did(
    repetitions: list[list[tuple[int, int]]], is_one: bool, before: int
) -> None:
    assert recurs(repetitions, before) == is_one


def test_no_allocations_repeat_nothing() -> None:
    none = np.zeros(0, np.int64)
    assert not repetition._recurs(repetition._Births(none.astype(bool), none, none), np.arange(5) * LENGTH)


def waves(count: int, low: int = 0, high: int = 100, trend: int = 0, width: int = 40) -> np.ndarray:
    """A curve that begins at its height, and has a trough of one place in the middle of each wave."""
    one = np.abs(np.arange(width) - width // 2) * (high - low) // (width // 2) + low
    return np.tile(one, count) + np.arange(count * width) * trend


def test_troughs_between_rises() -> None:
    assert repetition._troughs(waves(5)).tolist() == [20, 60, 100, 140, 180]
    assert repetition._troughs(waves(5, trend=3)).tolist() == [20, 60, 100, 140, 180]
    assert repetition._troughs(np.zeros(4, np.int64)).tolist() == []
    assert len(repetition._troughs(np.zeros(5, np.int64))) == 1
    assert repetition._troughs(waves(4, width=4)).tolist() == [2, 6, 10, 14]
    assert repetition._troughs(waves(5, width=4000, low=7, high=9000)).tolist() == [2000, 6000, 10000, 14000, 18000]
    dips = waves(5)
    dips[[0, 39, 40, 79, 80]] = 500  # smaller waves are no cycles
    assert repetition._troughs(dips).tolist() == [20, 60, 100]


USUAL: dict[str, Any] = {
    "stack": 1, "bytes": 40 * MIB, "count": 9, "died": 12, "oldest": 2, "first": 100, "births": 9, "in_order": 1.0,
    "alone": 1.0, "collected": False, "free_stack": 5,
}  # fmt: skip


def suspected(*bursts: dict[str, Any], leaking: set[int] | None = None) -> list[dict[str, Any]]:
    table = pl.DataFrame([{**USUAL, **burst} for burst in bursts]).with_columns(pl.col("stack").cast(pl.Int32))
    timeline: Any = SimpleNamespace(peak_bytes=400 * MIB)
    return reference_cycles._suspects(table, timeline, leaking or set()).rows(named=True)


OFTEN = {"in_order": 0.5}


@pytest.mark.parametrize(
    ("bursts", "is_one"),
    [
        ([{}], True),
        ([{"in_order": 0.9}], False),
        ([{"count": 8}], True),
        ([{"count": 7}], False),
        ([{"alone": 0.7}], True),
        ([{"alone": 0.69}], False),
        ([{"died": 9, "births": 8}], True),
        ([{"died": 8, "births": 8}], False),
        ([{"births": 5}], True),
        ([{"births": 4}], False),
        ([{"bytes": 40 * MIB - 1}], False),
        ([{"collected": True, **OFTEN}], False),
        ([{"collected": True, **OFTEN}] * 2, True),
        ([{"collected": True, **OFTEN}, OFTEN], False),
        ([OFTEN] * 2, False),
        ([{}] * 2, True),
        ([{}, OFTEN], False),
        ([{**OFTEN, "free_stack": place} for place in (5, 6, 7)], True),
        ([{**OFTEN, "free_stack": place} for place in (5, 6, 6)], False),
        ([{**OFTEN, "free_stack": place} for place in (5, 6)], False),
    ],
)
def test_bursts_of_the_collector(bursts: list[dict[str, Any]], is_one: bool) -> None:
    assert bool(suspected(*bursts)) == is_one
    assert not suspected(*bursts, leaking={1})


def test_the_largest_burst_is_named() -> None:
    two = suspected({"first": 100}, {"first": 300, "bytes": 50 * MIB}, {"first": 200, "bytes": 50 * MIB, "count": 11})
    assert [(one["bytes"], one["event"], one["count"], one["bursts"]) for one in two] == [(50 * MIB, 200, 11, 3)]
    several = suspected({"stack": 3}, {"stack": 2}, {"stack": 4, "bytes": 90 * MIB})
    assert [one["stack"] for one in several] == [4, 2, 3]


def test_steps_that_are_recorded() -> None:
    def steps(count: int, last: str = "step 7", source: str = "metadata") -> Any:
        firsts = [3 + LENGTH * number for number in range(count)]
        names = [*(f"step {number}" for number in range(count - 1)), last]
        table = {"first_event": firsts, "last_event": [first + LENGTH - 2 for first in firsts], "name": names}
        return SimpleNamespace(steps=pl.DataFrame({**table, "source": [source] * count}))

    found = repetition._steps(steps(4))
    assert found is not None and (found.unit, found.source, found.unfinished) == ("step", "from user metadata", 0)
    assert found.bounds.tolist() == [4, 24, 44, 64, 83] and found.is_loop
    assert repetition._steps(steps(3)) is None
    cut = repetition._steps(steps(5, "step 4 (unfinished)"))
    assert cut is not None and (cut.unfinished, cut.finished, cut.count) == (1, 4, 5)


def test_stacks_that_allocate_in_an_iteration() -> None:
    rows: list[Row] = [(1, 1, at(step, 0), -1, "activation") for step in range(5)]
    rows += [(2, 1, at(step, 19), -1, "activation") for step in range(5)] * 2
    rows += [(stack, 1, event, -1, "activation") for stack in (3, 4, 5) for event in (-1, at(5, 0))]
    rows += [(stack, 1, at(4, 4), -1, "activation") for stack in (3, 4)]
    timeline = timeline_of(rows, 200)
    for count in (5, 2):
        repetitions = Repetitions(loop(count).bounds + 1, "iteration", "")
        assert repetition._stacks_of_iteration(timeline, repetitions) == 2.0
    births = repetition._births_by_stack(timeline_of([(2, 7, 4, -1, ""), (1, 8, 5, -1, ""), (2, 9, 6, -1, "")], 9))
    assert births.is_first.tolist() == [True, True, False]
    assert (births.place.tolist(), births.size.tolist()) == ([6, 5, 7], [8, 7, 9])


def test_whether_other_lines_grow_as_well() -> None:
    """A level that doubles; others that grow by half as much, and have a sixth of the bytes, are the inputs."""
    floors = np.array([0, 10, 10, 10, 10, 20, 20, 20, 20])

    def grow(*last: float) -> bool:
        others = np.array([[99] + [1.0] * 4 + [each] * 3 + [99] for each in last])
        return allocation_growth._inputs_grow(floors, others)

    ended = np.array([0, 10, 10, 10, 20, 20, 20, 20])
    assert allocation_growth._inputs_grow(ended, np.array([[9, 1, 1, 1, 1, 2, 2, 9.0]]))
    assert grow(1.6) and not grow(1.4)
    assert grow(1.6, 1, 1, 1, 1, 1, 1, 1) and not grow(1.6, *[1] * 12)


def test_copies_that_the_next_one_replaces() -> None:
    def rows(*between: int, own: int = 0) -> pl.DataFrame:
        every = [(1, 9, at(step, 5), at(step + 1, 5) + wait, "") for step, wait in enumerate(between)]
        every += [(1, 9, at(step, 1), at(step, 2), "") for step in range(own)]
        return table_of([*every, (1, 9, at(len(between), 5), -1, "")])

    def copied(*between: int, own: int = 0) -> bool:
        return allocation_growth._is_copied(rows(*between, own=own), loop())

    limit = allocation_growth._MOST_BETWEEN
    assert copied(1, 2, limit, own=4) and not copied(limit + 1, limit + 1) and not copied(-1, -1)
    assert copied(1, 1, 1, 1, 9) and not copied(1, 1, 1, 9) and not copied(own=3)
    everlasting = rows(1, 1).with_columns(free_event=pl.lit(-1, pl.Int32))
    assert allocation_growth._is_copied(everlasting, loop())


def test_frees_of_old_allocations_by_plain_loops() -> None:
    """Of stacks any of whose allocations outlives its step: those that follow each other within 32 events."""
    rows: list[Row] = [(1, 9 * MIB, at(step, 5), 130 + step, "") for step in range(5)]
    rows += [(1, 9 * MIB, at(5, 5), 140, ""), (1, 9 * MIB, at(6, 1), 140 + 33, ""), (1, 9 * MIB, -1, 129, "")]
    rows += [(2, 9 * MIB, at(step, 6), at(step, 9), "") for step in range(8)]  # none outlives its step
    rows += [(3, 9 * MIB, at(0, 7), at(1, 9), ""), (3, 9 * MIB, at(2, 8), at(2, 12), ""), (3, MIB, at(3, 0), -1, "")]
    rows += [(4, 9 * MIB, at(0, 8 + each), at(3, 10 + each), "") for each in range(4)]  # one step's
    rows += [(5, 9 * MIB, at(2 * each, 13), 135 + each, "") for each in range(3)]
    rows += [(6, MIB // 8, at(each, 16), 141 + each, "") for each in range(4)]  # too few bytes
    timeline = timeline_of(sorted(rows, key=lambda row: row[2]), 200)
    timeline.allocations = timeline.allocations.with_columns(free_stack=pl.lit(7, pl.Int32))
    frames = pl.DataFrame({"name": ["step"]})
    none = np.zeros(0, np.int64)
    timeline.recording = Recorded(frames=frames, stack_offsets=np.zeros(9, np.int64), stack_frames=none)
    born = {row[2] for row in rows}
    actions = pl.Series(
        ["alloc" if event in born else "free_completed" for event in range(200)], dtype=pl.Enum(ACTIONS)
    )
    timeline.events = pl.DataFrame({"action": actions})
    repetitions = Repetitions(np.append(loop().bounds[:-1] + 1, 201), "step", "")
    table = reference_cycles._outliving(timeline, repetitions)
    of_step = {row[2]: sum(row[2] >= start for start in range(0, 160, LENGTH)) - 1 for row in rows}
    outliving = {row[0] for row in rows if row[3] >= 0 <= row[2] and min(row[3] // LENGTH, 7) > of_step[row[2]]}
    expected = [row[:4] for row in rows if row[0] in outliving and row[2] >= 0 and row[3] >= 0]
    found = table.select("stack", "size", "alloc_event", "free_event").rows()
    assert found == sorted(expected, key=lambda row: (row[0], row[3])) and outliving == {1, 3, 4, 5, 6}
    assert table["born"].to_list() == [of_step[event] for event in table["alloc_event"].to_list()]

    bursts = reference_cycles._bursts(table, timeline).sort("stack")
    columns = ("stack", "bytes", "count", "first", "died", "oldest", "births", "in_order")
    assert bursts.select(columns).rows() == [(1, 54 * MIB, 6, 130, 7, 0, 6, 1.0), (5, 27 * MIB, 3, 135, 6, 0, 3, 1.0)]
    allocations = [sum(event <= freed for event in born) for freed in (130, 135)]
    ends = [sum(event <= row[3] for event in born) for row in rows if row[3] >= 0]
    assert [round(each) for each in bursts["count"] / bursts["alone"]] == [ends.count(each) for each in allocations]


def serving(
    folder: Path, count: int = 5, lines: int = 2, parameters: int = 0, left: int = 0, again: bool = False
) -> DeviceTimeline:
    """A loop whose iterations each make a token outside of modules and something in ``lines`` of a model, and never
    free it. Before: parameters, ``left`` bytes of another model, which runs ``again`` in the loop.
    """
    script = Script()
    for _ in range(parameters):
        script.alloc("parameter", MIB, *WEIGHTS)
    encode = ("/app/encoder.py", "encode"), *FORWARD
    if left:
        script.free(script.alloc("encoder", MIB, *encode))
        script.alloc("encoder", left, *encode)
    for _ in range(count):
        script.alloc("token", MIB, ("/app/serve.py", "sample"))
        for line in range(lines):
            script.alloc("hidden", MIB, ("/app/model.py", f"line{line}"), *FORWARD)
    if again:
        script.alloc("encoder", left, *encode)
    raw = script.raw()
    raw["device_traces"][0].append({**script.events[-1], "action": "oom", "addr": 0, "device_free": MIB})
    (folder / "serving.pickle").write_bytes(pickle.dumps(raw))
    return snapreport.load(folder / "serving.pickle").timeline(0)


def test_a_loop_without_steps(tmp_path: Path) -> None:
    found = repetition.growth_repetitions(serving(tmp_path))
    assert found is not None and (found.unit, found.is_loop) == ("iteration", True)
    assert found.bounds.tolist() == [1, 4, 7, 10, 13, 16]
    assert repetition.growth_repetitions(serving(tmp_path, count=4)) is None
    loading = repetition.growth_repetitions(serving(tmp_path, lines=1))
    assert loading is not None and not loading.is_loop


@pytest.mark.parametrize(
    ("program", "is_layer"),
    [
        ({"parameters": 3}, False),
        ({"parameters": 4}, True),  # an iteration runs half of them
        ({"left": MIB}, True),
        ({"left": MIB - 1024}, False),
        ({"left": MIB, "again": True}, False),
    ],
)
def test_layers_of_a_pass_that_is_cut_off(program: dict[str, Any], is_layer: bool, tmp_path: Path) -> None:
    timeline = serving(tmp_path, **program)
    (oom,) = timeline.oom_events
    start = timeline.events["action"].to_list().index("alloc") + 1 + program.get("parameters", 0)
    start += 4 if program.get("left") else 0
    repetitions = Repetitions(np.array([start, start + 3, start + 6, start + 9, start + 12, oom + 2]), "iteration", "")

    def known(kind: str, oom_events: list[int]) -> bool:
        of_trace: Any = SimpleNamespace(
            activity=SimpleNamespace(kind=kind), oom_events=oom_events, allocations=timeline.allocations,
            recording=timeline.recording,
        )  # fmt: skip
        return repetition._is_layer(of_trace, repetitions)

    assert known("unknown", [oom]) == known("unknown", []) == is_layer
    assert not known("inference", [oom])


def test_cycles_of_a_loop_in_the_program(tmp_path: Path) -> None:
    """Three of five cycles allocate outside of modules, or two."""
    for outside in (3, 2):
        script = Script()
        for number in range(5):
            made = [script.alloc("hidden", MIB, ("/app/model.py", f"line{line}"), *FORWARD) for line in range(4)]
            if number >= 5 - outside:
                made.append(script.alloc("input", 1024, ("/app/data.py", "batch")))
            for address in made:
                script.free(address, ("/app/data.py", "drop"))
        script.alloc("report", 1024, ("/app/data.py", "report"))
        (tmp_path / "cycles.pickle").write_bytes(pickle.dumps(script.raw()))
        timeline = snapreport.load(tmp_path / "cycles.pickle").timeline(0)
        starts = [at for at, one in enumerate(script.events) if one["frames"][0]["name"] == "line0"]
        ends = [starts[0], *starts[1:], len(script.events) - 1]
        cycles = Repetitions(np.array(ends) + 1, "cycle", "")
        assert repetition._is_loop(timeline, cycles) == (outside == 3)


def test_a_line_that_allocates_several_times_in_an_iteration() -> None:
    stack = np.full(30, 2)
    stack[[0, 2, 10, 12, 20, 22]] = 1  # five births apart on average
    stack[[6, 8, 14, 16, 18, 28]] = 3  # four: two are half of it
    found = loop_lines._heads(stack, np.bincount(stack, minlength=5))
    assert found.tolist() == [0, 10, 20, *np.flatnonzero(stack == 2).tolist(), 6, 8, 14, 16, 18, 28]
    assert loop_lines._heads(stack[:0], np.zeros(5, np.int64)).tolist() == []


@pytest.mark.parametrize("count", [4, 5, 6, 9])
@pytest.mark.parametrize("seed", range(3))
def test_where_the_work_of_a_loop_ends(count: int, seed: int, tmp_path: Path) -> None:
    """After the last allocation of lines that earlier repetitions have, one of up to five, two of more; and what is
    freed right after it as in those.
    """
    rng = np.random.default_rng(100 * count + seed)
    script, bounds = Script(), list[int]()
    script.alloc("before", MIB, ("/app/model.py", "line0"))
    for number in range(count):
        bounds.append(len(script.events) + 1)
        lines = [f"line{line}" for line in range(4) if rng.random() < 0.8]
        addresses = [script.alloc("work", MIB, ("/app/model.py", line)) for line in lines]
        if number == count - 1 or rng.random() < 0.3:
            addresses.append(script.alloc("step", MIB, *OPTIMIZER))
        if rng.random() < 0.3:
            addresses.append(script.alloc("rare", MIB, ("/app/data.py", f"rare{rng.integers(3)}")))
        for address in addresses:
            script.free(address, ("/app/model.py", f"drop{rng.integers(2 + (number == count - 1))}"))
    script.alloc("after", MIB, ("/app/report.py", "save"))
    bounds.append(len(script.events) + 1)
    (tmp_path / "loop.pickle").write_bytes(pickle.dumps(script.raw()))
    timeline = snapreport.load(tmp_path / "loop.pickle").timeline(0)

    key = [(str(one["frames"]), one["action"]) for one in script.events]
    of: dict[tuple[str, str], set[int]] = {}
    for number, (first, end) in enumerate(itertools.pairwise(bounds[:-1])):
        for event in range(first - 1, end - 1):
            of.setdefault(key[event], set()).add(number)
    fewest = 2 if count >= 6 else 1
    recurs = [len(of.get(one, ())) >= fewest or "_init_group" in one[0] for one in key]
    last = bounds[-2] - 1
    births = [event for event in range(last, len(key)) if recurs[event] and key[event][1] == "alloc"]
    event = max(births, default=last)
    while event + 1 < len(key) and recurs[event + 1]:
        event += 1
    assert loop_end.end_of_loop(timeline, np.array(bounds)) == event + 2
