"""Allocations grouped by what made them: their numbers at the peak and over the whole trace."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import is_live_at
from snapreport.timeline.operators import called_operators, stack_labels
from snapreport.timeline.own_code import own_frames, own_functions

GROUPINGS = ("stack", "function", "module", "file", "operator", "shape", "category", "step")


def group_sums(timeline: DeviceTimeline, by: str, mask: np.ndarray | None = None) -> pl.DataFrame:
    """A row per group, most bytes at the peak first: ``name`` String (null: no stack trace, module or shape, in no
    step), ``bytes_at_peak``, ``count_at_peak``, ``bytes``, ``count`` Int64, the last two of all allocations.

    by: one of ``GROUPINGS``. mask: Boolean per allocation that counts; None: all.
    """
    rows = timeline.allocations.with_columns(name=_names(timeline, by))
    return sums_by(timeline, rows if mask is None else rows.filter(mask), "name")


def sums_by(timeline: DeviceTimeline, rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """The same of allocations grouped by one of their columns."""
    at_peak = is_live_at(timeline.peak_event)
    sums = rows.group_by(key).agg(
        bytes_at_peak=pl.col("size").filter(at_peak).sum(),
        count_at_peak=at_peak.sum().cast(pl.Int64),
        bytes=pl.col("size").sum(),
        count=pl.len().cast(pl.Int64),
    )
    return sums.sort(["bytes_at_peak", "bytes", key], descending=[True, True, False])


def _names(timeline: DeviceTimeline, by: str) -> pl.Series:
    """String of each allocation."""
    recording, table = timeline.recording, timeline.allocations
    if by == "category":
        return table["category"].cast(pl.String)
    if by == "step":
        return _steps(timeline)
    if by in ("module", "shape"):
        return table[by]
    if by == "file":
        frame = pl.Series(own_frames(recording))
        of_stack = recording.frames["filename"].gather(frame.set(frame < 0, None))
    else:
        of_stack = {"stack": stack_labels, "function": own_functions, "operator": called_operators}[by](recording)
    return of_stack.gather(table["stack"]).replace({"": None})


def _steps(timeline: DeviceTimeline) -> pl.Series:
    """The step in which an allocation was made."""
    steps = timeline.steps.filter(pl.col("first_event") <= pl.col("last_event")).sort("first_event")
    born = timeline.allocations["alloc_event"].to_numpy()
    at = np.searchsorted(steps["first_event"].to_numpy(), born, "right") - 1
    outside = born > np.append(steps["last_event"].to_numpy(), -2)[at]  # the last is for those before the first step
    rows = pl.Series(at).set(pl.Series(outside), None)
    return ("step " + steps["step"].cast(pl.String)).gather(rows)
