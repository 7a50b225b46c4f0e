"""The weights of one transformer among the blocks from before a trace, from their sizes and numbers alone.

Every layer has the same matrices and vectors, so the numbers of all large sizes have the number of layers in common:
90,177,536 bytes 96 times and 33,554,432 128 times are 32 layers of a Llama of 7 B. What is there once or twice, an
embedding and the last layer, is a multiple of the same width. Gradients or copies would multiply
all numbers, so those of the vectors and of the matrices that are no layer's must have nothing in common.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from snapreport.timeline.model_widths import ELEMENT_BYTES, FEWEST, model_widths

_MIN_BYTES = 64 << 20
_GRANULE = 64
"""Numbers of rows of a layer's matrices are multiples of it, but for the few of an adapter: the matrices of another
model, such as those of 1,600 by 6,400 numbers, may be of 4,000 whole rows of 2,560, too."""
_MAX_OTHER_BLOCKS = 4  # blocks of a size that are no layer's: embeddings, the last layer, their norms


def transformer_weights(size: np.ndarray) -> np.ndarray:
    """Bool per block of ``size`` (Int64 bytes): weights of a transformer, if they are those of exactly one."""
    sizes, counts = np.unique(size, return_counts=True)
    for element in ELEMENT_BYTES:
        # The widest: vectors of 4,096 numbers in 16 bits are as large as squares of 64.
        for width in reversed(model_widths(size, element)):
            chosen = _of_one_model(sizes, counts, width, width * element)
            if chosen.any():
                return np.asarray(np.isin(size, sizes[chosen]))
    return np.zeros(len(size), bool)


def _of_one_model(sizes: np.ndarray, counts: np.ndarray, width: int, row: int) -> np.ndarray:
    """Bool per size, each with its number of blocks: the weights of a model of ``width``, whose rows have ``row``
    bytes; nothing where they may be those of two.
    """
    of_width = sizes % row == 0
    other = sizes // row
    repeated = of_width & (counts >= FEWEST) & (sizes > row) & ((other % _GRANULE == 0) | (other < _GRANULE))
    outside = of_width & (sizes >= width * row) & (counts <= _MAX_OTHER_BLOCKS)
    vectors = int(counts[sizes == row].sum())
    layers = gcd(*counts[repeated].tolist())
    # A block beside those of several copies, as an activation of the same width, hides what their numbers share.
    is_one = outside.any() and not any(
        vectors % copies == 0 and layers % copies == 0 and (counts[outside] % copies == 0).any() for copies in (2, 3, 4)
    )
    nothing = np.zeros(len(sizes), bool)
    if layers < FEWEST or not 0 < vectors % layers <= _MAX_OTHER_BLOCKS or not is_one:
        return nothing
    chosen = repeated | (sizes == row) | outside
    weight = sizes * counts
    is_most = weight[repeated].sum() >= max(_MIN_BYTES, 0.5 * weight[chosen].sum())
    return chosen if is_most else nothing
