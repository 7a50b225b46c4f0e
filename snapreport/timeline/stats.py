"""The numbers of ``snapreport stats``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import UNSET, convert
from msgspec.structs import replace

from snapreport.contracts import plain
from snapreport.contracts.stats import DeviceStats, FileStats, PrivatePool, StackAtPeak
from snapreport.contracts.values import Frame
from snapreport.integers import sums_of_codes
from snapreport.reading.recording import Recording
from snapreport.timeline.interface import Timeline
from snapreport.timeline.module_tree import module_tree, modules_source
from snapreport.timeline.operators import stack_labels
from snapreport.timeline.recording_gaps import lost_peaks
from snapreport.timeline.segments import is_private


def file_stats(recording: Recording, devices: list[DeviceStats]) -> FileStats:
    """The entry of a file; ``devices``: :func:`device_stats` of each."""
    source = recording.source if recording.is_profiled else UNSET
    return FileStats(recording.name, recording.file_bytes, source, devices, recording.notes)


def stacks_at(allocations: pl.DataFrame, position: int) -> pl.DataFrame:
    """``stack``, ``bytes``, ``count`` of live memory at ``position``, most bytes first, then lowest stack."""
    born, freed = (allocations[name].to_numpy() for name in ("alloc_event", "free_event"))
    return stack_sums(allocations, (born <= position) & ((freed < 0) | (freed > position)))


def stack_sums(allocations: pl.DataFrame, chosen: np.ndarray | slice = slice(None)) -> pl.DataFrame:
    """The same of those that are chosen, by default all: ``stack`` Int32, ``bytes``, ``count`` Int64."""
    stack, size, count = sums_of_codes(*(allocations[name].to_numpy()[chosen] for name in ("stack", "size")))
    return pl.DataFrame({"stack": stack.astype(np.int32), "bytes": size, "count": count})


def device_stats(timeline: Timeline) -> DeviceStats:
    """The entry of a device, without findings."""
    allocations, allocated, reserved = timeline.allocations, timeline.allocated, timeline.reserved
    names = stack_labels(timeline.recording)
    return DeviceStats(
        device=timeline.device,
        kind=timeline.kind,
        events=len(timeline.events),
        allocations=len(allocations),
        preexisting_allocations=int((allocations["alloc_event"] < 0).sum()),
        live_at_end=int((allocations["free_event"] < 0).sum()),
        segments=len(timeline.recording.devices[timeline.device].segments),
        start_allocated_bytes=int(allocated[0]),
        end_allocated_bytes=int(allocated[-1]),
        peak_allocated_bytes=timeline.peak_bytes,
        peak_event=timeline.peak_event,
        max_memory_allocated_bytes=timeline.max_memory_allocated,
        trace_overflowed=timeline.overflowed,
        reconciliation_bytes=timeline.reconciliation_bytes,
        start_reserved_bytes=int(reserved[0]),
        end_reserved_bytes=int(reserved[-1]),
        peak_reserved_bytes=int(reserved.max()),
        oom_events=timeline.oom_events,
        top_stacks_at_peak=[
            StackAtPeak(row["stack"], names[row["stack"]], row["bytes"], row["count"]) for row in timeline.top_stacks
        ],
        modules=module_tree(timeline) or UNSET,
        modules_source=modules_source(timeline),
    )


def private_pools(timeline: Timeline) -> list[PrivatePool]:
    """The private pools that have segments in the final state of a device, most reserved first."""
    segments = timeline.recording.devices[timeline.device].segments
    pool = pl.col("pool").cast(pl.String)
    sums = (
        segments.filter(is_private(pool))
        .group_by(pool)
        .agg(
            segments=pl.len(), reserved_bytes=pl.col("total_size").sum(), allocated_bytes=pl.col("allocated_size").sum()
        )
        .sort("reserved_bytes", "pool", descending=[True, False])
    )
    return convert(sums.rows(named=True), list[PrivatePool])


def counted_stats(timeline: Timeline, stats: DeviceStats) -> DeviceStats:
    """``stats`` of ``timeline`` with the peaks that PyTorch counted, where the trace lost them."""
    if (counted := lost_peaks(timeline)) is None:
        return stats
    return replace(
        stats,
        peak_allocated_bytes=counted.allocated,
        max_memory_allocated_bytes=counted.blocks,
        peak_reserved_bytes=counted.reserved,
        trace_peak_allocated_bytes=stats.peak_allocated_bytes,
    )


def with_frames(recording: Recording, file: FileStats) -> FileStats:
    """``file`` with the frames of every stack whose number it names."""
    stacks = sorted(set(_named_stacks(plain(file))))
    frames = frames_of_each(recording, stacks)
    return replace(file, stacks={str(stack): one for stack, one in zip(stacks, frames, strict=True)})


def _named_stacks(node: Any) -> Iterator[int]:
    if isinstance(node, dict):
        if isinstance(stack := node.get("stack"), int):
            yield stack
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from _named_stacks(value)


def frames_of(recording: Recording, stack: int) -> list[Frame]:
    """The frames of a stack, innermost first."""
    return frames_of_each(recording, [stack])[0]


def frames_of_each(recording: Recording, stacks: Sequence[int]) -> list[list[Frame]]:
    """The frames of each stack, innermost first: gathered together, and each distinct one made once."""
    numbers = [recording.stack(stack) for stack in stacks]
    distinct = sorted({row for rows in numbers for row in rows})
    rows = recording.frames.select("filename", "line", "name")[distinct].rows(named=True)
    made = dict(zip(distinct, convert(rows, list[Frame]), strict=True))
    return [[made[row] for row in rows] for rows in numbers]
