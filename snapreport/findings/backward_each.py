"""Graphs of several forward passes that wait for backward passes, where one after each would free them."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, REWRITE, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.graphs import (
    MOST_PARTS,
    MOST_PASSES,
    added_to_gradients,
    freed_in,
    has_losses,
    waiting_graphs,
)
from snapreport.findings.saving import bytes_of_spans, bytes_over_time, share_with_cost
from snapreport.sentence import bytes_part, sentence


class PassesEvidence(AdviceEvidence, kw_only=True):
    passes: int
    gradient_bytes: int


def several_graphs(context: AdviceContext) -> Advice | None:
    """Graphs of several forward passes, all alive until one backward pass."""
    waiting = waiting_graphs(context)
    mask, passes = waiting.mask, waiting.passes
    size = context.bytes_at_peak(mask)
    if passes < 2 or not context.is_much(size * (passes - 1) // passes):
        return None
    if not waiting.failed and not has_losses(context, mask & context.at_peak, passes):
        return None
    gradients, missing = missing_gradients(context)
    # Those that one pass over all graphs has begun to sum are there.
    cost = np.maximum(missing - bytes_over_time(context.timeline, np.flatnonzero(added_to_gradients(context))), 0)
    rows = np.flatnonzero(mask)
    share = share_with_cost(context.timeline, rows, 1 - 1 / passes, cost)
    if not waiting.failed:
        others = _bytes_of_others(context, rows, passes)
        share = max(share, share_with_cost(context.timeline, rows, 0.0, cost - others))
    stay = sentence("The gradients of the first part, {}, stay allocated through the others.", bytes_part(gradients))
    state = sentence(
        "A state that the next pass reads, as in a recurrent network, needs `detach()` between the two, where "
        "gradients then end."
    )
    if waiting.failed:
        do = "Free the graph of each forward pass before the next"
        why = [
            sentence(
                "{passes} forward passes hold {}, and memory ran out before any backward pass.",
                context.share(size),
                passes=passes,
            ),
            sentence(
                "In training call `backward()` for each; in evaluation use `torch.no_grad()`, and keep outputs on the "
                "CPU."
            ),
        ]
    else:
        do = sentence("Call `backward()` after each forward pass")
        why = [
            sentence(
                "{passes} forward passes hold {}: all run before the first of as many `backward()` calls. The "
                "schedule of a pipeline does so on purpose.",
                context.share(size),
                passes=passes,
            )
            if waiting.calls > 1
            else sentence(
                "{passes} forward passes hold {}, until one backward pass frees all of it.",
                context.share(size),
                passes=passes,
            ),
            sentence(
                "If no pass uses another's output and the loss is a sum over passes, `backward()` on each part gives "
                "the same gradients and needs one graph at a time."
            ),
            *([state] if passes > MOST_PASSES else []),
            *([stay] if context.is_much(gradients) else []),
        ]
    return Advice(
        "backward-each",
        do,
        why,
        sentence("`loss.backward()` for each micro-batch"),
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        mask,
        share,
        confidence="estimate",
        evidence=PassesEvidence(passes=passes, gradient_bytes=gradients),
        effort=ONE_LINE if passes <= MOST_PARTS and waiting.calls == 1 else REWRITE,
        line="loss.backward()",
    )


def _bytes_of_others(context: AdviceContext, rows: np.ndarray, passes: int) -> np.ndarray:
    """Int64 bytes per place in a curve: what ``rows`` take of graphs that would be gone, if each were freed before the
    next is made: from the first tensor of the next pass until the backward pass comes to this one.
    """
    never = len(context.timeline.events)
    table = context.table(rows, step=freed_in(context)[rows]).filter(pl.col("freed") < never).sort("born")
    lines = table.with_columns(n=pl.len().over("step", "stack"), place=pl.int_range(pl.len()).over("step", "stack"))
    lines = lines.filter((pl.col("n") % passes == 0) & (pl.col("stack") > 0))
    lines = lines.with_columns(number=pl.col("place") * passes // pl.col("n"))
    begins = lines.group_by("step", "number").agg(begin=pl.col("born").min(), last=pl.col("born").max()).sort("begin")
    begins = begins.with_columns(next=pl.col("begin").shift(-1).over("step").fill_null(pl.col("last") + 1))
    table = table.join_asof(begins, left_on="born", right_on="begin", by="step", check_sortedness=False)
    table = table.filter(pl.col("freed") >= pl.col("next"))
    table = table.with_columns(comes=pl.col("freed").min().over("step", "number"))
    starts, ends, size = (table[name].to_numpy() for name in ("next", "comes", "size"))
    return bytes_of_spans(context.timeline, starts, ends, size)


def missing_gradients(context: AdviceContext) -> tuple[int, np.ndarray]:
    """Bytes of all gradients, and Int64 per place in a curve: those that are not allocated there. Those of the first
    part of a batch stay while the others run, also those that one pass over all has not made yet.
    """
    gradients = bytes_over_time(context.timeline, np.flatnonzero(context.category("gradient")))
    most = int(gradients.max(initial=0))
    return most, np.subtract(most, gradients, out=gradients)
