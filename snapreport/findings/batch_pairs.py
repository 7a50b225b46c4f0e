"""Tensors of all pairs of a batch's samples, as similarities of contrastive learning: they grow with its square."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from snapreport.findings.outer_product import LAYER
from snapreport.findings.program_stacks import ProgramStacks
from snapreport.timeline.build import DeviceTimeline

_LOSS = r"(?i)cross_?entropy|log_?softmax|nll_?loss|logsumexp"
_PAIRS = r"(?i)(contrastive|info_?nce|nt_?xent|simclr|sup_?con(_|$|[A-Z])|clip_?loss|siglip|in_?batch_?neg)[^/]*$"
_DISTANCES = r"(^|/)torch/functional\.py cdist$"
_RECURRENT = r"torch/nn/modules/rnn\.py forward$"
_MIN_BYTES = 1 << 20
_ELEMENT_SIZES = (1, 2, 4, 8)


def names_pairs(stacks: ProgramStacks) -> np.ndarray:
    """Bool per stack: of a file or function whose name says that it compares all samples of a batch."""
    return stacks.frames(_PAIRS)


def side(size: int) -> int:
    """How many rows a matrix of so many bytes has if it has as many columns; 0 if it has not."""
    counts = [(bytes_of, round((size / bytes_of) ** 0.5)) for bytes_of in (4, 2)]
    return next((count for bytes_of, count in counts if count * count * bytes_of == size), 0)


class BatchPairs:
    """What of a device's allocations has numbers for each pair of samples, which no layer makes."""

    def __init__(self, timeline: DeviceTimeline) -> None:
        self._stacks = ProgramStacks(timeline.recording)
        self._size, self._stack = (timeline.allocations[name].to_numpy() for name in ("size", "stack"))

    @cached_property
    def samples(self) -> int:
        """How many samples the program compares with each other, each with all; 0 where none is seen.

        A line of the program, or of a library of losses, multiplies the vectors of all samples, and a loss reads the
        products: each one's number is its label, in 64 bits, unless a name says so. As many logits as tokens would be a
        square, too, but of a layer.
        """
        size, stacks = self._size, self._stacks
        named = (names_pairs(stacks) | stacks.frames(_DISTANCES))[self._stack]
        compared = (stacks.frames(_LOSS)[self._stack] | named) & (size >= _MIN_BYTES)
        outside = stacks.outside_of_torch[self._stack]
        for large in np.unique(size[compared])[::-1].tolist():
            count = side(large)
            is_read = count and (named.any() or (size == 8 * count).any())
            if is_read and large not in self._of_layers and outside[size == large].any():
                return count
        return 0

    def of(self, samples: int) -> np.ndarray:
        """Bool per allocation: a number for each pair of so many samples."""
        return self._among([samples**2 * each for each in _ELEMENT_SIZES])

    def of_vectors(self, samples: int) -> np.ndarray:
        """Bool per allocation: several numbers for each pair, if other tensors have one number for each."""
        sizes = np.unique(self._size)
        return self._among(sizes[sizes % samples**2 == 0].tolist() if self.of(samples).any() else [])

    def _among(self, sizes: list[int]) -> np.ndarray:
        return np.isin(self._size, [size for size in sizes if size not in self._of_layers])

    @cached_property
    def _of_layers(self) -> set[int]:
        """Sizes of what layers make."""
        by_layer = self._stacks.frames(LAYER) | self._stacks.frames(_RECURRENT)
        return set(np.unique(self._size[by_layer[self._stack]]).tolist())
