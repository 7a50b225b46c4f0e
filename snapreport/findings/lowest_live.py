"""The lowest live bytes of stacks within stretches of a trace."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.integers import is_among, stable_order


def lowest_live(allocations: pl.DataFrame, stacks: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Int64 (stacks, stretches): the lowest bytes of each stack that are live at once within ``[bounds[k], bounds[k +
    1])``.

    ``stacks``: ascending. ``bounds``: ascending places in a curve (event + 1). O(E log E) for E allocations and frees
    of those stacks.
    """
    stack = allocations["stack"].to_numpy()
    rows = np.flatnonzero(is_among(stack, stacks))
    row = np.searchsorted(stacks, stack[rows])
    size, birth, death = (
        allocations[name].to_numpy()[rows].astype(np.int64) for name in ("size", "alloc_event", "free_event")
    )
    freed = death >= 0
    owner = np.concatenate((row, row[freed]))
    position = np.concatenate((birth + 1, death[freed] + 1))
    change = np.concatenate((size, -size[freed]))
    key, total, span = _running_totals(owner, position, change, len(stacks), int(bounds[-1]) + 1)

    stretches, owner, position = len(bounds) - 1, key // span, key % span
    # The bytes live when a stretch begins; then the lowest total within it.
    entry = np.searchsorted(key, (np.arange(len(stacks))[:, None] * span + bounds[:-1]).ravel(), "right") - 1
    own = (entry >= 0) & (owner[entry] == np.repeat(np.arange(len(stacks)), stretches))
    result = np.where(own, total[entry], 0)
    column = np.searchsorted(bounds, position, "right") - 1
    inside = (column >= 0) & (column < stretches)
    cell = (owner * stretches + column)[inside]  # ascending, as the keys are
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    at = cell[starts]
    result[at] = np.minimum(result[at], np.minimum.reduceat(total[inside], starts))
    return result.reshape(len(stacks), stretches)


def _running_totals(
    owner: np.ndarray, position: np.ndarray, change: np.ndarray, owners: int, span: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Live bytes of each owner after each of its changes: ascending keys ``owner * span + position``, the totals, and
    ``span``.
    """
    key = owner * span + np.minimum(position, span - 1)
    order = stable_order(key)
    key, total = key[order], np.cumsum(change[order])
    last = np.diff(key, append=-1) != 0  # of several changes at one position the last one counts
    key, total = key[last], total[last]
    # Totals run on from owner to owner; each one's begin where the one before ends.
    ends = np.searchsorted(key, (np.arange(owners) + 1) * span) - 1
    base = np.concatenate(([0], np.where(ends >= 0, total[ends], 0)))[:-1]
    return key, total - base[key // span], span
