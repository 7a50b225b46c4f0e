"""A second model whose weights are still allocated while the program works with the first."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.number_format import count_text, plural
from snapreport.sentence import sentence
from snapreport.timeline.model_widths import unused_models
from snapreport.timeline.phases import FORWARD


class ModelsEvidence(AdviceEvidence, kw_only=True):
    widths: list[int]
    blocks: int


def unused_model(context: AdviceContext) -> Advice | None:
    """Weights of another width than that of all forward passes of the trace, from before it and never freed."""
    older = ~context.is_traced & ~context.is_freed
    forward = context.is_traced & (context.phases.innermost == FORWARD)[context.stack]
    for model in unused_models(context.size[older], context.size[forward]):
        mask = older & np.isin(context.size, model.sizes)
        size = context.bytes_at_peak(mask)
        if context.is_much(size):
            return _advice(context, mask, size, model.width, model.used)
    return None


def _advice(context: AdviceContext, mask: np.ndarray, size: int, width: int, main: int) -> Advice:
    return Advice(
        "second-model",
        "Delete the model that is no longer in use",
        [
            sentence(
                "Two models were allocated before recording started, and the forward passes use the one with width {}.",
                count_text(main),
            ),
            sentence(
                "{} in {} belong to the other, with width {}: its weights, and gradients if it has any.",
                context.share(size),
                plural(int(mask.sum()), "block"),
                count_text(width),
            ),
        ],
        sentence("del, then `torch.cuda.empty_cache()`"),
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        mask,
        confidence="estimate",
        effort=ONE_LINE,
        line="del unused_model",
        evidence=ModelsEvidence(widths=[main, width], blocks=int(mask.sum())),
    )
