"""Stacks of a profiler trace: which functions and operators were running at each memory event.

Intervals of a thread are nested, so the depth of each is a running sum over their begins and ends, and its parent is
the latest one of the depth above. Equal chains of labels are one tree node. All work is on whole columns, by level.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.reading.profiler_columns import Instants, Intervals, ProfilerColumns

MOST_DEPTH = 1000  # Python's own limit on recursion


class CallTree(Struct):
    """node: Int64 per interval, its chain of labels. inside: Int64 interval that encloses each memory event, -1 for
    none. parent, label: of each node, parents first; parent -1 at a thread's outermost. enclosing: Int64 interval
    around each interval, -1 for none. order: intervals by depth.
    """

    node: np.ndarray
    inside: np.ndarray
    parent: np.ndarray
    label: np.ndarray
    enclosing: np.ndarray
    levels: list[np.ndarray]


def call_tree(intervals: Intervals, instants: Instants) -> CallTree:
    """The tree of all calls, without regions of the program's annotations, which differ from step to step."""
    rows = np.flatnonzero(~intervals.is_region)
    depth, enclosing, inside = _nested(
        intervals.begin[rows], intervals.end[rows], intervals.thread[rows], instants.time, instants.thread
    )
    total = len(intervals.begin)
    around = np.full(total, -1, np.int64)
    around[rows] = np.where(enclosing >= 0, rows[enclosing], -1) if len(rows) else enclosing
    inside = np.where(inside >= 0, rows[inside], -1) if len(rows) else inside
    node = np.full(total, -1, np.int64)
    parents, labels, levels = [], [], []
    made = 0
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = rows[depth == level]
        above = np.where(around[here] >= 0, node[around[here]], -1)
        key = (above + 1) * len(intervals.labels) + intervals.label[here]
        distinct, of = np.unique(key, return_inverse=True)
        node[here] = made + of
        parents.append(distinct // len(intervals.labels) - 1)
        labels.append(distinct % len(intervals.labels))
        levels.append(here)
        made += len(distinct)
    nothing = np.zeros(0, np.int64)
    return CallTree(
        node,
        inside,
        np.concatenate(parents) if parents else nothing,
        np.concatenate(labels) if labels else nothing,
        around,
        levels,
    )


def _nested(
    begin: np.ndarray, end: np.ndarray, thread: np.ndarray, time: np.ndarray, at_thread: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(depth from 1, enclosing interval or -1, interval around each instant or -1)."""
    n, m = len(begin), len(time)
    if not n:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.full(m, -1, np.int64)
    when = np.concatenate((end, begin, time))
    kind = np.repeat(np.array([0, 1, 2]), [n, n, m])  # at equal times: ends, begins, then instants
    # Of intervals that begin together, the longer one is the outer one.
    tie = np.concatenate((np.zeros(n, np.int64), -end, np.zeros(m, np.int64)))
    order = np.lexsort((tie, kind, when, np.concatenate((thread, thread, at_thread))))
    change = np.repeat(np.array([-1, 1, 0]), [n, n, m])
    level = np.empty(len(order), np.int64)
    level[order] = np.cumsum(change[order])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    depth, at_depth = level[n : 2 * n], level[2 * n :]
    begins, instants = place[n : 2 * n], place[2 * n :]
    enclosing, inside = np.full(n, -1, np.int64), np.full(m, -1, np.int64)
    for d in range(1, min(int(depth.max()), MOST_DEPTH) + 1):
        here = np.flatnonzero(depth == d)
        here = here[np.argsort(begins[here])]
        for target, wanted, places in ((enclosing, depth == d + 1, begins), (inside, at_depth == d, instants)):
            rows = np.flatnonzero(wanted)
            target[rows] = here[np.searchsorted(begins[here], places[rows]) - 1]
    return np.minimum(depth, MOST_DEPTH), enclosing, inside


def forward_of(columns: ProfilerColumns, tree: CallTree) -> np.ndarray:
    """Int64 forward operator of each interval that runs in a backward pass, -1 for others.

    From the profiler's arrows if present, otherwise by sequence number, which a forward operator shares with the node
    that it created; of nested operators the last that began. Numbers count per thread, so they suffice only if a single
    thread ran the forward pass.
    """
    intervals = columns.intervals
    found = np.full(len(intervals.begin), -1, np.int64)
    by_place = {
        (thread, begin): row
        for row, (thread, begin) in enumerate(zip(intervals.thread.tolist(), intervals.begin.tolist(), strict=True))
        if intervals.sequence[row] >= 0
    } if len(columns.flows) else {}  # fmt: skip
    for forward_thread, forward_begin, thread, begin in columns.flows.tolist():
        row, forward = by_place.get((thread, begin), -1), by_place.get((forward_thread, forward_begin), -1)
        if row >= 0:
            found[row] = forward
    forwards = np.flatnonzero(intervals.is_forward & ~intervals.is_region)
    if len(np.unique(intervals.thread[forwards])) == 1:
        _by_sequence(intervals, forwards, found)
    for here in tree.levels[1:]:  # intervals inside a backward node belong to it
        inherits = here[found[here] < 0]
        found[inherits] = found[tree.enclosing[inherits]]
    return found


def _by_sequence(intervals: Intervals, forwards: np.ndarray, found: np.ndarray) -> None:
    forwards = forwards[np.lexsort((intervals.begin[forwards], intervals.sequence[forwards]))]
    backward = np.flatnonzero((intervals.sequence >= 0) & ~intervals.is_forward & (found < 0))
    last = np.searchsorted(intervals.sequence[forwards], intervals.sequence[backward], "right") - 1
    forward = forwards[np.maximum(last, 0)]
    same = (last >= 0) & (intervals.sequence[forward] == intervals.sequence[backward])
    same &= intervals.begin[forward] < intervals.begin[backward]
    found[backward[same]] = forward[same]


def chains(tree: CallTree, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(labels of all nodes concatenated, innermost first; count per node). ``nodes``: Int64, -1 has none."""
    columns = []
    now = nodes
    while (now >= 0).any():
        columns.append(np.where(now >= 0, tree.label[now], -1))
        now = np.where(now >= 0, tree.parent[now], -1)
    if not columns:
        return np.zeros(0, np.int64), np.zeros(len(nodes), np.int64)
    matrix = np.stack(columns, axis=1)
    return matrix[matrix >= 0], (matrix >= 0).sum(axis=1)
