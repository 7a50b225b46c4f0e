"""A retry after an out-of-memory error, while the exception's traceback holds the first attempt's tensors."""

from __future__ import annotations

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.sentence import bytes_part, sentence
from snapreport.small_numbers import is_among
from snapreport.timeline.phases import BACKWARD, FORWARD

_FEWEST = 4


def exception_holds(context: AdviceContext) -> Advice | None:
    """Activations made before a request failed and still alive when forward passes run again, with no backward pass
    that would use them.
    """
    every = births(context)
    forward = context.born[every.rows[every.forward]]
    # A request that fails within a pass that goes on: its activations are used, and freed, by the backward pass.
    by_engine = (context.free_stack == 0) | is_among(context.phases.innermost, (FORWARD, BACKWARD))[context.free_stack]
    abandoned = ~by_engine | (context.freed == len(context.timeline.events))
    grown = context.category("activation", "temporary") & (context.born >= 0) & abandoned
    size = 0
    for failed in context.timeline.oom_events:
        after = forward[forward > failed]
        if not len(after):
            continue
        # Alive when the next pass begins.
        held = grown & (context.born < failed) & (context.freed > after[0])
        if held.sum() >= _FEWEST:
            size = max(size, int(context.size[held].sum()))
    if not context.is_much(size):
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
    )
