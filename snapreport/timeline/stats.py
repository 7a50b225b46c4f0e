"""The numbers of ``snapreport stats``, as plain values for JSON."""

from __future__ import annotations

from typing import Any

import polars as pl

from snapreport.reading.recording import Recording
from snapreport.timeline.interface import Timeline

SCHEMA = "snapreport-stats/1"


def stats_document(files: list[dict[str, Any]]) -> dict[str, Any]:
    """The document of ``snapreport stats --json``; ``files``: one ``Snapshot.stats()`` each."""
    return {"schema": SCHEMA, "snapshots": files}


def file_stats(recording: Recording, devices: list[dict[str, Any]]) -> dict[str, Any]:
    """The entry of a file; ``devices``: :func:`device_stats` of each."""
    source = {"source": recording.source} if recording.is_profiled else {}
    file = {"file": recording.name, "bytes": recording.file_bytes, **source}
    return {**file, "devices": devices, "notes": recording.notes}


def stacks_at(allocations: pl.DataFrame, position: int) -> pl.DataFrame:
    """``stack``, ``bytes``, ``count`` of live memory at ``position``, most bytes first, then lowest stack."""
    free = pl.col("free_event")
    return (
        allocations.filter((pl.col("alloc_event") <= position) & ((free < 0) | (free > position)))
        .group_by("stack")
        .agg(bytes=pl.col("size").sum(), count=pl.len().cast(pl.Int64))
        .sort(["bytes", "stack"], descending=[True, False])
    )


def device_stats(timeline: Timeline) -> dict[str, Any]:
    allocations, allocated, reserved = timeline.allocations, timeline.allocated, timeline.reserved
    return {
        "device": timeline.device,
        "kind": timeline.kind,
        "events": len(timeline.events),
        "allocations": len(allocations),
        "preexisting_allocations": int((allocations["alloc_event"] < 0).sum()),
        "live_at_end": int((allocations["free_event"] < 0).sum()),
        "segments": len(timeline.recording.devices[timeline.device].segments),
        "start_allocated_bytes": int(allocated[0]),
        "end_allocated_bytes": int(allocated[-1]),
        "peak_allocated_bytes": timeline.peak_bytes,
        "peak_event": timeline.peak_event,
        "max_memory_allocated_bytes": timeline.max_memory_allocated,
        "trace_overflowed": timeline.overflowed,
        "reconciliation_bytes": timeline.reconciliation_bytes,
        "start_reserved_bytes": int(reserved[0]),
        "end_reserved_bytes": int(reserved[-1]),
        "peak_reserved_bytes": int(reserved.max()),
        "oom_events": timeline.oom_events,
        "top_stacks_at_peak": [
            {"bytes": row["bytes"], "count": row["count"], "frames": _frames(timeline.recording, row["stack"])}
            for row in timeline.top_stacks
        ],
    }


def _frames(recording: Recording, stack: int) -> list[dict[str, Any]]:
    return recording.frames[recording.stack(stack)].select("filename", "line", "name").rows(named=True)
