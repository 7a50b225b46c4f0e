"""Groups ranks by their memory at the peak.

1. *Role*: ranks whose bytes come from the same stacks. Two ranks have the same role if stacks that only one of them has
   hold at most a quarter of the smaller one's bytes.
2. *Level*: within a role, ranks whose peaks are too close together to be separated. Data-parallel replicas
   of each pipeline stage form such levels.
3. *Slope*: if a role has no levels but its peaks rise or fall with the rank, as in a pipeline whose early stages hold
   more micro-batches, it is one group with a linear fit. Its first and last rank, which have the embedding and the
   head, are separate groups.
4. Otherwise the role is one group with a spread, such as experts with uneven routing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

UNSHARED = 0.25
"""Maximum share of the smaller rank's bytes in stacks that only one of two ranks of a role has."""
OWN_STACK = 0.8
"""Share of the bytes in stacks that the others lack: this much in one stack is a leak, not a different program."""
NEGLIGIBLE = 0.002
"""Share of a rank's bytes below which a stack counts as absent."""
LEVEL_GAP = 0.005
"""Share of the median peak: ranks further apart than this are on different levels."""
LEVEL_SPREAD = 0.004
"""Maximum spread of a level as a share of its median; a slope of many small steps spreads further."""
LEVELS_COVER = 0.6
APART = 3
"""Minimum ratio of the gaps between levels to those within."""
TREND = 0.7
"""Minimum Kendall's tau for peaks that follow the rank."""
MIN_CHANGE = 0.1
"""Minimum change of a slope from first to last rank, as a share of the median peak; smaller ones occur by chance."""
MIN_FOR_SLOPE = 5
FAR_FROM_LINE = 10.0
"""Robust standard deviations: a rank this far from the line is ignored when testing whether peaks follow the rank."""
PARAMETER_SHARE = 0.02
"""Share of the expected bytes: with this much more parameters and state, a rank has another part of the model."""
_MOST_SIGNATURES = 256
"""Maximum number of stack sets that may lead a role, most frequent first; experts rarely have so many."""


@dataclass(frozen=True, eq=False)
class Group:
    """Similar ranks. rows: ascending. expected: Float64 bytes at the peak by row and stack that a rank of this group
    should have; ``totals``: Float64, their totals. slope: bytes from one rank to the next, None for a level.
    is_judged: whether the group is large and uniform enough to call one of its ranks an outlier.
    """

    rows: list[int]
    expected: np.ndarray
    totals: np.ndarray
    slope: float | None
    kind: str
    is_judged: bool


def find_groups(
    stacks: np.ndarray,
    totals: np.ndarray,
    parameters: np.ndarray,
    failed: np.ndarray | None = None,
    unnamed: np.ndarray | None = None,
) -> list[Group]:
    """The groups of a job's ranks, ordered by their first rank.

    ``stacks``: Float64, ranks by stacks, bytes at each rank's peak; ``totals``: Float64, all bytes of a rank's peak;
    ``parameters``: Float64, bytes of parameters, gradients and optimizer state in them; ``failed``: Boolean, ranks that
    ran out of memory; ``unnamed``: Boolean, the column of ``stacks`` without a stack trace. Rows are in rank order.
    """
    if not len(totals):
        return []
    failed = np.zeros(len(totals), bool) if failed is None else failed
    unnamed = np.zeros(stacks.shape[1], bool) if unnamed is None else unnamed
    roles = _roles(stacks, totals, unnamed)
    roles = _adopted(roles, stacks, totals, parameters)
    roles = _joined_outliers(roles, stacks, totals, parameters, failed)
    groups = [
        group for rows in roles for group in _groups_of_role(np.array(rows), stacks, totals, parameters, len(totals))
    ]
    return sorted(groups, key=lambda group: group.rows[0])


def _roles(stacks: np.ndarray, totals: np.ndarray, unnamed: np.ndarray) -> list[list[int]]:
    """Clusters by the bytes in stacks that are not shared: repeatedly, the rank that most others resemble leads a role.

    Ranks with the same stacks are compared once, by the first of them. Bytes without a stack trace can belong to any
    stack: a rank whose trace begins late has more of them, and lacks the stacks that they belong to.
    """
    has = (stacks > NEGLIGIBLE * np.maximum(totals, 1)[:, None]) & ~unnamed
    unknown = stacks[:, unnamed].sum(axis=1)
    _, first, signature, count = np.unique(
        np.packbits(has, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    signature = signature.ravel()
    order = np.lexsort((first, -count))[:_MOST_SIGNATURES]
    near = np.zeros((len(order), len(first)), bool)
    unshared = np.zeros((len(order), len(first)))
    for i, kind in enumerate(order):
        leader = first[kind]
        only = has[first] != has[leader]
        apart = (stacks[first] * only).sum(axis=1) + (only * stacks[leader]).sum(axis=1)
        apart = np.maximum(apart - np.abs(unknown[first] - unknown[leader]), 0)
        unshared[i] = apart / np.maximum(np.minimum(totals[first], totals[leader]), 1.0)
        near[i] = unshared[i] <= UNSHARED
    left = np.ones(len(first), bool)
    kinds: list[np.ndarray] = []
    while left.any():
        weight = (near & left) @ count
        best = int(np.argmax(weight))
        taken = near[best] & left if weight[best] else left
        kinds.append(np.flatnonzero(taken))
        left &= ~taken
    return sorted(np.flatnonzero(np.isin(signature, members)).tolist() for members in kinds)


def _adopted(roles: list[list[int]], stacks: np.ndarray, totals: np.ndarray, parameters: np.ndarray) -> list[list[int]]:
    """Merges roles of one rank into the role whose stacks they also have: an outlier is not a role.

    The first and last rank of the job stay alone if they have additional parameters or the rest has a slope: they have
    the embedding and the head.
    """
    large = [rows for rows in roles if len(rows) >= 3]
    alone = [rows[0] for rows in roles if len(rows) == 1]
    if not large or not alone:
        return roles
    kept = [list(rows) for rows in roles if len(rows) > 1]
    for row in alone:
        best, best_missing = None, 1.0
        for rows in (rows for rows in kept if len(rows) >= 3):
            typical = np.median(stacks[rows], axis=0)
            missing = typical[stacks[row] == 0].sum() / max(typical.sum(), 1.0)
            # A rank that ran out of memory may have been between two steps: it has more bytes, and lacks stacks.
            is_like = missing < UNSHARED or totals[row] > np.median(totals[rows])
            if is_like and (missing < best_missing or best is None):
                best, best_missing = rows, missing
        if best is None or (row in (0, len(totals) - 1) and _is_end_role(row, best, totals, parameters)):
            kept.append([row])
        else:
            best.append(row)
            best.sort()
    return sorted(kept)


def _joined_outliers(
    roles: list[list[int]], stacks: np.ndarray, totals: np.ndarray, parameters: np.ndarray, failed: np.ndarray
) -> list[list[int]]:
    """Merges roles of a few ranks with the same excess into the role whose stacks they also have.

    Not if they have another part of the model, or are equally spaced like replicas and the first ranks of hosts: then
    the job is built that way.
    """
    kept = sorted((list(rows) for rows in roles), key=len)
    for rows in [rows for rows in kept if len(rows) >= 2]:
        if _is_regular(rows) and not failed[rows].all():
            continue
        best, best_missing = None, 1.0
        for others in kept:
            if others is rows or len(rows) > (len(rows) + len(others)) // 4:
                continue
            typical, usual = np.median(stacks[others], axis=0), float(np.median(totals[others]))
            missing = (typical * (stacks[rows] == 0)).sum(axis=1) / max(typical.sum(), 1.0)
            more = parameters[rows] - float(np.median(parameters[others]))
            # Ranks that ran out of memory, or that have so much in one stack that they peak between two steps, lack the
            # stacks of a step.
            own = stacks[rows] * (typical == 0)
            is_one = (own.max(axis=1, initial=0) >= OWN_STACK * own.sum(axis=1)) & (
                own.sum(axis=1) >= totals[rows] - usual
            )
            is_like = (missing < UNSHARED) | failed[rows] | is_one
            is_like &= (totals[rows] > usual) & (more <= PARAMETER_SHARE * usual)
            if is_like.all() and (best is None or missing.max() < best_missing):
                best, best_missing = others, float(missing.max())
        if best is not None:
            best += rows
            best.sort()
            kept = [others for others in kept if others is not rows]
    return sorted(kept)


def _is_regular(rows: list[int]) -> bool:
    """Whether ranks are neighbours, or equally spaced and either starting at the first rank or at least three."""
    apart = np.diff(rows)
    is_even = bool((apart == apart[0]).all())
    return is_even and (apart[0] == 1 or rows[0] == 0 or len(rows) > 2)


def _is_end_role(row: int, rows: list[int], totals: np.ndarray, parameters: np.ndarray) -> bool:
    others = [other for other in rows if other != row]
    median = float(np.median(totals[others]))
    more_parameters = parameters[row] - float(np.median(parameters[others])) > PARAMETER_SHARE * median
    return more_parameters or _is_slope(np.array(others), totals)


def _groups_of_role(
    rows: np.ndarray, stacks: np.ndarray, totals: np.ndarray, parameters: np.ndarray, world: int
) -> list[Group]:
    levels = _levels(rows, totals)
    if levels:
        return _level_groups(rows, levels, stacks, totals, parameters, world)
    if _is_slope(rows, totals):
        return _slope_groups(rows, stacks, totals, world)
    return [_even_group(rows, stacks, totals, "spread")]


def _levels(rows: np.ndarray, totals: np.ndarray) -> list[np.ndarray]:
    """Ranks by level, if most ranks are on one: single linkage on sorted peaks. Otherwise empty."""
    order = rows[np.argsort(totals[rows], kind="stable")]
    sizes = totals[order]
    gap = LEVEL_GAP * max(float(np.median(sizes)), 1.0)
    parts = np.split(order, np.flatnonzero(np.diff(sizes) > gap) + 1)
    of_rank = np.sort(np.repeat([len(part) for part in parts], [len(part) for part in parts]))
    typical = int(of_rank[len(of_rank) // 2])
    least = max(2 if len(rows) <= 4 or typical == 2 else 3, typical // 4)
    tight = [
        part for part in parts if len(part) >= least and _spread(totals[part]) <= LEVEL_SPREAD * np.median(totals[part])
    ]
    if sum(map(len, tight)) < LEVELS_COVER * len(rows):
        return []
    # Two replicas of each stage are the same distance apart in rank everywhere; chance pairs are not.
    if typical == 2 < len(rows) and len({int(part.max() - part.min()) for part in tight}) > 1:
        return []
    # Chance also makes clusters, but their inner gaps are as wide as the gaps between them.
    inside = max(float(np.diff(totals[part]).max(initial=0)) for part in tight)
    between = np.diff(sizes)[np.diff(sizes) > gap]
    return tight if not len(between) or between.min() >= APART * inside else []


def _level_groups(
    rows: np.ndarray,
    levels: list[np.ndarray],
    stacks: np.ndarray,
    totals: np.ndarray,
    parameters: np.ndarray,
    world: int,
) -> list[Group]:
    """A group for each level. Ranks on none join the level that they exceed least and lack least."""
    members = [sorted(part.tolist()) for part in levels]
    typical = np.array([np.median(stacks[part], axis=0) for part in levels])
    alone: list[int] = []
    for row in sorted(set(rows.tolist()) - {row for part in members for row in part}):
        missing = np.maximum(typical - stacks[row], 0).sum(axis=1)
        excess = np.maximum(stacks[row] - typical, 0).sum(axis=1)
        nearest = int(np.argmin(3 * missing + excess))
        level = levels[nearest]
        more = parameters[row] - float(np.median(parameters[level]))
        is_part = more > PARAMETER_SHARE * float(np.median(totals[level]))
        siblings = np.abs(totals[rows] - totals[row]) <= LEVEL_GAP * totals[row]
        # If two replicas differ, nothing shows which one is normal.
        if max(map(len, levels)) <= 2 < len(rows) or (is_part and (row in (0, world - 1) or siblings.sum() > 1)):
            alone.append(row)
        else:
            members[nearest].append(row)
    groups = [_even_group(np.array(sorted(part)), stacks, totals, "level") for part in members]
    while alone:
        same = [row for row in alone if abs(totals[row] - totals[alone[0]]) <= LEVEL_GAP * totals[alone[0]]]
        alone = [row for row in alone if row not in same]
        groups.append(_even_group(np.array(same), stacks, totals, "end"))
    return groups


def _slope_groups(rows: np.ndarray, stacks: np.ndarray, totals: np.ndarray, world: int) -> list[Group]:
    """One group of the inner ranks with their linear fit; the job's first and last rank are separate groups."""
    ends = [int(row) for row in rows if row in (0, world - 1)]
    inner = np.array([row for row in rows.tolist() if row not in ends])
    x = inner.astype(np.float64)
    expected, _slopes = _lines(x, stacks[inner])
    fitted, slope = _lines(x, totals[inner][:, None])
    groups = [_even_group(np.array([end]), stacks, totals, "end") for end in ends]
    return [*groups, Group(inner.tolist(), expected, fitted[:, 0], float(slope[0]), "slope", len(inner) >= 4)]


def _even_group(rows: np.ndarray, stacks: np.ndarray, totals: np.ndarray, kind: str) -> Group:
    expected = np.repeat(np.median(stacks[rows], axis=0)[None, :], len(rows), axis=0)
    total = np.full(len(rows), float(np.median(totals[rows])))
    return Group(rows.tolist(), expected, total, None, kind, kind != "end" and len(rows) >= 3)


def _is_slope(rows: np.ndarray, totals: np.ndarray) -> bool:
    """Whether the peaks of the inner ranks follow the rank, except for a few."""
    rows = rows[1:-1] if len(rows) > MIN_FOR_SLOPE else rows
    if len(rows) < MIN_FOR_SLOPE - 1:
        return False
    x, y = rows.astype(np.float64), totals[rows]
    if len(rows) > 400:  # tau is quadratic
        some = np.linspace(0, len(rows) - 1, 400).astype(int)
        x, y = x[some], y[some]
    fitted, slope = _lines(x, y[:, None])
    distance = np.abs(y - fitted[:, 0])
    # A rank that ran out of memory is above all others at any position, and would hide that they follow the rank.
    is_near = distance <= FAR_FROM_LINE * _spread(y - fitted[:, 0])
    if is_near.sum() >= max(MIN_FOR_SLOPE - 1, 0.75 * len(x)):
        tau = max(_tau(y), _tau(y[is_near]))
    else:
        tau = _tau(y)
    change = abs(float(slope[0])) * (x[-1] - x[0])
    return bool(tau >= TREND and change >= MIN_CHANGE * np.median(y) and _spread(y - fitted[:, 0]) <= 0.35 * _spread(y))


def _tau(values: np.ndarray) -> float:
    """Absolute Kendall's tau between values and their order."""
    upper = np.triu_indices(len(values), 1)
    return abs(float(np.sign(values[upper[1]] - values[upper[0]]).mean()))


def _lines(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(fitted values, slope of each column): the Theil-Sen estimator, robust against up to 29% outliers."""
    if len(x) > 200:
        some = np.linspace(0, len(x) - 1, 200).astype(int)
    else:
        some = np.arange(len(x))
    a, b = np.triu_indices(len(some), 1)
    a, b = some[a], some[b]
    slope = np.median((values[b] - values[a]) / (x[b] - x[a])[:, None], axis=0) if len(a) else np.zeros(values.shape[1])
    level = np.median(values - x[:, None] * slope, axis=0)
    return np.maximum(level + x[:, None] * slope, 0), slope


def _spread(values: np.ndarray) -> float:
    """A robust standard deviation: 1.4826 times the median absolute deviation."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0
