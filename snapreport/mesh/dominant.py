"""Which allocation stands for a merged band: the oldest of the stack that has most bytes in it, at every cut.

Two ways to the same answer. Small groups are done all at once, with a row for every member and cut. In a group of
thousands of long-lived members those rows would be their product, tens of millions; such a group is done alone, with
the running sums of its stacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snapreport.mesh.stacking import Ints

# Rows (member and cut) from which a group is done alone, and numbers held at once by its running sums.
ALONE_FROM = 4096
BLOCK = 1 << 21


@dataclass(frozen=True)
class Members:
    """Members of groups, in id order, groups one after the other; int64[M].

    ``opened``, ``closed``: the cuts between which a member lives. Within a group no younger member opens before an
    older one.
    """

    ids: Ints
    size: Ints
    stack: Ints
    opened: Ints
    closed: Ints

    def at(self, rows: npt.NDArray[np.bool_] | slice) -> Members:
        return Members(self.ids[rows], self.size[rows], self.stack[rows], self.opened[rows], self.closed[rows])


def dominant(members: Members, group: Ints, cuts: int) -> Ints:
    """For every cut, the lowest id of the stack with most bytes (ties: lowest stack) among the members live from there,
    or -1.
    """
    rep = np.full(cuts, -1, np.int64)
    if not len(group):
        return rep
    first = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    after = np.append(first[1:], len(group))
    rows = np.add.reduceat(members.closed - members.opened, first)
    large = rows >= ALONE_FROM
    small = members.at(np.repeat(~large, after - first))
    _by_rows(small, rep)
    for begin, end in zip(first[large].tolist(), after[large].tolist(), strict=True):
        _by_sums(members.at(slice(begin, end)), rep)
    return rep


def _by_rows(members: Members, rep: Ints) -> None:
    cells = members.closed - members.opened
    member = np.repeat(np.arange(len(cells)), cells)
    if not len(member):
        return
    cut = np.arange(len(member)) - np.repeat(np.cumsum(cells) - cells, cells) + np.repeat(members.opened, cells)
    # Stable by (cut, stack): members stay in id order, so the first of each run is its lowest id.
    order = np.lexsort((members.stack[member], cut))
    cut, member = cut[order], member[order]
    stack = members.stack[member]
    run = np.ones(len(cut), bool)
    run[1:] = (cut[1:] != cut[:-1]) | (stack[1:] != stack[:-1])
    heads = np.flatnonzero(run)
    sums = np.add.reduceat(members.size[member], heads)
    # Within a cut the greatest sum first, ties by lowest stack, which is the order the runs have already.
    best = np.lexsort((-sums, cut[heads]))
    best_cut = cut[heads][best]
    leads = np.ones(len(best), bool)
    leads[1:] = best_cut[1:] != best_cut[:-1]
    rep[best_cut[leads]] = members.ids[member[heads[best[leads]]]]


def _by_sums(members: Members, rep: Ints) -> None:
    """One group. Time and memory are those of its stacks times its cuts, whatever the number of members."""
    begin, cuts = int(members.opened.min()), int(members.closed.max() - members.opened.min())
    opened, closed = members.opened - begin, members.closed - begin
    stacks, stack = np.unique(members.stack, return_inverse=True)
    best = np.empty(cuts, np.int64)
    bytes_, count = np.zeros(len(stacks), np.int64), np.zeros(len(stacks), np.int64)
    step = max(1, BLOCK // len(stacks))
    opening, closing = np.argsort(opened, kind="stable"), np.argsort(closed, kind="stable")
    opens_at, closes_at = opened[opening], closed[closing]
    for low in range(0, cuts, step):
        high = min(low + step, cuts)
        starting = opening[np.searchsorted(opens_at, low) : np.searchsorted(opens_at, high)]
        ending = closing[np.searchsorted(closes_at, low) : np.searchsorted(closes_at, high)]
        sums = _running(bytes_, high - low, (opened[starting] - low, stack[starting], members.size[starting]),
                        (closed[ending] - low, stack[ending], members.size[ending]))  # fmt: skip
        live = _running(
            count, high - low, (opened[starting] - low, stack[starting], 1), (closed[ending] - low, stack[ending], 1)
        )
        bytes_, count = sums[-1].copy(), live[-1].copy()
        sums[live == 0] = -1
        found = sums.argmax(axis=1)  # the first of equal ones, so the lowest stack
        best[low:high] = np.where(sums[np.arange(len(found)), found] >= 0, found, -1)
    # A member is its stack's oldest from where all older ones have gone, which are disjoint stretches in id order.
    order = np.argsort(stack, kind="stable")
    stride = cuts + 1
    base = stack[order] * stride
    freed = np.maximum.accumulate(base + closed[order])
    since = np.maximum(base + opened[order], np.append(0, freed[:-1]))
    oldest = since < base + closed[order]
    order, since = order[oldest], since[oldest]
    known = np.flatnonzero(best >= 0)
    rep[begin + known] = members.ids[order[np.searchsorted(since, best[known] * stride + known, "right") - 1]]


def _running(start: Ints, rows: int, *changes: tuple[Ints, Ints, Ints | int]) -> Ints:
    """Sums of each stack at every cut: int64[rows, stacks]. changes: (cut, stack, amount), those coming and those
    going.
    """
    table = np.zeros((rows, len(start)), np.int64)
    table[0] = start
    for (cut, stack, amount), change in zip(changes, (np.add, np.subtract), strict=True):
        change.at(table, (cut, stack), amount)
    return np.cumsum(table, axis=0, out=table)
