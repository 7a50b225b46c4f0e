"""The allocator's state at one position: its segments, with their blocks in use and free blocks."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.reading.event_columns import enum_series
from snapreport.timeline.interface import Timeline
from snapreport.timeline.lifetimes import is_live_at
from snapreport.timeline.neighbours import containing

STATES = ("allocated", "pending free", "free")
ALLOCATED, PENDING, FREE = range(3)


class State(Struct, frozen=True):
    """One device's memory at one position.

    segments: a row per segment (of expandable ones per mapped range) by address: ``address`` UInt64, ``size`` Int64
      bytes, ``stream`` Int64, ``pool``, ``segment_type`` String null, ``expandable`` Boolean, ``blocks`` UInt32 in use,
      ``requested``, ``used``, ``pending``, ``free`` Int64 bytes: requested, in all blocks in use, in blocks whose free
      is pending, in free blocks; ``largest_free`` Int64 bytes of the largest free block.
    blocks: a row per block by address: ``segment`` Int32 row of ``segments`` (-1: in no recorded one), ``address``
      UInt64, ``size``, ``requested`` Int64 (free: 0), ``state`` Enum (``STATES``), ``allocation`` Int32 id (free: -1).
    """

    position: int
    segments: pl.DataFrame
    blocks: pl.DataFrame


def state_at(timeline: Timeline, position: int) -> State:
    """The state after an event. Raises ValueError for a position outside of -1 … events - 1."""
    if not -1 <= position < len(timeline.events):
        raise ValueError(f"no position {position}: the trace has -1 to {len(timeline.events) - 1}")
    found = timeline.blocks_at(position)
    segments = found.segments.filter(is_live_at(position)).sort("address")
    own = (pl.Series("block", found.size), pl.Series("pending_from", found.pending_from))
    live = timeline.allocations.select("id", "addr", "size", "alloc_event", "free_event").filter(is_live_at(position))
    live = live.with_columns(own).sort("addr")
    pending = live["pending_from"].to_numpy() <= position
    address, size = live["addr"].to_numpy(), live["block"].to_numpy()
    start, length = segments["address"].to_numpy(), segments["size"].to_numpy()
    segment = containing(start, length, address)
    free_segment, free_address, free_size = _free_ranges(start, length, segment, address, size)

    free_count = len(free_address)
    state = np.concatenate((np.where(pending, PENDING, ALLOCATED), np.full(free_count, FREE)))
    blocks = pl.DataFrame([
        pl.Series("segment", np.concatenate((segment, free_segment)).astype(np.int32)),
        pl.Series("address", np.concatenate((address, free_address))),
        pl.Series("size", np.concatenate((size, free_size))),
        pl.Series("requested", np.concatenate((live["size"].to_numpy(), np.zeros(free_count, np.int64)))),
        enum_series("state", state.astype(np.uint8), STATES),
        pl.Series("allocation", np.concatenate((live["id"].to_numpy(), np.full(free_count, -1, np.int32)))),
    ]).sort("address", maintain_order=True)  # fmt: skip
    placed = segment >= 0

    def total(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.bincount(rows, values, len(start)).astype(np.int64)  # exact: no segment has 2**53 bytes

    largest = np.zeros(len(start), np.int64)
    np.maximum.at(largest, free_segment, free_size)
    segments = segments.select("address", "size", "stream", "pool", "segment_type", "expandable").with_columns(
        blocks=pl.Series(np.bincount(segment[placed], minlength=len(start)).astype(np.uint32)),
        requested=pl.Series(total(segment[placed], live["size"].to_numpy()[placed])),
        used=pl.Series(total(segment[placed], size[placed])),
        pending=pl.Series(total(segment[placed & pending], size[placed & pending])),
        free=pl.Series(total(free_segment, free_size)),
        largest_free=pl.Series(largest),
    )
    return State(position, segments, blocks)


def _free_ranges(
    start: np.ndarray, length: np.ndarray, segment: np.ndarray, address: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(segment, address, bytes) of the free ranges of each segment: before, between and after its blocks in use.

    Blocks of a contradictory record may overlap; free ranges begin at the highest end so far and are never negative.
    """
    placed = segment >= 0
    row = segment[placed]
    begin = (address[placed] - start[row]).astype(np.int64)
    end = np.minimum(begin + size[placed], length[row])
    everything = np.arange(len(start))
    row = np.concatenate((everything, row, everything))
    kind = np.concatenate((np.zeros(len(start)), np.ones(len(begin)), np.full(len(start), 2)))
    begin = np.concatenate((np.zeros(len(start), np.int64), begin, length))
    end = np.concatenate((np.zeros(len(start), np.int64), end, length))
    order = np.lexsort((begin, kind, row))
    row, begin, end = row[order], begin[order], end[order]
    # The highest end so far within each segment: a base that grows faster than any segment separates them.
    base = np.concatenate(([0], np.cumsum(length[:-1] + 1)))[row]
    reached = np.maximum.accumulate(base + end) - base
    gap = begin[1:] - reached[:-1]
    found = np.flatnonzero((row[1:] == row[:-1]) & (gap > 0))
    rows = row[1:][found]
    return rows, start[rows] + reached[:-1][found].astype(np.uint64), gap[found]
