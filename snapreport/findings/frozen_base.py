"""Weights that no gradient is made for, as of a base model under LoRA, in 32 bits."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.element_size import computes_in_32_bits
from snapreport.findings.mixed_precision import MARGIN, is_low_precision
from snapreport.findings.saving import bytes_over_time, share_with_cost
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import OPTIMIZER_STEP

_MIN_FROZEN_SHARE = 0.5
_MIN_PEAK_SHARE = 0.25
"""Of the peak: where activations, whose types casts may change either way, may need more than now, fewer weights leave
an estimate.
"""
_MIN_BYTES = 1 << 20
_SHARDED = r"/torch/distributed/fsdp/|/deepspeed/runtime/zero/"
"""Gathers whole weights, whose gradients are parts of other sizes."""


class FrozenEvidence(AdviceEvidence, kw_only=True):
    """``loaded_peak_bytes``: the peak where the weights are loaded in 16 bits, not cast on the device."""

    frozen_bytes: int
    loaded_peak_bytes: int


def frozen_base(context: AdviceContext) -> Advice | None:
    """Parameters of sizes that no gradient has, where a backward pass and a step have run."""
    if not context.trains or is_low_precision(context):
        return None
    steps = context.phases.runs(OPTIMIZER_STEP)[context.timeline.events["stack"].to_numpy()]
    gradients = np.unique(context.size[context.category("gradient")])
    parameters = context.category("parameter")
    if not len(gradients) or not steps.any() or context.frames(_SHARDED)[context.stack[parameters]].any():
        return None
    if np.isin(2 * context.size[parameters & context.at_peak], context.size[parameters & ~context.at_peak]).any():
        return None  # cast to half their size on the device
    mask = parameters & (context.size >= _MIN_BYTES) & ~np.isin(context.size, gradients)
    size = context.bytes_at_peak(mask)
    if size < _MIN_FROZEN_SHARE * context.bytes_at_peak(parameters) or not context.is_much(size // 2):
        return None
    cast = mask | context.category("activation", "temporary")
    half = bytes_over_time(context.timeline, np.flatnonzero(cast)) // 2
    loaded = context.timeline.allocated - half
    every = births(context)
    # Cast on the device, as the line does, the weights are there in 32 bits before, and the largest in both types.
    begins = int(context.born[every.rows[every.forward]].min(initial=len(half)))
    saved = np.where(np.arange(len(half)) <= begins, 0, half)
    saved[min(begins, len(saved) - 1)] = -int(context.size[mask].max()) // 2
    rows = np.flatnonzero(cast)
    on_device = int((context.timeline.allocated - saved).max())
    is_cast = context.is_much(context.timeline.peak_bytes - on_device)
    share = share_with_cost(context.timeline, rows, 0.0, -(saved if is_cast else half))
    every_part = np.flatnonzero(cast | context.category("parameter", "gradient"))
    least = int((context.timeline.allocated - bytes_over_time(context.timeline, every_part) // 2).max())
    weights = context.timeline.allocated - bytes_over_time(context.timeline, np.flatnonzero(mask)) // 2
    activations = bytes_over_time(context.timeline, np.flatnonzero(context.category("activation"))) // 2
    known = computes_in_32_bits(context)
    peak = context.timeline.peak_bytes
    highest = max(int((weights + activations).max()), on_device if is_cast else 0)
    types = [] if known else ["A snapshot does not record types: weights in 16 bits already save nothing."]
    return Advice(
        "frozen-base",
        "Keep the frozen weights in a 16-bit type",
        [
            sentence(
                "{} are parameters that get no gradient, as of a base model under LoRA or a frozen backbone.",
                context.share(size),
            ),
            sentence(
                "The replay casts the whole model on the device, activations too. Loaded in 16 bits, it would need {}.",
                bytes_part(int(loaded.max())),
            )
            if is_cast
            else "The replay loads the whole model in 16 bits, activations too: cast on the device, it would need as "
            "much as now.",
            *types,
        ],
        "from_pretrained(dtype=torch.bfloat16), or base.to(torch.bfloat16)",
        "https://huggingface.co/docs/peft/developer_guides/quantization",
        cast,
        share,
        confidence="inferred" if known and (highest < peak or size >= _MIN_PEAK_SHARE * peak) else "estimate",
        peak_range=(int(least * (1 - MARGIN)), highest),
        evidence=FrozenEvidence(frozen_bytes=size, loaded_peak_bytes=int(loaded.max())),
        effort=ONE_LINE,
        line="base.to(torch.bfloat16)" if is_cast else 'base.to("cuda", torch.bfloat16)',
    )
