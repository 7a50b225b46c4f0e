"""Tensors that the program's own code makes and keeps: state of its own optimizer, copies of its weights, its data."""

from __future__ import annotations

import numpy as np

from snapreport.timeline.life_phases import Evidence
from snapreport.timeline.phases import BACKWARD, FORWARD, NONE, OPTIMIZER_STEP

_MIN_LIVE_PASSES = 2
_MIN_TENSORS = 4  # distinct parameters that a copy of the weights has at least
_MIN_SIMILARITY = 0.95  # of the bytes
_MIN_DATA = 1 << 20  # bytes: smaller tensors made before the first forward pass are constants


def own_optimizer_state(e: Evidence) -> np.ndarray:
    """Bool per allocation: made by the program's own code after a backward pass or in a step, where no phase runs, and
    still alive after the next two forward passes have begun. Its lines make it once, for all steps.

    Masters' gradients and what a step computes are gone by then.
    """
    mine = (
        e.is_traced
        & (e.stack > 0)
        & (e.lives.born == NONE)
        & ((e.lives.before == BACKWARD) | (e.lives.before == OPTIMIZER_STEP))
    )
    begins = _forward_passes(e)
    later = np.searchsorted(begins, e.alloc, "right") + _MIN_LIVE_PASSES - 1
    until = np.append(begins, np.iinfo(np.int32).max)[np.minimum(later, len(begins))]
    kept = mine & (e.end > until)
    # A line that keeps something in every step collects it: results, not state.
    rounds = np.searchsorted(begins, e.alloc)
    pairs = np.unique(e.stack[kept].astype(np.int64) * (len(begins) + 1) + rounds[kept])
    per_stack = np.bincount(pairs // (len(begins) + 1), minlength=int(e.stack.max(initial=0)) + 1)
    found: np.ndarray = kept & (per_stack[e.stack] == 1)
    return found


def _forward_passes(e: Evidence) -> np.ndarray:
    """Int64 events at which forward passes begin after something else."""
    forward = e.alloc[e.is_traced & (e.lives.born == FORWARD)]
    others = e.alloc[e.is_traced & np.isin(e.lives.born, (BACKWARD, OPTIMIZER_STEP))]
    round_of = np.searchsorted(others, forward)
    return np.asarray(forward[np.diff(round_of, prepend=-1) != 0])


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
    begins = _forward_passes(e)
    if len(begins) < _MIN_LIVE_PASSES:
        return np.zeros(len(e.size), bool)
    early = e.is_traced & (e.alloc < begins[0]) & (e.stack > 0) & (e.size >= _MIN_DATA)
    early &= ~np.isin(e.stack, np.unique(e.stack[e.alloc >= begins[0]]))
    found: np.ndarray = early & (e.end > begins[_MIN_LIVE_PASSES - 1])
    return found
