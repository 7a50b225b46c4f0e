"""What a program computes from all the results that a line has collected so far."""

from __future__ import annotations

import numpy as np

from snapreport.integers import stable_order
from snapreport.timeline.build import DeviceTimeline

LARGE = 1 << 20
"""Bytes of a result that is concatenated to others: lists of numbers grow as well."""
_MIN_SUMS = 0.5
"""Of a line's allocations: one that sorts its sum allocates places as well."""


def joined_results(timeline: DeviceTimeline, results: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Int64 rows of what the program concatenates all of a line's ``results`` into, as large as these together, and of
    what it computes from that while it is alive, as large, or twice as large: numbers and their places when sorted.

    results, others: Bool per allocation, disjoint; only ``others`` of a MiB or more are found.
    """
    table, never = timeline.allocations, len(timeline.events)
    size, stack, born, freed = (
        table[name].to_numpy().astype(np.int64) for name in ("size", "stack", "alloc_event", "free_event")
    )
    freed[freed < 0] = never
    rows = np.flatnonzero(others & (size >= LARGE))
    # Of all results of a line, and of those that are equally large: outputs and labels in one line, each joined.
    found = np.flatnonzero(results)
    sizes, of_size = np.unique(size[found], return_inverse=True)
    of_line, lines = np.tile(found, 2), stack[found]
    lines = np.append(lines, stack.max(initial=0) + 1 + lines * len(sizes) + of_size)
    lines, events = np.tile(lines, 2), np.append(born[of_line], freed[of_line])
    order = stable_order(lines, events)
    lines, events = lines[order], events[order]
    sign = np.repeat([1, -1], len(of_line))[order]
    count, alive = np.cumsum(sign), np.cumsum(sign * np.tile(size[of_line], 2)[order])
    # From after one of a line's births and frees to its next; after its last none is alive.
    several = np.flatnonzero(count[:-1] > 1)
    is_sum = _born_during(size[rows], born[rows], alive[several], events[several] + 1, events[several + 1] + 1)
    # Where a line mostly allocates something else, it is a sum by chance.
    _, line = np.unique(stack[rows], return_inverse=True)
    is_sum &= (np.bincount(line, is_sum) >= _MIN_SUMS * np.bincount(line))[line]
    joined = np.repeat(rows[is_sum], 2)
    sizes = size[joined] * np.tile([1, 2], len(joined) // 2)
    return np.asarray(rows[_born_during(size[rows], born[rows], sizes, born[joined], freed[joined])])


def _born_during(
    size: np.ndarray, born: np.ndarray, sizes: np.ndarray, begin: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """Bool per ``size`` and ``born``: whether it is one of ``sizes`` (bytes), from its event of ``begin`` until before
    its ``end``.
    """
    # Sizes and events as one number, which is sorted: 60,000 sums, each compared to all rows, took 220 s.
    known, of_known = np.unique(size, return_inverse=True)
    factor = 1 + max(born.max(initial=0), end.max(initial=0))
    keys = of_known * factor + born
    order = np.argsort(keys)
    is_known = np.isin(sizes, known)
    first = np.searchsorted(known, sizes[is_known]) * factor
    starts, ends = (np.searchsorted(keys[order], first + events[is_known]) for events in (begin, end))
    covered = np.bincount(starts, minlength=len(size) + 1) - np.bincount(ends, minlength=len(size) + 1)
    during = np.zeros(len(size), bool)
    during[order] = np.cumsum(covered)[:-1] > 0
    return during
