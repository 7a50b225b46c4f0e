"""Groups ranks by their memory at the peak.

1. *Role* (``roles.py``): ranks whose bytes come from the same stacks. Two ranks have the same role if stacks that only
   one of them has hold at most a quarter of the smaller one's bytes.
2. *Level*: within a role, ranks whose peaks are too close together to be separated. Data-parallel replicas
   of each pipeline stage form such levels.
3. *Slope* (``slopes.py``): if a role has no levels but its peaks rise or fall with the rank, as in a pipeline whose
   early stages hold more micro-batches, it is one group with a linear fit. Its first and last rank, which have the
   embedding and the head, are separate groups.
4. Otherwise the role is one group with a spread, such as experts with uneven routing. The job's first and last rank
   are separate here, too, if they have parameters of their own.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.jobs.roles import PARAMETER_SHARE, find_roles
from snapreport.jobs.slopes import fitted_lines, is_slope, robust_deviation

LEVEL_GAP = 0.005
"""Share of the median peak: ranks further apart than this are on different levels."""
LEVEL_SPREAD = 0.004
"""Maximum spread of a level as a share of its median; a slope of many small steps spreads further."""
LEVELS_COVER = 0.6
APART = 3
"""Minimum ratio of the gaps between levels to those within."""


class Group(Struct, frozen=True, eq=False):
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
    failed = np.zeros(len(totals), bool) if failed is None else failed
    unnamed = np.zeros(stacks.shape[1], bool) if unnamed is None else unnamed
    groups = [
        group
        for rows in find_roles(stacks, totals, parameters, failed, unnamed)
        for group in _groups_of_role(np.array(rows), stacks, totals, parameters, len(totals))
    ]
    return sorted(groups, key=lambda group: group.rows[0])


def _groups_of_role(
    rows: np.ndarray, stacks: np.ndarray, totals: np.ndarray, parameters: np.ndarray, world: int
) -> list[Group]:
    levels = _levels(rows, totals)
    if levels:
        return _level_groups(rows, levels, stacks, totals, parameters, world)
    if is_slope(rows, totals):
        return _slope_groups(rows, stacks, totals, world)
    ends = _other_parts(rows, stacks, parameters, world)
    if ends:
        inner = rows[~np.isin(rows, ends)]
        alone = [_even_group(np.array([end]), stacks, totals, "end") for end in ends]
        return [*alone, *_groups_of_role(inner, stacks, totals, parameters, world)]
    return [_even_group(rows, stacks, totals, "spread")]


def _other_parts(rows: np.ndarray, stacks: np.ndarray, parameters: np.ndarray, world: int) -> list[int]:
    """The job's first and last rank, if they have parameters of their own that the ranks between them lack: an
    embedding, a head.
    """
    inner = rows[(rows != 0) & (rows != world - 1)]
    if len(inner) < 2:
        return []
    is_own = stacks[inner].max(axis=0) == 0
    usual = float(parameters[inner].min())
    least = PARAMETER_SHARE * usual
    ends = [row for row in (0, world - 1) if row in rows]
    return [row for row in ends if parameters[row] - usual > least and stacks[row][is_own].sum() > least]


def _levels(rows: np.ndarray, totals: np.ndarray) -> list[np.ndarray]:
    """Ranks by level, if most ranks are on one: single linkage on sorted peaks. Otherwise empty."""
    order = rows[np.argsort(totals[rows], kind="stable")]
    sizes = totals[order]
    gap = LEVEL_GAP * float(np.median(sizes))
    parts = np.split(order, np.flatnonzero(np.diff(sizes) > gap) + 1)
    of_rank = np.sort(np.repeat([len(part) for part in parts], [len(part) for part in parts]))
    typical = int(of_rank[len(of_rank) // 2])
    least = max(2 if typical == 2 else 3, typical // 4)
    tight = [
        part
        for part in parts
        if len(part) >= least and robust_deviation(totals[part]) <= LEVEL_SPREAD * np.median(totals[part])
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
        is_end = row in (0, world - 1)
        # The head of a last stage may be small beside its activations: it is measured by the level's own parameters.
        whole = parameters[level] if is_end else totals[level]
        is_part = more > PARAMETER_SHARE * float(np.median(whole))
        siblings = np.abs(totals[rows] - totals[row]) <= LEVEL_GAP * totals[row]
        # If two replicas differ, nothing shows which one is normal.
        if max(map(len, levels)) <= 2 < len(rows) or (is_part and (is_end or siblings.sum() > 1)):
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
    expected, _slopes = fitted_lines(x, stacks[inner])
    fitted, slope = fitted_lines(x, totals[inner][:, None])
    groups = [_even_group(np.array([end]), stacks, totals, "end") for end in ends]
    return [*groups, Group(inner.tolist(), expected, fitted[:, 0], float(slope[0]), "slope", len(inner) >= 4)]


def _even_group(rows: np.ndarray, stacks: np.ndarray, totals: np.ndarray, kind: str) -> Group:
    expected = np.repeat(np.median(stacks[rows], axis=0)[None, :], len(rows), axis=0)
    total = np.full(len(rows), float(np.median(totals[rows])))
    return Group(rows.tolist(), expected, total, None, kind, kind != "end" and len(rows) >= 3)
