"""Reserved but not allocated, at every position: rounding, holes beside blocks in use, wholly free segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from snapreport.ordering import stable_order
from snapreport.timeline.blocks import Blocks
from snapreport.timeline.interface import Timeline
from snapreport.timeline.neighbours import ends_of


@dataclass(frozen=True)
class Fragmentation:
    """Int64 bytes at every position, as the timeline's curves: index s is position s - 1.

    rounding: of blocks beyond what was asked for. wholly_free: segments (mapped ranges) with no block in use.
    inactive_split: holes in the other segments. The three add up to reserved less allocated; pending frees count as
    allocated. In a contradictory record (sizes overlap, or blocks lie outside all segments) inactive_split may be below
    zero.
    """

    rounding: np.ndarray
    inactive_split: np.ndarray
    wholly_free: np.ndarray


@dataclass(frozen=True)
class Parts:
    """The three curves at one position; see :class:`Fragmentation`."""

    rounding: int
    inactive_split: int
    wholly_free: int


def parts_at(timeline: Timeline, position: int) -> Parts:
    """What the curves have at ``position`` (-1 … events - 1), without making them: 3 ms of 300,000 allocations, not
    130.
    """
    live = live_ids(timeline, position)
    rounding = int((timeline.blocks_at(position).size - timeline.allocations["size"].to_numpy()[live]).sum())
    wholly_free = wholly_free_at(timeline, position)
    unused = int(timeline.reserved[position + 1]) - int(timeline.allocated[position + 1])
    return Parts(rounding, unused - rounding - wholly_free, wholly_free)


def wholly_free_at(timeline: Timeline, position: int) -> int:
    """Bytes in segments (mapped ranges) with no block in use. Needs no block sizes, which are what is dear: 0.1 s of
    300,000.
    """
    segments = timeline.segment_history
    made, gone = segments["alloc_event"].to_numpy(), segments["free_event"].to_numpy()
    rows = np.flatnonzero((made <= position) & ((gone < 0) | (gone > position)))
    start, size = segments["address"].to_numpy()[rows], segments["size"].to_numpy()[rows]
    order = np.argsort(start, kind="stable")
    start, size = start[order], size[order]
    wholly_free = int(size.sum())
    if len(start):
        address = timeline.allocations["addr"].to_numpy()[live_ids(timeline, position)]
        at = np.searchsorted(start, address, "right") - 1
        inside = (at >= 0) & (address - start[np.maximum(at, 0)] < size[np.maximum(at, 0)].astype(np.uint64))
        wholly_free -= int(size[np.unique(at[inside])].sum())
    return wholly_free


def live_ids(timeline: Timeline, position: int) -> np.ndarray:
    """Int64 ids of the allocations that are live at a position, ascending."""
    born, freed = (timeline.allocations[name].to_numpy() for name in ("alloc_event", "free_event"))
    return np.flatnonzero((born <= position) & ((freed < 0) | (freed > position)))


def fragmentation_of(timeline: Timeline) -> Fragmentation:
    """The curves of a device."""
    blocks, allocations = timeline.blocks, timeline.allocations
    born, freed = allocations["alloc_event"].to_numpy(), allocations["free_event"].to_numpy()
    positions = len(timeline.events) + 1
    extra = blocks.size - allocations["size"].to_numpy()
    rounding = np.zeros(positions, np.int64)
    rounding[0] = extra[born < 0].sum()
    rounding[born[born >= 0] + 1] = extra[born >= 0]
    ends = freed >= 0
    rounding[freed[ends] + 1] -= extra[ends]
    np.cumsum(rounding, out=rounding)
    wholly_free = np.zeros(positions, np.int64)
    _fixed(blocks, born, freed, wholly_free)
    _mapped(blocks, born, freed, allocations["addr"].to_numpy(), wholly_free)
    np.cumsum(wholly_free, out=wholly_free)
    return Fragmentation(rounding, timeline.reserved - timeline.allocated - rounding - wholly_free, wholly_free)


def _fixed(blocks: Blocks, born: np.ndarray, freed: np.ndarray, step: np.ndarray) -> None:
    """Add the changes of wholly free bytes in segments that are made and given back whole."""
    table = blocks.segments
    expandable = table["expandable"].to_numpy()
    row = blocks.segment
    inside = (row >= 0) & ~expandable[row] if len(table) else np.zeros(len(row), bool)
    row, born, freed = row[inside], born[inside], freed[inside]
    fixed = np.flatnonzero(~expandable)
    made, gone, size = (table[c].to_numpy()[fixed] for c in ("alloc_event", "free_event", "size"))
    made, ended = made.astype(np.int64), gone >= 0
    # Per segment: it begins (free), blocks begin and end in it, it ends. Then the first and the last counts of each
    # run.
    frees = freed >= 0
    segment = np.concatenate((fixed, row, row[frees], fixed[ended]))
    at = np.concatenate((made, born, freed[frees], gone[ended])).astype(np.int64) + 1
    # An end comes before a birth at one event: where an unrecorded free is told by the next alloc on the address.
    kind = np.repeat(np.array([0, 2, 1, 3], np.int64), [len(fixed), len(row), int(frees.sum()), int(ended.sum())])
    change = np.array([0, -1, 1, 0], np.int64)[kind]
    order = _order(segment, at, kind, len(step))
    segment, at, kind, change = segment[order], at[order], kind[order], change[order]
    count = np.cumsum(change)
    is_free = np.zeros(len(table), np.int64)
    is_free[fixed] = size
    first = np.ones(len(segment), bool)
    first[1:] = segment[1:] != segment[:-1]
    base = (count - change)[first][np.cumsum(first) - 1] if len(count) else count
    # What is wholly free after each of these moments, and so by how much it changes there.
    now = np.where((count - base <= 0) & (kind != 3), is_free[segment], 0)
    before = np.concatenate(([0], now[:-1]))[: len(now)]
    changed = now - np.where(first, 0, before)
    rows = np.flatnonzero(changed)  # a segment is seldom emptied: hundreds of times less often than blocks come and go
    np.add.at(step, at[rows], changed[rows])


def _order(segment: np.ndarray, at: np.ndarray, kind: np.ndarray, positions: int) -> np.ndarray:
    return stable_order((segment.astype(np.int64) * (positions + 1) + at) * 4 + kind)


def _mapped(blocks: Blocks, born: np.ndarray, freed: np.ndarray, address: np.ndarray, step: np.ndarray) -> None:
    """Add the changes of wholly free bytes in mapped ranges.

    Between two events that map or unmap, the ranges stay as they are: a loop over those, whole columns in between.
    """
    table = blocks.segments.filter(pl.col("expandable"))
    if not len(table):
        return
    row = blocks.segment
    inside = np.flatnonzero((row >= 0) & blocks.segments["expandable"].to_numpy()[row])
    address, born, freed = address[inside], born[inside], freed[inside]
    start, made, gone, size = (table[c].to_numpy() for c in ("address", "alloc_event", "free_event", "size"))
    gone = np.where(gone < 0, len(step), gone)
    stop = ends_of(start, size)
    never_freed = freed < 0
    end = np.where(never_freed, len(step), freed)
    who = np.concatenate((np.arange(len(inside)), np.flatnonzero(~never_freed)))
    when = np.concatenate((born, freed[~never_freed]))
    sign = np.repeat(np.array([1, -1]), [len(inside), len(who) - len(inside)])
    order = np.lexsort((sign, when))  # a death before a birth
    who, when, sign = who[order], when[order], sign[order]
    changes = np.unique(np.concatenate((made, gone[gone < len(step)])))
    cuts = np.searchsorted(when, changes, "left")
    by_made, by_gone = np.argsort(made, kind="stable"), np.argsort(gone, kind="stable")
    made_until, gone_until = (
        np.searchsorted(made[by_made], changes, "right"),
        np.searchsorted(gone[by_gone], changes, "right"),
    )
    current = np.zeros(0, np.int64)
    counts = np.zeros(0, np.int64)
    previous, free_before = (0, 0), 0
    for i, event in enumerate(changes.tolist()):
        ending = by_gone[previous[1] : gone_until[i]]
        kept = ~np.isin(current, ending)
        beginning = by_made[previous[0] : made_until[i]]
        beginning = beginning[gone[beginning] > event]
        previous = (int(made_until[i]), int(gone_until[i]))
        old, old_counts = current[~kept], counts[~kept]
        fresh = _carried(start, stop, old, old_counts, beginning)
        unknown = fresh < 0
        if unknown.any():  # cut beside blocks in use: count what lives now
            live = np.sort(address[(born < event) & (end > event)])
            at = beginning[unknown]
            fresh[unknown] = np.searchsorted(live, stop[at]) - np.searchsorted(live, start[at])
        current = np.concatenate((current[kept], beginning))
        counts = np.concatenate((counts[kept], fresh))
        sort = np.argsort(start[current])
        current, counts = current[sort], counts[sort]
        free_now = int(size[current[counts == 0]].sum())
        step[event + 1] += free_now - free_before
        free_before = free_now
        a, b = cuts[i], cuts[i + 1] if i + 1 < len(changes) else len(when)
        if b > a and len(current):
            free_before += _within(start[current], size[current], counts, address[who[a:b]], when[a:b], sign[a:b], step)


def _carried(start: np.ndarray, stop: np.ndarray, old: np.ndarray, counts: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Blocks in use in each range of ``fresh``: those of the ``old`` ranges it has swallowed; -1 where one was cut with
    some in it.
    """
    result = np.zeros(len(fresh), np.int64)
    begin, last = start[old], stop[old]
    for i, row in enumerate(fresh.tolist()):
        overlaps = (begin < stop[row]) & (last > start[row])
        cut = overlaps & ((begin < start[row]) | (last > stop[row])) & (counts > 0)
        result[i] = -1 if cut.any() else counts[overlaps].sum()
    return result


def _within(
    start: np.ndarray,
    size: np.ndarray,
    counts: np.ndarray,
    address: np.ndarray,
    when: np.ndarray,
    sign: np.ndarray,
    step: np.ndarray,
) -> int:
    """Work births and deaths into ``counts`` and ``step``; gives the change of wholly free bytes. Ranges by address."""
    at = np.searchsorted(start, address, "right") - 1
    inside = (at >= 0) & (address - start[np.maximum(at, 0)] < size[np.maximum(at, 0)].astype(np.uint64))
    at, when, sign = at[inside], when[inside], sign[inside]
    order = np.argsort(at, kind="stable")
    at, when, sign = at[order], when[order], sign[order]
    total = np.cumsum(sign)
    first = np.ones(len(at), bool)
    first[1:] = at[1:] != at[:-1]
    base = (total - sign)[first][np.cumsum(first) - 1] if len(at) else total
    now = total - base + counts[at]
    before = now - sign
    change = np.where(now <= 0, size[at], 0) - np.where(before <= 0, size[at], 0)
    np.add.at(step, when + 1, change)
    np.add.at(counts, at, sign)
    return int(change.sum())
