"""Copies of a model that are trained one after another and stay on the device: federated averaging, or an ensemble."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.graphs import born_in
from snapreport.findings.live import names_of
from snapreport.findings.saving import share_of_lives
from snapreport.sentence import sentence

_MIN_COPIES = 4


def collected_weights(context: AdviceContext) -> Advice | None:
    """Parameters that a line makes again and again, with backward passes between, all alive at the peak."""
    mine = context.category("parameter") & (context.born >= 0) & context.has_python
    rows = np.flatnonzero(mine)
    table = context.table(rows, copy=born_in(context)[rows], alive=context.at_peak[rows])
    copies = table.group_by("stack", "copy").agg(pl.col("size").sum(), pl.col("alive").all(), pl.col("born").max())
    alive = copies.filter("alive").group_by("stack").agg(copies=pl.len(), sizes=pl.col("size").n_unique())
    alive = alive.filter((pl.col("copies") >= _MIN_COPIES) & (pl.col("sizes") == 1))
    if not len(alive):
        return None
    # Names refer to a copy until the next one is made, and a state may have one until the next is trained.
    copies = copies.sort("copy").with_columns(
        least=pl.col("born").shift(-1).over("stack"), most=pl.col("born").shift(-2).over("stack")
    )
    table = table.join(copies.select("stack", "copy", "least", "most"), on=["stack", "copy"])
    table = table.join(alive, on="stack", how="semi")
    made = table["row"].to_numpy()
    mask = context.marked(made)
    size, end = context.bytes_at_peak(mask), len(context.timeline.events)
    ends = (table[name].fill_null(end).to_numpy() + 1 for name in ("least", "most"))
    (_, low, _), (fraction, high, _) = (share_of_lives(context.timeline, made, until) for until in ends)
    if not fraction or not context.is_much(size):
        return None
    largest = table.sort("size", "row", descending=[True, False])["stack"][0]
    return Advice(
        "collected-weights",
        "Move the weights of each trained copy to the CPU, or add them to a running sum",
        [
            sentence(
                "{} are weights of {copies} copies of a model, from {}, which stay on the device while others train.",
                context.share(size),
                names_of(context.snapshot).line(int(largest)),
                copies=int(alive["copies"].to_numpy().max()),
            )
        ],
        "Tensor.cpu()",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.cpu.html",
        mask,
        fraction,
        confidence="estimate",
        peak_range=(low, high),
        effort=ONE_LINE,
        line="weights = {name: one.cpu() for name, one in model.state_dict().items()}",
    )
