"""A retry after an out-of-memory error, while the exception's traceback holds the first attempt's tensors."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import MIN_BYTES, MIN_SHARE, ONE_LINE, Advice, AdviceContext
from snapreport.findings.graphs import births_until
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import BACKWARD

_MIN_TENSORS = 4


def exception_holds(context: AdviceContext) -> Advice | None:
    """Activations made before a request failed and still alive when forward passes run again, with no backward pass
    that would use them.
    """
    every = births(context)
    forward = context.born[every.rows[every.forward]]
    # A request that fails within a pass that goes on: its activations are used, and freed, by the backward pass.
    used = (context.free_stack == 0) | context.phases.runs(BACKWARD)[context.free_stack]
    last = len(context.timeline.events)
    grown = context.category("activation", "temporary") & (context.born >= 0) & (~used | (context.freed == last))
    # The frames of the attempt free all of it at once, with no allocation between.
    group = np.append(births_until(context), -1)[context.freed]
    size = 0
    for failed in context.timeline.oom_events:
        # Alive when the next pass begins.
        after = np.append(forward, last)[np.searchsorted(forward, failed, "right")]
        held = grown & (context.born < failed) & (context.freed > after) & (after < last)
        groups, count = np.unique(group[held], return_counts=True)
        together = held & np.isin(group, groups[count >= _MIN_TENSORS])
        size = max(size, int(context.size[together].sum()))
    if size < max(MIN_BYTES, MIN_SHARE * context.recorded.peak_bytes):
        return None
    return Advice(
        "exception-holds",
        "Retry after the except block, not in it",
        [
            sentence(
                "{} of activations of an attempt that ran out of memory are alive while the next one runs: the "
                "exception refers to the frames of the first.",
                bytes_part(size),
            ),
            "Set a flag in the except block and retry below it; nothing of the first attempt is alive then.",
        ],
        "except block",
        "https://docs.pytorch.org/docs/stable/notes/faq.html#my-out-of-memory-exception-handler-can-t-allocate-memory",
        effort=ONE_LINE,
        comes_first=True,
    )
