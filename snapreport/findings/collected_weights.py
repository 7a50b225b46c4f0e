"""Copies of a model that are trained one after another and stay on the device: federated averaging, or an ensemble."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.graphs import born_in, freed_in
from snapreport.findings.live import names_of
from snapreport.findings.saving import share_of_lives
from snapreport.sentence import sentence

_MIN_COPIES = 4


def collected_weights(context: AdviceContext) -> Advice | None:
    """Parameters that a line makes again and again, with backward passes between, all alive at the peak, and what each
    copy's training leaves beside them.
    """
    rows = np.flatnonzero(context.traced("parameter"))
    if len(rows) < _MIN_COPIES:
        return None
    line = context.calls[context.stack[rows]]
    table = context.table(rows, line=line, copy=born_in(context)[rows], alive=context.at_peak[rows])
    copies = table.group_by("line", "copy").agg(pl.col("size").sum(), pl.col("alive").all(), pl.col("born").max())
    alive = copies.filter("alive").group_by("line").agg(copies=pl.len(), sizes=pl.col("size").n_unique())
    alive = alive.filter((pl.col("copies") >= _MIN_COPIES) & (pl.col("sizes") == 1))
    if not len(alive):
        return None
    # Names refer to a copy until the next one is made, and a state may have one until the next is trained: not where
    # the model itself stays, with gradients.
    copies = copies.sort("copy").with_columns(
        least=pl.col("born").shift(-1).over("line"), most=pl.col("born").shift(-2).over("line")
    )
    table = table.join(copies.select("line", "copy", "least", "most"), on=["line", "copy"])
    table = table.join(alive, on="line", how="semi")
    largest = table.sort("size", "row", descending=[True, False])
    made, row = copies.filter(line=largest["line"][0]), table["row"].to_numpy()
    beside, of_copy = _beside(context, made)
    mask = context.marked(row, beside)
    size, end = context.bytes_at_peak(mask), len(context.timeline.events)
    every = np.append(row, beside)
    names = "least", "least" if len(beside) else "most"
    ends = (pl.concat([table[name], made[name][of_copy]]).fill_null(end).to_numpy() + 1 for name in names)
    (_, low, _), (fraction, high, _) = (share_of_lives(context.timeline, every, until) for until in ends)
    return Advice(
        "collected-weights",
        "Keep only the weights of each trained copy, on the CPU"
        if len(beside)
        else "Move the weights of each trained copy to the CPU, or add them to a running sum",
        [
            sentence(
                "{} are {what} of {copies} copies of a model, from {}, which stay on the device while others train.",
                context.share(size),
                names_of(context.snapshot).line(int(largest["stack"][0])),
                copies=int(alive["copies"].to_numpy().max()),
                what="weights, gradients and optimizer state" if len(beside) else "weights",
            )
        ],
        "Tensor.cpu()",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.cpu.html",
        mask,
        fraction,
        confidence="estimate",
        peak_range=None if len(beside) else (low, high),
        effort=ONE_LINE,
        line="weights = {name: one.cpu() for name, one in model.state_dict().items()}",
    )


def _beside(context: AdviceContext, made: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Int64 rows of gradients and optimizer state that are alive while the next copy trains, and of which of ``made``,
    in order, each is.
    """
    rows = np.flatnonzero(context.category("gradient", "optimizer state") & (context.born > made["born"][0]))
    of_copy = np.searchsorted(made["born"].to_numpy(), context.born[rows]) - 1
    trained = np.append(made["copy"].to_numpy(), np.iinfo(np.int64).max)[of_copy + 1]
    held = freed_in(context)[rows] > trained
    return rows[held], of_copy[held]
