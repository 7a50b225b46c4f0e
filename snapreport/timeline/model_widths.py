"""Widths of the transformers whose weights are in the blocks from before a trace, from sizes alone.

Weights of a transformer have a width: square matrices of ``width²`` elements, many of them equal, vectors of ``width``
elements (norms and biases), and others that are simple multiples of it. Allocations of forward passes are multiples of
the width of the model in use.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
from msgspec import Struct

FEWEST = 6
"""Minimum number of equal square matrices, and of equal vectors, that show a width."""
SIMPLE = 8
"""The largest denominator of a side of a weight matrix as a multiple of the width."""
MIN_USED_SHARE = 0.1
"""Share of the bytes that are multiples of the width in use; a model with less is not in use."""
_MIN_WIDTH = 64
ELEMENT_BYTES = (4, 2)


class UnusedModel(Struct, frozen=True):
    """width: of the model that forward passes do not use; used: of the one they use; sizes: Int64, the distinct bytes
    of the blocks with the first width.
    """

    width: int
    used: int
    sizes: np.ndarray


def unused_models(older: np.ndarray, made: np.ndarray) -> list[UnusedModel]:
    """Models with a different width than all forward passes.

    Two models of the same width cannot be distinguished: both of them, or a model and its copy, may be in use.

    older: Int64 bytes of the blocks from before the trace that are never freed; made: Int64 bytes of allocations in
    forward passes.
    """
    sizes = np.unique(older)
    for element in ELEMENT_BYTES:
        widths = model_widths(older, element)
        if len(widths) < 2:
            continue
        used = {width: int(made[made % (width * element) == 0].sum()) for width in widths}
        main = max(widths, key=lambda width: (used[width], width))
        family = {size: _width_of(size // element, widths) for size in sizes.tolist() if size % element == 0}
        return [
            UnusedModel(width, main, np.array([size for size, owner in family.items() if owner == width], np.int64))
            for width in widths
            if used[width] < MIN_USED_SHARE * used[main]
        ]
    return []


def model_widths(older: np.ndarray, element: int) -> list[int]:
    """The widths of transformers among blocks of ``older`` bytes (Int64), ascending; ``element``: bytes of a number."""
    sizes, counts = np.unique(older[older > 0], return_counts=True)
    many = set(sizes[counts >= FEWEST].tolist())
    squares = [isqrt(size // element) for size in many if size % element == 0]
    squares = [side for side in squares if side * side * element in many and side >= _MIN_WIDTH]
    widths = sorted({side for side in squares if side * element in many})
    # A matrix of width times four widths is a square of twice the width.
    return [width for width in widths if not (width % 2 == 0 and width // 2 in widths)]


def _width_of(elements: int, widths: list[int]) -> int | None:
    """The width of which a weight with ``elements`` is the simplest multiple; None if it is a multiple of none."""
    best: tuple[int, int] | None = None
    for width in widths:
        side, rest = divmod(elements, width)
        denominator = Fraction(side, width).denominator if side > 1 else 1
        if not rest and denominator <= SIMPLE and (best is None or (denominator, -width) < best):
            best = denominator, -width
    return None if best is None else -best[1]
