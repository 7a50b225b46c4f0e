"""Batches that a loader's thread copies to the device long before their step."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence, remembered
from snapreport.findings.graphs import backward_passes, born_in, freed_in
from snapreport.findings.live import names_of
from snapreport.findings.saving import share_of_spans
from snapreport.sentence import sentence

_ALIVE = 4
"""Batches with a queue of two: one in use, two that wait, and one for which there is no place yet."""
_MIN_QUEUE = _ALIVE + 2
_MIN_SHARE = 0.9
_LARGE = 1 << 20


class BatchesEvidence(AdviceEvidence, kw_only=True):
    batches: int


def prefetched_batches(context: AdviceContext) -> Advice | None:
    """Tensors of a line that made many of them before it lost one, and of which each step then frees one."""
    rows = _queued(context)
    mask = context.marked(rows)
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    # A batch is not copied before the fourth one of its line and size before it is freed.
    table = context.table(rows).sort("stack", "size", "born")
    before = pl.col("freed").sort().shift(_ALIVE).over("stack", "size")
    starts = table.with_columns(begins=pl.max_horizontal("born", before.fill_null(0)))
    starts = starts.with_columns(begins=pl.min_horizontal("begins", "freed"))
    columns = (starts[name].to_numpy() for name in ("row", "born", "begins"))
    fraction = share_of_spans(context.timeline, *columns)[0]
    largest = table.filter(pl.Series(context.at_peak[table["row"].to_numpy()])).sort("size", descending=True)
    alive = largest.filter((pl.col("stack") == largest["stack"][0]) & (pl.col("size") == largest["size"][0]))
    return Advice(
        "prefetched-batches",
        "Copy fewer batches ahead to the device",
        [
            sentence(
                "{} are {count} batches, from {line}, of which each step uses one.",
                context.share(size),
                count=len(alive),
                line=names_of(context.snapshot).line(int(largest["stack"][0])),
            ),
            "Two batches ahead hide the time that copies take; more can wait in pinned host memory. The replay leaves "
            "four: one in use, two that wait, and one that is copied.",
        ],
        "queue.Queue(maxsize=2)",
        "https://docs.pytorch.org/docs/stable/data.html#memory-pinning",
        mask,
        fraction,
        effort=ONE_LINE,
        line="batches = queue.Queue(maxsize=2)",
        place="where the queue is created",
        evidence=BatchesEvidence(batches=len(alive)),
    )


@remembered
def _queued(context: AdviceContext) -> np.ndarray:
    """Int64 rows: of a line and size, several made before the first is freed, and one freed in nearly each step."""
    mine = context.traced("input", "unknown") & context.has_python
    mine &= ~context.forward[context.stack] & (context.size >= _LARGE)
    rows = np.flatnonzero(mine)
    if not len(rows) or not context.trains or backward_passes(context)[-1] < _MIN_QUEUE:
        return rows[:0]
    last = len(context.timeline.events)
    table = context.table(rows, made=born_in(context)[rows], gone=freed_in(context)[rows])
    lines = table.group_by("stack", "size").agg(
        n=pl.len(),
        # All but the last are freed, in their order, one in each step; of a data set none is.
        steps=pl.col("gone").filter(pl.col("freed") < last).n_unique(),
        in_order=(pl.col("freed").sort_by("born").diff() > 0).mean(),
        waiting=(pl.col("born") < pl.col("freed").min()).sum(),
        ahead=pl.col("made").value_counts().struct.field("count").max(),
    )
    is_queue = (pl.col("waiting") >= _MIN_QUEUE) & (pl.col("ahead") >= _MIN_QUEUE // 2)
    each_step = (pl.col("steps") >= _MIN_SHARE * (pl.col("n") - 1)) & (pl.col("in_order") >= _MIN_SHARE)
    lines = lines.filter(is_queue & each_step)
    return table.join(lines, on=["stack", "size"], how="semi")["row"].to_numpy()
