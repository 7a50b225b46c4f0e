"""A data set or a replay buffer on the device, from which batches are copied there."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import Advice, AdviceContext, remembered
from snapreport.findings.graphs import forward_births
from snapreport.findings.live import names_of
from snapreport.sentence import sentence

_SAMPLES = r"^(sample\w*|(get|next)_(mini)?batch|__getitem__|__next__)$"
"""Functions that read batches from a replay buffer, also after a forward pass that chose an action."""
_MIN_SAMPLED = 3
"""The fewest tensors from these functions that are taken for batches: one or two may be actions."""


@remembered
def resident_data(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: inputs from before the first forward pass, much larger than the batches that the program
    makes for each step. A graph that every step uses whole has no batches.
    """
    forward = forward_births(context)
    if not len(forward):
        return context.marked()
    inputs = context.category("input") & ~context.forward[context.stack]
    early = inputs & (context.born < forward[0]) & (context.freed > forward[-1])
    batches = inputs & (context.born > forward[0])
    if not batches.any():
        batches = context.traced("unknown") & (context.functions(_SAMPLES) & ~context.forward)[context.stack]
        batches &= (context.born > forward[0]) & (int(batches.sum()) >= _MIN_SAMPLED)
    if not batches.any() or not early.any():
        return context.marked()
    return np.asarray(early & (context.size >= 2 * int(np.median(context.size[batches]))))


def data_on_device(context: AdviceContext) -> Advice | None:
    mask = resident_data(context)
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    largest = np.flatnonzero(mask)[np.argmax(context.size[mask])]
    return Advice(
        "data-on-device",
        "Keep the data set in host memory, and copy each batch to the device",
        [
            sentence(
                "{} are data that stay on the device, from {}. A step uses one batch of them.",
                context.share(size),
                names_of(context.snapshot).line(int(context.stack[largest])),
            ),
            "Pinned memory and non_blocking=True copy a batch while the one before it is computed.",
        ],
        "DataLoader(pin_memory=True)",
        "https://docs.pytorch.org/docs/stable/data.html#memory-pinning",
        mask,
        line='batch = data[index].to("cuda", non_blocking=True)',
    )
