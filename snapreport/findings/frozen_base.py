"""Weights that no gradient is made for, as of a base model under LoRA, in 32 bits."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.mixed_precision import is_low_precision
from snapreport.findings.saving import bytes_over_time
from snapreport.sentence import sentence
from snapreport.timeline.phases import OPTIMIZER_STEP

_MOSTLY = 0.5
_LARGE = 1 << 20


def frozen_base(context: AdviceContext) -> Advice | None:
    """Parameters of sizes that no gradient has, where a backward pass and a step have run."""
    if not context.trains or is_low_precision(context):
        return None
    steps = context.phases.runs(OPTIMIZER_STEP)[context.timeline.events["stack"].to_numpy()]
    gradients = np.unique(context.size[context.category("gradient")])
    parameters = context.category("parameter")
    if not len(gradients) or not steps.any():
        return None
    if np.isin(2 * context.size[parameters & context.at_peak], context.size[parameters & ~context.at_peak]).any():
        return None  # cast to half their size on the device
    mask = parameters & (context.size >= _LARGE) & ~np.isin(context.size, gradients)
    size = context.bytes_at_peak(mask)
    if size < _MOSTLY * context.bytes_at_peak(parameters) or not context.is_much(size // 2):
        return None
    allocated = context.timeline.allocated - bytes_over_time(context.timeline, np.flatnonzero(mask)) // 2
    activations = bytes_over_time(context.timeline, np.flatnonzero(context.category("activation"))) // 2
    temporaries = bytes_over_time(context.timeline, np.flatnonzero(context.category("temporary"))) // 2
    return Advice(
        "frozen-base",
        "Keep the frozen weights in a 16-bit type",
        [
            sentence(
                "{} are parameters that get no gradient, as of a base model under LoRA or a frozen backbone.",
                context.share(size),
            ),
            "Activations are of 16 bits, too, where the whole model is cast; where only its frozen weights are, their "
            "products cast what they read.",
            "A snapshot does not record types: weights in 16 bits already save nothing.",
        ],
        "from_pretrained(dtype=torch.bfloat16), or base.to(torch.bfloat16)",
        "https://huggingface.co/docs/peft/developer_guides/quantization",
        mask,
        0.5,
        confidence="estimate",
        peak_range=(int((allocated - activations - temporaries).max()), int((allocated + activations).max())),
        effort=ONE_LINE,
        line="base.to(torch.bfloat16)",
    )
