"""A part of a recording: some events of each device, as if recording had begun and ended there.

What is alive where the part begins becomes memory from before the trace, with the stack trace, category and names that
the whole trace gives it; what is alive where it ends becomes the final state. The lifetimes of the whole are needed for
that. They take a sixth of the time of reading; all else that a report says is computed from the part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from snapreport.errors import SnapshotError
from snapreport.number_format import count_text, device_name, plural
from snapreport.reading.event_columns import enum_series
from snapreport.reading.recorder_metadata import RecorderMetadata
from snapreport.reading.recording import ACTIVE_STATES, PENDING_STATES, DeviceRecord, Part, Recording
from snapreport.reading.stack_table import stack_table
from snapreport.timeline.annotations import Annotated
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import FREED, GHOST, ORIGINS, TRACED
from snapreport.timeline.state import PENDING, STATES, state_at

Range = tuple[int | None, int | None]
"""The first, and the one after the last; None: from the beginning, to the end."""


class PartChoice(Struct, frozen=True):
    """Which events of each device: a range of them, the last ones, or those of a range of steps, by their numbers."""

    events: Range | None = None
    last: int | None = None
    steps: Range | None = None

    def __post_init__(self) -> None:
        if sum(choice is not None for choice in (self.events, self.last, self.steps)) > 1:
            raise ValueError("events, last and steps choose different parts: give one of them")
        for name, bounds in (("events", self.events), ("steps", self.steps)):
            first, end = bounds or (None, None)
            if (first or 0) < 0 or (end is not None and end <= (first or 0)):
                raise ValueError(f"{name} {'' if first is None else first}:{'' if end is None else end} are none")
        if self.last is not None and self.last < 1:
            raise ValueError(f"the last {self.last} events are none")

    def __bool__(self) -> bool:
        return self != PartChoice()


def part_of(
    recording: Recording, timeline: Callable[[int], DeviceTimeline], choice: PartChoice
) -> tuple[Recording, dict[int, DeviceTimeline]]:
    """The part of a recording, and its timelines by device. ``timeline``: that of a device of the whole.

    A device that has events, but none of the chosen ones, keeps its state at its end. Raises :class:`SnapshotError` if
    that is so for all devices.
    """
    wholes = {device: timeline(device) for device in recording.devices}
    ranges = {device: _chosen(whole, choice) for device, whole in wholes.items()}
    if not any(part.first < part.end for part in ranges.values()):
        raise SnapshotError(f"{recording.path}: {_empty_part_error(wholes, choice)}")
    ends = all(part.end == part.whole for part in ranges.values())
    recorder = recording.recorder and _recorder_of_part(recording.recorder, is_end=ends)
    records = {device: _record(wholes[device], ranges[device]) for device in wholes}
    allocations = {device: _allocations(wholes[device].allocations, ranges[device]) for device in wholes}

    used = [table[name] for table in allocations.values() for name in ("stack", "free_stack")]
    used += [record.events[name] for record in records.values() for name in ("stack", "forward_stack")]
    used += [table["stack"] for record in records.values() for table in (record.segments, record.blocks)]
    stacks = np.unique(np.concatenate([np.zeros(1, np.int32), *(column.to_numpy() for column in used)]))
    begin, length = recording.stack_offsets[stacks], np.diff(recording.stack_offsets)[stacks]
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    table = stack_table(recording.frames, recording.stack_frames[np.repeat(begin, length) + within], length)

    def renumbered(rows: pl.DataFrame, *names: str) -> pl.DataFrame:
        return rows.with_columns(
            pl.Series(name, table.renumber[np.searchsorted(stacks, rows[name].to_numpy())]) for name in names
        )

    for device, record in records.items():
        records[device] = replace(
            record,
            events=renumbered(record.events, "stack", "forward_stack"),
            segments=renumbered(record.segments, "stack"),
            blocks=renumbered(record.blocks, "stack"),
        )
        allocations[device] = renumbered(allocations[device], "stack", "free_stack")
    part = replace(
        recording,
        frames=table.frames, stack_offsets=table.offsets, stack_frames=table.stack_frames,
        devices=records, recorder=recorder, notes={**recording.notes, "part": _note(wholes, ranges)},
    )  # fmt: skip
    made = {device: _timeline(wholes[device], ranges[device], part, allocations[device]) for device in wholes}
    return part, made


def _chosen(whole: DeviceTimeline, choice: PartChoice) -> Part:
    count = len(whole.events)
    if choice.last is not None:
        return Part(max(count - choice.last, 0), count, count)
    first, end = choice.events or choice.steps or (None, None)
    if choice.steps is not None:
        number = pl.col("step")
        steps = whole.steps.filter(number >= (first or 0), pl.lit(end is None) | (number < (end or 0)))
        if not len(steps):
            return Part(count, count, count)
        return Part(int(steps["first_event"].to_numpy().min()), int(steps["last_event"].to_numpy().max()) + 1, count)
    return Part(min(first or 0, count), count if end is None else min(end, count), count)


def _empty_part_error(wholes: dict[int, DeviceTimeline], choice: PartChoice) -> str:
    known = []
    for whole in wholes.values():
        steps, name = whole.steps["step"].to_numpy(), device_name(whole.kind, whole.device)
        if choice.steps is not None and len(steps):
            known.append(f"{name} has steps {steps.min()} to {steps.max()}")
        elif choice.steps is None and len(whole.events):
            known.append(f"{name} has {plural(len(whole.events), 'event')}")
    nothing = "no steps are known" if choice.steps is not None else "it has no events"
    return f"nothing is in the chosen part: {', '.join(known) or nothing}"


def _note(wholes: dict[int, DeviceTimeline], ranges: dict[int, Part]) -> str:
    parts = []
    for device, part in ranges.items():
        name = device_name(wholes[device].kind, device)
        if part.first < part.end:
            which = f"events {count_text(part.first)} to {count_text(part.end - 1)} of {count_text(part.whole)}"
            parts.append(f"{name} has {which}, numbered from 0 here")
        elif part.whole:
            parts.append(f"{name} has none of its {plural(part.whole, 'event')}")
    return "; ".join(parts)


def _recorder_of_part(recorder: RecorderMetadata, *, is_end: bool) -> RecorderMetadata:
    """What the recorder wrote, without the figures of the whole run and, unless the part ends with it, of its end."""
    devices = {number: replace(device, stats={}) for number, device in recorder.devices.items()}
    if is_end:
        return replace(recorder, devices=devices)
    return replace(recorder, devices=devices, reason="", step=None, oom={}, dumped_us=None, memory_at_dump={})


def _record(whole: DeviceTimeline, part: Part) -> DeviceRecord:
    record = whole.recording.devices[whole.device]
    # Rows are taken, not sliced: a slice would keep the columns of the whole.
    events = record.events[np.arange(part.first, part.end)] if part.first < part.end else record.events.clear()
    segments, blocks = record.segments, record.blocks
    if part.end < part.whole and not whole.recording.is_profiled:
        segments, blocks = _state_tables(whole, part.end - 1)
    allocated, reserved = (
        None if values is None else values[part.first : part.end].copy()
        for values in (record.counted_allocated, record.counted_reserved)
    )
    return replace(
        record, events=events, segments=segments, blocks=blocks,
        counted_allocated=allocated, counted_reserved=reserved, part=part,
    )  # fmt: skip


def _state_tables(whole: DeviceTimeline, position: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``segments`` and ``blocks`` of a :class:`DeviceRecord` at a position."""
    state = state_at(whole, position)
    final = whole.recording.devices[whole.device].segments.select("address", "stack").unique("address", keep="first")
    segments = state.segments.join(final, on="address", how="left", maintain_order="left").select(
        "address",
        total_size="size",
        allocated_size=pl.col("used") - pl.col("pending"),
        active_size="used",
        requested_size="requested",
        stream="stream",
        segment_type="segment_type",
        pool="pool",
        is_expandable="expandable",
        stack=pl.col("stack").fill_null(0),
    )
    allocation = state.blocks["allocation"].to_numpy()
    stack = np.where(allocation >= 0, whole.allocations["stack"].to_numpy()[allocation], 0).astype(np.int32)
    is_pending = pl.col("state") == STATES[PENDING]
    blocks = state.blocks.select(
        "segment",
        "address",
        "size",
        requested_size="requested",
        state=pl.when(pl.col("allocation") < 0)
        .then(pl.lit("inactive"))
        .when(is_pending)
        .then(pl.lit(PENDING_STATES[0]))
        .otherwise(pl.lit(ACTIVE_STATES[0])),
        stack=pl.Series(stack),
    )
    return segments, blocks


def _allocations(whole: pl.DataFrame, part: Part) -> pl.DataFrame:
    """The lifetimes of a part, in birth order as in every trace (``lifetimes.py``)."""
    born, freed = whole["alloc_event"].to_numpy(), whole["free_event"].to_numpy()
    rows = np.flatnonzero((born < part.end) & ((freed < 0) | (freed >= part.first)))
    table = whole[rows]

    def within(name: str) -> np.ndarray:
        event = table[name].to_numpy()
        return np.where((event >= part.first) & (event < part.end), event - part.first, -1).astype(np.int32)

    events = {name: within(name) for name in ("alloc_event", "free_requested_event", "free_event")}
    born, freed = events["alloc_event"], events["free_event"]
    origin = np.where(born >= 0, TRACED, np.where(freed >= 0, FREED, GHOST))
    order = np.lexsort((np.where(origin == FREED, -freed, 0), GHOST - origin))
    table = table.with_columns(
        *(pl.Series(name, values) for name, values in events.items()),
        enum_series("origin", origin.astype(np.uint8), ORIGINS),
        table["free_stack"].set(pl.Series((freed < 0) & (events["free_requested_event"] < 0)), 0),
        table["alloc_us"].set(pl.Series(born < 0), None),
        table["free_us"].set(pl.Series(freed < 0), None),
    )[order]
    return table.with_columns(pl.Series("id", np.arange(len(table), dtype=np.int32)))


def _timeline(whole: DeviceTimeline, part: Part, recording: Recording, allocations: pl.DataFrame) -> DeviceTimeline:
    record, first, end = recording.devices[whole.device], part.first, part.end
    other = whole.other_events
    made = DeviceTimeline(
        recording=recording,
        device=whole.device,
        kind=whole.kind,
        events=record.events,
        allocations=allocations,
        allocated=whole.allocated[first : end + 1].copy(),
        reserved=whole.reserved[first : end + 1].copy(),
        oom_events=[event - first for event in whole.oom_events if first <= event < end],
        reconciliation_bytes=whole.reconciliation_bytes if end == part.whole else 0,
        overflowed=whole.overflowed if first == 0 else False,
        other_events=other[(other >= first) & (other < end)] - np.int32(first),
    )
    # What the program does, and the numbers of its steps, are known from the whole.
    made.own_activity = whole.own_activity
    made.steps = _within(whole.steps, part)
    spans = whole.annotated.spans
    starts, ends = (pl.col("starts") & (pl.col("first_event") >= first), pl.col("ends") & (pl.col("last_event") < end))
    spans = spans.with_columns(
        starts=starts,
        ends=ends,
        start_us=pl.when(starts).then("start_us"),
        end_us=pl.when(ends).then("end_us"),
    )
    made.annotated = Annotated(_within(spans, part), {})
    return made


def _within(rows: pl.DataFrame, part: Part) -> pl.DataFrame:
    """Steps or spans that have events in the part, with the events that are in it."""
    first, last = pl.col("first_event"), pl.col("last_event")
    return rows.filter((last >= first) & (first < part.end) & (last >= part.first)).with_columns(
        first_event=(pl.max_horizontal(first, pl.lit(part.first)) - part.first).cast(pl.Int32),
        last_event=(pl.min_horizontal(last, pl.lit(part.end - 1)) - part.first).cast(pl.Int32),
    )
