"""Growth over a series of snapshots: every stack followed through all files, and growth distinguished from noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.contracts.diff import SeriesDevice, SeriesStack
from snapreport.findings.allocation_growth import theil_sen
from snapreport.findings.comparable import Order
from snapreport.findings.live import names_of
from snapreport.findings.stack_matching import stack_matching
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.stats import frames_of, stacks_at

FEWEST = 3
"""Snapshots at least: with two, growth cannot be distinguished from noise."""
_MIN_BYTES, _MIN_SHARE = 1 << 20, 0.001
"""Of the last peak, for the growth of one stack over the whole series."""
_MIN_RISING_SHARE = 0.8
"""The share of all pairs of snapshots that rise, less that of those that fall (Kendall's tau)."""
_MIN_RISING_SHARE_BYTES, _MIN_SNAPSHOTS_BYTES = 0.9, 6
"""The same for a stack whose bytes rise but not its number of allocations, which takes so many snapshots."""
_MIN_LATE_GROWTH = 0.25
"""The share of the growth in the later half of the series: a cache that levels off has nothing there."""
_MAX_LISTED = 20
_TOTALS = ("peak_allocated_bytes", "end_allocated_bytes", "peak_reserved_bytes", "end_reserved_bytes")


class FollowedStack(Struct, frozen=True):
    """One stack through a series. ``stack``: its number in the last snapshot; ``place``: the line that names it.
    ``bytes``, ``counts``: of what is live at the end of each snapshot; ``slope``: bytes a snapshot (Theil–Sen);
    ``grows``: whether that is growth and not noise.
    """

    stack: int
    place: str
    bytes: list[int]
    counts: list[int]
    slope: int
    grows: bool


class DeviceSeries(Struct, frozen=True):
    """One device of a series. ``devices``: its number in each snapshot; ``totals``: numbers of each snapshot by key of
    ``stats --json``; ``slope``: of what is allocated at the end; ``stacks``: growing ones first, the fastest of each
    first.
    """

    devices: tuple[int, ...]
    kind: str
    totals: dict[str, list[int]]
    slope: int
    stacks: list[FollowedStack]

    @property
    def leaks(self) -> list[FollowedStack]:
        return [stack for stack in self.stacks if stack.grows]


class SnapshotSeries(Struct, frozen=True):
    """``snapshots``: in order; ``order``: what they are ordered by."""

    snapshots: list[Snapshot]
    order: Order
    devices: list[DeviceSeries]

    @property
    def files(self) -> list[str]:
        return [snapshot.recording.name for snapshot in self.snapshots]


def follow(snapshots: Sequence[Snapshot], order: Order, pairs: Sequence[tuple[int, ...]]) -> SnapshotSeries:
    """Follow every stack of the last snapshot through all of them. ``pairs``: of ``comparable.paired_devices``."""
    same = [_stacks_in_last(snapshot, snapshots[-1]) for snapshot in snapshots[:-1]]
    same.append(np.arange(len(snapshots[-1].recording.stack_offsets) - 1))
    devices = [_device(snapshots, numbers, same) for numbers in pairs]
    return SnapshotSeries(list(snapshots), order, devices)


def _stacks_in_last(snapshot: Snapshot, last: Snapshot) -> np.ndarray:
    """Int64 per stack of a snapshot: the same code's stack in the last one, -1 where it has none."""
    matching = stack_matching(snapshot.recording, last.recording)
    number = np.full(matching.count, -1, np.int64)
    number[matching.after] = np.arange(len(matching.after))
    result: np.ndarray = number[matching.before]
    return result


def _device(snapshots: Sequence[Snapshot], numbers: tuple[int, ...], same: Sequence[np.ndarray]) -> DeviceSeries:
    timelines = [snapshot.timeline(device) for snapshot, device in zip(snapshots, numbers, strict=True)]
    stacks = len(snapshots[-1].recording.stack_offsets) - 1
    size, count = (np.zeros((stacks, len(snapshots)), np.int64) for _ in range(2))
    for column, (timeline, in_last) in enumerate(zip(timelines, same, strict=True)):
        rows = stacks_at(timeline.allocations, len(timeline.events) - 1)
        rows = rows.with_columns(same=pl.Series(in_last[rows["stack"].to_numpy()])).filter(pl.col("same") >= 0)
        size[rows["same"].to_numpy(), column] = rows["bytes"].to_numpy()
        count[rows["same"].to_numpy(), column] = rows["count"].to_numpy()
    stats = [timeline.stats for timeline in timelines]
    totals = {key: [getattr(entry, key) for entry in stats] for key in _TOTALS}
    return DeviceSeries(
        numbers,
        timelines[-1].kind,
        totals,
        round(theil_sen(np.array(totals["end_allocated_bytes"]))),
        _followed(snapshots[-1], timelines[-1], size, count),
    )


def _followed(last: Snapshot, timeline: DeviceTimeline, size: np.ndarray, count: np.ndarray) -> list[FollowedStack]:
    """The stacks that change, growing ones first. ``size``, ``count``: Int64 (stacks, snapshots)."""
    least = max(_MIN_BYTES, _MIN_SHARE * timeline.peak_bytes)
    changed = np.flatnonzero(np.ptp(size, axis=1) >= least)
    names = names_of(last)
    found = []
    for stack in changed.tolist():
        values, counts = size[stack], count[stack]
        grows = int(values[-1] - values[0]) >= least and grows_steadily(values, counts)
        place, slope = names.place(stack), round(theil_sen(values))
        found.append(FollowedStack(stack, place, values.tolist(), counts.tolist(), slope, grows))
    found.sort(key=lambda row: (not row.grows, -abs(row.slope), row.stack))
    return found[: max(_MAX_LISTED, sum(row.grows for row in found))]


def grows_steadily(values: np.ndarray, counts: np.ndarray) -> bool:
    """Whether a stack's live bytes grow from snapshot to snapshot, and not only vary.

    ``values``, ``counts``: bytes and allocations in each snapshot. A leak adds allocations. Where only sizes change, as
    in a working set that is replaced, a few snapshots rise by chance, so that more of them are needed.
    """
    if len(values) < FEWEST or theil_sen(values) <= 0:
        return False
    rise = float(values[-1] - values[0])
    if float(values[-1] - values[len(values) // 2]) < _MIN_LATE_GROWTH * rise:
        return False
    rising = _tau(values)
    if _tau(counts) >= _MIN_RISING_SHARE:
        return rising >= _MIN_RISING_SHARE
    return len(values) >= _MIN_SNAPSHOTS_BYTES and rising >= _MIN_RISING_SHARE_BYTES


def _tau(values: np.ndarray) -> float:
    """Kendall's tau against the order of the values: the share of pairs that rise less that of pairs that fall."""
    first, second = np.triu_indices(len(values), 1)
    return float(np.sign(values[second] - values[first]).mean())


def series_rows(series: SnapshotSeries) -> list[SeriesDevice]:
    """A row per device, the ``series`` of ``snapreport diff --json``."""
    recording = series.snapshots[-1].recording
    return [
        SeriesDevice(
            device=device.devices[0],
            devices=list(device.devices),
            kind=device.kind,
            files=series.files,
            order=series.order,
            **device.totals,
            growth=int(np.median(np.diff(device.totals["end_allocated_bytes"]))),
            slope=device.slope,
            leak_bytes_per_snapshot=sum(stack.slope for stack in device.leaks),
            stacks=[
                SeriesStack(
                    place=row.place,
                    bytes=row.bytes,
                    counts=row.counts,
                    bytes_per_snapshot=row.slope,
                    grows=row.grows,
                    stack=row.stack,
                    frames=frames_of(recording, row.stack),
                )
                for row in device.stacks
            ],
        )
        for device in series.devices
    ]
