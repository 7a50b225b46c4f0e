"""The segments over time, from the final segments and the trace's segment events.

A segment of cudaMalloc is allocated and freed as a whole. An expandable one is address space into which memory is
mapped; a snapshot lists its contiguous mapped ranges as segments, so here a range that grows or shrinks is a new row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.integers import is_among, stable_order
from snapreport.reading.recording import ACTIONS, DeviceRecord
from snapreport.timeline.lifetimes import action_codes

_ALLOC, _FREE, _MAP, _UNMAP = (ACTIONS.index(f"segment_{a}") for a in ("alloc", "free", "map", "unmap"))
SCHEMA = {
    "address": pl.UInt64, "size": pl.Int64, "alloc_event": pl.Int32, "free_event": pl.Int32, "stream": pl.Int64,
    "pool": pl.String, "segment_type": pl.String, "expandable": pl.Boolean,
}  # fmt: skip


def segment_history(record: DeviceRecord) -> pl.DataFrame:
    """A row per segment and time, sorted by address, then time.

    ``address`` UInt64, ``size`` Int64 bytes, ``alloc_event``, ``free_event`` Int32: the events that allocated and freed
    it (-1: before the trace, and never), ``stream`` Int64, ``pool``, ``segment_type`` String, null if unknown,
    ``expandable`` Boolean. A segment that the trace allocates and the final state lacks ends with the last event.
    """
    action = action_codes(record.events)
    if record.segments.is_empty() and not is_among(action, (_ALLOC, _FREE, _MAP, _UNMAP)).any():
        return pl.DataFrame(schema=SCHEMA)
    fixed = _fixed(record, np.flatnonzero((action == _ALLOC) | (action == _FREE)), action)
    ranges = _mapped(record, np.flatnonzero((action == _MAP) | (action == _UNMAP)), action)
    return pl.concat([fixed, ranges]).sort(["address", "alloc_event"])


def _fixed(record: DeviceRecord, events: np.ndarray, action: np.ndarray) -> pl.DataFrame:
    """Rows of segments that are allocated and freed as a whole."""
    table, final = record.events, record.segments.filter(~pl.col("is_expandable"))
    address = table["addr"].fill_null(0).gather(events).to_numpy()
    order = stable_order(address)
    events, address = events[order], address[order]
    makes = action[events] == _ALLOC
    same_as_next = np.zeros(len(events), bool)
    same_as_next[:-1] = address[1:] == address[:-1]
    after_make = np.zeros(len(events), bool)
    after_make[1:] = (same_as_next & makes)[:-1]

    starts = np.flatnonzero(makes)
    older = np.flatnonzero(~makes & ~after_make)  # freed, and allocated before the trace
    ended = np.where(same_as_next[starts], np.append(events[1:], -1)[starts], -1)
    final_address = final["address"].to_numpy()
    is_open = ended < 0
    stays = is_open & np.isin(address[starts], final_address)
    ended = np.where(is_open & ~stays, len(table) - 1, ended)
    # A final segment replaces its row: it has more details, and the reserved bytes are counted from its size.
    opened = starts[stays]
    at = np.searchsorted(address[opened], final_address)
    known = at < len(opened)
    known[known] = address[opened][at[known]] == final_address[known]
    birth = np.full(len(final), -1, np.int64)
    birth[known] = events[opened[at[known]]]
    rows = np.concatenate((starts[~stays], older))
    source = table[events[rows]]
    begun = np.concatenate((events[starts[~stays]], np.full(len(older), -1)))
    ended_at = np.concatenate((ended[~stays], events[older]))
    nothing = np.full(len(final), -1)
    return pl.concat([
        _rows(source, "addr", "size", begun, ended_at, expandable=False),
        _rows(final, "address", "total_size", birth, nothing, expandable=False),
    ])  # fmt: skip


def _rows(
    source: pl.DataFrame, address: str, size: str, begin: np.ndarray, end: np.ndarray, *, expandable: bool
) -> pl.DataFrame:
    kind = pl.col("segment_type") if "segment_type" in source.columns else pl.lit(None, pl.String)
    return source.select(
        address=pl.col(address).fill_null(0),
        size=pl.col(size),
        alloc_event=pl.Series(begin.astype(np.int32)),
        free_event=pl.Series(end.astype(np.int32)),
        stream=pl.col("stream"),
        pool=pl.col("pool").cast(pl.String),
        segment_type=kind,
        expandable=pl.lit(expandable),
    )


class _Range(Struct):
    """A mapped range during the backward replay: ``until`` is the event that ended it."""

    end: int
    stream: int
    pool: str | None
    kind: str | None
    until: int

    def joins(self, other: _Range) -> bool:
        return self.stream == other.stream and (self.pool == other.pool or None in (self.pool, other.pool))


class _Mapped:
    """The mapped ranges, replayed backwards from the final ones through the trace."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ranges: dict[int, _Range] = {}
        self.rows: list[tuple[int, int, int, int, int, str | None, str | None, bool]] = []

    def put(self, start: int, mapped: _Range) -> None:
        if start not in self.ranges:
            self.starts.insert(bisect_left(self.starts, start), start)
        self.ranges[start] = mapped

    def close(self, start: int, event: int) -> _Range:
        """Remove a range that existed from ``event`` on, and add it as a row."""
        del self.starts[bisect_left(self.starts, start)]
        r = self.ranges.pop(start)
        if start < 2**64:  # only a broken record has addresses beyond
            self.rows.append((start, r.end - start, event, r.until, r.stream, r.pool, r.kind, True))
        return r

    def overlapping(self, start: int, end: int) -> list[int]:
        first = max(bisect_right(self.starts, start) - 1, 0)
        return [s for s in self.starts[first : bisect_left(self.starts, end)] if self.ranges[s].end > start]

    def undo_map(self, start: int, end: int, event: int) -> None:
        for at in self.overlapping(start, end):
            r = self.close(at, event)
            if at < start:
                self.put(at, _Range(start, r.stream, r.pool, r.kind, event))
            if r.end > end:
                self.put(end, _Range(r.end, r.stream, r.pool, r.kind, event))

    def undo_unmap(self, start: int, end: int, stream: int, pool: str | None, event: int) -> None:
        range_ = _Range(end, stream, pool, None, event)
        first = max(bisect_right(self.starts, start) - 1, 0)
        for at in self.starts[first : bisect_right(self.starts, end)]:
            r = self.ranges[at]
            overlaps = r.end > start and at < end
            if overlaps or (r.end >= start and at <= end and r.joins(range_)):
                self.close(at, event)
                start, range_.end = min(start, at), max(range_.end, r.end)
                range_.pool, range_.kind = range_.pool or r.pool, range_.kind or r.kind
        self.put(start, range_)


def _mapped(record: DeviceRecord, events: np.ndarray, action: np.ndarray) -> pl.DataFrame:
    """Rows of mapped ranges. A loop, but only over segment events: each was a driver call, so they are few."""
    state = _Mapped()
    final = record.segments.filter(pl.col("is_expandable"))
    for address, size, stream, pool, kind in final.select(
        "address", "total_size", "stream", "pool", "segment_type"
    ).iter_rows():
        state.put(address, _Range(address + size, stream, pool, kind, -1))
    columns = record.events[events].select("addr", "size", "stream", pl.col("pool").cast(pl.String)).rows()
    for event, (address, size, stream, pool) in zip(events[::-1].tolist(), columns[::-1], strict=True):
        if action[event] == _MAP:
            state.undo_map(address, address + size, event)
        else:
            state.undo_unmap(address, address + size, stream, pool, event)
    for start in list(state.starts):
        state.close(start, -1)
    return pl.DataFrame(state.rows, schema=SCHEMA, orient="row")
