"""An attention mask that is stored for every sequence and head, though all of them are the same."""

from __future__ import annotations

from math import isqrt

import numpy as np
import polars as pl

from snapreport.findings.advice_births import births, growing_lines
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.sentence import sentence

_FEWEST_COPIES = 4
_MIN_BYTES = 1 << 22
_MIN_FORWARD_COPIES = 4
"""Of these, those of forward passes: blocks that a program allocates by itself serve no layer."""
_MIN_LAYERS = 16
"""Allocations during which a mask is alive: it serves all layers."""


def expanded_mask(context: AdviceContext) -> Advice | None:
    """A line that makes a square of length by length, and directly after it many times that, which lives through the
    forward pass.
    """
    every = births(context)
    rows, size, stack = every.rows, every.size, every.stack
    order = context.born[rows]
    forward = order[every.forward]
    mask, copies = np.zeros(len(context.size), bool), 0
    function = np.where(context.outside_of_torch, context.function, 0)[stack]
    others = np.unique(context.size[context.category("parameter", "gradient")])
    candidates = (
        (size[1:] >= _MIN_BYTES) & (function[1:] > 0) & (function[1:] == function[:-1]) & (size[:-1] >= 1 << 16)
    )
    candidates &= (
        (size[1:] % np.maximum(size[:-1], 1) == 0)
        & (size[1:] >= _FEWEST_COPIES * size[:-1])
        & ~np.isin(size[:-1], others)
        & ~growing_lines(context)[rows[1:]]
    )
    # What one line makes of a square that stays is another tensor: nodes, and edges between all of them.
    candidates &= (every.calls[1:] != every.calls[:-1]) | (context.freed[rows[:-1]] <= np.append(order[2:], order[-1:]))
    # A mask has no gradient, and nothing else in the pass is as large but other masks.
    of_size = pl.DataFrame({"size": size, "stack": stack}).group_by("size").agg(pl.col("stack").n_unique())
    candidates &= np.isin(size[1:], of_size.filter(pl.col("stack") == 1)["size"].to_numpy())
    for at in (np.flatnonzero(candidates) + 1).tolist():
        born = context.born[rows[at]]
        lived, passed = (
            np.subtract(*np.searchsorted(each, (context.freed[rows[at]], born))) for each in (order, forward)
        )
        if lived >= _MIN_LAYERS and passed >= _MIN_FORWARD_COPIES and _is_square(int(size[at - 1])):
            mask[rows[at]] = True
            copies = max(copies, int(size[at] // size[at - 1]))
    if not (bytes_ := context.much_at_peak(mask)):
        return None
    return Advice(
        "expanded-mask",
        "Pass is_causal=True, or a mask that broadcasts over sequences and heads",
        [
            sentence(
                "A mask of length by length is stored {} times: {}, from {}.",
                copies,
                context.share(bytes_),
                context.first_line(mask),
            ),
            "A view by expand() takes nothing; repeat(), contiguous() and arithmetic on it make the copies.",
        ],
        "torch.nn.functional.scaled_dot_product_attention",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        mask,
        1 - 1 / copies,
        confidence="estimate",
        effort=ONE_LINE,
        line="out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)",
    )


def _is_square(size: int) -> bool:
    return any(isqrt(size // bytes_of) ** 2 * bytes_of == size for bytes_of in (1, 2, 4))
