"""Stacks whose live bytes grow from repetition to repetition.

A stack grows in one of two ways. It *accumulates*: repetition after repetition it allocates something that is never
freed, and its lowest live bytes within each repetition rise with it. Or it is *replaced*: each allocation takes the
place of the last one and is larger, as ``torch.cat([history, new])`` does.

Look-alikes are excluded by their shape. Optimizer state is allocated in one step. A cache that levels off gets nothing
in the later steps. A working set that is replaced by an equal one does not rise. Inputs that become longer make
everything in a step larger, not one stack.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from snapreport.findings.lowest_live import lowest_live
from snapreport.findings.repetition import FEWEST, Repetitions
from snapreport.timeline.build import DeviceTimeline

_MIN_BYTES = 1 << 20
_MIN_SHARE = 0.001
"""Of the peak, for the growth of one stack over the whole trace."""
_SPREAD, _SPREAD_ALL = 0.8, 0.6
"""The share of the later repetitions, and of all, in which a growing stack leaves something behind."""
_LATER = 0.35
"""The share of its growth that falls into the later half; steady growth has half of it there, a levelling cache
nothing.
"""
_RISE = 0.6
"""How much of what is left behind must show as a rise of the stack's lowest live bytes."""
_SHOWS = 0.5
"""How much of a stack's growth must show in the lowest allocated bytes of all stacks together."""
_SPARSE = 5
"""Groups of repetitions at least, where a stack leaves something behind only every so many of them."""
_PAIRED = 64
_ALONG, _ALONG_SHARE = 0.5, 0.15
"""A stack grows along with a replaced one from this share of its growth on; with so many of a step's bytes in stacks
that do, the inputs become larger.
"""
_CACHED = 4
"""Tensors of a KV cache that one line extends at least: those of two layers. Its inputs grow with it."""
_REMAINING = 1.5
"""How many times what a replaced stack allocates in one repetition may remain at the end."""
_SETTLED = ("parameter", "optimizer state")
"""Memory that is built up once and stays: a loading loop looks like a leak while it runs."""


@dataclass(frozen=True)
class GrowingStack:
    """One stack's growth.

    ``bytes``, ``count``: of its allocations in the trace that were never freed. ``staircase``: Int64, its lowest live
    bytes in each repetition. ``per_repetition``: bytes that each one adds, the median. ``every``: 1, or after how many
    repetitions it adds something. ``replaced``: whether each allocation replaces a smaller one.
    """

    stack: int
    bytes: int
    count: int
    staircase: np.ndarray
    per_repetition: float
    every: int = 1
    replaced: bool = False


def min_growth_bytes(timeline: DeviceTimeline) -> float:
    """Bytes over a whole trace below which growth is not reported."""
    return max(_MIN_BYTES, _MIN_SHARE * timeline.peak_bytes)


def growing_stacks(timeline: DeviceTimeline, repetitions: Repetitions) -> list[GrowingStack]:
    """Stacks that grow until the end of the trace, most bytes a repetition first."""
    found = _accumulating(timeline, repetitions)
    found += _replaced(timeline, repetitions, {growth.stack for growth in found})
    floors = np.minimum.reduceat(timeline.allocated, np.minimum(repetitions.bounds[:-1], len(timeline.allocated) - 1))
    rise = int(floors[-1] - floors[1])
    found = [growth for growth in found if rise >= _SHOWS * int(growth.staircase[-1] - growth.staircase[1])]
    return sorted(found, key=lambda growth: (-growth.per_repetition, growth.stack))


def _accumulating(timeline: DeviceTimeline, repetitions: Repetitions) -> list[GrowingStack]:
    allocations = timeline.allocations
    remaining = allocations.filter((pl.col("free_event") < 0) & (pl.col("alloc_event") >= 0))
    stacks = _large_stacks(remaining, min_growth_bytes(timeline))
    if not len(stacks):
        return []
    births = _bytes_by_repetition(remaining, stacks, repetitions)
    floors = lowest_live(allocations, stacks, repetitions.bounds)
    settled = _settled(remaining, stacks) if repetitions.unit != "step" else np.zeros(len(stacks), bool)
    found = []
    for row, stack in enumerate(stacks.tolist()):
        # The first repetition is warm-up: what it leaves behind is meant to stay.
        steady = steady_growth(births[row, 1:])
        if steady is None or settled[row] or not _rises(births[row, 1:], floors[row]):
            continue
        mine = remaining.filter(pl.col("stack") == stack)
        size = int(mine["size"].sum())
        found.append(GrowingStack(stack, size, len(mine), floors[row], steady.per_repetition, steady.every))
    return found


def _replaced(timeline: DeviceTimeline, repetitions: Repetitions, known: set[int]) -> list[GrowingStack]:
    """Stacks that free all that they allocate but for the last, and whose lowest live bytes rise all the same."""
    allocations = timeline.allocations
    traced = allocations.filter(pl.col("alloc_event") >= 0)
    remaining = traced.filter(pl.col("free_event") < 0)
    stacks = _large_stacks(remaining, min_growth_bytes(timeline))
    stacks = stacks[~np.isin(stacks, list(known)) & ~_settled(remaining, stacks)]
    if repetitions.count <= FEWEST or not len(stacks):
        return []
    floors = lowest_live(allocations, stacks, repetitions.bounds)
    every_stack = traced["stack"].unique().sort().to_numpy()
    per_stack = _bytes_by_repetition(traced, every_stack, repetitions)
    births = np.bincount(traced["stack"].to_numpy(), minlength=int(every_stack[-1]) + 1) / repetitions.count
    infers = not allocations["category"].cast(pl.String).is_in(["gradient", "optimizer state"]).any()
    found = []
    for row, stack in enumerate(stacks.tolist()):
        rises = np.diff(floors[row, 1:]).astype(float)
        steady = steady_growth(rises)
        if steady is None or (rises < 0).mean() > 1 - _SPREAD or rises.sum() < min_growth_bytes(timeline):
            continue
        own = np.searchsorted(every_stack, stack)
        mine = remaining.filter(pl.col("stack") == stack)
        if (per_stack[own, 1:] > 0).mean() < _SPREAD_ALL or len(mine) > max(1.0, _REMAINING * births[stack]):
            continue
        cached = bool((mine["category"].cast(pl.String) == "kv cache").all()) or (infers and len(mine) >= _CACHED)
        if cached or not _inputs_grow(floors[row], np.delete(per_stack, own, axis=0)):
            size = int(mine["size"].sum())
            found.append(GrowingStack(stack, size, len(mine), floors[row], steady.per_repetition, steady.every, True))
    return found


def _large_stacks(remaining: pl.DataFrame, least: float) -> np.ndarray:
    """Ascending stacks that leave at least so many bytes behind."""
    sums = remaining.group_by("stack").agg(pl.col("size").sum()).filter(pl.col("size") >= least)
    return sums["stack"].sort().to_numpy()


def _settled(remaining: pl.DataFrame, stacks: np.ndarray) -> np.ndarray:
    """Bool per stack: whether most of what it leaves behind are parameters or optimizer state."""
    rows = remaining.with_columns(settled=pl.col("category").cast(pl.String).is_in(_SETTLED) * pl.col("size"))
    sums = rows.group_by("stack").agg(pl.col("settled").sum(), pl.col("size").sum()).filter(
        pl.col("settled") * 2 > pl.col("size")
    )  # fmt: skip
    return np.isin(stacks, sums["stack"].to_numpy())


def _bytes_by_repetition(rows: pl.DataFrame, stacks: np.ndarray, repetitions: Repetitions) -> np.ndarray:
    """Float64 (stacks, repetitions): bytes of ``rows`` allocated in each. ``stacks``: ascending, all those of rows."""
    keep = np.isin(rows["stack"].to_numpy(), stacks)
    row = np.searchsorted(stacks, rows["stack"].to_numpy()[keep])
    column = repetitions.of(rows["alloc_event"].to_numpy()[keep].astype(np.int64) + 1)
    inside = (column >= 0) & (column < repetitions.count)
    cell = row[inside] * repetitions.count + column[inside]
    weights = rows["size"].to_numpy()[keep][inside]
    sums = np.bincount(cell, weights=weights, minlength=len(stacks) * repetitions.count)
    return sums.reshape(len(stacks), repetitions.count)


@dataclass(frozen=True)
class SteadyGrowth:
    """``per_repetition``: what each one adds; ``every``: after how many of them something is added."""

    per_repetition: float
    every: int


def steady_growth(added: np.ndarray) -> SteadyGrowth | None:
    """Whether something is added in repetition after repetition, and no less towards the end. ``added``: Float64 by
    repetition, the first one left out.

    Growth may begin late, and may happen only in every second, third, … repetition.
    """
    begun = np.flatnonzero(added > 0)
    if not len(begun):
        return None
    complete = added[:-1] if len(added) > FEWEST else added  # the last one may have been cut short
    if _is_steady(complete):
        return SteadyGrowth(float(np.median(complete)), 1)
    late = int(begun[0])
    # Growth that begins late must last long enough to differ from the build-up of something new.
    if len(added) - late < max(FEWEST, len(added) // 3):
        return None
    added = added[late:]
    complete = added[:-1] if len(added) > FEWEST else added
    if late and _is_steady(complete):
        return SteadyGrowth(float(np.median(complete)), 1)
    every = round(float(np.median(np.diff(begun)))) if len(begun) > 1 else 1
    if every < 2 or len(added) // every < _SPARSE:
        return None
    groups = added[len(added) % every :].reshape(-1, every).sum(axis=1)
    return SteadyGrowth(float(np.median(added[added > 0])) / every, every) if _is_steady(groups) else None


def _is_steady(added: np.ndarray) -> bool:
    later = added[len(added) // 2 :]
    total = float(added.sum())
    if total <= 0 or (later > 0).mean() < _SPREAD or (added > 0).mean() < _SPREAD_ALL:
        return False
    return float(later.sum()) >= _LATER * total


def _rises(births: np.ndarray, floors: np.ndarray) -> bool:
    """Whether what is left behind shows as a rise of the lowest live bytes. ``births``: without the first."""
    if len(births) < 2:
        return False
    begin = int(np.flatnonzero(births)[0])
    births, floors, before = births[begin:], floors[1 + begin :], floors[: 1 + begin]
    # Growth that begins late is one tooth of a sawtooth where the stack had as much before and freed it.
    if begin and int(before.max()) > int(floors[0]):
        return False
    rise = float(floors[-1] - floors[0])
    if rise < _RISE * float(births[:-1].sum()) * (len(births) - 1) / len(births):
        return False
    return theil_sen(floors) > 0


def theil_sen(values: np.ndarray) -> float:
    """The median slope between all pairs, which no single value can pull away. Of many values, some tens evenly
    apart.
    """
    at = np.unique(np.linspace(0, len(values) - 1, min(_PAIRED, len(values))).astype(np.int64))
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
