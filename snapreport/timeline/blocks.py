"""The block that the allocator reserved for each allocation, and the segment that contains it.

A trace records requested bytes. A block is at least the request, rounded up. If the allocator takes a free block whose
remainder is too small to be split off, the allocation gets all of it. Free neighbours are always merged, so a free
block ends at the next block in use or at the end of its segment. The size of an allocation's block therefore follows
from the next live allocation after it at its birth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.reading.recording import ACTIVE_STATES, PENDING_STATES, DeviceRecord
from snapreport.timeline.lifetimes import NEVER
from snapreport.timeline.neighbours import Lifetimes, ends_of
from snapreport.timeline.rounding import SMALL_SIZE, AllocatorRules, allocator_rules
from snapreport.timeline.segment_history import segment_history

# The source of a block's size.
KNOWN, REPLAYED, ASSUMED = range(3)
SOURCES = ("known", "replayed", "assumed")


class Blocks(Struct):
    """A row per allocation: all of them in id order, or the caller's ``ids``.

    size: Int64 bytes. segment: Int64 row of ``segments`` that contained it at its birth; -1: no recorded segment.
    source: UInt8 index into ``SOURCES``. *known*: from the final state. *replayed*: follows from the trace.
    *assumed*: rounded from the request. May lack an unsplit remainder of at most 1 MiB; used for blocks from before the
      trace and for segments that were not recorded.
    pending_from: Int32, the position from which its free is pending: its free_requested_event. -1: requested before
      the trace (the trace shows only the completion, or the final state only the pending block). ``NEVER``: none.
    segments: see :func:`segment_history`.
    """

    size: np.ndarray
    segment: np.ndarray
    source: np.ndarray
    pending_from: np.ndarray
    segments: pl.DataFrame


def blocks_of(
    record: DeviceRecord,
    settings: Mapping[str, Any],
    allocations: pl.DataFrame,
    *,
    segments: pl.DataFrame | None = None,
    ids: np.ndarray | None = None,
    trust_final: bool = True,
) -> Blocks:
    """The blocks of a device's allocations.

    segments: the record's segment history, if the caller has it. ids: Int64, ascending: compute only these.
    trust_final: False also replays blocks whose size the final state gives, to test the replay.
    """
    rules = allocator_rules(settings)
    segments = segment_history(record) if segments is None else segments
    ids = np.arange(len(allocations)) if ids is None else ids
    replay = _Replay(record.kind == "host", rules, allocations, segments, ids)
    size, is_assumed = replay.sizes()
    source = np.where(is_assumed, ASSUMED, REPLAYED).astype(np.uint8)
    if trust_final:
        final_ids, final = _final_blocks(record, allocations, ACTIVE_STATES)
        _, row, of = np.intersect1d(ids, final_ids, assume_unique=True, return_indices=True)
        size[row], source[row] = final["size"].to_numpy()[of], KNOWN
    return Blocks(size, replay.segment, source, _pending_from(record, allocations)[ids], segments)


def _pending_from(record: DeviceRecord, allocations: pl.DataFrame) -> np.ndarray:
    """Int32 per allocation, see :class:`Blocks`."""
    requested = allocations["free_requested_event"].to_numpy()
    position = np.where(requested >= 0, requested, NEVER).astype(np.int32)
    without_request = (requested < 0) & (allocations["alloc_event"].to_numpy() < 0)
    pending, _ = _final_blocks(record, allocations, PENDING_STATES)
    position[pending[without_request[pending]]] = -1
    if (record.events["action"] == "free_requested").any():  # otherwise the recorder omitted requests
        position[without_request & (allocations["free_event"].to_numpy() >= 0)] = -1
    return position


def _final_blocks(
    record: DeviceRecord, allocations: pl.DataFrame, states: Sequence[str]
) -> tuple[np.ndarray, pl.DataFrame]:
    """(ids of live allocations that are blocks in one of ``states`` in the final state, those blocks)."""
    blocks = record.blocks.filter(pl.col("state").is_in(states))
    live = np.flatnonzero(allocations["free_event"].to_numpy() < 0)
    address = blocks["address"].to_numpy()
    by_address = np.argsort(address, kind="stable")
    address = address[by_address]
    live_address = allocations["addr"].to_numpy()[live]
    at = np.searchsorted(address, live_address)
    is_found = at < len(address)
    is_found[is_found] = address[at[is_found]] == live_address[is_found]
    return live[is_found], blocks[by_address[at[is_found]]]


class _Replay:
    """Sizes of the blocks of some allocations of a device, from the lifetimes of all of them and the segments.

    ``segment``: Int64 row of the segment that contains each, -1 if none is recorded.
    """

    def __init__(
        self, is_host: bool, rules: AllocatorRules, allocations: pl.DataFrame, segments: pl.DataFrame, ids: np.ndarray
    ) -> None:
        self._is_host = is_host
        self._rules = rules
        self._all_addresses, all_born, all_freed = (
            allocations[name].to_numpy() for name in ("addr", "alloc_event", "free_event")
        )
        self._lifetimes = (self._all_addresses, all_born, all_freed)
        self._address, self._born, self._freed = self._all_addresses[ids], all_born[ids], all_freed[ids]
        self._requested = allocations["size"].to_numpy()[ids]
        self._segment_end = ends_of(segments["address"].to_numpy(), segments["size"].to_numpy())
        self._is_expandable = segments["expandable"].to_numpy()
        segment_lives = Lifetimes(*(segments[name].to_numpy() for name in ("address", "alloc_event", "free_event")))
        row = segment_lives.last_to(self._address, self._born)
        if len(segments):
            row = np.where((row >= 0) & (self._address < self._segment_end[row]), row, -1)
        self.segment = row

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """(Int64 bytes of each block, whether it is only assumed)."""
        is_placed = self.segment >= 0
        if self._is_host:
            return self._host_sizes(is_placed)
        size = self._rules.rounded(self._requested)
        is_assumed = ~is_placed
        limit = self._rules.max_split_size
        is_never_split = np.zeros(len(size), bool) if limit is None else size >= limit
        # Small requests and expandable segments split off any remainder, so their blocks are the rounded requests.
        may_have_remainder = (size > SMALL_SIZE) & is_placed
        if self._rules.expandable:
            may_have_remainder[:] = False
        elif len(self._is_expandable):
            may_have_remainder &= ~self._is_expandable[self.segment]
        rows = np.flatnonzero(may_have_remainder)
        if len(rows):
            self._add_remainders(size, rows, is_never_split[rows], is_assumed)
        return size, is_assumed

    def _host_sizes(self, is_placed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pinned memory: a block is a whole segment; a power of two if the segment was not recorded."""
        size = np.exp2(np.ceil(np.log2(np.maximum(self._requested, 1)))).astype(np.int64)
        if len(self._segment_end):
            to_end = (self._segment_end[self.segment] - self._address).astype(np.int64)
            size = np.where(is_placed, to_end, size)
        return size, ~is_placed

    def _add_remainders(
        self, size: np.ndarray, rows: np.ndarray, is_never_split: np.ndarray, is_assumed: np.ndarray
    ) -> None:
        """Add to the blocks of ``rows`` the remainders that the allocator did not split off.

        It splits off a remainder of more than ``SMALL_SIZE``, unless the block ``is_never_split`` (max_split_size).
        """
        lives = Lifetimes(*self._lifetimes)
        end = ends_of(self._address[rows], size[rows])
        segment_end = self._segment_end[self.segment[rows]]
        # Search no further than a remainder can reach.
        furthest = np.minimum(segment_end, ends_of(end, np.full(len(rows), SMALL_SIZE)))
        furthest = np.where(is_never_split, segment_end, furthest)
        neighbour = lives.next_from(end, self._born[rows], furthest)
        free_to = np.where(neighbour >= 0, self._all_addresses[neighbour], segment_end)
        remainder = np.where(free_to >= end, free_to - end, 0).astype(np.int64)
        is_included = (remainder <= SMALL_SIZE) | is_never_split
        size[rows] += np.where(is_included, remainder, 0)
        # The live neighbours at a birth before the trace are not recorded. A later allocation during the block's life
        # shows where it ends: free blocks begin where blocks in use end.
        older = np.flatnonzero((self._born[rows] < 0) & ~is_included)
        self._extend_to_later_births(lives, size, rows[older], end[older], furthest[older], is_assumed)

    def _extend_to_later_births(
        self,
        lives: Lifetimes,
        size: np.ndarray,
        rows: np.ndarray,
        end: np.ndarray,
        furthest: np.ndarray,
        is_assumed: np.ndarray,
    ) -> None:
        """Extend the blocks of ``rows`` to the first allocation born behind them; without one they stay assumed."""
        freed = np.where(self._freed[rows] < 0, NEVER, self._freed[rows])
        first = lives.first_born_from(end, furthest, freed)
        is_found = first >= 0
        size[rows[is_found]] += (self._all_addresses[first[is_found]] - end[is_found]).astype(np.int64)
        is_assumed[rows[~is_found]] = True
