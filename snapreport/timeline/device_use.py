"""The memory in use on a device, beside what PyTorch reserved: samples of a recorder on the trace's clock."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from msgspec import UNSET, Struct, UnsetType

from snapreport.contracts.stats import DeviceUse, DeviceUseCause, DeviceUseChange
from snapreport.reading.device_memory import GRAPHS, NCCL
from snapreport.timeline.annotations import clock_of
from snapreport.timeline.interface import Timeline
from snapreport.timeline.operators import stack_labels
from snapreport.timeline.workspaces import CUBLAS_WORKSPACE
from snapreport.vocabulary import DEFAULT_POOL

CONTEXT: DeviceUseCause = "CUDA context"
OTHERS: DeviceUseCause = "other processes"
MIN_CHANGE = 4 << 20
"""Bytes: two pages of the driver, which maps memory in pages of 2 MiB. Doubled until no more than so many are left."""
MOST_CHANGES = 200
NO_PROCESS = 64 << 20
"""Bytes: another process has a context, which takes more. NVML counts 9 MiB of an H200 for no process at all."""
CLOCK_US = 2_000
"""How far an event's time may be from the sample that already has its segment: cudaMalloc takes up to 1 ms."""


class DeviceSamples(Struct, frozen=True, eq=False):
    """The samples of a device within its trace, in order of time. ``rows``: as read, with ``position`` Int64, the last
    one of the trace at that time, and ``reserved`` Int64, bytes there.
    """

    rows: pl.DataFrame
    lowest: np.ndarray
    highest: np.ndarray


def device_samples(timeline: Timeline) -> DeviceSamples | None:
    """None where no samples were recorded, or where nothing of the trace has a time.

    ``lowest``, ``highest``: Int64, the bytes that may have been reserved when the sample was taken.
    """
    recorder = timeline.recording.recorder
    events, reserved = timeline.events, timeline.reserved
    clock = clock_of(events) if recorder is not None and len(events) else None
    if recorder is None or clock is None:
        return None
    rows = recorder.device_memory.filter(pl.col("device") == timeline.device)
    part = timeline.recording.devices[timeline.device].part
    is_whole = timeline.overflowed is False or (timeline.overflowed is None and not reserved[0])
    if not is_whole or (part and part.first):  # reserved is not known before the first event
        rows = rows.filter(pl.col("time_us") >= clock[0])
    if part and part.end < part.whole:
        rows = rows.filter(pl.col("time_us") <= clock[-1])
    if not len(rows):
        return None
    time, since = (rows[name].to_numpy() for name in ("time_us", "since_us"))
    position = np.searchsorted(clock, time, "right")
    lowest, highest = _reserved_around(clock, reserved, time)
    # What was in use is the same until the last sample that is left out, which is seldom near another event.
    later = _reserved_around(clock, reserved, np.maximum(np.append(since[1:], time[-1]), time))
    low, high = np.maximum(lowest, later[0]), np.minimum(highest, later[1])
    agree = low <= high
    lowest, highest = np.where(agree, low, lowest), np.where(agree, high, highest)
    is_alone = pl.col("used") - pl.col("own") < NO_PROCESS
    rows = rows.with_columns(
        position=pl.Series(position - 1),
        reserved=pl.Series(reserved[position]),
        own=pl.when(is_alone).then(pl.col("used")).otherwise(pl.col("own")),
    )
    return DeviceSamples(rows, lowest, highest)


def _reserved_around(clock: np.ndarray, reserved: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most reserved within ``CLOCK_US`` of each time."""
    first = np.searchsorted(clock, time - CLOCK_US, "left")
    last = np.searchsorted(clock, time + CLOCK_US, "right")
    bounds = np.column_stack([first, last + 1]).ravel()
    padded = np.append(reserved, reserved[-1])
    return np.minimum.reduceat(padded, bounds)[::2], np.maximum.reduceat(padded, bounds)[::2]


def device_use(timeline: Timeline) -> DeviceUse | UnsetType:
    """The most memory in use and what it consisted of, and what changed outside PyTorch's allocator."""
    samples = device_samples(timeline)
    if samples is None:
        return UNSET
    rows = samples.rows
    peak = int(rows["used"].to_numpy().argmax())
    top = rows.row(peak, named=True)
    # A sample taken within cudaMalloc may already have a segment that the trace has not, or the other way round.
    reserved = min(max(int(samples.lowest[peak]), top["reserved"]), top["used"])
    others = None if top["own"] is None else top["used"] - top["own"]
    return DeviceUse(
        source=top["source"],
        samples=len(rows),
        total_bytes=top["total"],
        peak_used_bytes=top["used"],
        peak_event=top["position"],
        reserved_bytes=reserved,
        outside_bytes=max(top["used"] - reserved - (others or 0), 0),
        other_processes_bytes=others,
        changes=sorted(_changes(timeline, samples), key=lambda one: -abs(one.bytes)),
    )


def outside_by_cause(timeline: Timeline, position: int) -> list[tuple[DeviceUseCause, int]]:
    """What the memory outside PyTorch's allocator consisted of after an event, largest first; empty if unknown."""
    samples = device_samples(timeline)
    sums: Counter[DeviceUseCause] = Counter()
    for change in _changes(timeline, samples) if samples else []:
        if change.event <= position:
            sums[change.cause] += change.bytes
    return [(cause, size) for cause, size in sums.most_common() if size >= MIN_CHANGE]


def other_processes_at(timeline: Timeline, position: int) -> int | None:
    """Bytes that other processes use after an event, by the last sample until then; None if they are not told apart."""
    samples = device_samples(timeline)
    rows = samples.rows.filter(pl.col("position") <= position) if samples else None
    if rows is None or not len(rows) or rows["own"][-1] is None:
        return None
    return int(rows["used"][-1] - rows["own"][-1])


def _changes(timeline: Timeline, samples: DeviceSamples) -> list[DeviceUseChange]:
    """Changes of what other processes use, and of what this one uses beside reserved memory, from sample to sample."""
    rows = samples.rows
    used, position = rows["used"].to_numpy(), rows["position"].to_numpy()
    own = rows["own"].fill_null(rows["used"]).to_numpy()
    found: list[DeviceUseChange] = []
    outside = own - samples.highest, own - samples.lowest
    least = MIN_CHANGE
    while len(_steps(*outside, least)) + len(_steps(used - own, used - own, least)) > MOST_CHANGES:
        least *= 2
    for row, change in _steps(*outside, least):
        cause, line = _cause(timeline, rows.row(row, named=True), is_first=row == 0)
        found.append(DeviceUseChange(int(position[row]), change, cause, line))
    others = _steps(used - own, used - own, least)
    return found + [DeviceUseChange(int(position[row]), change, OTHERS, None) for row, change in others]


def _steps(lowest: np.ndarray, highest: np.ndarray, least: int) -> list[tuple[int, int]]:
    """(row, change) of a value that is only known to lie between two bounds: where these leave what the value may have
    been since the last change, by at least so many bytes. The first change is from 0.
    """
    levels = [(-1, 0, 0)]  # first row, and what all bounds since then agree on
    for row, (bottom, top) in enumerate(zip(lowest.tolist(), highest.tolist(), strict=True)):
        first, low, high = levels[-1]
        if bottom >= high + least or top <= low - least:
            levels.append((row, bottom, top))
        elif bottom <= high and top >= low:
            levels[-1] = first, max(low, bottom), min(high, top)
    return [(row, low - before) for (_, before, _), (row, low, _) in pairwise(levels)]


def _cause(timeline: Timeline, sample: dict[str, Any], *, is_first: bool) -> tuple[DeviceUseCause, str | None]:
    """What took memory before a sample, by what ran then and by what the trace has of that time; and the line."""
    if is_first:
        return CONTEXT, None
    if sample["ran"] == NCCL:
        return "NCCL", sample["line"]
    clock = clock_of(timeline.events)
    assert clock is not None
    first = int(np.searchsorted(clock, sample["since_us"] - CLOCK_US, "left"))
    last = int(np.searchsorted(clock, sample["time_us"] + CLOCK_US, "right"))
    # PyTorch allocates a graph's memory in its own pool, and a workspace right after it has created a cuBLAS handle.
    born = timeline.allocations.filter(pl.col("alloc_event").is_between(first, last - 1))
    private = born.filter(~pl.col("pool").cast(pl.String).fill_null("").is_in(["", DEFAULT_POOL]))
    if len(private) or sample["ran"] == GRAPHS:
        return "CUDA graphs", _line(timeline, private) or sample["line"]
    workspace = (pl.col("category") == "workspace") | (pl.col("size") == CUBLAS_WORKSPACE)
    workspaces = born.filter(workspace.fill_null(value=False))
    if len(workspaces):
        return "cuBLAS", _line(timeline, workspaces) or sample["line"]
    return "kernels and libraries", sample["line"]


def _line(timeline: Timeline, allocations: pl.DataFrame) -> str | None:
    """The line of the first of ``allocations``."""
    return stack_labels(timeline.recording)[allocations["stack"][0]] if len(allocations) else None
