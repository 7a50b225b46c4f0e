"""Tensors that the program's own code makes and keeps: state of its own optimizer, copies of its weights, its data."""

from __future__ import annotations

import numpy as np

from snapreport.integers import is_among
from snapreport.timeline.life_phases import Evidence
from snapreport.timeline.lifetimes import NEVER
from snapreport.timeline.phases import BACKWARD, FORWARD, NONE, OPTIMIZER_STEP

_MIN_TENSORS = 4  # distinct parameters that a copy of the weights has at least
_MIN_SIMILARITY = 0.95  # of the bytes
_MIN_DATA = 1 << 20  # bytes: smaller tensors made before the first forward pass are constants


def own_optimizer_state(e: Evidence) -> np.ndarray:
    """Bool per allocation: made by the program's own code after a backward pass or in a step, where no phase runs, and
    still alive after the next two forward passes have begun. Its lines make it once, for all steps.

    Masters' gradients and what a step computes are gone by then.
    """
    mine = (e.stack > 0) & (e.lives.born == NONE) & is_among(e.lives.before, (BACKWARD, OPTIMIZER_STEP))
    passes, outlives = _forward_passes(e)
    lasting = mine & outlives
    # A line that keeps something in every step collects it: results, not state.
    stacks, rounds = np.unique(np.unique((e.stack[lasting], passes[lasting]), axis=1)[0], return_counts=True)
    return np.asarray(lasting & is_among(e.stack, stacks[rounds == 1]))


def _forward_passes(e: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """(Int64 number of forward passes that have begun, each after something else, at an allocation; Bool,
    whether it is still alive when two more have).
    """
    forward = e.alloc[e.is_traced & (e.lives.born == FORWARD)]
    others = e.alloc[e.is_traced & is_among(e.lives.born, (BACKWARD, OPTIMIZER_STEP))]
    begins = forward[np.diff(np.searchsorted(others, forward), prepend=-1) != 0]
    passes = np.searchsorted(begins, e.alloc, "right")
    return passes, e.end > np.append(begins, [NEVER, NEVER])[passes + 1]


def weight_clones(e: Evidence, open_: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Bool per allocation of ``open_``: of a line whose tensors have the sizes of all ``weights`` (Bool: known
    parameters) in the same numbers, or twice the sizes: a running mean, 32-bit copies, a number per weight.
    """
    found = np.zeros(len(e.size), bool)
    rows = np.flatnonzero(open_ & e.is_traced & (e.stack > 0))
    known, known_counts = np.unique(e.size[weights], return_counts=True)
    if len(known) < 2 or known_counts.sum() < _MIN_TENSORS:
        return found
    for one in np.unique(e.stack[rows]).tolist():
        mine = rows[e.stack[rows] == one]
        sizes, counts = np.unique(e.size[mine], return_counts=True)
        for times in (1, 2):
            at = np.minimum(np.searchsorted(known * times, sizes), len(known) - 1)
            models = np.where(known[at] * times == sizes, known_counts[at] // counts, 0)
            copies = int(np.median(models))  # of the model, all of which are known
            equal = (models == copies) & (known_counts[at] == copies * counts)
            alike = sizes[equal] @ counts[equal]
            if copies and alike >= _MIN_SIMILARITY * max(sizes @ counts, times * (known @ known_counts) // copies):
                found[mine] = True
    return found


def resident_data(e: Evidence) -> np.ndarray:
    """Bool per allocation: made by the program's own code before the first forward pass, and alive through two of them:
    a data set or a replay buffer on the device. A line that allocates later, too, collects something.
    """
    passes, outlives = _forward_passes(e)
    mine = e.is_traced & outlives & (e.stack > 0) & (e.size >= _MIN_DATA)
    return np.asarray(mine & ~is_among(e.stack, e.stack[passes > 0]))
