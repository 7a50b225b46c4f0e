"""A checkpoint that stays on the device beside the parameters into which it was copied."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.number_format import plural
from snapreport.sentence import sentence

# Only tensors and containers come out of these, no modules that would use them (torch.load(weights_only=True), its
# default since 2.6: torch/_weights_only_unpickler.py). What the plain unpickler loads may be a model in use.
_LOADING = r"(?-u)(^|/)(torch/_weights_only_unpickler|safetensors/torch)\.py load\w*$"
_MIN_TENSORS = 4


class LoadedEvidence(AdviceEvidence, kw_only=True):
    blocks: int


def loaded_checkpoint(context: AdviceContext) -> Advice | None:
    """Loaded tensors, as many of each size as there are parameters of that size which were allocated elsewhere."""
    loaded, live = context.frames(_LOADING)[context.stack] & ~context.category("optimizer state"), context.at_peak
    if not (loaded & live).any():
        return None
    parameters = np.sort(context.size[context.category("parameter") & live & ~loaded])
    rows = np.flatnonzero(loaded & live)
    rows = rows[np.argsort(context.size[rows], kind="stable")]
    sizes = context.size[rows]
    # The n-th loaded tensor of a size has a twin where there are n parameters of that size.
    number = np.arange(len(rows)) - np.searchsorted(sizes, sizes)
    of_size = np.searchsorted(parameters, sizes, "right") - np.searchsorted(parameters, sizes)
    mask = context.marked(rows[number < of_size])
    size, count = context.bytes_at_peak(mask), int(mask.sum())
    if count < _MIN_TENSORS or not context.is_much(size):
        return None
    return Advice(
        "loaded-checkpoint",
        sentence("Load the checkpoint to the CPU, or delete it after `load_state_dict()`"),
        [
            sentence(
                "{} in {} were loaded from a file to the device, beside parameters of the same sizes that were "
                "allocated elsewhere.",
                context.share(size),
                plural(count, "tensor"),
            ),
            sentence("`load_state_dict()` copies their values, and does not need them afterwards."),
        ],
        'torch.load(..., map_location="cpu")',
        "https://docs.pytorch.org/docs/stable/generated/torch.load.html",
        mask,
        evidence=LoadedEvidence(blocks=count),
        effort=ONE_LINE,
        line='state = torch.load(path, map_location="cpu")',
    )
