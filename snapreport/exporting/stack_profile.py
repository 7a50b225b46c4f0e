"""Bytes by stack trace at one moment, in the formats of flame graph tools."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.errors import SnapshotError
from snapreport.number_format import count_text, device_name
from snapreport.reading.recording import Recording
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.fragmentation import live_ids
from snapreport.timeline.segment_causes import reserved_by_stack

NO_STACK = "no stack trace"
_COLUMNS = ("stack", "category", "count", "bytes", "total_count", "total_bytes")


class StackProfile(Struct, frozen=True):
    """A device at a moment. rows: ``stack`` Int32, ``category`` String, and of its allocations ``count``, ``bytes``
    that are live at the moment, ``total_count``, ``total_bytes`` of the whole trace (those of before it, too), Int64.
    Of segments: by the stack trace that made PyTorch ask the driver for them, category "segment".
    """

    recording: Recording
    name: str
    rows: pl.DataFrame


def moment_of(timeline: DeviceTimeline, at: str) -> tuple[int, str]:
    """Event index and name of ``peak``, ``end`` or a number. Raises :class:`SnapshotError` for anything else."""
    last = len(timeline.events) - 1
    if at == "peak":
        return timeline.peak_event, "at the peak"
    if at == "end":
        return last, "at the end"
    if at.isdecimal() and int(at) <= last:
        return int(at), f"after event {count_text(int(at))}"
    raise SnapshotError(f"--at {at}: neither peak nor end nor an event from 0 to {last}")


def stack_profiles(snapshot: Snapshot, at: str = "peak", of: str = "allocations") -> Iterator[StackProfile]:
    """The profile of each device that has ``allocations``, or ``segments``."""
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        if of == "segments":
            moment, words = moment_of(timeline, at)
            if len(rows := reserved_by_stack(timeline, moment)):
                rows = rows.with_columns(category=pl.lit("segment"))
                yield StackProfile(snapshot.recording, f"{device_name(timeline.kind, device)} segments {words}", rows)
            continue
        table = timeline.allocations
        if not len(table):
            continue
        moment, words = moment_of(timeline, at)
        live = np.zeros(len(table), bool)
        live[live_ids(timeline, moment)] = True
        size = pl.col("size")
        rows = (
            table.select("stack", pl.col("category").cast(pl.String), "size", live=pl.Series(live))
            .group_by("stack", "category")
            .agg(
                pl.col("live").sum().cast(pl.Int64).alias("count"),
                size.filter(pl.col("live")).sum().alias("bytes"),
                pl.len().cast(pl.Int64).alias("total_count"),
                size.sum().alias("total_bytes"),
            )
            .sort("stack", "category")
        )
        yield StackProfile(snapshot.recording, f"{device_name(timeline.kind, device)} {words}", rows)


def frame_labels(recording: Recording) -> list[str]:
    """``function file:line`` of each frame; C++ frames, which have no file that says something, their function."""
    frames = recording.frames
    return [
        name if file in ("", "??") else f"{name} {file}:{line}"
        for name, file, line in zip(frames["name"], frames["filename"], frames["line"], strict=True)
    ]


def write_folded(snapshots: Sequence[Snapshot], file: BinaryIO, at: str, of: str) -> None:
    """Brendan Gregg's folded stacks: ``outermost;…;innermost bytes`` per line, the device outermost of all."""
    for snapshot in snapshots:
        # A semicolon separates frames, the last space the bytes, a line break stacks.
        labels = [" ".join(label.replace(";", ",").split()) for label in frame_labels(snapshot.recording)]
        for profile in stack_profiles(snapshot, at, of):
            by_stack = profile.rows.group_by("stack", maintain_order=True).agg(pl.col("bytes").sum())
            for stack, size in by_stack.filter(pl.col("bytes") > 0).iter_rows():
                frames = [labels[i] for i in reversed(snapshot.recording.stack(stack))] or [NO_STACK]
                file.write(f"{';'.join([profile.name, *frames])} {size}\n".encode())


def write_speedscope(snapshots: Sequence[Snapshot], file: BinaryIO, at: str, of: str) -> None:
    """Speedscope's own format (https://www.speedscope.app/file-format-schema.json): a profile per device."""
    frames: list[dict[str, object]] = [{"name": NO_STACK}]
    profiles = []
    for snapshot in snapshots:
        base, recording = len(frames), snapshot.recording
        for name, path, line in recording.frames.select("name", "filename", "line").iter_rows():
            frames.append({"name": name, **({} if path in ("", "??") else {"file": path, "line": max(line or 0, 0)})})
        for profile in stack_profiles(snapshot, at, of):
            by_stack = profile.rows.group_by("stack", maintain_order=True).agg(pl.col("bytes").sum())
            by_stack = by_stack.filter(pl.col("bytes") > 0)
            samples = [[base + i for i in reversed(recording.stack(stack))] or [0] for stack in by_stack["stack"]]
            total = int(by_stack["bytes"].sum())
            name = f"{recording.name}, {profile.name}" if len(snapshots) > 1 else profile.name
            profiles.append(
                {
                    "type": "sampled", "name": name, "unit": "bytes", "startValue": 0, "endValue": total,
                    "samples": samples, "weights": by_stack["bytes"].to_list(),
                }
            )  # fmt: skip
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "snapreport",
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    file.write(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))


def write_pprof(snapshots: Sequence[Snapshot], file: BinaryIO, at: str, of: str) -> None:
    """Google's profile.proto, gzipped, with the four sample types of a heap profile and labels for device, category."""
    from snapreport.exporting.pprof_messages import Profile

    message = Profile()
    strings = {"": 0}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    for kind, unit in (("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count")):
        message.sample_type.add(type=text(kind), unit=text(unit))
    message.sample_type.add(type=text("inuse_space"), unit=text("bytes"))
    message.default_sample_type = text("inuse_space")
    functions: dict[tuple[int, int], int] = {}
    message.function.add(id=1, name=text(NO_STACK))
    message.location.add(id=1).line.add(function_id=1)
    for snapshot in snapshots:
        base, recording = len(message.location) + 1, snapshot.recording
        for name, path, line in recording.frames.select("name", "filename", "line").iter_rows():
            key = (text(name), text(path))
            if key not in functions:
                functions[key] = len(message.function) + 1
                message.function.add(id=functions[key], name=key[0], system_name=key[0], filename=key[1])
            location = message.location.add(id=len(message.location) + 1)
            location.line.add(function_id=functions[key], line=line or 0)
        for profile in stack_profiles(snapshot, at, of):
            for stack, category, count, size, total_count, total in profile.rows.select(_COLUMNS).iter_rows():
                sample = message.sample.add(value=[total_count, total, count, size])
                sample.location_id.extend([base + i for i in recording.stack(stack)] or [1])
                sample.label.add(key=text("device"), str=text(profile.name))
                sample.label.add(key=text("category"), str=text(category))
    message.string_table.extend(strings)
    # Without a time of its own in the header: the same snapshot gives the same bytes.
    file.write(gzip.compress(message.SerializeToString(), mtime=0))
