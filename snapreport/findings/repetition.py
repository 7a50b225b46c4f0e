"""Repetitions of a trace: training steps, cycles of the allocated curve, or iterations of a loop.

Growth can only be seen against something that repeats. The recorded steps are the best answer; without them the
allocated curve may rise and fall again and again; without that one line of the program may allocate at regular
intervals, as in a decode loop that appends one token at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from snapreport.findings.loop_end import end_of_loop
from snapreport.findings.loop_lines import loop_anchors, outside_modules
from snapreport.integers import is_among, stable_order
from snapreport.timeline.activity import UNKNOWN
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_TRACED, NEVER
from snapreport.timeline.phases import FORWARD, stack_phases

FEWEST = 4
"""Fewer repetitions show no trend: the first one warms up, and two points always make a line."""
_SOURCES = {
    "annotation": "annotations",
    "metadata": "user metadata",
    "optimizer": "annotated optimizer steps",
    "recorder": "the recorder's step marks",
    "stack": "the optimizer's own allocations",
}
_MAX_COLUMNS = 8192
_MIN_SIMILARITY, _MIN_SHARE_ALIKE = 0.7, 0.75
_MIN_SWING = 0.3
"""A cycle falls and rises again by at least this share of what the whole trace moves."""
_MIN_LOOP_SHARE = 0.6
"""The share of the repetitions of a loop that allocate outside of any module call."""

_MIN_WORK = 3
"""Stacks that allocate in an iteration at least: a loop that loads weights allocates with one or two."""
_MIN_LEFT = 1 << 20
"""Bytes of an encoder's graph, beside buffers that modules make once."""


class Repetitions(Struct, frozen=True):
    """``bounds``: Int64 places in a curve (event + 1, 0 is before the first); repetition k is ``[bounds[k], bounds[k +
    1])``. ``unit``: what one is called, "step", "cycle" or "iteration". ``source``: what shows them.

    ``is_loop``: whether they are iterations of a loop that computes something. Layers of one forward pass repeat as
    well, and so do the shards of a checkpoint that is loaded; what each of them leaves behind is no leak.
    ``unfinished``: 1 where the last one is no whole repetition.
    """

    bounds: np.ndarray
    unit: str
    source: str
    is_loop: bool = True
    unfinished: int = 0

    @property
    def finished(self) -> int:
        """How many there are, but for one that the end of the trace cut short."""
        return self.count - self.unfinished

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    def of(self, events: np.ndarray) -> np.ndarray:
        """The repetition of each event; -1 before the first and ``count`` after the last."""
        return np.searchsorted(self.bounds - 1, events, "right") - 1


def repetitions(timeline: DeviceTimeline) -> Repetitions | None:
    """The recorded steps, else the cycles of the allocated curve; None with fewer than ``FEWEST``."""
    return _steps(timeline) or _cycles_of_curve(timeline, partial(_births_by_stack, timeline))


def growth_repetitions(timeline: DeviceTimeline) -> Repetitions | None:
    """What growth is measured against: the recorded steps, else the iterations of a loop, else cycles of the curve.

    The last one ends with the loop's work, before the program frees what it has.
    """
    births = cache(partial(_births_by_stack, timeline))  # once for up to nine loops that are tried
    found = _steps(timeline) or _iterations(timeline, births) or _cycles_of_curve(timeline, births)
    if found is None:
        return None
    return replace(found, bounds=np.append(found.bounds[:-1], end_of_loop(timeline, found.bounds)))


def _steps(timeline: DeviceTimeline) -> Repetitions | None:
    table = timeline.steps
    bounds = np.unique(np.append(table["first_event"], table["last_event"].tail(1) + 1)).astype(np.int64) + 1
    if len(bounds) <= FEWEST:
        return None
    unfinished = int(table["name"][-1].endswith("(unfinished)"))
    return Repetitions(bounds, "step", f"from {_SOURCES[table['source'][0]]}", unfinished=unfinished)


def _cycles_of_curve(timeline: DeviceTimeline, births: Callable[[], _Births]) -> Repetitions | None:
    bounds = _troughs(timeline.allocated)
    if not _recurs(births(), bounds):
        return None
    found = Repetitions(bounds, "cycle", "the allocated curve falls and rises again with the same stacks")
    return replace(found, is_loop=_is_loop(timeline, found))


def _iterations(timeline: DeviceTimeline, births: Callable[[], _Births]) -> Repetitions | None:
    """Iterations of a loop, where no step is known: within a step, loops go over layers and parameters."""
    if len(timeline.steps):
        return None
    for events in loop_anchors(timeline, FEWEST + 1):
        bounds = np.append(events + 1, len(timeline.events) + 1)
        if _recurs(births(), bounds):
            found = Repetitions(bounds, "iteration", "one line of the program allocates at regular intervals")
            works = _stacks_of_iteration(timeline, found) >= _MIN_WORK
            return replace(found, is_loop=works and not _is_layer(timeline, found))
    return None


def _is_layer(timeline: DeviceTimeline, repetitions: Repetitions) -> bool:
    """Whether the iterations are of one forward pass that memory ran out in: none runs half of the model's parameters,
    as far as their number tells, or modules that ran once, before all of them, left what a backward pass would need.
    """
    if timeline.activity.kind != UNKNOWN:
        return False
    table = timeline.allocations
    parameters = int((table["category"] == "parameter").sum())
    stack, born, freed = (table[name].to_numpy() for name in ("stack", "alloc_event", "free_event"))
    number = repetitions.of(born)
    forward = (stack_phases(timeline.recording).innermost == FORWARD)[stack]
    made = np.bincount(number[forward & (number >= 0)], minlength=repetitions.count)
    before = forward & (number < 0) & ((freed < 0) | (freed > max(timeline.oom_events, default=NEVER)))
    before &= ~is_among(stack, np.unique(stack[number >= 0]))
    left = int(table["size"].to_numpy()[before].sum())
    return 2 * float(np.median(made)) <= parameters or left >= _MIN_LEFT


def _stacks_of_iteration(timeline: DeviceTimeline, repetitions: Repetitions) -> float:
    """The median of how many stacks allocate in an iteration. Each has at least the one that begins it."""
    table = timeline.allocations
    number = pl.Series(repetitions.of(table["alloc_event"].to_numpy()))
    pairs = table.select("stack", number=number).filter(pl.col("number") >= 0).unique()
    return float(np.median(np.bincount(pairs["number"].to_numpy())))


def _is_loop(timeline: DeviceTimeline, repetitions: Repetitions) -> bool:
    """Whether most repetitions allocate in Python code outside of any module call."""
    table = timeline.allocations.filter(IS_TRACED)
    outside = outside_modules(timeline.recording)[table["stack"].to_numpy()]
    number = repetitions.of(table["alloc_event"].to_numpy()[outside])
    return bool(np.isin(np.arange(repetitions.count), number).mean() >= _MIN_LOOP_SHARE)


class _Births(Struct, frozen=True, eq=False):
    """Allocations by stack, those of a stack in order of birth. is_first: Bool, of its stack. place: Int64, in a curve,
    of the birth. size: Int64.
    """

    is_first: np.ndarray
    place: np.ndarray
    size: np.ndarray


def _births_by_stack(timeline: DeviceTimeline) -> _Births:
    table = timeline.allocations
    stack = table["stack"].to_numpy()
    order = stable_order(stack)
    place = table["alloc_event"].to_numpy().astype(np.int64) + 1
    return _Births(np.diff(stack[order], prepend=-1) != 0, place[order], table["size"].to_numpy()[order])


def _recurs(births: _Births, bounds: np.ndarray) -> bool:
    """Whether most repetitions do what the one before did: their bytes come from stacks that it has too.

    The waves of a single step (forward, backward, optimizer) rise and fall as well, but are no repetition.
    """
    # A table of all places is looked up in a fifth of the time of searching for each.
    end = int(births.place.max(initial=0)) + 1
    lengths = np.diff(np.minimum(bounds, end), prepend=0, append=end)
    # 0 before the first repetition, which is 1.
    number = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[births.place]
    first = np.flatnonzero(births.is_first | (number != np.roll(number, 1)))
    number, sums = number[first], np.add.reduceat(births.size, first)
    repeated = ~births.is_first[first] & (number == np.roll(number, 1) + 1)
    alike = np.bincount(number, sums * repeated) >= _MIN_SIMILARITY * np.bincount(number, sums)
    later = np.intersect1d(number, np.arange(2, len(bounds)))
    return len(later) >= FEWEST - 1 and float(alike[later].mean()) >= _MIN_SHARE_ALIKE


def _troughs(allocated: np.ndarray) -> np.ndarray:
    """Positions of the troughs between rises, with hysteresis, after the trend is taken off."""
    size = len(allocated)
    if size <= FEWEST:
        return np.array([], np.int64)
    edges = np.linspace(0, size, min(_MAX_COLUMNS, size) + 1).astype(np.int64)
    starts = edges[:-1]
    high = np.maximum.reduceat(allocated, starts)
    low = np.minimum.reduceat(allocated, starts)
    # A leak must not hide the cycles that it adds to, so they are measured against the line of the lows: from the
    # lowest of the first fifth to the lowest of the last.
    fifth = len(low) // 5
    line = np.linspace(low[:fifth].min(), low[-fifth:].min(), len(low))
    high, low = high - line, low - line
    need = float(_MIN_SWING * (high.max() - low.min()))
    troughs, is_falling, extreme, place = [], True, np.inf, 0
    # A few thousand columns at most, whatever the trace.
    for column, (highest, lowest) in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
        if is_falling:
            if lowest < extreme:
                extreme, place = lowest, column
            if highest > extreme + need and column > place:
                troughs.append(place)
                is_falling, extreme = False, highest
        else:
            extreme = max(extreme, highest)
            if lowest < extreme - need:
                is_falling, extreme, place = True, lowest, column
    if is_falling:
        troughs.append(place)
    return np.array([starts[t] + int(np.argmin(allocated[starts[t] : edges[t + 1]])) for t in troughs], np.int64)
