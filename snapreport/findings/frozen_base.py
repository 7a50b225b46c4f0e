"""Weights that no gradient is made for, as of a base model under LoRA, in 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.element_size import computes_in_32_bits
from snapreport.findings.graphs import forward_births
from snapreport.findings.mixed_precision import MARGIN, is_low_precision
from snapreport.findings.noted_types import element_bytes, is_in_32_bits
from snapreport.findings.saving import bytes_over_time, share_with_cost
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import OPTIMIZER_STEP

_MIN_FROZEN_SHARE = 0.5
_MIN_PEAK_SHARE = 0.25
"""Of the peak: where activations, whose types casts may change either way, may need more than now, fewer weights leave
an estimate.
"""
_MIN_BYTES = 1 << 20
_MIN_TABLES, _MIN_TRAINED = 4, 0.2
"""Runs of them between trained weights; and of their bytes, those of the trained: adapters of rank 64 beside weights of
1,024 by 1,024 have 0.13.
"""
_SHARDED = r"/torch/distributed/fsdp/|/deepspeed/runtime/zero/|/torch/nn/parallel/comm\.py reduce_add_coalesced$"
"""Gathers whole weights, whose gradients are parts of other sizes; or DataParallel's gradients of many weights in one.
"""


class FrozenEvidence(AdviceEvidence, kw_only=True):
    """``loaded_peak_bytes``: the peak where the weights are loaded in 16 bits, not cast on the device."""

    frozen_bytes: int
    loaded_peak_bytes: int


def frozen_base(context: AdviceContext) -> Advice | None:
    """Parameters of sizes that no gradient has, where a backward pass and a step have run."""
    autocasts = is_low_precision(context)
    if not context.trains or (autocasts and not is_in_32_bits(context).any()):
        return None
    steps = context.phases.runs(OPTIMIZER_STEP)[context.timeline.events["stack"].to_numpy()]
    gradients = np.unique(context.size[context.category("gradient")])
    parameters = context.category("parameter")
    weights = parameters | context.category("gradient")
    if not len(gradients) or not steps.any() or context.frames(_SHARDED)[context.stack[weights]].any():
        return None
    if np.isin(2 * context.size[parameters & context.at_peak], context.size[parameters & ~context.at_peak]).any():
        return None  # cast to half their size on the device
    mask = parameters & (context.size >= _MIN_BYTES) & ~np.isin(context.size, gradients)
    # Under autocast weights may well be in 16 bits, and no size tells.
    mask &= is_in_32_bits(context) | ((element_bytes(context) == 0) & (not autocasts))
    size = context.bytes_at_peak(mask)
    if size < _MIN_FROZEN_SHARE * context.bytes_at_peak(parameters) or not context.is_much(size // 2):
        return None
    if _are_tables(context, parameters, mask):
        return None
    return _beside_autocast(context, mask) if autocasts else _in_16_bits(context, mask)


def _are_tables(context: AdviceContext, parameters: np.ndarray, mask: np.ndarray) -> bool:
    """Whether ``mask`` are buffers of one size in each layer of a model that is trained, such as cosines of positions.
    Both: Bool per allocation.
    """
    rows = np.flatnonzero(parameters & context.at_peak)
    rows = rows[np.argsort(context.born[rows])]
    is_frozen, size = mask[rows], context.size[rows]
    runs = np.count_nonzero(is_frozen[1:] & ~is_frozen[:-1])
    trained = size[~is_frozen].sum()
    is_one_size = len(np.unique(size[is_frozen])) == 1
    return bool(is_one_size and runs >= _MIN_TABLES and trained > _MIN_TRAINED * size[is_frozen].sum())


class _Replay(Struct, frozen=True):
    """is_cast: whether it lowers the peak to cast the weights on the device, where they are in 32 bits before, the
    largest in both types; else they are loaded in 16 bits. saved: Int64 bytes at each place in a curve. peak: after it.
    loaded_peak: the peak where they are loaded so.
    """

    is_cast: bool
    saved: np.ndarray
    peak: int
    loaded_peak: int


def _replay(context: AdviceContext, mask: np.ndarray, half: np.ndarray) -> _Replay:
    allocated, begins = context.timeline.allocated, int(forward_births(context).min(initial=len(half)))
    saved = np.where(np.arange(len(half)) <= begins, 0, half)
    saved[min(begins, len(saved) - 1)] = -int(context.size[mask].max()) // 2
    on_device, loaded = int((allocated - saved).max()), int((allocated - half).max())
    is_cast = context.is_much(context.timeline.peak_bytes - on_device)
    return _Replay(True, saved, on_device, loaded) if is_cast else _Replay(False, half, loaded, loaded)


def _in_16_bits(context: AdviceContext, mask: np.ndarray) -> Advice:
    """Where all computes in 32 bits: the whole model, activations too."""
    cast = mask | context.category("activation", "temporary")
    replay = _replay(context, mask, bytes_over_time(context.timeline, np.flatnonzero(cast)) // 2)
    every_part = np.flatnonzero(cast | context.category("parameter", "gradient"))
    least = int((context.timeline.allocated - bytes_over_time(context.timeline, every_part) // 2).max())
    weights = context.timeline.allocated - bytes_over_time(context.timeline, np.flatnonzero(mask)) // 2
    activations = bytes_over_time(context.timeline, np.flatnonzero(context.category("activation"))) // 2
    known = computes_in_32_bits(context)
    peak = context.timeline.peak_bytes
    highest = max(int((weights + activations).max()), replay.peak)
    is_sure = known and (highest < peak or context.bytes_at_peak(mask) >= _MIN_PEAK_SHARE * peak)
    how = (
        sentence(
            "The replay casts the whole model on the device, activations too. Loaded in 16 bits, it would need {}.",
            bytes_part(replay.loaded_peak),
        )
        if replay.is_cast
        else "The replay loads the whole model in 16 bits, activations too: cast on the device, it would need as "
        "much as now."
    )
    types = [] if known else ["A snapshot does not record types: weights in 16 bits already save nothing."]
    return _advice(context, mask, cast, replay, [how, *types], is_sure, (int(least * (1 - MARGIN)), highest))


def _beside_autocast(context: AdviceContext, mask: np.ndarray) -> Advice:
    """For weights in 32 bits under autocast: each product copies them and saves the copy for its backward pass."""
    copies, unclear = _copies(context, mask)
    copied = bytes_over_time(context.timeline, np.flatnonzero(copies))
    replay = _replay(context, mask, bytes_over_time(context.timeline, np.flatnonzero(mask)) // 2 + copied)
    holds = context.bytes_at_peak(copies)
    saved = "Products save autocast's 16-bit copies of them, {}; weights in 16 bits need none."
    loaded = sentence("Loaded in 16 bits, {} are needed.", bytes_part(replay.loaded_peak))
    how = (
        sentence("The replay casts them on the device. {loaded}", loaded=loaded)
        if replay.is_cast
        else "The replay loads them in 16 bits: cast on the device, they would need as much as now."
    )
    why = [*([sentence(saved, bytes_part(holds))] if holds else []), how]
    highest = int((context.timeline.allocated - replay.saved + copied).max())
    peak_range = int((replay.peak - unclear) * (1 - MARGIN)), highest
    return _advice(context, mask, mask | copies, replay, why, True, peak_range)


def _copies(context: AdviceContext, mask: np.ndarray) -> tuple[np.ndarray, int]:
    """(Bool per allocation, bytes): noted in 16 bits with the lengths of a frozen weight, in any order, since products
    save them transposed; and what may be such copies at the peak, where activations have the lengths of weights.
    """
    table, at_peak = context.timeline.allocations, context.at_peak
    lengths = table["shape"].str.split("x").list.sort().list.join("x")
    weights = pl.DataFrame({"lengths": lengths, "size": context.size // 2}).filter(pl.Series(mask & at_peak))
    weights = weights.group_by("lengths", "size").agg(weights=pl.len())
    made = context.category("activation", "temporary") & (element_bytes(context) == 2) & context.is_traced
    rows = pl.DataFrame({
        "row": np.flatnonzero(made), "lengths": lengths.filter(pl.Series(made)), "size": context.size[made],
        "at_peak": at_peak[made],
    }).join(weights, on=("lengths", "size"))  # fmt: skip
    is_clear = pl.col("at_peak").sum().over("lengths", "size") <= pl.col("weights")
    unclear = rows.filter(~is_clear).unique(["lengths", "size"])
    return context.marked(rows.filter(is_clear)["row"].to_numpy()), int((unclear["weights"] * unclear["size"]).sum())


def _advice(
    context: AdviceContext,
    mask: np.ndarray,
    changes: np.ndarray,
    replay: _Replay,
    why: Sequence[str],
    is_sure: bool,
    peak_range: tuple[int, int],
) -> Advice:
    size = context.bytes_at_peak(mask)
    return Advice(
        "frozen-base",
        "Keep the frozen weights in a 16-bit type",
        [
            sentence(
                "{} are parameters that get no gradient, as of a base model under LoRA or a frozen backbone.",
                context.share(size),
            ),
            *why,
        ],
        "from_pretrained(dtype=torch.bfloat16), or base.to(torch.bfloat16)",
        "https://huggingface.co/docs/peft/developer_guides/quantization",
        changes,
        share_with_cost(context.timeline, np.flatnonzero(changes), 0.0, -replay.saved),
        confidence="inferred" if is_sure else "estimate",
        peak_range=peak_range,
        evidence=FrozenEvidence(frozen_bytes=size, loaded_peak_bytes=replay.loaded_peak),
        effort=ONE_LINE,
        line="base.to(torch.bfloat16)" if replay.is_cast else 'base.to("cuda", torch.bfloat16)',
    )
