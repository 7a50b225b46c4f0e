"""Annotated spans of a device's trace: the program's names for ranges of events.

Three things in a snapshot name spans:

* ``external_annotations``: START and END of ``record_function`` regions, with a time. Those of one name and device are
  paired like brackets. A pair may be incomplete: the recorder keeps only the latest annotations, and a program may end
  inside a region. A start without an end lasts to the end of the trace, an end without a start begins with it.
* ``user_defined`` events of torch 2.4: the same inside the trace, with the stage and the name as their only frame.
* ``annotate`` events: a name given to a live allocation after its birth. The span lasts from there to the allocation's
  end; adjacent spans of the same text are merged. Those with the names that our recorder gives to tensors are no spans:
  allocations have these names from the recorder itself.

A span covers the events from the first at or after its start to the last at or before its end.
"""

from __future__ import annotations

import heapq

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.reading.recording import ACTIONS, Recording
from snapreport.timeline.lifetimes import IS_FREED, action_codes

REGION, MEMORY = "region", "memory"
KINDS = (REGION, MEMORY)
_USER_DEFINED, _ANNOTATE = ACTIONS.index("user_defined"), ACTIONS.index("annotate")
SPANS_SCHEMA: dict[str, pl.DataType] = {
    "name": pl.String(), "kind": pl.Enum(KINDS), "first_event": pl.Int32(), "last_event": pl.Int32(),
    "depth": pl.Int32(),
    "start_us": pl.Int64(), "end_us": pl.Int64(), "starts": pl.Boolean(), "ends": pl.Boolean(),
}  # fmt: skip


class Annotated(Struct, frozen=True):
    """The spans of one device.

    spans: a row per span, in order of their starts, those that contain others first: ``name`` String, ``kind``
    Enum(region,
      memory), ``first_event``, ``last_event`` Int32 (first - 1 if it contains no event), ``depth`` Int32 (0: the
      outermost; spans of one depth do not overlap), ``start_us``, ``end_us`` Int64 null (the recorder's clock),
      ``starts``, ``ends`` Boolean (false: the other half of the pair is not recorded, so the span begins or ends with
      the trace).
    broken: counts of unusable annotations by reason: ``unpaired_starts``, ``unpaired_ends``, ``untimed``,
      ``unknown_stage``, ``outside`` (ended before the trace began or began after it ended), ``without_allocation``;
      only nonzero ones.
    """

    spans: pl.DataFrame
    broken: dict[str, int]


def clock_of(events: pl.DataFrame) -> np.ndarray | None:
    """Int64 µs per event, never descending: several threads may stamp their events out of order. None without times."""
    times = events["time_us"]
    if times.null_count() == len(times):
        return None
    if times.null_count():
        times = times.fill_null(strategy="forward").fill_null(strategy="backward")
    return np.maximum.accumulate(times.to_numpy().astype(np.int64))


def annotated(recording: Recording, device: int, events: pl.DataFrame, allocations: pl.DataFrame) -> Annotated:
    """The annotated spans of a device. ``events``, ``allocations``: of its timeline."""
    if not len(recording.annotations) and not _has_actions(events, "user_defined", "annotate"):
        return Annotated(pl.DataFrame(schema=SPANS_SCHEMA), {})
    clock = clock_of(events)
    regions, broken = _regions(_boundaries(recording, device, events, clock), len(events), clock)
    memory, lost = _memory(_given_names(recording, events), allocations, clock, len(events))
    broken["without_allocation"] = lost
    memory = memory.with_columns(pl.col("depth") + regions["depth"].n_unique())
    spans = pl.concat([regions, memory]).sort("first_event", "depth", maintain_order=True)
    return Annotated(spans, {key: count for key, count in broken.items() if count})


def regions_of_all(recording: Recording, events: pl.DataFrame) -> pl.DataFrame:
    """The regions of every device's annotations over ``events``: includes other threads of the program."""
    clock = clock_of(events)
    return _regions(_boundaries(recording, None, events, clock), len(events), clock)[0]


def _has_actions(events: pl.DataFrame, *actions: str) -> bool:
    return bool(np.isin(action_codes(events), [ACTIONS.index(action) for action in actions]).any())


def _boundaries(
    recording: Recording, device: int | None, events: pl.DataFrame, clock: np.ndarray | None
) -> pl.DataFrame:
    """``name``, ``stage``, ``when`` (µs, or the event without times; null: unknown), ``first``, ``after``: as a start,
    the first event inside; as an end, the first event after it. In recorded order.
    """
    given = recording.annotations
    if device is not None:
        given = given.filter(pl.col("device") == device)
    when = given["time_us"]
    if clock is None:
        when = pl.Series("time_us", [None], dtype=pl.Int64).new_from_index(0, len(given))
    times = when.fill_null(0).to_numpy()
    ticks = np.zeros(0, np.int64) if clock is None else clock
    external = pl.DataFrame({
        "group": pl.Series(given["device"], dtype=pl.Int64),
        "name": given["name"],
        "stage": given["stage"],
        "when": when,
        "first": np.searchsorted(ticks, times, "left").astype(np.int32),
        "after": np.searchsorted(ticks, times, "right").astype(np.int32),
    })  # fmt: skip
    if not _has_actions(events, "user_defined"):
        return external
    rows = np.flatnonzero(action_codes(events) == _USER_DEFINED)
    stacks = events["stack"].to_numpy()[rows]
    has_frame = np.diff(recording.stack_offsets)[stacks] > 0
    rows, stacks = rows[has_frame], stacks[has_frame]
    frames = recording.frames[recording.stack_frames[recording.stack_offsets[stacks]]]
    inside = pl.DataFrame({
        "group": np.full(len(rows), -(2**40), np.int64),  # never paired with external annotations
        "name": frames["filename"],
        "stage": frames["name"],
        "when": (rows if clock is None else clock[rows]).astype(np.int64),
        "first": rows.astype(np.int32),
        "after": (rows + 1).astype(np.int32),
    })  # fmt: skip
    return pl.concat([external, inside])


def _regions(boundaries: pl.DataFrame, events: int, clock: np.ndarray | None) -> tuple[pl.DataFrame, dict[str, int]]:
    """Boundaries paired to spans, and counts of broken ones."""
    known = boundaries.filter(pl.col("stage").is_in(["START", "END"]))
    placed = known.filter(pl.col("when").is_not_null())
    broken = {"unknown_stage": len(boundaries) - len(known), "untimed": len(known) - len(placed)}
    placed = placed.sort("when", maintain_order=True)
    start, end = pair_brackets(
        placed.select(pl.struct("group", "name").rank("dense").cast(pl.Int64))["group"].to_numpy(),
        (placed["stage"] == "START").to_numpy(),
    )
    starts, ends = start >= 0, end >= 0
    broken |= {"unpaired_starts": int((~ends).sum()), "unpaired_ends": int((~starts).sum())}
    first_of, after_of, when = placed["first"].to_numpy(), placed["after"].to_numpy(), placed["when"].to_numpy()
    first = np.where(starts, first_of[start], 0)
    after = np.where(ends, after_of[end], events)
    # Ended before the first event, or began after the last: contains no part of the trace.
    inside = (after > 0) & (first < events)
    broken["outside"] = int((~inside).sum())
    start, end, starts, ends = start[inside], end[inside], starts[inside], ends[inside]
    closed = np.where(ends, end, len(placed))
    order = np.lexsort((-closed, start))
    start, end, starts, ends = start[order], end[order], starts[order], ends[order]
    first, after = first[inside][order], after[inside][order]
    name = placed["name"].gather(np.where(starts, start, end))
    has_time = clock is not None

    def times(row: np.ndarray, known: np.ndarray) -> pl.Series:
        return pl.Series(when[row]).set(pl.Series(~known | (not has_time)), None)

    spans = pl.DataFrame({
        "name": name,
        "kind": pl.Series([REGION], dtype=pl.Enum(KINDS)).new_from_index(0, len(order)),
        "first_event": first.astype(np.int32),
        "last_event": (np.maximum(after, first) - 1).astype(np.int32),
        "depth": rows_of(start, closed[order]),
        "start_us": times(start, starts),
        "end_us": times(end, ends),
        "starts": starts,
        "ends": ends,
    }, schema_overrides=SPANS_SCHEMA)  # fmt: skip
    return spans, broken


def pair_brackets(group: np.ndarray, is_start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(start, end) rows of each pair of brackets, -1 for the half that is missing. Rows are in time order.

    Within a group (a number from 0) an end closes the latest open start. A loop, but over annotations, of which there
    are far fewer than events: 0.1 to 0.3 s for 600,000.
    """
    latest = [-1] * (int(group.max(initial=-1)) + 1)  # the open start of each group
    before, closed_by = [-1] * len(group), [-1] * len(group)
    lonely = []
    for row, (number, begins) in enumerate(zip(group.tolist(), is_start.tolist(), strict=True)):
        start = latest[number]
        if begins:
            before[row], latest[number] = start, row
        elif start >= 0:
            latest[number], closed_by[start] = before[start], row
        else:
            lonely.append(row)
    starts = np.flatnonzero(is_start)
    ends = np.array(closed_by, np.int64)[starts]
    return np.append(starts, np.full(len(lonely), -1)), np.append(ends, np.array(lonely, np.int64))


def rows_of(opened: np.ndarray, closed: np.ndarray) -> np.ndarray:
    """Int32 row of each span: the lowest free row where it opens. ``opened`` never decreases."""
    # A loop, but over spans, of which there are far fewer than events.
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    rows = np.zeros(len(opened), np.int32)
    used = 0
    for i, (begin, end) in enumerate(zip(opened.tolist(), closed.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row = used
            used += 1
        rows[i] = row
        heapq.heappush(busy, (end, row))
    return rows


def _memory(
    names: pl.DataFrame, allocations: pl.DataFrame, clock: np.ndarray | None, events: int
) -> tuple[pl.DataFrame, int]:
    """Spans of ``names`` given to allocations, and how many of them name no live one."""
    found = _named_allocations(names, allocations)
    end = pl.when(~IS_FREED).then(events).otherwise(pl.col("free_event"))
    each = found.with_columns(after=end.cast(pl.Int32)).sort("name", "event")
    latest = pl.col("after").cum_max().over("name")
    apart = (pl.col("event") > latest.shift(1).over("name")).fill_null(True)
    merged = (
        each.with_columns(apart=apart)
        .with_columns(run=pl.col("apart").cum_sum())
        .group_by("run", maintain_order=True)
        .agg(pl.col("name").first(), first=pl.col("event").first(), after=pl.col("after").max())
        .sort("first")
    )
    first, after = merged["first"].to_numpy(), merged["after"].to_numpy()
    last = after - 1

    def times(event: np.ndarray) -> pl.Series:
        if clock is None:
            return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(event))
        return pl.Series(clock[event])

    spans = pl.DataFrame({
        "name": merged["name"],
        "kind": pl.Series([MEMORY], dtype=pl.Enum(KINDS)).new_from_index(0, len(merged)),
        "first_event": first,
        "last_event": last,
        "depth": rows_of(first, after),
        "start_us": times(first),
        "end_us": times(last),
        "starts": np.ones(len(merged), bool),
        "ends": np.ones(len(merged), bool),
    }, schema_overrides=SPANS_SCHEMA)  # fmt: skip
    return spans, len(names) - len(found)


def _given_names(recording: Recording, events: pl.DataFrame) -> pl.DataFrame:
    """``event`` Int32, ``addr``, ``name`` (null: without one) of ``annotate`` events, but for those of our recorder."""
    given = (
        events.with_row_index("event")
        .filter(events["action"].to_physical() == _ANNOTATE)
        .select(pl.col("event").cast(pl.Int32), "addr", name="user_metadata")
    )
    if recording.recorder is None:
        return given
    return given.filter(~pl.col("name").is_in(recording.recorder.tensors["name"].implode()).fill_null(False))


def _named_allocations(names: pl.DataFrame, allocations: pl.DataFrame) -> pl.DataFrame:
    """``event``, ``id``, ``name``, ``free_event`` of each of ``names`` that is of a live allocation, in order."""
    said = names.with_columns(pl.col("name").fill_null("annotated")).filter(pl.col("addr").is_not_null())
    born = allocations.select("id", "addr", "free_event", event=pl.col("alloc_event"))
    # Of several from before the trace at one address, take the longest-lived: ties go to the last row.
    born = born.filter(pl.col("addr").is_in(said["addr"].unique().implode()))
    born = born.sort("event", ~IS_FREED, "free_event")
    found = said.join_asof(born, on="event", by="addr", strategy="backward", check_sortedness=False)
    alive = pl.col("id").is_not_null() & (~IS_FREED | (pl.col("free_event") > pl.col("event")))
    return found.filter(alive).select("event", "id", "name", "free_event")


def annotated_names(recording: Recording, events: pl.DataFrame, allocations: pl.DataFrame) -> pl.Series:
    """String per allocation: its names from ``annotate`` events while it is live, in order; null if none."""
    if not _has_actions(events, "annotate"):
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(allocations))
    each = (
        _named_allocations(_given_names(recording, events).drop_nulls("name"), allocations)
        .sort("event")
        .group_by("id", maintain_order=True)
        .agg(pl.col("name").unique(maintain_order=True).str.join("; "))
    )
    return allocations.select("id").join(each, on="id", how="left", maintain_order="left")["name"]
