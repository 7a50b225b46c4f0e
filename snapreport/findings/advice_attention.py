"""Advice about attention that materialises its scores."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.attention_scores import attention_scores
from snapreport.findings.graphs import backward_passes, saved_for_backward
from snapreport.findings.saving import share_with_cost
from snapreport.sentence import bytes_part, sentence

_SDPA = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"
_CALL = "out = torch.nn.functional.scaled_dot_product_attention(q, k, v)"
_KERNELS = "https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html"

_FEWEST_CALLS = 4
"""Matrices of scores that are made and saved while a bias is alive: of two layers, softmax and dropout of each."""


class KernelEvidence(AdviceEvidence, kw_only=True):
    """``is_math_kernel``: C++ frames show it; else one line of Python makes what it would, or the same by itself."""

    is_math_kernel: bool


def _math_kernel(context: AdviceContext) -> Advice | None:
    scores = attention_scores(context)
    mask, size = scores.math, context.bytes_at_peak(scores.math)
    if not context.is_much(size):
        return None
    kernel = "Let scaled_dot_product_attention use a fused kernel"
    line = "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):"
    holds = sentence("Its math kernel holds {}: scores, softmax and copies of queries and keys.", context.share(size))
    if not scores.is_recorded:
        kernel, line = "Use scaled_dot_product_attention with a fused kernel", _CALL
        holds = sentence(
            "One line of Python makes {} of attention scores: the math kernel of scaled_dot_product_attention, or a "
            "product and softmax of its own.",
            context.share(size),
        )
    return Advice(
        "sdpa-math-kernel",
        kernel,
        [
            holds,
            sentence(
                "A fused kernel needs a supported head size, and a mask that is contiguous in its last dimension; "
                "`sdpa_kernel()` says why one cannot run."
            ),
        ],
        "torch.nn.attention.sdpa_kernel",
        _KERNELS,
        mask,
        functions=("_scaled_dot_product_attention_math",),
        evidence=KernelEvidence(is_math_kernel=scores.is_recorded),
        effort=ONE_LINE,
        line=line,
    )


def _written(context: AdviceContext) -> Advice | None:
    mask = attention_scores(context).written
    if not (size := context.much_at_peak(mask)):
        return None
    has_option = context.is_transformers(mask)
    fraction, bias = _with_biases(context, mask)
    adds = sentence(
        "A mask or bias of {} is added to them. A fused kernel saves it for the backward pass, and needs one that is "
        "contiguous in its last dimension.",
        bytes_part(bias),
    )
    return Advice(
        "fused-attention",
        "Use scaled_dot_product_attention instead of separate matmul and softmax",
        [sentence("Attention scores (batch × heads × length × length) and their softmax hold {}.", context.share(size))]
        + [adds] * bool(bias),
        "torch.nn.functional.scaled_dot_product_attention",
        _SDPA,
        mask,
        fraction,
        functions=("softmax",),
        effort=ONE_LINE,
        line='model = AutoModel.from_pretrained(name, attn_implementation="sdpa")' if has_option else _CALL,
        place="the call that loads the model" if has_option else "",
    )


def _with_biases(context: AdviceContext, scores: np.ndarray) -> tuple[float, int]:
    """(The share of scores that goes, bytes of the largest bias). A bias is as large as scores, is made elsewhere, is
    alive while those of several calls are made, and is freed before their backward pass. Until then a fused kernel
    keeps it.
    """
    if not context.trains:
        return 1.0, 0
    born, freed, size = context.born, context.freed, context.size
    made = scores & saved_for_backward(context)
    begun = backward_passes(context)
    cost, most = np.zeros(len(begun) + 1, np.int64), 0
    for number in np.unique(size[made & context.at_peak]).tolist():
        calls = np.flatnonzero(made & (size == number))
        calls = calls[np.argsort(born[calls])]
        others = np.flatnonzero(~scores & (size == number) & (freed < len(begun)))
        others = others[begun[born[others]] == begun[freed[others]]]
        first, last = (np.searchsorted(born[calls], at[others]) for at in (born, freed))
        for row, begin, end in zip(
            *(each[last - first >= _FEWEST_CALLS] for each in (others, first, last)), strict=True
        ):
            cost[freed[row] + 1 : freed[calls[begin:end]].max() + 1] += number
            most = max(most, number)
    return share_with_cost(context.timeline, np.flatnonzero(scores), 1.0, cost) if most else 1.0, most


ATTENTION_RULES = (_math_kernel, _written)
