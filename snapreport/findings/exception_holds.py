"""A retry after an exception, while its traceback holds the first attempt's tensors."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import MIN_BYTES, MIN_SHARE, ONE_LINE, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.graphs import backward_passes, births_until, born_in, forward_births
from snapreport.integers import following
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import FORWARD

_MIN_TENSORS = 4
_MIN_SHARE_ALIKE = 0.9
"""Of an attempt's bytes: those of lines that allocate half as much in the next attempt."""


class ExceptionEvidence(AdviceEvidence, kw_only=True):
    """``attempt_bytes``: of the largest attempt's activations that the exception refers to."""

    attempt_bytes: int


def exception_holds(context: AdviceContext) -> Advice | None:
    """Activations of an attempt that ended in an exception, still alive when forward passes run again, with no backward
    pass that would use them.
    """
    # A request that fails within a pass that goes on: its activations are used, and freed, by the backward pass.
    used = context.may_be_backward[context.free_stack]
    last = len(context.timeline.events)
    grown = context.traced("activation", "temporary") & (~used | ~context.is_freed)
    # The frames of the attempt free all of it at once, with no allocation between.
    group = np.append(births_until(context), -1)[context.freed]
    size, largest, failures = 0, np.zeros(len(context.size), bool), context.timeline.oom_events
    for ended in failures or _given_up(context, grown, group):
        # Alive when the next pass begins.
        after = following(forward_births(context), ended, last)
        held = grown & (context.born <= ended) & (context.freed > after)
        groups, count = np.unique(group[held], return_counts=True)
        together = held & np.isin(group, groups[count >= _MIN_TENSORS])
        if (bytes_ := int(context.size[together].sum())) > size:
            size, largest = bytes_, together
    if size < max(MIN_BYTES, MIN_SHARE * context.recorded.peak_bytes):
        return None
    how = "ran out of memory" if failures else "was given up"
    return Advice(
        "exception-holds",
        "Drop the exception before the next attempt",
        [
            sentence(
                "{} of activations of an attempt that {how} are alive while the next one runs: the "
                "exception refers to the frames of the first.",
                bytes_part(size),
                how=how,
            ),
            "Set a flag in the except block and retry below it; nothing of the first attempt is alive then. "
            "Store the exception's text, not the exception.",
        ],
        "except block",
        "https://docs.pytorch.org/docs/stable/notes/faq.html#my-out-of-memory-exception-handler-can-t-allocate-memory",
        held=largest,
        confidence="inferred" if failures else "estimate",
        effort=ONE_LINE,
        line="failed = True",
        comes_first=True,
        evidence=ExceptionEvidence(attempt_bytes=size),
    )


def _given_up(context: AdviceContext, grown: np.ndarray, group: np.ndarray) -> list[int]:
    """Events at which an attempt ended: the same lines then allocate half as much, with no backward pass between, while
    all of it is alive. grown: Bool, group: Int64 per allocation, of those that are freed together.
    """
    in_pass = context.phases.runs(FORWARD)[context.free_stack]
    rows = np.flatnonzero(grown & context.forward[context.stack] & ~in_pass)
    if not len(rows):
        return []
    passes = backward_passes(context)
    table = context.table(rows, group=group[rows], passes=born_in(context)[rows])
    attempts = table.group_by("group", "passes").agg(
        n=pl.len(), bytes=pl.col("size").sum(), end=pl.col("born").max(), freed=pl.col("freed").min()
    )
    attempts = attempts.filter((pl.col("n") >= _MIN_TENSORS) & (pl.col("bytes") >= MIN_BYTES))
    row = np.flatnonzero(context.is_traced)
    row = row[np.argsort(context.born[row], kind="stable")]
    born = context.born[row]
    halves = pl.DataFrame(
        {"stack": context.stack[row], "size": 2 * context.size[row], "passes": passes[born], "next": born}
    )
    ended = table.select("group", "passes", "stack", "size").join(attempts, on=["group", "passes"]).sort("end")
    ended = ended.with_columns(pl.col("end") + 1).join_asof(
        halves,
        left_on="end",
        right_on="next",
        by=["stack", "size", "passes"],
        strategy="forward",
        check_sortedness=False,
    )
    of_attempt = ended.filter(pl.col("next") < pl.col("freed")).group_by("group", "passes", "end", "bytes")
    alike = of_attempt.agg(pl.col("size").sum()).filter(pl.col("size") >= _MIN_SHARE_ALIKE * pl.col("bytes"))
    return sorted((alike["end"] - 1).to_list())
