"""Rows of operators, kernels and what memory costs in time, on the clock of a device's events, for its timeline.

Read by ``static/src/steps/activities.ts``. What is shorter than a tolerance is merged with its neighbours; the
tolerance doubles until all rows together are few enough.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.packing.columns import Column
from snapreport.reading.activity_trace import COPY, KERNEL, OPERATOR
from snapreport.report.time_lines import COST_NAMES
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.time_costs import run_causes

MOST_INTERVALS = 500_000
"""Of all devices of a file together. Each takes some 1.5 bytes of a report; the page draws as many as it has pixels."""
MOST_ROWS = 32
"""Busiest threads, and busiest streams."""
NAME = 160
"""Characters of a name: those of C++ templates have thousands."""
TICK = 100
"""Nanoseconds, the unit of all times."""
COST = "cost"


class ActivityColumns(Struct, frozen=True):
    """``entry``: of the device's manifest; ``columns``: of a section of their own."""

    entry: dict[str, object]
    columns: list[Column]


def activity_columns(timeline: DeviceTimeline, first: int, last: int, prefix: str) -> ActivityColumns | None:
    """The rows between the device's ``first`` and ``last`` event, in µs. None without a profiler's trace, and where it
    has nothing there.
    """
    profile, causes = timeline.recording.profile, run_causes(timeline.of_file)
    if profile is None or causes is None or profile.activities is None:
        return None
    intervals = pl.concat([
        _costs(causes),
        _busiest(_outermost(profile.activities.intervals), "thread"),
        _busiest(_kernels(profile.activities.intervals, timeline.device), "stream"),
    ])  # fmt: skip
    inside = intervals.filter((pl.col("end") >= first * 1000) & (pl.col("begin") <= last * 1000))
    if inside.is_empty():
        return None
    rows = inside.select("kind", "lane").unique(maintain_order=True).with_row_index("row")
    placed = inside.join(rows, on=["kind", "lane"], maintain_order="left").sort("row", "begin")
    drawn = folded(placed, MOST_INTERVALS // max(sum(len(one.events) > 0 for one in timeline.of_file), 1))
    names = drawn["name"].unique(maintain_order=True).to_list()
    index = drawn["name"].replace_strict(names, list(range(len(names))), return_dtype=pl.UInt32)
    columns = [
        Column(f"{prefix}.begin", ((drawn["begin"] - first * 1000) // TICK).to_numpy(), "f64"),
        Column(f"{prefix}.length", ((drawn["end"] - drawn["begin"]) // TICK).to_numpy(), "f64"),
        Column(f"{prefix}.name", index.to_numpy(), "u32"),
        Column(f"{prefix}.count", drawn["count"].to_numpy(), "u32"),
        Column(f"{prefix}.row", drawn["row"].to_numpy(), "u8"),
        Column(f"{prefix}.names", [name[:NAME] for name in names], "json"),
    ]
    return ActivityColumns({"trace": profile.activities.name, "rows": rows["kind"].to_list()}, columns)


def activity_names(timeline: DeviceTimeline) -> list[str]:
    """All names that the rows may have."""
    profile = timeline.recording.profile
    return [] if profile is None or profile.activities is None else profile.activities.intervals["name"].to_list()


def _costs(causes: pl.DataFrame) -> pl.DataFrame:
    names = list(COST_NAMES)
    shown = pl.col("cause").replace(names, [COST_NAMES[name] for name in names])
    return _row(causes.select(name=shown, kind=pl.lit(COST), lane=pl.lit(0), begin="begin", end="end"))


def _outermost(intervals: pl.DataFrame) -> pl.DataFrame:
    """The operators that no other operator of their thread contains."""
    operators = intervals.filter(pl.col("kind") == OPERATOR)
    operators = operators.sort("thread", "begin", "end", descending=[False, False, True])
    before = pl.col("end").cum_max().shift(1).over("thread")
    outer = operators.filter(before.is_null() | (pl.col("begin") >= before))
    return outer.select("name", kind=pl.lit(OPERATOR), lane="thread", begin="begin", end="end")


def _kernels(intervals: pl.DataFrame, device: int) -> pl.DataFrame:
    own = intervals.filter(pl.col("kind").is_in([KERNEL, COPY]) & pl.col("device").is_in([device, -1]))
    return own.select("name", kind=pl.lit(KERNEL), lane="stream", begin="begin", end="end")


def _busiest(intervals: pl.DataFrame, lane: str) -> pl.DataFrame:
    """``intervals``, the lane with most time first."""
    busy = intervals.group_by("lane").agg(time=(pl.col("end") - pl.col("begin")).sum())
    order = busy.sort("time", "lane", descending=True).head(MOST_ROWS).select("lane").with_row_index("place")
    return _row(intervals.join(order, on="lane").sort("place", "begin", maintain_order=True))


def _row(intervals: pl.DataFrame) -> pl.DataFrame:
    return intervals.select(
        pl.col("name").cast(pl.String), pl.col("kind").cast(pl.String), pl.col("lane").cast(pl.Int64), "begin", "end"
    )


def folded(intervals: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most about ``most`` intervals, those of a ``row`` in order and without overlap, with their ``count``.

    One that is no longer than the tolerance and lies in the same stretch of that length as its neighbour is merged
    with it, under the name that takes most of their time; longer ones stay as they are.
    """
    row, begin = intervals["row"].to_numpy(), intervals["begin"].to_numpy()
    end = intervals["end"].to_numpy()
    tolerance = 0
    while True:
        group = _groups(row, begin, end, tolerance)
        if not len(group) or group[-1] < most or tolerance > end.max() - begin.min():
            break
        tolerance = 2 * tolerance or 1000
    lengths = intervals.with_columns(group=pl.Series(group), length=pl.col("end") - pl.col("begin"))
    spent = lengths.group_by("group", "name", maintain_order=True).agg(
        pl.col("row").first(), pl.col("begin").min(), pl.col("end").max(), pl.col("length").sum(), count=pl.len()
    )
    longest_first = spent.sort("group", "length", descending=[False, True], maintain_order=True)
    drawn = longest_first.group_by("group", maintain_order=True).agg(
        pl.col("row", "name").first(), pl.col("begin").min(), pl.col("end").max(), pl.col("count").sum()
    )
    # Kernels of one stream may overlap by a rounding, those of a captured graph by more.
    later = pl.col("end").cum_max().shift(1).over("row").fill_null(pl.col("begin"))
    begin_after = pl.max_horizontal("begin", later)
    return drawn.with_columns(begin=begin_after, end=pl.max_horizontal("end", begin_after))


def _groups(row: np.ndarray, begin: np.ndarray, end: np.ndarray, tolerance: int) -> np.ndarray:
    """Int64 per interval, ascending from 0: those of one number are merged."""
    if not tolerance:
        return np.arange(len(row))
    long = end - begin > tolerance
    cell = begin // tolerance
    starts = np.ones(len(row), bool)
    starts[1:] = long[1:] | long[:-1] | (row[1:] != row[:-1]) | (cell[1:] != cell[:-1])
    return np.cumsum(starts) - 1
