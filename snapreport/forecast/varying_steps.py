"""Programs whose shapes depend on the data: from one step to the next, the same line requests other sizes."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.own_code import own_places

LEAST_SHARE = 0.02
"""Of the bytes that a step requests: less may be a metric that is computed now and then. 44 programs of fixed shapes
differ by nothing, nine of other shapes in each step by 3% to 100% in one of two recordings."""


class VaryingLine(Struct, frozen=True):
    """line: of the program, the one with the most bytes that differ. bytes: that differ in all lines, of the
    ``requested_bytes`` of the largest step.
    """

    line: str
    bytes: int
    requested_bytes: int


def varying_line(timeline: DeviceTimeline) -> VaryingLine | None:
    """None where all whole steps but the first request the same, or fewer than two are known.

    Only lines of the program count, in steps that run them: a validation every few steps is no other shape.
    """
    steps = timeline.steps.filter(~pl.col("name").str.ends_with("(unfinished)"))
    if len(steps) < 3:
        return None
    first = steps["first_event"].to_numpy()
    line = own_places(timeline.recording)
    requests = timeline.allocations.select("stack", "size", "alloc_event").filter(
        pl.col("alloc_event").is_between(int(first[1]), int(steps["last_event"][-1]))
    )
    requests = requests.with_columns(
        step=np.searchsorted(first, requests["alloc_event"].to_numpy(), "right"), line=line.gather(requests["stack"])
    )
    if len(steps) > 3 and _is_cut_off(requests):
        requests = requests.filter(pl.col("step") < len(steps))
    requested = requests.group_by("step").agg(pl.col("size").sum())["size"].sort().to_list()[-1:]
    of_step = requests.filter(pl.col("line") != "").group_by("stack", "line", "size", "step").len()
    ran = of_step.group_by("stack").agg(ran=pl.col("step").n_unique())
    counts = of_step.group_by("stack", "line", "size").agg(
        most=pl.col("len").max(), least=pl.col("len").min(), steps=pl.len()
    )
    differ = counts.join(ran, on="stack").select(
        "line",
        bytes=pl.col("size")
        * (pl.col("most") - pl.when(pl.col("steps") == pl.col("ran")).then(pl.col("least")).otherwise(0)),
    )
    lines = differ.group_by("line").agg(pl.col("bytes").sum()).sort("bytes", "line", descending=[True, False])
    differing = int(lines["bytes"].sum())
    if not differing or differing < LEAST_SHARE * requested[0]:
        return None
    return VaryingLine(lines["line"][0], min(differing, requested[0]), requested[0])


def _is_cut_off(requests: pl.DataFrame) -> bool:
    """Whether the last step ends in another line than the one before: the trace ends within it."""
    ends = requests.group_by("step").agg(pl.col("stack").last()).sort("step")["stack"].to_list()[-2:]
    return len(set(ends)) > 1
