"""Spans: what is drawn of a tile, with exact bytes.

A span is a run of columns in which one band of the stack stays the same: one allocation, or, where neighbours in the
stack are each thinner than a raster row, a group of them with their exact total. Every column's spans, in order, sum to
what is allocated at the position that the column shows.

Groups are formed by the row in which an allocation is born, not by where it lies in each column: what slides down
because something below was freed keeps its group, so the number of spans grows with births and deaths, not with
columns times rows. On 920,183 events that is what keeps a level in the tens of thousands of spans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snapreport.mesh.dominant import Members, dominant
from snapreport.mesh.stacking import Ints, Lifetimes


@dataclass(frozen=True)
class Spans:
    """Spans in stacking order, bottom first; all int64 and of equal length.

    ``first``, ``length``: columns; ``rep``: the id that stands for the span (its only allocation, or the oldest of the
    dominant stack); ``stack``: the stack with most bytes in it; ``count``: allocations; ``bytes``: their exact sum.
    """

    first: Ints
    length: Ints
    rep: Ints
    stack: Ints
    count: Ints
    bytes: Ints


def tile_spans(lifetimes: Lifetimes, birth: Ints, samples: Ints, tolerance: float) -> Spans:
    """The spans of a tile whose columns show ``samples`` (int64, ascending), merging what is thinner than ``tolerance``
    bytes.

    Complexity: O(N + M log M) for N allocations, of which M live at one sample at least.
    """
    begin, stop = (int(samples[0]), int(samples[-1])) if len(samples) else (0, -1)
    near = np.flatnonzero((lifetimes.start <= stop) & (lifetimes.end > begin))
    first = np.searchsorted(samples, lifetimes.start[near])
    after = np.searchsorted(samples, lifetimes.end[near])
    shown = after > first
    ids, first, after = near[shown], first[shown], after[shown]
    size = lifetimes.size[ids]
    group = _groups(size, birth[ids], tolerance)
    members = np.bincount(group, minlength=1)[group] if len(ids) else group
    alone = members == 1
    many = ~alone
    merged = _merge(ids[many], first[many], after[many], group[many], lifetimes, len(samples) + 1)
    single = (
        group[alone],
        first[alone],
        after[alone] - first[alone],
        ids[alone],
        np.ones(alone.sum(), np.int64),
        size[alone],
    )
    columns = [np.concatenate(pair) for pair in zip(single, merged, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    _, start, length, rep, count, total = (column[order] for column in columns)
    return Spans(start, length, rep, lifetimes.stack[rep], count, total)


def _groups(size: Ints, birth: Ints, tolerance: float) -> Ints:
    """Group numbers, ascending: a thick allocation is a group; thin neighbours born in the same row share one."""
    thick = size >= tolerance
    row = np.floor(birth / tolerance)
    new = thick.copy()
    new[1:] |= thick[:-1] | (row[1:] != row[:-1])
    new[:1] = True
    return np.cumsum(new) - 1


def _merge(ids: Ints, first: Ints, after: Ints, group: Ints, lifetimes: Lifetimes, stride: int) -> tuple[Ints, ...]:
    """(group, first, length, rep, count, bytes) of the spans of groups with several members."""
    if not len(ids):
        return (np.zeros(0, np.int64),) * 6
    # A cut is (group, column); all members of a group have ended at its last cut, so stretches never cross groups.
    opened, closed = group * stride + first, group * stride + after
    cuts = np.unique(np.concatenate([opened, closed]))
    opened, closed = np.searchsorted(cuts, opened), np.searchsorted(cuts, closed)
    size, stack = lifetimes.size[ids], lifetimes.stack[ids]
    count = np.cumsum(np.bincount(opened, minlength=len(cuts)) - np.bincount(closed, minlength=len(cuts)))
    change = np.zeros(len(cuts), np.int64)
    np.add.at(change, opened, size)
    np.subtract.at(change, closed, size)
    total = np.cumsum(change)
    rep = dominant(Members(ids, size, stack, opened, closed), group, len(cuts))
    length = np.diff(cuts, append=cuts[-1])
    cut_group, cut_first = cuts // stride, cuts % stride
    # Equal neighbours join: a member that goes while its twin comes changes nothing that is drawn.
    live = count > 0
    new = live.copy()
    same = (
        (cut_group[1:] == cut_group[:-1])
        & (count[1:] == count[:-1])
        & (total[1:] == total[:-1])
        & (rep[1:] == rep[:-1])
    )
    new[1:] &= ~(same & live[:-1])
    heads = np.flatnonzero(new)
    lengths = np.add.reduceat(np.where(live, length, 0), heads)
    return cut_group[heads], cut_first[heads], lengths, rep[heads], count[heads], total[heads]
