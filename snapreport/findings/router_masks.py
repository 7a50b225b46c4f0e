"""One-hot masks with which a router of experts dispatches tokens: their length may follow from the number of tokens."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.findings.one_hot import is_cast
from snapreport.timeline.phases import FORWARD

_FEWEST_LAYERS = 2
"""Casts of one line in a forward pass: a loss has one."""
_MIN_BYTES = 1 << 20
_TORCH = r"(^|/)torch/functional\.py "
"""Where ``einsum`` allocates its product."""


@remembered
def router_masks(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: one-hot vectors that the forward passes of several modules make in 64 bits and cast, what
    the same function makes of them in multiples of their size, and their gradients.
    """
    every, found = births(context), np.zeros(len(context.size), bool)
    in_module = (context.phases.innermost == FORWARD)[every.stack]
    cast = np.flatnonzero(is_cast(context, 2) & in_module & (every.size >= 2 * _MIN_BYTES))
    # A norm that computes in 32 bits casts, too, from what has a gradient.
    cast = cast[~np.isin(every.size[cast], every.size[context.category("activation")[every.rows] & in_module])]
    lines, count = np.unique(every.stack[cast], return_counts=True)
    if count.max(initial=0) < _FEWEST_LAYERS:
        return found
    function = context.function_of_frame[context.innermost(_TORCH)]
    inside = np.isin(function[context.stack], function[lines[count >= _FEWEST_LAYERS]])
    one_hot = int(every.size[cast].max()) // 2
    found = inside & (context.size % one_hot == 0)
    gradients = context.without_python[context.stack] & context.traced("temporary", "activation")
    return np.asarray(found | (gradients & np.isin(context.size, context.size[found])))
