"""The changes between two snapshots of one program: the bytes of one moment by stack, before and after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.stack_matching import Matching, stack_matching
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import is_live_at
from snapreport.timeline.own_code import own_functions
from snapreport.timeline.stats import stacks_at


class Moment(Struct, frozen=True):
    """A pair of moments that are compared. ``name``: "peak", "end" or "step 12"; events: -1 is before the first."""

    name: str
    before_event: int
    after_event: int
    before_bytes: int
    after_bytes: int


class DeviceDiff(Struct, frozen=True):
    """One device of two snapshots. ``stacks``: see :func:`stack_rows`; the others: see :func:`grouped`; a frame for
    each moment.

    ``segments``: ``segment_type``, ``pool``, ``stream``, ``size``, ``before``, ``after`` (segments of the final
    states), ``only_before``, ``only_after`` (those whose address the other side does not have).
    """

    before: DeviceTimeline
    after: DeviceTimeline
    moments: list[Moment]
    stacks: list[pl.DataFrame]
    categories: list[pl.DataFrame]
    functions: list[pl.DataFrame]
    modules: list[pl.DataFrame]
    segments: pl.DataFrame


class SnapshotDiff(Struct, frozen=True):
    """``devices``: those of both; ``only_before``, ``only_after``: numbers of devices with data on one side alone."""

    before: Snapshot
    after: Snapshot
    matching: Matching
    devices: list[DeviceDiff]
    only_before: list[int]
    only_after: list[int]


def diff(before: Snapshot, after: Snapshot, devices: Sequence[tuple[int, int]] | None = None) -> SnapshotDiff:
    """Compare two snapshots, device by device: at their peaks, at their ends, and step by step where both recorded
    steps.

    ``devices``: numbers before and after that belong together; the same numbers where none are given.
    """
    matching = stack_matching(before.recording, after.recording)
    here, there = (devices_with_data(snapshot) for snapshot in (before, after))
    if devices is None:
        devices = [(device, device) for device in here if device in there]
    return SnapshotDiff(
        before,
        after,
        matching,
        [_device(before, after, pair, matching) for pair in devices],
        [device for device in here if device not in [pair[0] for pair in devices]],
        [device for device in there if device not in [pair[1] for pair in devices]],
    )


def _functions(rows: pl.DataFrame, before: Snapshot, after: Snapshot) -> pl.Series:
    """The function of the program's own code that each identity is in; where both sides have it, as called after."""
    ours = own_functions(before.recording).gather(rows["stack_before"])
    theirs = own_functions(after.recording).gather(rows["stack_after"])
    return theirs.zip_with(theirs.is_not_null(), ours)


def devices_with_data(snapshot: Snapshot) -> list[int]:
    """Numbers of the devices with events, allocations or segments."""
    return [
        d
        for d in snapshot.devices
        if len(snapshot.events(d)) or len(snapshot.allocations(d)) or len(snapshot.segments(d))
    ]


def _device(before: Snapshot, after: Snapshot, pair: tuple[int, int], matching: Matching) -> DeviceDiff:
    one, two = before.timeline(pair[0]), after.timeline(pair[1])
    moments = _moments(one, two)
    stacks, categories, by_function, modules = [], [], [], []
    for moment in moments:
        rows = stack_rows(
            stacks_at(one.allocations, moment.before_event), stacks_at(two.allocations, moment.after_event), matching
        )
        stacks.append(rows)
        by_function.append(grouped(rows.with_columns(function=_functions(rows, before, after)), "function"))
        categories.append(_changes_by("category", (one, two), moment))
        modules.append(_changes_by("module", (one, two), moment))
    return DeviceDiff(
        one,
        two,
        moments,
        stacks,
        categories,
        by_function,
        modules,
        _segments(before.segments(pair[0]), after.segments(pair[1])),
    )


def stack_rows(before: pl.DataFrame, after: pl.DataFrame, matching: Matching) -> pl.DataFrame:
    """A row per identity that has bytes on a side, greatest change first.

    ``before``, ``after``: ``stack``, ``bytes``, ``count`` of either side. Returns ``identity`` Int64, ``stack_before``,
    ``stack_after`` (null: not there), ``bytes_before``, ``bytes_after``, ``count_before``, ``count_after``, ``delta``
    Int64, ``change``. What is the same code on both sides and holds bytes on one only has appeared or vanished too, at
    this moment.
    """
    sides = []
    for name, rows, numbers in (("before", before, matching.before), ("after", after, matching.after)):
        identity = pl.Series("identity", numbers[rows["stack"].to_numpy()])
        sides.append(
            rows.select(
                identity,
                pl.col("stack").cast(pl.Int64).alias(f"stack_{name}"),
                pl.col("bytes").alias(f"bytes_{name}"),
                pl.col("count").alias(f"count_{name}"),
            )
        )
    joined = sides[0].join(sides[1], on="identity", how="full", coalesce=True)
    return _with_change(joined).sort([pl.col("delta").abs(), "identity"], descending=[True, False])


def grouped(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """``name``, ``bytes_before``, ``bytes_after``, ``count_before``, ``count_after``, ``delta``, ``change``, greatest
    change first.
    """
    sums = rows.group_by(pl.col(by).alias("name")).agg(
        pl.col("bytes_before", "bytes_after", "count_before", "count_after").sum()
    )
    return _with_change(sums).sort([pl.col("delta").abs(), "name"], descending=[True, False])


def _with_change(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.with_columns(
        pl.col("bytes_before", "bytes_after", "count_before", "count_after").fill_null(0).cast(pl.Int64)
    ).with_columns(delta=pl.col("bytes_after") - pl.col("bytes_before"))
    change = (
        pl.when(pl.col("count_before") == 0).then(pl.lit("appeared"))
        .when(pl.col("count_after") == 0).then(pl.lit("vanished"))
        .when(pl.col("delta") > 0).then(pl.lit("grew"))
        .when(pl.col("delta") < 0).then(pl.lit("shrank"))
        .otherwise(pl.lit("same"))
    )  # fmt: skip
    return rows.with_columns(change=change)


def _changes_by(column: str, sides: tuple[DeviceTimeline, DeviceTimeline], moment: Moment) -> pl.DataFrame:
    """The changes of what has the same value in a column of the allocations, as :func:`grouped`; null is no value."""
    rows = []
    is_said = pl.lit(True) if column != "module" else pl.col("module_source") == "recorded"  # lines move
    for side, timeline, event in zip(
        ("before", "after"), sides, (moment.before_event, moment.after_event), strict=True
    ):
        other = "after" if side == "before" else "before"
        rows.append(
            timeline.allocations.filter(is_said & is_live_at(event))
            .group_by(pl.col(column).cast(pl.String).alias("name"))
            .agg(pl.col("size").sum().alias(f"bytes_{side}"), pl.len().cast(pl.Int64).alias(f"count_{side}"))
            .with_columns(pl.lit(0, pl.Int64).alias(f"{what}_{other}") for what in ("bytes", "count"))
            .select("name", "bytes_before", "bytes_after", "count_before", "count_after")
        )
    return grouped(pl.concat(rows).drop_nulls("name"), "name")


def _moments(one: DeviceTimeline, two: DeviceTimeline) -> list[Moment]:
    moments = [
        _moment("peak", one, two, one.peak_event, two.peak_event),
        _moment("end", one, two, len(one.events) - 1, len(two.events) - 1),
    ]
    return moments + [
        _moment(f"step {number}", one, two, ours, theirs) for number, ours, theirs in _common_steps(one, two)
    ]


def _moment(name: str, one: DeviceTimeline, two: DeviceTimeline, before: int, after: int) -> Moment:
    return Moment(name, before, after, int(one.allocated[before + 1]), int(two.allocated[after + 1]))


def _common_steps(one: DeviceTimeline, two: DeviceTimeline) -> Sequence[tuple[int, int, int]]:
    """(number, event of the step's own peak before, after) of the steps that both sides have, by number."""
    peaks = []
    for timeline in (one, two):
        found = {}
        for number, first, last in (
            timeline.steps.filter(pl.col("first_event") <= pl.col("last_event"))
            .select("step", "first_event", "last_event")
            .rows()
        ):
            found[number] = first + int(np.argmax(timeline.allocated[first + 1 : last + 2]))
        peaks.append(found)
    return [(number, event, peaks[1][number]) for number, event in peaks[0].items() if number in peaks[1]]


def _segments(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    key = ["segment_type", "pool", "stream", "size"]
    sides: list[pl.DataFrame] = []
    for name, table, other in (("before", before, after), ("after", after, before)):
        sides.append(
            table.with_columns(size=pl.col("total_size"), alone=~pl.col("address").is_in(other["address"].implode()))
            .with_columns(pl.col("segment_type", "pool").cast(pl.String).fill_null(""))
            .group_by(key)
            .agg(pl.len().cast(pl.Int64).alias(name), pl.col("alone").sum().cast(pl.Int64).alias(f"only_{name}"))
        )
    joined = sides[0].join(sides[1], on=key, how="full", coalesce=True, nulls_equal=True)
    counts = ["before", "after", "only_before", "only_after"]
    difference = ((pl.col("after") - pl.col("before")) * pl.col("size")).abs()
    return (
        joined.with_columns(pl.col(counts).fill_null(0))
        .sort([difference, "size", *key[:3]], descending=[True, True, False, False, False])
        .select(*key, *counts)
    )
