"""A device's memory over time as counters, slices and instants: what Perfetto and chrome://tracing show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct, field

from snapreport.number_format import bytes_text, device_name
from snapreport.snapshot import Snapshot
from snapreport.timeline.annotations import clock_of
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.own_code import own_frames

SLICES = 2_000
LEAST_SHARE = 0.001
"""Allocations that have a slice of their own: at most so many, the largest, of at least this share of the peak. Slices
that overlap need a lane each: with more, viewers are unusable."""


class Counter(Struct, frozen=True):
    """``time``: Int64 µs; ``value``: Int64 bytes from then on."""

    name: str
    time: np.ndarray
    value: np.ndarray


class Slice(Struct, frozen=True):
    """``start``, ``end``: µs. ``lane``: slices of one lane of a group nest or follow each other."""

    group: str
    lane: int
    name: str
    start: int
    end: int
    facts: dict[str, str | int] = field(default_factory=dict)


class TimeTrace(Struct, frozen=True):
    """One device's. ``has_times``: whether µs are recorded ones; otherwise an event takes 1 µs."""

    name: str
    has_times: bool
    counters: list[Counter]
    slices: list[Slice]
    instants: list[tuple[str, int, dict[str, str | int]]]


def time_traces(snapshot: Snapshot) -> Iterator[TimeTrace]:
    """The trace of each device that has events."""
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        if not len(timeline.events):
            continue
        times, has_times = event_times(timeline)
        yield TimeTrace(
            device_name(timeline.kind, device),
            has_times,
            _counters(snapshot, timeline, times),
            [*_regions(timeline, times, has_times), *_allocations(timeline, times)],
            _failures(timeline, times),
        )


def event_times(timeline: DeviceTimeline) -> tuple[np.ndarray, bool]:
    """Int64 µs of each event, never falling: threads record theirs slightly out of order. Event indices without."""
    clock = clock_of(timeline.events)
    return (np.arange(len(timeline.events), dtype=np.int64), False) if clock is None else (clock, True)


def _counters(snapshot: Snapshot, timeline: DeviceTimeline, times: np.ndarray) -> list[Counter]:
    curves = [_changes("allocated", timeline.allocated[1:], times)]
    if not timeline.recording.is_profiled:
        curves.append(_changes("reserved", timeline.reserved[1:], times))
    by_category = snapshot.category_curve(timeline.device)
    names = timeline.allocations["category"].cast(pl.String).unique(maintain_order=True)
    # Index 0 is the state before the trace.
    return [*curves, *(_changes(name, by_category[name].to_numpy()[1:], times) for name in names)]


def _changes(name: str, value: np.ndarray, times: np.ndarray) -> Counter:
    """Only where the value changes, and of several at one moment the last."""
    kept = np.flatnonzero(np.append(times[1:] != times[:-1], True))
    kept = kept[np.append(True, np.diff(value[kept]) != 0)]
    return Counter(name, times[kept], value[kept])


def _regions(timeline: DeviceTimeline, times: np.ndarray, has_times: bool) -> Iterator[Slice]:
    last = len(times) - 1
    for row in timeline.steps.iter_rows(named=True):
        end = min(row["last_event"] + 1, last)
        yield Slice("steps", 1, row["name"], int(times[row["first_event"]]), int(times[end]))
    for row in timeline.annotated.spans.iter_rows(named=True):
        first, end = (int(times[min(max(row[key], 0), last)]) for key in ("first_event", "last_event"))
        if has_times and row["starts"] and row["ends"]:
            first, end = row["start_us"], row["end_us"]
        yield Slice("spans", 1, row["name"], first, max(first, end))  # one without events ends before it begins


def _allocations(timeline: DeviceTimeline, times: np.ndarray) -> Iterator[Slice]:
    """The largest, each in the first lane that is free when it begins."""
    table, frames = timeline.allocations, timeline.recording.frames
    large = table.with_row_index("row").filter(pl.col("size") >= LEAST_SHARE * timeline.allocated.max())
    largest = large.top_k(SLICES, by="size").sort("row")
    named = own_frames(timeline.recording)
    ends: list[int] = []
    for row in largest.iter_rows(named=True):
        start = int(times[max(row["alloc_event"], 0)])
        end = int(times[row["free_event"]]) if row["free_event"] >= 0 else int(times[-1])
        lane = next((i for i, free_from in enumerate(ends) if free_from <= start), len(ends))
        ends[lane : lane + 1] = [max(end, start + 1)]
        facts: dict[str, str | int] = {"bytes": row["size"], "category": row["category"], "stack": row["stack"]}
        frame = int(named[row["stack"]])
        if frame >= 0:
            facts["line"] = f"{frames['filename'][frame]}:{frames['line'][frame]}"
            facts["function"] = frames["name"][frame]
        name = f"{facts.get('function', row['category'])} {bytes_text(row['size'])}"
        yield Slice("allocations", lane + 1, name, start, end, facts)


def _failures(timeline: DeviceTimeline, times: np.ndarray) -> list[tuple[str, int, dict[str, str | int]]]:
    sizes = timeline.events["size"]
    return [
        (f"out of memory: {bytes_text(sizes[event])} requested", int(times[event]), {"event": event})
        for event in timeline.oom_events
    ]
