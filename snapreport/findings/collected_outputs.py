"""Outputs of a loop without gradients that stay on the device until the loop has ended."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.live import names_of
from snapreport.findings.saving import share_of_lives
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.activity import INFERENCE

_MIN_OUTPUTS = 4
_MIN_SHARE = 0.9
_LIKE_MOST = 0.2
"""Of the largest collection's bytes: smaller ones, as of targets, may stay."""
_MAX_USES = 8
"""Allocations until which an output has been used and copied to the host."""


def collected_outputs(context: AdviceContext) -> Advice | None:
    """One allocation of a line in each iteration, all alive after the last, in a program of forward passes alone."""
    if context.timeline.activity.kind != INFERENCE:
        return None
    rows = _collected(context)
    if not len(rows):
        return None
    every = births(context)
    # What they are joined into is as large as they all are.
    sizes, counts = np.unique(context.size[rows], return_counts=True)
    largest = int(context.stack[rows[np.argmax(context.size[rows])]])
    last = int(context.born[rows].max())
    joined = np.flatnonzero((context.born > last) & np.isin(context.size, sizes * counts))
    mine = np.concatenate((rows, joined))
    order = context.born[every.rows]
    later = np.searchsorted(order, context.born[mine], "right") + _MAX_USES
    starts = np.append(order, np.full(_MAX_USES + 1, len(context.timeline.events)))[np.minimum(later, len(order))]
    starts[len(rows) :] = context.born[joined]
    fraction = share_of_lives(context.timeline, mine, starts)[0]
    mask = np.zeros(len(context.size), bool)
    mask[mine] = True
    size = context.bytes_at_peak(mask)
    if not fraction or not context.is_much(size):
        return None
    count = int((context.stack[rows] == largest).sum())
    return Advice(
        "collected-outputs",
        "Move each result to the CPU in the loop",
        [
            sentence(
                "{} are results of {} iterations that stay on the device, from {}{}.",
                context.share(size),
                count,
                names_of(context.snapshot).line(largest),
                sentence(", and {} that they are joined into", bytes_part(int(context.size[joined].sum())))
                if len(joined)
                else "",
            ),
            sentence("Of a number, `.item()` is enough."),
        ],
        "Tensor.cpu(), Tensor.item()",
        "https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
        mask,
        fraction,
        effort=ONE_LINE,
        line="results.append(output.cpu())",
    )


def _collected(context: AdviceContext) -> np.ndarray:
    """Int64 rows of results: of lines that allocate once in each iteration, nearly all alive after the last one."""
    every = births(context)
    kept = context.category("activation", "temporary", "unknown", "input")[every.rows] & (every.stack > 0)
    table = pl.DataFrame({
        "row": every.rows, "stack": every.stack, "size": every.size, "born": context.born[every.rows],
        "freed": context.freed[every.rows], "passes": np.cumsum(every.forward), "outside": every.outside,
    }).filter(pl.Series(kept))  # fmt: skip
    lines = table.group_by("stack", "size").agg(
        n=pl.len(), iterations=pl.col("outside").n_unique(), passes=pl.col("passes").n_unique(),
        alive=(pl.col("freed") > pl.col("born").max()).mean(),
    )  # fmt: skip
    # A loop over layers allocates nothing outside of the pass, and one that loads weights runs no pass.
    loops = (pl.col("n") >= _MIN_OUTPUTS) & (pl.min_horizontal("iterations", "passes") >= _MIN_SHARE * pl.col("n"))
    lines = lines.filter(loops & (pl.col("alive") >= _MIN_SHARE))
    lines = lines.filter(pl.col("n") * pl.col("size") >= _LIKE_MOST * (pl.col("n") * pl.col("size")).max())
    return table.join(lines, on=["stack", "size"], how="semi")["row"].to_numpy()
