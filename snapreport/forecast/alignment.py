"""Aligns the allocations of two recordings of one program, run at different values of one number.

The same program takes other kernels at other sizes, which allocate more or less. So requests and frees are aligned as
sequences: the fewest insertions on either side (E. Myers, "An O(ND) difference algorithm", 1986), where two requests
are alike if they have the same stack trace and stream, and sizes of which one can have grown into the other.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.allocator.trace import ALLOC, EMPTY_CACHE, FREE, Trace
from snapreport.findings.stack_matching import stack_matching
from snapreport.forecast.reductions import SummedTrace

MOST_INSERTIONS = 1200
"""Insertions on both sides after which two sequences count as different: the search costs their square, a second."""
FIRST_RUN = 64
STREAMS = 4096


class Alignment(Struct, frozen=True):
    """other: Int64 by allocation id of the first recording, the id in the second, -1 where it has none. insertions:
    operations that only one of the two has; None where there are too many to align.
    """

    other: np.ndarray
    insertions: int | None


class Operations(Struct, frozen=True):
    """Requests, frees and releases of a trace, in order.

    alike: Int64, equal where two may be the same. size: Int64 bytes of a request, 0 of others. is_request: Boolean.
    item: Int64, the allocation's id.
    """

    alike: np.ndarray
    size: np.ndarray
    is_request: np.ndarray
    item: np.ndarray

    def __len__(self) -> int:
        return len(self.alike)


def align(first: SummedTrace, second: SummedTrace, growth: float) -> Alignment:
    """``growth``: how many times as large the number is in the second recording, above 1. A size may grow with its
    square: scores of attention do with the length of a sequence. Scratch memory of sums is left out.
    """
    one, two = first.recorded, second.recorded
    identity = stack_matching(one.timeline.recording, two.timeline.recording)
    ours, theirs = _operations(first, identity.before), _operations(second, identity.after)
    pairs = _shortest_edit(ours, theirs, growth * growth)
    other = np.full(len(one.size), -1, np.int64)
    if pairs is None:
        return Alignment(other, None)
    here, there = pairs
    requests = ours.is_request[here]
    other[ours.item[here[requests]]] = theirs.item[there[requests]]
    _align_earlier(one, two, other)
    return Alignment(other, len(ours) + len(theirs) - 2 * len(here))


def _operations(summed: SummedTrace, identity: np.ndarray) -> Operations:
    trace = summed.recorded
    of_allocation = (trace.kind == FREE) | (trace.kind == ALLOC)
    kept = (of_allocation & ~np.isin(trace.item, summed.scratch)) | (trace.kind == EMPTY_CACHE)
    kind, item = trace.kind[kept].astype(np.int64), trace.item[kept]
    is_request = kind == ALLOC
    if not len(trace.size):
        return Operations(-kind, np.zeros(len(kind), np.int64), is_request, item)
    allocation = np.where(kind == EMPTY_CACHE, 0, item)
    stack = identity[trace.timeline.allocations["stack"].to_numpy()[allocation]]
    alike = (stack * (EMPTY_CACHE + 1) + kind) * STREAMS + trace.stream[allocation] % STREAMS
    size = np.where(is_request, trace.size[allocation], 0)
    return Operations(np.where(kind == EMPTY_CACHE, -1, alike), size, is_request, item)


def _align_earlier(first: Trace, second: Trace, other: np.ndarray) -> None:
    """What was live before both traces, in order of its address, where the sizes are the same: a model."""
    ours, theirs = (np.flatnonzero(~trace.born) for trace in (first, second))
    if len(ours) == len(theirs) and bool((first.size[ours] == second.size[theirs]).all()):
        other[ours] = theirs


def _shortest_edit(ours: Operations, theirs: Operations, most: float) -> tuple[np.ndarray, np.ndarray] | None:
    """(rows of ours, rows of theirs) that are the same, in order; None above :data:`MOST_INSERTIONS`."""
    n, m = len(ours), len(theirs)
    if abs(n - m) > MOST_INSERTIONS:
        return None
    reach: dict[int, int] = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(MOST_INSERTIONS + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            x = reach[diagonal + 1] if _goes_down(reach, diagonal, edits) else reach[diagonal - 1] + 1
            if x <= n and x - diagonal <= m:
                x += _run(ours, theirs, x, x - diagonal, most)
            reach[diagonal] = x
            if x >= n and x - diagonal >= m:
                return _traced(history, n, m)
    return None


def _goes_down(reach: dict[int, int], diagonal: int, edits: int) -> bool:
    """Whether the path that gets furthest on a diagonal comes from an insertion in the second sequence."""
    return diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])


def _run(ours: Operations, theirs: Operations, x: int, y: int, most: float) -> int:
    """How many operations from ``x`` of ours and ``y`` of theirs on are alike, one by one."""
    length, part = 0, FIRST_RUN
    end = min(len(ours) - x, len(theirs) - y)
    while length < end:
        stop = min(end, length + part)
        a, b = slice(x + length, x + stop), slice(y + length, y + stop)
        before, after = ours.size[a], theirs.size[b]
        same = (ours.alike[a] == theirs.alike[b]) & (before <= after) & (after <= before * most)
        if not same.all():
            return length + int(np.argmin(same))
        length = stop
        part *= 4
    return length


def _traced(history: list[dict[int, int]], n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows on the shortest path, found from its end back to its start."""
    here, there = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    x, y = n, m
    for edits in range(len(history) - 1, -1, -1):
        reach, diagonal = history[edits], x - y
        down = _goes_down(reach, diagonal, edits)
        previous = diagonal + 1 if down else diagonal - 1
        from_x = reach[previous]
        start = from_x if down else from_x + 1
        here.append(np.arange(start, x))
        there.append(np.arange(start, x) - diagonal)
        x, y = from_x, from_x - previous
    return np.concatenate(here[::-1]), np.concatenate(there[::-1])
