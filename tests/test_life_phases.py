"""In which phase of the program each allocation begins and ends: on random traces, by loops over their events."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from snapreport.reading.event_columns import enum_series
from snapreport.reading.recording import ACTIONS
from snapreport.timeline.life_phases import LifePhases, life_phases, recorded_pairs
from snapreport.timeline.phases import BACKWARD, FORWARD, INITIALISATION, LOADING, NONE, OPTIMIZER_STEP, StackPhases
from snapreport.timeline.phases import ZERO_GRAD as ZERO

# Per stack: the phase of its innermost frame with one, all of them, and the part of the program that it belongs to.
STACKS = [
    (NONE, (), NONE), (NONE, (), NONE), (FORWARD, (FORWARD,), FORWARD),
    (OPTIMIZER_STEP, (OPTIMIZER_STEP,), OPTIMIZER_STEP), (INITIALISATION, (INITIALISATION,), INITIALISATION),
    (LOADING, (LOADING,), INITIALISATION), (INITIALISATION, (INITIALISATION, FORWARD), FORWARD),
    (BACKWARD, (BACKWARD,), BACKWARD), (FORWARD, (FORWARD, BACKWARD), BACKWARD), (ZERO, (ZERO,), ZERO),
]  # fmt: skip
OF_TRAINING = (BACKWARD, OPTIMIZER_STEP, ZERO)
PHASES = StackPhases(
    np.array([inner for inner, *_ in STACKS], np.uint8),
    np.array([sum(1 << phase for phase in every) for _, every, _ in STACKS], np.uint8),
    np.zeros(len(STACKS), np.int32),
    np.zeros(len(STACKS), bool),
)
Life = tuple[int, int, int, int, int]  # events of its allocation, the request of its free, its free; stacks of both


def trace(seed: int, stacks: list[int], *, own_frees: bool) -> tuple[list[tuple[str, int]], list[Life]]:
    """(action and stack of each event, lifetimes); without ``own_frees`` a free has the stack of its allocation."""
    rng = np.random.default_rng(seed)
    events: list[tuple[str, int]] = []
    live, lives = [(-1, stack) for stack in stacks[:2]], list[Life]()
    for _ in range(int(rng.integers(1, 120))):
        kind, stack = rng.random(), stacks[int(rng.integers(len(stacks)))] if rng.random() < 0.4 else 0
        stack = events[-1][1] if stack == 0 and events and rng.random() < 0.7 else stack  # phases last for a while
        if kind < 0.55 or not live:
            live.append((len(events), stack))
            events.append(("alloc", stack))
        elif kind < 0.95:
            born, of_birth = live.pop(int(rng.integers(len(live))) if rng.random() < 0.5 else -1)
            where = stack if own_frees else of_birth
            recorded = [("free_requested", "free_completed"), ("free_completed",), ("free_requested",)][rng.integers(3)]
            at = {action: len(events) + place for place, action in enumerate(recorded)}
            events += [(action, where) for action in recorded]
            lives.append((born, at.get("free_requested", -1), at.get("free_completed", -1), of_birth, where))
        else:
            events.append(("snapshot", stack))
    return events, lives + [(born, -1, -1, stack, 0) for born, stack in live]


def table_of(events: list[tuple[str, int]]) -> pl.DataFrame:
    action = enum_series("action", np.array([ACTIONS.index(name) for name, _ in events], np.uint8), ACTIONS)
    return pl.DataFrame([action, pl.Series("stack", [stack for _, stack in events], pl.Int32)])


SIZES = [512 << at % 3 for at in range(1000)]


def phases_of(events: list[tuple[str, int]], lives: list[Life]) -> LifePhases:
    names = ("alloc_event", "free_requested_event", "free_event", "stack", "free_stack")
    columns = zip(names, zip(*lives, strict=True), strict=True)
    table = pl.DataFrame({name: np.array(column, np.int32) for name, column in columns})
    table = table.with_columns(size=pl.Series(SIZES[: len(lives)], dtype=pl.Int64))
    return life_phases(table_of(events), table, PHASES)


@pytest.mark.parametrize("own_frees", [True, False])
@pytest.mark.parametrize("stacks", [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2], [2, 7, 3, 1], [2, 2, 3], [0, 0]])
@pytest.mark.parametrize("seed", range(12))
def test_phases_of_lives(seed: int, stacks: list[int], own_frees: bool) -> None:
    events, lives = trace(seed, stacks, own_frees=own_frees)
    found = phases_of(events, lives)
    pairs = [life[3:] for life in lives if life[0] >= 0 and max(life[1:3]) >= 0]
    own = any(one != other for one, other in pairs) and any(other for _, other in pairs)
    assert found.own_frees == own
    has_stacks = any(stack for name, stack in events if name == "alloc")
    bare = [has_stacks and name == "alloc" and not stack for name, stack in events]
    bare_free = [own and "free" in name and not stack for name, stack in events]
    ends = [free if requested < 0 else requested for _, requested, free, *_ in lives]
    saved = [end for end, life in zip(ends, lives, strict=True) if end >= 0 and STACKS[life[3]][0] == FORWARD]
    trains = any(phase in STACKS[stack][1] for _, stack in events for phase in OF_TRAINING)
    trains = trains or sum(bare_free[end] for end in saved) >= 8
    phase = [
        BACKWARD if trains and (bare[at] or bare_free[at]) else STACKS[stack][2] for at, (_, stack) in enumerate(events)
    ]
    counts = [
        phase[at] != NONE and (name == "alloc" or (own and "free" in name)) for at, (name, _) in enumerate(events)
    ]
    running, run = list[int](), list[int]()
    for at in range(len(events)):
        running.append(phase[at] if counts[at] else running[-1] if running else NONE)
        run.append(0 if not run else run[-1] + (running[-1] != running[-2]))
    following = [
        next((later for later in range(at, len(events)) if counts[later]), len(events)) for at in range(len(events))
    ]
    assert found.final == running[-1] and found.next_event.tolist() == following
    forward = [at for at, one in enumerate(phase) if one == FORWARD]

    for at, (alloc, _, _, stack, free_stack) in enumerate(lives):
        end, is_traced = ends[at], alloc >= 0
        engine = is_traced and bare[alloc] and trains
        born = BACKWARD if engine else STACKS[stack][2]
        freed = NONE
        if end >= 0:
            freed = (BACKWARD if bare_free[end] and trains else STACKS[free_stack][0]) if own else running[end]
        within = end >= 0 and run[end] == (run[alloc] if is_traced else 0 if running[0] == OPTIMIZER_STEP else -1)
        # State that is made anew goes in a step that leaves something as large.
        first = [other for other, life in enumerate(lives) if life[0] >= 0 and run[life[0]] == 0]
        left = {SIZES[other] for other in first if ends[other] < 0 or run[ends[other]] > 0}
        within = within and (is_traced or SIZES[at] not in left)
        if born == BACKWARD and own:
            within = within and freed != NONE
        elif born == BACKWARD and within:
            after_end = following[end]
            within = (after_end < len(events) and run[after_end] == run[end]) or end - alloc <= 12
        if born == OPTIMIZER_STEP and is_traced and end >= 0 and not any(alloc < one <= end for one in forward):
            within = within or any(one > alloc for one in forward) or (own and freed == OPTIMIZER_STEP)
        first = following[alloc] if is_traced else len(events)
        expected = (born, freed, within, engine, running[alloc] if is_traced else NONE)
        columns_found = (found.born, found.freed, found.within, found.engine, found.before)
        assert tuple(column[at] for column in columns_found) == expected, (at, lives[at])
        assert found.after[at] == (phase[first] if first < len(events) else NONE)


@pytest.mark.parametrize(("freed", "is_engine"), [(7, False), (8, True)])
def test_the_engine_frees_what_forward_passes_saved(freed: int, is_engine: bool) -> None:
    """By a thread without a stack trace; the last event is one, too, but of something else."""
    count = freed + 1
    events = [("alloc", 2)] * count + [("alloc", 1), ("free_completed", 2)] + [("free_completed", 0)] * count
    lives: list[Life] = [(at, -1, count + 2 + at, 2, 0) for at in range(freed)]
    lives += [(freed, -1, -1, 2, 0), (count, -1, count + 1, 1, 2), (-1, -1, len(events) - 1, 0, 0)]
    assert (phases_of(events, lives).final == BACKWARD) is is_engine


@pytest.mark.parametrize(("events_between", "is_brief"), [(11, True), (12, False)])
def test_brief_lives_of_a_backward_pass_are_temporary(events_between: int, is_brief: bool) -> None:
    """Without stack traces of frees: freed before the next phase allocates, but a gradient may be, too."""
    events = [("alloc", 7)] + [("snapshot", 0)] * events_between + [("free_completed", 7), ("alloc", 2)]
    found = phases_of(events, [(0, -1, events_between + 1, 7, 7), (events_between + 2, -1, -1, 2, 0)])
    assert found.within.tolist() == [is_brief, False] and not found.own_frees


def test_frees_without_stack_traces_have_none_of_their_own() -> None:
    assert not phases_of([("alloc", 2), ("free_completed", 0)], [(0, -1, 1, 2, 0)]).own_frees
    assert phases_of([("alloc", 0), ("free_completed", 2)], [(0, -1, 1, 0, 2)]).own_frees


def test_without_events_only_stacks_say_something() -> None:
    found = phases_of([], [(-1, -1, -1, 2, 0), (-1, -1, -1, 8, 0)])
    assert found.born.tolist() == [FORWARD, BACKWARD] and found.final == NONE and not found.own_frees
    assert not found.within.any() and not found.engine.any() and not found.freed.any()
    assert found.next_event[np.array([-1, -1])].tolist() == [0, 0]


def test_pairs_have_both_of_their_events() -> None:
    """An allocation at the same address ends a life, and is no free."""
    events = table_of([("free_requested", 0), ("alloc", 0), ("free_requested", 0), ("free_completed", 0), ("alloc", 0)])
    lives = [(-1, 0, -1), (-1, -1, 3), (1, -1, 3), (1, 2, 3), (1, 2, -1), (1, -1, 4), (1, -1, -1)]
    columns = (np.array(column) for column in zip(*lives, strict=True))
    assert recorded_pairs(events, *columns).tolist() == [False, False, True, True, True, False, False]
