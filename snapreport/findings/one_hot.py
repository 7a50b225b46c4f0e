"""Targets of a loss as one-hot vectors: as many numbers as logits, first in 64 bits, then as the logits' type."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.live import names_of
from snapreport.sentence import sentence

_INTEGER = 8  # bytes of an element of functional.one_hot
_REACH = 6
"""Allocations after the cast within which the product with the logits follows."""


def one_hot(context: AdviceContext) -> Advice | None:
    """An allocation of 64-bit integers, freed as soon as it has been cast to floating point, and a product as large as
    the cast beside logits of the same size that were made before.
    """
    if not context.trains:
        return None
    every = births(context)
    rows, size, stack = every.rows, every.size, every.stack
    mask = np.zeros(len(context.size), bool)
    if len(rows) < 4:
        return None
    line = stack
    for bytes_of in (4, 2):
        times = _INTEGER // bytes_of
        pairs = np.flatnonzero((size[:-1] == times * size[1:]) & (line[:-1] == line[1:]) & (stack[:-1] > 0))
        pairs = pairs[size[pairs] >= times * (1 << 20)]
        # Freed before anything else is allocated.
        following = np.append(context.born[rows], len(context.timeline.events))[pairs + 2]
        pairs = pairs[context.freed[rows[pairs]] <= following]
        for at in pairs.tolist():
            hot = int(size[at + 1])
            product = (
                at
                + 2
                + np.flatnonzero(
                    (size[at + 2 : at + 2 + _REACH] == hot) & (stack[at + 2 : at + 2 + _REACH] == stack[at])
                )
            )
            before = (context.born < context.born[rows[at]]) & (context.freed > context.born[rows[at]])
            if len(product) and (before & (context.size == hot) & context.category("activation", "temporary")).any():
                mask[rows[[at, at + 1, product[0]]]] = True
    bytes_ = context.bytes_at_peak(mask)
    if not context.is_much(bytes_):
        return None
    first = int(context.stack[np.flatnonzero(mask & context.at_peak)[0]])
    return Advice(
        "one-hot",
        "Give the loss indices of classes instead of one-hot vectors",
        [
            sentence(
                "One-hot vectors and their product with the logits hold {}, from {}.",
                context.share(bytes_),
                names_of(context.snapshot).line(first),
            ),
            "cross_entropy(logits, index) and nll_loss(log_probabilities, index) give the same loss.",
        ],
        "torch.nn.functional.cross_entropy",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html",
        mask,
        effort=ONE_LINE,
        line="loss = torch.nn.functional.cross_entropy(logits, index)",
    )
