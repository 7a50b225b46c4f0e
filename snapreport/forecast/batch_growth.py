"""What grows with the batch, as far as one recording shows it: by category and phase, not by a second size."""

from __future__ import annotations

import numpy as np

from snapreport.findings.saving import live_mask
from snapreport.forecast.size_laws import CONSTANT, LINEAR, UNKNOWN, SizeLaws
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.phases import INITIALISATION, LOADING, OPTIMIZER_STEP, stack_phases
from snapreport.timeline.workspaces import CUBLAS_WORKSPACE, beside_products
from snapreport.vocabulary import CATEGORIES

_FIXED = ("parameter", "gradient", "optimizer state", "communication", "workspace")
_GROWING = ("activation", "temporary", "kv cache")


def batch_growth(timeline: DeviceTimeline, value: float) -> SizeLaws:
    """The law of each allocation of a recording at batch ``value``: constant, proportional, or unknown (as recorded).

    Parameters, gradients, optimizer state, workspaces and what an optimizer's step allocates are constant; activations,
    logits and temporaries of forward and backward are proportional. Unknown are inputs, since a data set that is kept
    on the device is one; those of unknown category; and activations and temporaries of exactly a parameter's size, that
    of all together, or half of it, since they may be its gradient, its copy in 16 bits, or all joined.
    """
    table = timeline.allocations
    size, born, stack = (table[name].to_numpy() for name in ("size", "alloc_event", "stack"))
    category = table["category"].to_physical().to_numpy()
    phase = stack_phases(timeline.recording).innermost[stack]
    made_once = np.isin(phase, (OPTIMIZER_STEP, INITIALISATION, LOADING))
    constant = _is_category(category, _FIXED) | made_once | (size == CUBLAS_WORKSPACE)
    constant |= beside_products(table.select("size", "stack", alloc="alloc_event", free="free_event"))
    parameter = _is_category(category, ("parameter",))
    joined = size[parameter & live_mask(timeline, timeline.peak_event)].sum()
    weights = np.append(np.unique(size[parameter]), joined)
    like_weight = np.isin(size, np.concatenate((weights, weights // 2)))
    linear = _is_category(category, _GROWING) & (born >= 0) & ~constant & ~like_weight
    kind = np.where(constant, CONSTANT, np.where(linear, LINEAR, UNKNOWN)).astype(np.int8)
    coefficients = np.zeros((len(size), 3))
    coefficients[:, 0] = np.where(linear, 0, size)
    coefficients[:, 1] = np.where(linear, size / value, 0)
    return SizeLaws(coefficients, kind, np.zeros(len(size), bool))


def cubic_bytes(timeline: DeviceTimeline, value: float) -> int:
    """Bytes at the peak in tensors of ``value``³ numbers, as those of all triplets of a batch. The third power of a
    power of two is the size of many things.
    """
    count = int(value)
    if count != value or not 1 < count < 1 << 20 or count & (count - 1) == 0:
        return 0
    size = timeline.allocations["size"].to_numpy()
    mask = live_mask(timeline, timeline.peak_event) & np.isin(size, [count**3 * bytes_of for bytes_of in (1, 2, 4, 8)])
    return int(size[mask].sum())


def _is_category(category: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    return np.isin(category, [CATEGORIES.index(name) for name in names])
