"""Stacks whose live bytes grow from repetition to repetition.

A stack grows in one of two ways. It *accumulates*: every so often it allocates something that is not freed before the
loop ends, and its lowest live bytes rise with it. Or it is *replaced*: each allocation takes the place of the last one
and is larger, as ``torch.cat([history, new])`` does.

What is freed after the loop, by a function that returns or a program that ends, counts as not freed. Look-alikes are
excluded by their shape. Optimizer state is allocated in one step. A cache that levels off gets nothing in the later
steps. A working set that is replaced by an equal one does not rise. Inputs that become longer make everything in a step
larger, not one stack.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.growth_pattern import Growth, SingleGrowth, growth_of, single_growth
from snapreport.findings.lowest_live import lowest_live
from snapreport.findings.repetition import FEWEST, Repetitions
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_FREED, IS_TRACED
from snapreport.timeline.segments import is_private

_MIN_BYTES = 1 << 20
_MIN_SHARE = 0.001
"""Of the peak, for the growth of one stack over the whole trace."""
_MIN_SPREAD = 0.8
"""The share of the repetitions in which the lowest live bytes of a replaced stack rise."""
_MIN_COPIED, _MOST_BETWEEN = 0.8, 3
"""A replaced stack is copied if the tensor before is freed within so many events of this share of its allocations: keys
and values are freed as a pair.
"""
_MIN_SURVIVING = 0.6
"""The share of the repetitions that add something of which allocations must remain, where a stack accumulates."""
_MIN_VISIBLE = 0.5
"""How much of a stack's growth must show in the lowest allocated bytes of all stacks together."""
_MAX_PAIRED = 64
_ALONG, _ALONG_SHARE = 0.5, 0.15
"""A stack grows along with a replaced one from this share of its growth on; with so many of a step's bytes in stacks
that do, the inputs become larger.
"""
_SETTLED = ("parameter", "optimizer state")
"""Memory that is built up once and stays: a loading loop looks like a leak while it runs."""


class GrowingStack(Struct, frozen=True):
    """One stack's growth.

    ``bytes``, ``count``: of its allocations in the loop that outlived it. ``staircase``: Int64, its lowest live bytes
    in each repetition. ``per_repetition``: bytes that each one adds, the median. ``every``: 1, or after how many
    repetitions it adds something. ``replaced``: whether each allocation replaces a smaller one; ``copied``: and the
    smaller one is freed right after, as of a variable that is assigned a longer copy of itself. ``growths``: how often
    it grew; ``is_suspect``: too seldom to tell growth from a cache that fills.
    """

    stack: int
    bytes: int
    count: int
    staircase: np.ndarray
    per_repetition: float
    every: int = 1
    replaced: bool = False
    copied: bool = False
    growths: int = 0
    is_suspect: bool = False


def min_growth_bytes(timeline: DeviceTimeline) -> float:
    """Bytes over a whole trace below which growth is not reported."""
    return max(_MIN_BYTES, _MIN_SHARE * timeline.peak_bytes)


class LoopMemory(Struct, frozen=True, dict=True):
    """What growth is found in: ``allocations`` (:func:`loop_allocations`), those ``remaining`` after the loop, the
    ``stacks`` that leave at least ``least`` bytes behind, ascending, and their ``levels`` (:func:`levels_of`).
    """

    timeline: DeviceTimeline
    repetitions: Repetitions
    allocations: pl.DataFrame
    remaining: pl.DataFrame
    least: float
    stacks: np.ndarray
    levels: np.ndarray

    @cached_property
    def growing(self) -> list[GrowingStack]:
        """Stacks that grow until the end of the loop, or may, most bytes a repetition first."""
        allocated, bounds = self.timeline.allocated, self.repetitions.bounds
        found = _accumulating(self)
        found += _replaced(self, {growth.stack for growth in found})
        floors = np.minimum.reduceat(allocated[: bounds[-1]], bounds[:-1])
        rise = int(floors[-1] - floors[1])
        found = [growth for growth in found if rise >= _MIN_VISIBLE * int(growth.staircase[-1] - growth.staircase[1])]
        return sorted(found, key=lambda growth: (-growth.per_repetition, growth.stack))

    def stack(self, stack: int, staircase: np.ndarray, growth: Growth, **more: bool) -> GrowingStack:
        """What is known of one whose lowest live bytes grow; ``more``: its other fields."""
        mine = self.remaining.filter(pl.col("stack") == stack)
        size, each = int(mine["size"].sum()), growth.per_repetition
        return GrowingStack(stack, size, len(mine), staircase, each, growth.every, growths=growth.count, **more)


def loop_memory(timeline: DeviceTimeline, repetitions: Repetitions) -> LoopMemory:
    allocations = loop_allocations(timeline, repetitions)
    remaining = allocations.filter(~IS_FREED & IS_TRACED)
    least = min_growth_bytes(timeline)
    sums = remaining.group_by("stack").agg(pl.col("size").sum()).filter(pl.col("size") >= least)
    stacks = sums["stack"].sort().to_numpy()
    levels = levels_of(allocations, stacks, repetitions)
    return LoopMemory(timeline, repetitions, allocations, remaining, least, stacks, levels)


def single_growths(loop: LoopMemory) -> list[tuple[int, SingleGrowth]]:
    """Stacks that grow once and keep it, those first that may grow again, then most bytes first. Not optimizer state,
    which the first step that updates builds: accumulation and a gradient scaler put it off. Nor what a repetition
    before has left as much of: gradients that ``zero_grad`` frees in all but the last.
    """
    timeline, repetitions = loop.timeline, loop.repetitions
    settled = _settled(loop.remaining, loop.stacks)
    # A step whose request failed ends with what it was working with.
    has_failed = max(timeline.oom_events, default=-1) + 1 >= repetitions.bounds[-2]
    # One that is cut short has not freed the gradients that the one before left, as every whole one does.
    uncertain = 2 if repetitions.unfinished else int(repetitions.unit != "step" or has_failed)
    found = [
        (int(stack), growth)
        for stack, row, is_settled in zip(loop.stacks.tolist(), loop.levels, settled, strict=True)
        if not is_settled
        if (growth := single_growth(row, loop.least, uncertain=uncertain)) is not None
        if _most_left(loop, int(stack), growth.at) < row[growth.at + 1]
    ]
    return sorted(found, key=lambda one: (not one[1].is_open, -one[1].bytes))


def _most_left(loop: LoopMemory, stack: int, before: int) -> int:
    """The most bytes of a stack that are live when a repetition ends, of those ``before``."""
    ends = loop.repetitions.bounds[1 : before + 1]
    stretches = np.column_stack((ends - 1, ends)).ravel()
    return int(lowest_live(loop.allocations, np.array([stack]), stretches)[0, ::2].max())


def loop_allocations(timeline: DeviceTimeline, repetitions: Repetitions) -> pl.DataFrame:
    """The device's allocations up to the end of the loop: what is freed after it has a ``free_event`` of -1. Without
    workspaces, which stay, and are made beside the first product of a line; and without what a CUDA graph writes to,
    which stays as long as the graph: one for each size of the batch looks like a leak while they are captured.
    """
    last = int(repetitions.bounds[-1]) - 1  # the event after the loop's last
    free = pl.col("free_event")
    is_workspace = pl.col("category") == "workspace"
    stays = is_workspace | is_private(pl.col("pool"))
    return timeline.allocations.filter((pl.col("alloc_event") < last) & ~stays).with_columns(
        free_event=pl.when(free >= last).then(pl.lit(-1, pl.Int32)).otherwise(free)
    )


def _accumulating(loop: LoopMemory) -> list[GrowingStack]:
    repetitions, remaining, stacks, levels = loop.repetitions, loop.remaining, loop.stacks, loop.levels
    births = _bytes_by_repetition(remaining, stacks, repetitions)
    settled = _settled(remaining, stacks) if repetitions.unit != "step" else np.zeros(len(stacks), bool)
    found = []
    for row, stack in enumerate(stacks.tolist()):
        growth = growth_of(levels[row], loop.least)
        if growth is None or settled[row]:
            continue
        # What is allocated first of all in a repetition raises its own level already.
        following = np.minimum(growth.at + 1, repetitions.count - 1)
        if (births[row, growth.at] + births[row, following] > 0).mean() < _MIN_SURVIVING:
            continue
        found.append(loop.stack(stack, levels[row, :-1], growth, is_suspect=growth.status == "suspect"))
    return found


def levels_of(allocations: pl.DataFrame, stacks: np.ndarray, repetitions: Repetitions) -> np.ndarray:
    """Int64 (stacks, repetitions + 1): the lowest live bytes of each stack in each repetition, then what the last one
    leaves, if that is more than any other left. ``allocations``: of :func:`loop_allocations`.
    """
    bounds = repetitions.bounds
    # Each repetition up to its last place, and that place alone.
    parts = np.append(bounds[:1], np.column_stack((bounds[1:] - 1, bounds[1:])).ravel())
    lowest = lowest_live(allocations, stacks, parts)
    left = lowest[:, 1::2]
    floors = np.minimum(lowest[:, ::2], left)
    is_more = left[:, -1] > left[:, :-1].max(axis=1)
    levels: np.ndarray = np.column_stack((floors, np.where(is_more, left[:, -1], floors[:, -1])))
    return levels


def _replaced(loop: LoopMemory, known: set[int]) -> list[GrowingStack]:
    """Stacks that free all that they allocate but for the last, and whose lowest live bytes rise all the same."""
    repetitions, allocations, remaining = loop.repetitions, loop.allocations, loop.remaining
    if repetitions.count <= FEWEST:
        return []
    among = ~np.isin(loop.stacks, list(known)) & ~_settled(remaining, loop.stacks)
    rising = [
        (int(loop.stacks[row]), loop.levels[row, :-1], growth)
        for row in np.flatnonzero(among).tolist()
        if (growth := growth_of(loop.levels[row], loop.least)) is not None
        and growth.status != "suspect"
        and (np.diff(loop.levels[row, 1:-1]) < 0).mean() <= 1 - _MIN_SPREAD
    ]
    if not rising:
        return []
    traced = allocations.filter(IS_TRACED)
    every_stack = traced["stack"].unique().sort().to_numpy()
    per_stack = _bytes_by_repetition(traced, every_stack, repetitions)
    found = []
    for stack, floors, growth in rising:
        own = np.searchsorted(every_stack, stack)
        mine = remaining.filter(pl.col("stack") == stack)
        cached = bool((mine["category"] == "kv cache").all())
        if cached or not _inputs_grow(floors, np.delete(per_stack, own, axis=0)):
            copied = _is_copied(traced.filter(pl.col("stack") == stack), repetitions)
            found.append(loop.stack(stack, floors, growth, replaced=True, copied=copied))
    return found


def _is_copied(rows: pl.DataFrame, repetitions: Repetitions) -> bool:
    """Whether what outlives its repetition is freed as soon as the next is made. ``rows``: of one stack."""
    rows = rows.sort("alloc_event")
    born, freed = (rows[name].to_numpy() for name in ("alloc_event", "free_event"))
    outlives = (freed < 0) | (repetitions.of(freed) > repetitions.of(born))
    requested = rows["free_requested_event"].to_numpy()[outlives][:-1]
    between = requested - born[outlives][1:]
    return bool(len(between)) and float(((between > 0) & (between <= _MOST_BETWEEN)).mean()) >= _MIN_COPIED


def _settled(remaining: pl.DataFrame, stacks: np.ndarray) -> np.ndarray:
    """Bool per stack: whether most of what it leaves behind are parameters or optimizer state."""
    rows = remaining.with_columns(settled=pl.col("category").is_in(_SETTLED) * pl.col("size"))
    sums = rows.group_by("stack").agg(pl.col("settled").sum(), pl.col("size").sum()).filter(
        pl.col("settled") * 2 > pl.col("size")
    )  # fmt: skip
    return np.isin(stacks, sums["stack"].to_numpy())


def _bytes_by_repetition(rows: pl.DataFrame, stacks: np.ndarray, repetitions: Repetitions) -> np.ndarray:
    """Float64 (stacks, repetitions): bytes of ``rows`` allocated in each. ``stacks``: ascending, all those of rows."""
    keep = np.isin(rows["stack"].to_numpy(), stacks)
    row = np.searchsorted(stacks, rows["stack"].to_numpy()[keep])
    column = repetitions.of(rows["alloc_event"].to_numpy()[keep])
    inside = (column >= 0) & (column < repetitions.count)
    cell = row[inside] * repetitions.count + column[inside]
    weights = rows["size"].to_numpy()[keep][inside]
    sums = np.bincount(cell, weights=weights, minlength=len(stacks) * repetitions.count)
    return sums.reshape(len(stacks), repetitions.count)


def theil_sen(values: np.ndarray) -> float:
    """The median slope between all pairs, which no single value can pull away. Of many values, some tens evenly
    apart.
    """
    at = np.unique(np.linspace(0, len(values) - 1, min(_MAX_PAIRED, len(values))).astype(np.int64))
    if len(at) < 2:
        return 0.0
    first, second = np.triu_indices(len(at), 1)
    slopes: np.ndarray = (values[at[second]] - values[at[first]]) / (at[second] - at[first])
    return float(np.median(slopes))


def _inputs_grow(floor: np.ndarray, others: np.ndarray) -> bool:
    """Whether many other stacks grow as well: then the inputs become larger, as with a curriculum of lengths.

    ``others``: Float64 (stacks, repetitions), bytes allocated.
    """
    middle = len(floor) // 2
    own = _ratio(floor[1 : middle + 1], floor[middle:])
    early, late = np.median(others[:, 1 : middle + 1], axis=1), np.median(others[:, middle:-1], axis=1)
    along = late > early * (1 + _ALONG * (own - 1))
    return float(late[along].sum()) > _ALONG_SHARE * float(late.sum())


def _ratio(early: np.ndarray, late: np.ndarray) -> float:
    return float(np.median(late)) / max(1.0, float(np.median(early)))
