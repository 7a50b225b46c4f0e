"""Advice to compute in a 16-bit type, with the replay of what ``torch.autocast`` keeps in 32 bits, casts and copies."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.autocast_replay import autocast_factors
from snapreport.findings.autocast_weights import weight_copies
from snapreport.findings.element_size import computes_in_32_bits
from snapreport.findings.graphs import unknown_of_a_step
from snapreport.findings.noted_types import bytes_of_products
from snapreport.findings.saving import bytes_over_time, share_with_cost
from snapreport.number_format import share_text
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.activity import INFERENCE, TRAINING
from snapreport.timeline.curves import allocated_curve
from snapreport.timeline.phases import OPTIMIZER_STEP

_LOW_PRECISION = r"(?i)autocast|/amp/|bfloat16|float16|\bhalf\b|fp16|bf16|transformer_engine|megatron"
_WIDEST_TYPE = r"torch/nn/functional\.py grid_sample$"
"""Reads a tensor in the type of its positions: under autocast each call saves a copy of it in 32 bits, as large as a
volume of which the trace shows only what is read. A program that samples twelve times took 1.3 times as much."""
MARGIN = 0.08
"""Of 64 recordings with autocast all lay in the range that it gives; the replay itself was up to 14% off."""

_MOST = 0.5
"""Of what products read and return: an encoder in 16 bits may be a small part of a program in 32."""

_REPLAYED = "The replay keeps norms, softmax and losses in 32 bits, and adds the casts that products read."
_AT_LEAST = "In 16 bits they take half, and more where autocast keeps 32 bits, casts and copies."
_UNKNOWN_TYPES = "A snapshot does not record types: a program in 16 bits already saves nothing."


class MixedPrecisionEvidence(AdviceEvidence, kw_only=True):
    weight_copy_bytes: int


def mixed_precision(context: AdviceContext) -> Advice | None:
    mask = context.traced("activation", "temporary")
    mask &= ~(context.phases.innermost == OPTIMIZER_STEP)[context.stack]
    what = "Activations and temporaries hold"
    # Before a backward pass has freed it, the use of what functions without modules compute is unknown.
    if context.is_cut_off and context.is_much(context.bytes_at_peak(unknown := unknown_of_a_step(context))):
        mask |= unknown
        what = "What the forward pass computes holds"
    size = context.bytes_at_peak(mask)
    kind, is_noted = context.timeline.activity.kind, bytes_of_products(context)[1] > 0
    if kind not in (TRAINING, INFERENCE) or not context.is_much(size // 2) or is_low_precision(context):
        return None
    if context.occurs(context.frames(_WIDEST_TYPE)):
        return None
    share, copies, peak_range = context.remember(("16 bits", context.trains), lambda: _share(context, mask))
    if not share:
        return None
    return Advice(
        "mixed-precision",
        "Compute in a 16-bit type",
        [
            sentence("{what} {}, and {types}.", context.share(size), what=what, types=_types(context)),
            *(
                [sentence("Autocast's copies of the weights take {}.", bytes_part(copies))]
                if context.is_much(copies)
                else []
            ),
            _AT_LEAST if context.is_cut_off else _REPLAYED,
            *([] if is_noted or computes_in_32_bits(context) else [_UNKNOWN_TYPES]),
        ],
        "torch.autocast",
        "https://docs.pytorch.org/docs/stable/amp.html",
        mask,
        share,
        confidence="estimate",
        peak_range=peak_range,
        evidence=MixedPrecisionEvidence(weight_copy_bytes=copies),
        effort=ONE_LINE,
        line='with torch.autocast("cuda", dtype=torch.bfloat16):',
    )


def _share(context: AdviceContext, mask: np.ndarray) -> tuple[float, int, tuple[int, int]]:
    """(share of ``mask`` that is saved, bytes of the weights' copies, the least and the highest peak). Of a program
    that was cut off it is not known what products and losses read: then the share is the most that can be.
    """
    timeline, rows, copies = context.timeline, np.flatnonzero(mask), weight_copies(context)
    if timeline.activity.kind == INFERENCE:
        # Copies of a weight go after its product where no gradient is made for it, or stay in autocast's cache.
        copies = context.bytes_at_peak(context.category("parameter")) // 2
    if context.is_cut_off:
        return 0.5, copies, (0, 0)
    computes = bytes_over_time(timeline, np.flatnonzero(context.category("activation"))) > 0
    factors = autocast_factors(context)

    def change(factor: np.ndarray, copied: int) -> np.ndarray:
        changed = np.flatnonzero(factor != 1.0)
        more = np.floor(context.size[changed] * (factor[changed] - 1.0)).astype(np.int64)
        born, freed = (timeline.allocations[name].to_numpy()[changed] for name in ("alloc_event", "free_event"))
        curve = allocated_curve(born, freed, more, len(timeline.events))
        np.add(curve, copied, out=curve, where=computes)
        return curve

    # The best estimate last: what it needs is all that stays allocated.
    low = int((timeline.allocated + change(factors.low, 0)).max())
    high = int((timeline.allocated + change(factors.high, copies)).max())
    cost = change(factors.factor, copies)
    share = share_with_cost(timeline, rows, 0.0, cost)
    least = int((timeline.allocated - bytes_over_time(timeline, rows) // 2).max())  # where all takes half
    return share, copies, (max(least, int(low * (1 - MARGIN))), int(high * (1 + MARGIN)))


def _types(context: AdviceContext) -> str:
    noted, of = bytes_of_products(context)
    if not of:
        return "no recorded stack trace goes through autocast"
    part = "" if noted == of else sentence("{part} of ", part=share_text(noted, of))
    return sentence("{part}what matrix products and convolutions read and return is in 32 bits", part=part)


def is_low_precision(context: AdviceContext) -> bool:
    """Whether products compute in 16 bits, as a recorder noted of most; or else whether frames show it: autocast,
    casts, or kernels for half-precision types, on whatever device: DataParallel's threads do not show the caller's.
    """
    noted, of = bytes_of_products(context)
    return noted < _MOST * of if of else bool(context.frames(_LOW_PRECISION).any())
