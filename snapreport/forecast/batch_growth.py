"""What grows with the batch, as far as one recording shows it: by category and phase, not by a second size."""

from __future__ import annotations

import numpy as np

from snapreport.findings.batch_pairs import BatchPairs
from snapreport.findings.saving import live_mask
from snapreport.forecast.evaluation_passes import of_another_batch
from snapreport.forecast.size_laws import AT_MOST_QUADRATIC, CONSTANT, LINEAR, QUADRATIC, UNKNOWN, SizeLaws
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.phases import INITIALISATION, LOADING, OPTIMIZER_STEP, stack_phases
from snapreport.timeline.workspaces import CUBLAS_WORKSPACE, beside_products
from snapreport.vocabulary import CATEGORIES

_FIXED = ("parameter", "gradient", "optimizer state", "communication", "workspace")
_FEWEST_SAMPLES, _LEAST_ODD = 32, 25
_GROWING = ("activation", "temporary", "kv cache")


def batch_growth(timeline: DeviceTimeline, value: float) -> SizeLaws:
    """The law of each allocation of a recording at batch ``value``: constant, proportional, or unknown (as recorded).

    Parameters, gradients, optimizer state, workspaces and what an optimizer's step allocates are constant; activations,
    logits and temporaries of forward and backward are proportional; those of all pairs of samples, or of two views of
    each, grow with its square, where no layer makes as much. Unknown are inputs, since a data set that is kept
    on the device is one; those of unknown category; and activations and temporaries of exactly a parameter's size, that
    of all together, or half of it, since they may be its gradient, its copy in 16 bits, or all joined; and what an
    evaluation makes at another batch than that of training.
    """
    table = timeline.allocations
    size, born, freed, stack = (table[name].to_numpy() for name in ("size", "alloc_event", "free_event", "stack"))
    category = table["category"].to_physical().to_numpy()
    phase = stack_phases(timeline.recording).innermost[stack]
    made_once = np.isin(phase, (OPTIMIZER_STEP, INITIALISATION, LOADING))
    constant = _is_category(category, _FIXED) | made_once | (size == CUBLAS_WORKSPACE)
    constant |= beside_products(size, stack, born, freed)
    parameter = _is_category(category, ("parameter",))
    joined = size[parameter & live_mask(timeline, timeline.peak_event)].sum()
    weights = np.append(np.unique(size[parameter]), joined)
    like_weight = np.isin(size, np.concatenate((weights, weights // 2)))
    grows = (born >= 0) & ~constant & ~like_weight & ~of_another_batch(timeline)
    linear = _is_category(category, _GROWING) & grows
    kind = np.where(constant, CONSTANT, np.where(linear, LINEAR, UNKNOWN)).astype(np.int8)
    for law, pairs in zip((QUADRATIC, AT_MOST_QUADRATIC), _of_pairs(timeline, value), strict=True):
        kind[grows & pairs] = law
    powers = {UNKNOWN: 0, CONSTANT: 0, LINEAR: 1, QUADRATIC: 2, AT_MOST_QUADRATIC: 2}
    power = np.array([powers.get(law, 0) for law in range(AT_MOST_QUADRATIC + 1)])[kind]
    coefficients = np.zeros((len(size), 3))
    coefficients[np.arange(len(size)), power] = size / value**power
    return SizeLaws(coefficients, kind, np.zeros(len(size), bool))


def _of_pairs(timeline: DeviceTimeline, value: float) -> tuple[np.ndarray, np.ndarray]:
    """Bool per allocation: of all pairs of samples; and what may be. A batch of ``value`` has as many, or two views of
    each. The square of a power of two is the size of many things, unless as many are seen to be compared, and multiples
    of the square of a number with small factors are.
    """
    certain, possible = np.zeros((2, len(timeline.allocations)), bool)
    if value != int(value) or value < _FEWEST_SAMPLES:
        return certain, possible
    pairs, counts = BatchPairs(timeline), (int(value), 2 * int(value))
    if pairs.samples in counts:
        return pairs.of(pairs.samples), possible
    for samples in counts:
        odd = samples // (samples & -samples)
        mask = certain if odd > 1 else possible
        mask |= pairs.of(samples)
        if odd >= _LEAST_ODD:
            certain |= pairs.of_vectors(samples)
    return certain, possible & ~certain


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
