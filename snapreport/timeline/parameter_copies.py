"""Finds a model's parameters, gradients and optimizer state in the blocks from before the trace, by their sizes.

A training program has its parameters' sizes several times: the parameters, their gradients, and the optimizer's states.
The trace shows that multiset of sizes once (gradients alive together, blocks that ``zero_grad`` frees, allocations of
one line of the optimizer); the number of times it fits into the older blocks is the number of copies.
"""

from __future__ import annotations

import numpy as np

from snapreport.timeline.category_rules import GRADIENT, OPTIMIZER_STATE, PARAMETER
from snapreport.timeline.life_phases import Evidence
from snapreport.timeline.phases import OPTIMIZER_STEP, ZERO_GRAD

_MOST_COPIES = 4
_MIN_FITTING = 0.95
_MIN_EXPLAINED = 0.9
_EXPLAINS_THREE = 0.5
_NONE_MADE, _ALL_MADE = 0.02, 0.95  # share of the gradients that the trace allocates
_MIN_BLOCKS = 4

Sizes = tuple[np.ndarray, np.ndarray]
"""(distinct sizes, ascending; how many of each)."""


def parameter_copies(e: Evidence, codes: np.ndarray, open_: np.ndarray) -> np.ndarray:
    """UInt8 category of the blocks marked in ``open_`` (0: unknown). codes: categories known so far."""
    size, alloc, end, stack, lives = e.size, e.alloc, e.end, e.stack, e.lives
    result = np.zeros(len(size), np.uint8)
    sizes = _counted(size[open_])
    total = int(size[open_].sum())
    new = codes == GRADIENT
    gradients = _alive_together(size, alloc, end, new & e.is_traced)
    freed = _counted(size[~e.is_traced & (lives.freed == ZERO_GRAD)])
    references = [gradients, freed, _counted(size[new & ~e.is_traced & ~e.is_freed])]
    steps = (lives.born == OPTIMIZER_STEP) & e.is_traced
    references += [_alive_together(size, alloc, end, steps & (stack == one)) for one in np.unique(stack[steps])]
    best, copies = None, 0
    for reference in references:
        if reference[1].sum() < _MIN_BLOCKS:
            continue
        fits = _fits(reference, sizes)
        if fits and (best is None or _bytes(reference) > 1.02 * _bytes(best)):
            best, copies = reference, fits
    explained = copies * _bytes(best) if best else 0
    # Three complete copies are no coincidence, whatever the rest is: inputs, outputs, frozen weights.
    if best is None or copies > _MOST_COPIES or explained < (_MIN_EXPLAINED if copies < 3 else _EXPLAINS_THREE) * total:
        return result
    # A trace that begins in a backward pass makes some of the gradients; the others are an incomplete copy.
    made = max(_bytes(one) for one in references[:3]) / _bytes(best)
    roles = [PARAMETER]
    if made < _NONE_MADE and copies >= 2:
        roles.append(GRADIENT)
    roles += [OPTIMIZER_STATE] * (copies - len(roles))
    if _NONE_MADE <= made < _ALL_MADE:
        roles.append(GRADIENT)
    # Segments are in allocation order, and parameters precede the memory derived from them.
    rows = np.flatnonzero(open_)
    rows = rows[np.argsort(e.addr[rows], kind="stable")]
    result[rows] = _assign_roles(size[rows], best, np.array(roles, np.uint8))
    return result


def _counted(size: np.ndarray) -> Sizes:
    return np.unique(size, return_counts=True)


def _bytes(sizes: Sizes) -> int:
    return int((sizes[0] * sizes[1]).sum())


def _alive_together(size: np.ndarray, alloc: np.ndarray, end: np.ndarray, mine: np.ndarray) -> Sizes:
    """Sizes of ``mine`` at the moment when most of their bytes are live."""
    rows = np.flatnonzero(mine)
    if not len(rows):
        return _counted(size[:0])
    alloc_event, free_event = alloc[rows], end[rows]
    event = np.concatenate((free_event, alloc_event))  # at one event, frees before allocations
    change = np.concatenate((-size[rows], size[rows]))
    order = np.argsort(event, kind="stable")
    moment = event[order][np.argmax(np.cumsum(change[order]))]
    return _counted(size[rows][(alloc_event <= moment) & (free_event > moment)])


def _fits(reference: Sizes, sizes: Sizes) -> int:
    """How many complete copies of ``reference`` are in ``sizes``, except for 5% of its bytes."""
    at = np.minimum(np.searchsorted(sizes[0], reference[0]), len(sizes[0]) - 1)
    there = np.where(sizes[0][at] == reference[0], sizes[1][at], 0)
    weight = reference[0] * reference[1]
    for copies in range(1, _MOST_COPIES + 3):
        if weight[there >= copies * reference[1]].sum() < _MIN_FITTING * weight.sum():
            return copies - 1
    return _MOST_COPIES + 2


def _assign_roles(size: np.ndarray, reference: Sizes, roles: np.ndarray) -> np.ndarray:
    """The role of each block: for each size, the first ``count`` blocks get the first role, the next the second."""
    order = np.argsort(size, kind="stable")
    ordered = size[order]
    rank = np.arange(len(size)) - np.searchsorted(ordered, ordered)
    at = np.minimum(np.searchsorted(reference[0], ordered), len(reference[0]) - 1)
    count = np.where(reference[0][at] == ordered, reference[1][at], 0)
    turn = np.where(count > 0, rank // np.maximum(count, 1), len(roles))
    result = np.zeros(len(size), np.uint8)
    result[order] = np.append(roles, 0)[np.minimum(turn, len(roles))]
    return result
