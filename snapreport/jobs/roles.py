"""Roles: ranks whose bytes at the peak come from the same stacks."""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from snapreport.jobs.slopes import is_slope

UNSHARED = 0.25
"""Maximum share of the smaller rank's bytes in stacks that only one of two ranks of a role has."""
OWN_STACK = 0.8
"""Share of the bytes in stacks that the others lack: this much in one stack is a leak, not a different program."""
NEGLIGIBLE = 0.002
"""Share of a rank's bytes below which a stack counts as absent."""
PARAMETER_SHARE = 0.02
"""Share of the expected bytes: with this much more parameters and state, a rank has another part of the model."""
_MOST_SIGNATURES = 256
"""Maximum number of stack sets that may lead a role, most frequent first; experts rarely have so many."""


def find_roles(
    stacks: np.ndarray, totals: np.ndarray, parameters: np.ndarray, failed: np.ndarray, unnamed: np.ndarray
) -> list[list[int]]:
    """The rows of each role, ascending. Arguments: as for ``groups.find_groups``."""
    roles = _by_stacks(stacks, totals, unnamed)
    roles = _adopted(roles, stacks, totals, parameters)
    return _joined_outliers(roles, stacks, totals, parameters, failed)


def _by_stacks(stacks: np.ndarray, totals: np.ndarray, unnamed: np.ndarray) -> list[list[int]]:
    """Clusters by the bytes in stacks that are not shared: repeatedly, the rank that most others resemble leads a role.

    Ranks with the same stacks are compared once, by the first of them. Bytes without a stack trace can belong to any
    stack: a rank whose trace begins late has more of them, and lacks the stacks that they belong to.
    """
    has = (stacks > NEGLIGIBLE * totals[:, None]) & ~unnamed
    unknown = stacks[:, unnamed].sum(axis=1)
    _, first, signature, count = np.unique(
        np.packbits(has, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    signature = signature.ravel()
    order = np.lexsort((first, -count))[:_MOST_SIGNATURES]
    near = np.zeros((len(order), len(first)), bool)
    for i, kind in enumerate(order):
        leader = first[kind]
        only = has[first] != has[leader]
        apart = (stacks[first] * only).sum(axis=1) + (only * stacks[leader]).sum(axis=1)
        apart -= np.abs(unknown[first] - unknown[leader])
        near[i] = apart <= UNSHARED * np.minimum(totals[first], totals[leader])
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
    alone = [rows[0] for rows in roles if len(rows) == 1]
    kept = [list(rows) for rows in roles if len(rows) > 1]
    for row in alone:
        likely = []
        for rows in (rows for rows in kept if len(rows) >= 3):
            typical = np.median(stacks[rows], axis=0)
            missing = typical[stacks[row] == 0].sum() / max(typical.sum(), 1.0)
            # A rank that ran out of memory may have been between two steps: it has more bytes, and lacks stacks.
            if missing < UNSHARED or totals[row] > np.median(totals[rows]):
                likely.append((float(missing), rows))
        best = min(likely, key=itemgetter(0))[1] if likely else None
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
        likely = []
        for others in kept:
            if others is rows or 3 * len(rows) > len(others):
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
            if is_like.all():
                likely.append((float(missing.max()), others))
        if likely:
            best = min(likely, key=itemgetter(0))[1]
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
    return more_parameters or is_slope(np.array(others), totals)
