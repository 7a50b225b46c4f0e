"""Advice about attention that materialises its scores."""

from __future__ import annotations

from collections.abc import Callable

from snapreport.findings.advice_context import Advice, AdviceContext
from snapreport.findings.attention_scores import Scores, attention_scores

_SDPA = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"
_KERNELS = "https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html"


def _scores(context: AdviceContext) -> Scores:
    return context.remember(("attention scores", context.trains), lambda: attention_scores(context))


def _math_kernel(context: AdviceContext) -> Advice | None:
    mask = _scores(context).math
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    return Advice(
        "sdpa-math-kernel",
        "Let scaled_dot_product_attention use a fused kernel",
        [
            f"Its math kernel holds {context.share(size)}: scores, softmax and copies of queries and keys.",
            "Fused kernels need 16-bit inputs or a supported head size and mask; sdpa_kernel() says why one "
            "cannot run.",
        ],
        "torch.nn.attention.sdpa_kernel",
        _KERNELS,
        mask,
        functions=("_scaled_dot_product_attention_math",),
    )


def _written(context: AdviceContext) -> Advice | None:
    mask = _scores(context).written
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    return Advice(
        "fused-attention",
        "Use scaled_dot_product_attention instead of separate matmul and softmax",
        [f"Attention scores (batch × heads × length × length) and their softmax hold {context.share(size)}."],
        "torch.nn.functional.scaled_dot_product_attention",
        _SDPA,
        mask,
        functions=("softmax",),
    )


ATTENTION_RULES: tuple[Callable[[AdviceContext], Advice | None], ...] = (_math_kernel, _written)
