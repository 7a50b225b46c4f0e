"""Tensors of all pairs of a batch's samples, as similarities of contrastive learning: they grow with its square."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from snapreport.findings.outer_product import LAYER
from snapreport.findings.program_stacks import ProgramStacks
from snapreport.timeline.build import DeviceTimeline

_LOSS = r"(?i)cross_?entropy|log_?softmax|nll_?loss|logsumexp"
_PAIRS = r"(?i)contrastive|info_?nce|nt_?xent|simclr|clip_?loss|siglip|in_?batch_?neg"
_MIN_BYTES = 1 << 20
_ELEMENT_SIZES = (1, 2, 4, 8)


def names_pairs(stacks: ProgramStacks) -> np.ndarray:
    """Bool per stack: of a function whose name says that it compares all samples of a batch."""
    return stacks.functions(_PAIRS)


def samples_compared(timeline: DeviceTimeline) -> int:
    """How many samples a loss compares with each other, each with all; 0 where none is seen.

    A line of the program multiplies the vectors of all samples, and each one's number is its label, in 64 bits, unless
    a function says what it is about. As many logits as tokens would be a square, too, but of a layer.
    """
    stacks, size, stack = _columns(timeline)
    named = names_pairs(stacks)[stack]
    by_program = size[stacks.by_program[stack]]
    compared = (stacks.frames(_LOSS)[stack] | named) & ~np.isin(size, _of_layers(timeline)) & np.isin(size, by_program)
    found = np.unique(size[compared & (size >= _MIN_BYTES)])[::-1]
    for bytes_of in (4, 2):
        samples = np.rint(np.sqrt(found / bytes_of)).astype(np.int64)
        is_square = samples * samples * bytes_of == found
        for count in samples[is_square].tolist():
            if named.any() or (size == 8 * count).any():
                return int(count)
    return 0


def of_pairs(timeline: DeviceTimeline, samples: Iterable[int]) -> np.ndarray:
    """Bool per allocation: a number for each pair of so many samples, and no layer makes as much."""
    sizes = [count * count * bytes_of for count in samples for bytes_of in _ELEMENT_SIZES]
    size = timeline.allocations["size"].to_numpy()
    return np.asarray(np.isin(size, sizes) & ~np.isin(size, _of_layers(timeline)))


def _columns(timeline: DeviceTimeline) -> tuple[ProgramStacks, np.ndarray, np.ndarray]:
    size, stack = (timeline.allocations[name].to_numpy() for name in ("size", "stack"))
    return ProgramStacks(timeline.recording), size, stack


def _of_layers(timeline: DeviceTimeline) -> np.ndarray:
    stacks, size, stack = _columns(timeline)
    return np.unique(size[stacks.frames(LAYER)[stack]])
