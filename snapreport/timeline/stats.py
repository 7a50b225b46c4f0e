"""The numbers of ``snapreport stats``, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Callable
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
    return {"file": recording.name, "bytes": recording.file_bytes, "devices": devices, "notes": recording.notes}


def stacks_at(allocations: pl.DataFrame, position: int) -> pl.DataFrame:
    """``stack``, ``bytes``, ``count`` of what is live at ``position``, most bytes first, then lowest stack."""
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


def stats_table(files: list[dict[str, Any]], bytes_text: Callable[[int], str]) -> str:
    """The numbers of each file as a table for people, a column for each device that has any. ``bytes_text``: a size in
    words.
    """
    return "\n\n".join(_file_table(file, bytes_text) for file in files)


def _file_table(file: dict[str, Any], bytes_text: Callable[[int], str]) -> str:
    devices = [d for d in file["devices"] if d["events"] or d["allocations"] or d["segments"]]
    lines = [f"{file['file']}  ({bytes_text(file['bytes'])})"]
    for key, counts in file["notes"].items():
        lines.append(f"{key.replace('_', ' ')}: " + ", ".join(f"{name} ({count:,})" for name, count in counts.items()))
    if not devices:
        return "\n".join([*lines, "no allocations, no events, no segments"])
    keys = [key for key in devices[0] if key not in ("device", "kind", "top_stacks_at_peak")]
    rows = [["", *(f"{d['kind']}:{d['device']}" if d["kind"] != "host" else "host" for d in devices)]]
    rows += [
        [key.removesuffix("_bytes").replace("_", " "), *(_cell(key, d[key], bytes_text) for d in devices)]
        for key in keys
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(v.rjust(w) for v, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    for d in devices:
        lines.append(f"\nmost bytes at the peak of {d['kind']}:{d['device']}" if d["top_stacks_at_peak"] else "")
        for top in d["top_stacks_at_peak"]:
            frame = next((f for f in top["frames"] if f["filename"].endswith(".py")), (top["frames"] or [None])[0])
            place = f"{frame['filename']}:{frame['line']} {frame['name']}" if frame else "no frames"
            lines.append(f"{bytes_text(top['bytes']):>10}  {top['count']:>7,}×  {place}")
    return "\n".join(lines).rstrip()


def _cell(key: str, value: Any, bytes_text: Callable[[int], str]) -> str:
    if key == "reconciliation_bytes":
        return "to the byte" if value == 0 else bytes_text(value)
    if key.endswith("_bytes"):
        return bytes_text(value)
    if key == "trace_overflowed":
        return {True: "yes", False: "no", None: "not recorded"}[value]
    if isinstance(value, list):
        return ", ".join(f"{v:,}" for v in value[:5]) + (" …" if len(value) > 5 else "") if value else "none"
    return f"{value:,}"
