"""Advice about attention that materialises its scores."""

from __future__ import annotations

from collections.abc import Callable

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.attention_scores import attention_scores
from snapreport.sentence import sentence

_SDPA = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"
_CALL = "out = torch.nn.functional.scaled_dot_product_attention(q, k, v)"
_KERNELS = "https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html"


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
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    has_option = context.is_transformers(mask)
    return Advice(
        "fused-attention",
        "Use scaled_dot_product_attention instead of separate matmul and softmax",
        [
            sentence(
                "Attention scores (batch × heads × length × length) and their softmax hold {}.", context.share(size)
            )
        ],
        "torch.nn.functional.scaled_dot_product_attention",
        _SDPA,
        mask,
        functions=("softmax",),
        effort=ONE_LINE,
        line='model = AutoModel.from_pretrained(name, attn_implementation="sdpa")' if has_option else _CALL,
        place="the call that loads the model" if has_option else "",
    )


ATTENTION_RULES: tuple[Callable[[AdviceContext], Advice | None], ...] = (_math_kernel, _written)
