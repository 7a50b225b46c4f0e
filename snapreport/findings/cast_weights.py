"""Weights that are cast on the device, after they were moved there in the larger type."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.sentence import sentence

_APPLY = r"torch/nn/modules/module\.py _apply$"
"""Replaces each parameter of a module by what a function makes of it."""


def cast_on_device(context: AdviceContext) -> Advice | None:
    """Weights that ``Module.to`` or ``half()`` replaces on the device: each is freed right after a copy of half its
    bytes is made.
    """
    applied = context.frames(_APPLY)
    made = np.flatnonzero(applied[context.stack] & context.is_traced)
    halves = pl.DataFrame({"at": context.born[made] + 1, "size": 2 * context.size[made]})
    freed = np.flatnonzero(context.category("parameter") & context.at_peak)
    requested = context.timeline.allocations["free_requested_event"].to_numpy()[freed]
    ends = np.where(requested >= 0, requested, context.freed[freed])
    weights = pl.DataFrame({"row": freed, "at": ends, "size": context.size[freed]})
    mask = context.marked(weights.join(halves, on=["at", "size"], how="semi")["row"].to_numpy())
    if not (size := context.much_at_peak(mask)):
        return None
    return Advice(
        "cast-on-device",
        "Cast the weights before they are on the device",
        [
            sentence("Weights in the larger type hold {} until each is cast on the device.", context.share(size)),
            sentence("`to()` with a device and a type moves them in that type."),
        ],
        "torch.nn.Module.to",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.to",
        mask,
        effort=ONE_LINE,
        line='model.to("cuda", torch.bfloat16)',
    )
