"""The last dimension of tensors, from sizes alone: ``*x4096`` where the widths of a transformer explain it.

The weights of a transformer have a width, and their other sides are the widths of what it computes: 4,096, 11,008,
32,000. An activation has a row for each token of the batch, so the number of tokens is the one with which most of these
sides are the size of an activation. What has the width itself may be split into heads: there the operator decides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from snapreport.timeline.model_widths import ELEMENT_BYTES

FEWEST, CERTAIN = 2, 3
"""Equal square matrices of weights, and equal vectors, that may be of a width, which excludes others; and square
matrices that show it.
"""
LEAST_SIDE = 32
"""Of a weight: what is a smaller multiple of the width is mostly a vector, or a convolution."""
FEWEST_SIDES = 3
"""Sides that activations have with one number of tokens, and with no other."""
LEAST_TOKENS = 9
_NO_HEADS = (
    r"^(?:linear|addmm|(?:native_)?layer_norm|rms_norm|normalization|embedding|gelu|silu|relu|activation function)"
)
"""Operators whose result is as wide as the model. Others may work on heads, as those that rotate queries and keys."""


def inferred_shapes(allocations: pl.DataFrame, operators: Callable[[], pl.Series]) -> pl.Series:
    """String per allocation, ``*x4096``: of activations and temporaries whose last dimension follows; null of others.

    operators: String per stack, see :func:`snapreport.timeline.operators.called_operators`; called only where needed.
    Nothing follows in a program with several widths, as of an encoder and a decoder.
    """
    category, size = allocations["category"], allocations["size"].to_numpy()
    weights = size[(category == "parameter").to_numpy()]
    is_output = category.is_in(["activation", "temporary"])
    named: dict[int, str] = {}
    width = ""
    for element in ELEMENT_BYTES:
        if widths := _widths(weights, element):
            if len(widths) == 1 and (weights == widths[0] ** 2 * element).sum() >= CERTAIN:
                outputs = np.unique(size[is_output.to_numpy()])
                width = f"*x{widths[0]}"
                named = _named(np.unique(weights), outputs[outputs > 0], widths[0] * element, element)
            break
    if not named:
        return pl.Series("shape", [None], pl.String).new_from_index(0, len(allocations))
    found = allocations["size"].replace_strict(named, default=None, return_dtype=pl.String)
    has_no_heads = operators().gather(allocations["stack"]).str.contains(_NO_HEADS)
    return found.set(~is_output | ((found == width) & ~has_no_heads), None)


def _widths(weights: np.ndarray, element: int) -> list[int]:
    """Widths of which there are square matrices and vectors, multiples of others included: two models may have them."""
    sizes, counts = np.unique(weights[weights > 0], return_counts=True)
    many = sizes[counts >= FEWEST]
    widths = many[many % element == 0] // element
    is_width = (widths >= LEAST_SIDE) & np.isin(widths * widths * element, many)
    return [int(width) for width in widths[is_width]]


def _named(weights: np.ndarray, outputs: np.ndarray, row: int, element: int) -> dict[int, str]:
    """``*x4096`` by bytes. weights, outputs: Int64, distinct sizes; row: bytes of a vector of the width."""
    sides = weights[weights % row == 0] // row
    sides = sides[sides >= LEAST_SIDE]
    tokens = outputs[outputs % row == 0] // row
    tokens = tokens[tokens >= LEAST_TOKENS]
    if not len(sides) or not len(tokens):
        return {}
    explained = np.isin(tokens[:, None] * sides * element, outputs).sum(axis=1)
    most = int(explained.max())
    if most < FEWEST_SIDES or (explained == most).sum() > 1:
        return {}
    count = int(tokens[np.argmax(explained)])
    return {count * side * element: f"*x{side}" for side in sides.tolist()}
