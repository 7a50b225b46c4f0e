"""Ranks that have more than their group: how much, and in which stacks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.jobs.groups import Group
from snapreport.jobs.slopes import robust_deviation

MIN_SHARE = 0.02
"""Minimum excess of an outlier as a share of its group's bytes."""
MIN_BYTES = 1 << 20
DEVIATIONS = 6.0
"""Robust standard deviations of an outlier above its group; in a group with a spread, those of logarithms."""
LONELY = 0.25
"""Share of an outlier's excess that must be above the next highest rank; otherwise it is the group's normal tail."""
APART_RANKS = 12
"""A spread of at least this many ranks is also judged by the gap below its highest ranks, in logarithms."""
APART, APART_DEVIATIONS = 1.2, 4.0
"""Four deviations are enough above a gap 1.2 times as wide as the range of all other ranks. Of 100,000 draws of 16
ranks this flags 0.6 in a thousand normal ones and 13 with Laplace's longer tails; six deviations flag 3.9 and 51."""
TAIL = 1.25
"""Six deviations are enough above a gap this many times the distance of the next rank from the median: for 64 Laplace
draws this flags 32 in a thousand, six deviations alone 92."""
LONELY_STACK, UNKNOWN_TO_OTHERS = 0.7, 0.9
"""The same for a stack: in groups whose ranks are equal, and in others."""
STACK_SHARE = 0.05
"""Share of the excess below which a stack is not named."""
MOST_OUTLIERS, MOST_STACKS = 32, 10


class Outlier(Struct, frozen=True):
    """A rank above its group. row, group: indices. bytes_above: its peak less the expected bytes of its group. stacks:
    (stack, bytes above, bytes, expected bytes), most above first.
    """

    row: int
    group: int
    bytes_above: int
    stacks: list[tuple[int, int, int, int]]


def find_outliers(groups: list[Group], stacks: np.ndarray, totals: np.ndarray) -> list[Outlier]:
    """All outliers, most bytes above first. ``stacks``, ``totals``: as for ``find_groups``."""
    found = [
        outlier
        for number, group in enumerate(groups)
        if group.is_judged
        for outlier in _of_group(number, group, stacks, totals)
    ]
    return sorted(found, key=lambda outlier: (-outlier.bytes_above, outlier.row))[:MOST_OUTLIERS]


def _of_group(number: int, group: Group, stacks: np.ndarray, totals: np.ndarray) -> list[Outlier]:
    rows = np.array(group.rows)
    above = totals[rows] - group.totals
    least = np.maximum(MIN_SHARE * group.totals, MIN_BYTES)
    is_out = _by_total(group, totals[rows], above, least) | _by_stack(group, stacks[rows], above, least)
    # More than a quarter of the group are not outliers: that is how the group is.
    if is_out.sum() > max(1, len(rows) // 4):
        return []
    return [
        Outlier(int(rows[i]), number, int(above[i]), _named(stacks[rows[i]], group.expected[i], above[i]))
        for i in np.flatnonzero(is_out)
    ]


def _by_total(group: Group, totals: np.ndarray, above: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Ranks whose peak is above what the group's own spread explains."""
    factor = DEVIATIONS if len(above) >= 8 else DEVIATIONS + 2 if len(above) >= 5 else DEVIATIONS + 4
    if group.kind != "spread":
        return np.asarray((above > least) & (above > factor * robust_deviation(above)))
    logs = np.log(np.maximum(totals, 1.0))
    logs -= np.median(logs)
    deviation = robust_deviation(logs)
    is_high = logs > factor * deviation if len(logs) < APART_RANKS else _are_apart(logs, deviation)
    candidate = (above > 2 * least) & is_high
    others = above[~candidate]
    highest = float(others.max()) if len(others) else 0.0
    return np.asarray(candidate & (above - highest >= LONELY * above))


def _are_apart(logs: np.ndarray, deviation: float) -> np.ndarray:
    """The highest ranks, at most an eighth, above a gap that the spread of the others does not explain. ``logs``: with
    the median subtracted.
    """
    order = np.sort(logs)
    for count in range(1, len(order) // 8 + 1):
        lowest, below = order[-count], order[-count - 1]
        is_alone = lowest > APART_DEVIATIONS * deviation and lowest - below > APART * (below - order[0])
        is_beyond = lowest > DEVIATIONS * deviation and lowest - below > TAIL * below
        if is_alone or is_beyond:
            return np.asarray(logs >= lowest)
    return np.zeros(len(logs), bool)


def _by_stack(group: Group, bytes_of: np.ndarray, above: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Ranks with far more bytes in a stack than any other rank of the group, and a higher peak because of it. At most
    one in eight ranks may share such a stack.

    If the ranks of a group differ anyway, only stacks that the others lack entirely count.
    """
    if len(above) < 4:
        return np.zeros(len(above), bool)
    excess = bytes_of - group.expected
    judged = excess if group.kind == "level" else bytes_of
    order = np.maximum(np.sort(judged, axis=0)[::-1], 0)
    alone = LONELY_STACK if group.kind == "level" else UNKNOWN_TO_OTHERS
    lonely = np.zeros(judged.shape, bool)
    for count in range(1, max(1, len(above) // 8) + 1):
        lowest, next_one = order[count - 1], order[count]
        lonely |= (judged >= lowest) & (lowest - next_one >= alone * lowest)
    deviation = 1.4826 * np.median(np.abs(excess - np.median(excess, axis=0)), axis=0)
    telling = lonely & (excess > 8 * deviation) & (excess > least[:, None])
    explains = above >= 0.5 * np.where(telling, excess, 0).sum(axis=1)
    return np.asarray(telling.any(axis=1) & explains & (above > 0.5 * least))


def _named(stacks: np.ndarray, expected: np.ndarray, above: float) -> list[tuple[int, int, int, int]]:
    excess = stacks - expected
    order = np.argsort(-excess, kind="stable")[:MOST_STACKS]
    return [
        (int(i), int(excess[i]), int(stacks[i]), int(expected[i]))
        for i in order
        if excess[i] >= max(STACK_SHARE * above, 1)
    ]
