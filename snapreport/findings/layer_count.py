"""How many layers made some activations, for sentences: what is alive at the peak lacks the layers that the backward
pass has freed already.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.graphs import born_in
from snapreport.findings.repeated_layers import FEWEST_IN_FAMILY

_MIN_SHARE = 0.05
"""Of the bytes: families with less do not count, such as the few tensors of a loss."""
_LEAST_OWN = 0.01
"""Of a family's bytes: lines with less decide on no number."""
_MOST_LAYERS = 200
"""More are the steps of a recurrent network."""


def layer_count(context: AdviceContext, rows: np.ndarray, passes: int) -> int:
    """Layers of one forward pass. rows: Int64, allocations of layers; passes: forward passes alive at the peak.

    A line that runs in each layer has allocated so many times since the last backward pass, or a multiple of that.
    Lines that run in turn are one family, as an encoder's are; the families' layers are added up. 0: none is found.
    """
    live = rows[context.at_peak[rows]]
    if not len(live):
        return 0
    run = born_in(context)
    before = int(run[live].max())
    mine = rows[context.born[rows] <= context.event]
    mine = mine[run[mine] == before]
    lines = (
        context.table(mine)
        .group_by("stack")
        .agg(
            n=pl.len().cast(pl.Int64) // passes,
            bytes=pl.col("size").sum(),
            first=pl.col("born").min(),
            last=pl.col("born").max(),
        )
    )
    lines = lines.filter(pl.col("n") >= FEWEST_IN_FAMILY).sort("first", "stack")
    furthest = lines["last"].cum_max().shift(1, fill_value=-1)
    lines = lines.with_columns(family=(lines["first"] > furthest).cum_sum())
    # Memory ran out in the midst of a layer: lines further down have run once less.
    cut = 1 if any(event >= context.event for event in context.timeline.oom_events[:1]) else 0
    # A single line that allocates several times is a loss or a loop, no family of layers.
    families = [family for _, family in lines.group_by("family") if len(family) > 1]
    least = _MIN_SHARE * int(lines["bytes"].sum())
    count = sum(_of_family(family, cut) for family in families if int(family["bytes"].sum()) >= least)
    return count if count <= _MOST_LAYERS else 0


def _of_family(lines: pl.DataFrame, cut: int) -> int:
    """The number of layers that most bytes agree on, of several the largest."""
    least = _LEAST_OWN * int(lines["bytes"].sum())
    numbers = lines.group_by(layers="n").agg(own=pl.col("bytes").sum()).filter(pl.col("own") >= least)
    pairs = numbers.join(lines, how="cross")
    times = (pl.col("n") / pl.col("layers")).round()
    off = (pl.col("n") - times * pl.col("layers")).abs()
    agree = pairs.filter((times > 0) & (off <= cut * times)).group_by("layers").agg(pl.col("bytes").sum())
    return max(agree.rows(named=True), key=lambda row: (row["bytes"], row["layers"]), default={"layers": 0})["layers"]
