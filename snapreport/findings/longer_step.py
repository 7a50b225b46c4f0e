"""A step whose tensors are much larger than those of all others: its batch is padded to one long text, or larger."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.live import live_at
from snapreport.findings.repetition import repetitions
from snapreport.sentence import sentence
from snapreport.timeline.activity import TRAINING
from snapreport.timeline.build import DeviceTimeline

_LEAST_RATIO = 1.5
_MIN_SHARE = 0.25
"""Of what is allocated at the event: what the step's lines hold of it."""


def longer_step(timeline: DeviceTimeline, event: int, whose: str) -> str | None:
    """A sentence about the step of an event, the peak or a failure, whose request counts; None where another has
    tensors nearly as large from the same lines. whose: "the peak's" or "this".
    """
    steps = repetitions(timeline) if timeline.activity.kind == TRAINING else None
    if steps is None or event < 0:
        return None
    own = int(steps.of(np.array([event]))[0])
    numbers = np.setdiff1d(np.arange(steps.finished), [own])
    if not 0 <= own < steps.count or not len(numbers):
        return None
    table = timeline.allocations.select("stack", "size", "alloc_event", "free_event").filter(pl.col("stack") > 0)
    table = table.with_columns(step=pl.Series(steps.of(table["alloc_event"].to_numpy())))
    live = live_at(table, event)
    if event in timeline.oom_events:
        request = (
            timeline.events[event].select("stack", "size").with_columns(alloc_event=event, free_event=-1, step=own)
        )
        table, live = (pl.concat([each, request], how="vertical_relaxed") for each in (table, live))
    here = live.filter(pl.col("step") == own)
    largest = table.join(here, on="stack", how="semi").group_by("stack", "step").agg(pl.col("size").max())
    mine = largest.filter(pl.col("step") == own)
    others = largest.filter(pl.col("step").is_in(numbers.tolist()))
    # Neither lines of validation, or of the optimizer's first update, nor gradients, which are as large in each step.
    of_all = others.group_by("stack").agg(n=pl.len(), most=pl.col("size").max()).filter(pl.col("n") == len(numbers))
    larger = mine.join(of_all, on="stack").filter(pl.col("size") > pl.col("most"))
    larger_bytes = int(here.join(larger, on="stack", how="semi")["size"].sum())
    if not larger_bytes or larger_bytes < _MIN_SHARE * int(live["size"].sum()):
        return None
    ratio = float(np.median((larger["size"] / larger["most"]).to_numpy()))
    if ratio < _LEAST_RATIO:
        return None
    return sentence(
        "Tensors of {whose} {unit} are {} times as large as those of any other {unit}: its batch has more or larger "
        "samples.",
        f"{ratio:,.{1 if ratio < 100 else 0}f}",
        whose=whose,
        unit=steps.unit,
    )
