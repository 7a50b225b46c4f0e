"""What the allocator really reserved for each allocation: its block, and the segment that the block is cut from.

A trace holds the bytes that were asked for. The block is at least that, rounded up; and where a free range is taken
whose remainder is too small to be split off, the block is the whole range. A free range always begins where its block
begins and ends at the next block in use or at the segment's end, because free neighbours are joined; so the block of an
allocation follows from who lives behind it at its birth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from snapreport.reading.recording import ACTIVE_STATES, PENDING_STATES, DeviceRecord
from snapreport.timeline.neighbours import Lifetimes, ends_of
from snapreport.timeline.rounding import SMALL_SIZE, AllocatorRules, allocator_rules
from snapreport.timeline.segment_history import segment_history

# Where the size of a block comes from.
KNOWN, REPLAYED, ASSUMED = range(3)
SOURCES = ("known", "replayed", "assumed")
NEVER = np.iinfo(np.int32).max


@dataclass
class Blocks:
    """The block of each allocation that was asked for: of all of them, row = allocation id.

    size: Int64 bytes. segment: Int64 row of ``segments`` that it lay in when it was born (-1: in none that is known).
    source: UInt8 index into ``SOURCES``. *known*: the final state tells. *replayed*: it follows from the trace.
    *assumed*: rounded from the request, as it would be but for a remainder of at most 1 MiB that was not split off: the
    block is from before the trace, or in a segment that the record does not know.
    pending_from: Int32, the position from which its free is pending: its free_requested_event; -1 where that was before
    the
      trace (the trace shows only the completion, or the final state only the waiting block); ``NEVER`` where there is
      none.
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

    segments: the record's segment history, where it was made before. ids: Int64, ascending, the allocations to work
    out, all without it. ``trust_final`` False works all blocks out, also those that the final state tells.
    """
    rules = allocator_rules(settings)
    segments = segment_history(record) if segments is None else segments
    ids = np.arange(len(allocations)) if ids is None else ids
    replay = _Replay(record.kind == "host", rules, allocations, segments, ids)
    size, assumed = replay.sizes()
    source = np.where(assumed, ASSUMED, REPLAYED).astype(np.uint8)
    if trust_final:
        row, told = _final_sizes(record, allocations)
        at = np.searchsorted(ids, row)
        asked = at < len(ids)
        asked[asked] = ids[at[asked]] == row[asked]
        size[at[asked]], source[at[asked]] = told[asked], KNOWN
    return Blocks(size, replay.segment, source, _pending_from(record, allocations)[ids], segments)


def _pending_from(record: DeviceRecord, allocations: pl.DataFrame) -> np.ndarray:
    requested = allocations["free_requested_event"].to_numpy()
    result = np.where(requested >= 0, requested, NEVER).astype(np.int32)
    unasked = (requested < 0) & (allocations["alloc_event"].to_numpy() < 0)
    waiting, _ = _final_blocks(record, allocations, PENDING_STATES)
    result[waiting[unasked[waiting]]] = -1
    if (record.events["action"] == "free_requested").any():  # else requests are not recorded at all
        result[unasked & (allocations["free_event"].to_numpy() >= 0)] = -1
    return result


def _final_sizes(record: DeviceRecord, allocations: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(rows of allocations that are blocks in use in the final state, bytes of those blocks)."""
    rows, blocks = _final_blocks(record, allocations, ACTIVE_STATES)
    return rows, blocks["size"].to_numpy()


def _final_blocks(
    record: DeviceRecord, allocations: pl.DataFrame, states: Sequence[str]
) -> tuple[np.ndarray, pl.DataFrame]:
    """(rows of allocations that are blocks of one of ``states`` in the final state, those blocks)."""
    active = record.blocks.filter(pl.col("state").is_in(states))
    live = np.flatnonzero(allocations["free_event"].to_numpy() < 0)
    address = active["address"].to_numpy()
    order = np.argsort(address, kind="stable")
    address = address[order]
    wanted = allocations["addr"].to_numpy()[live]
    at = np.searchsorted(address, wanted)
    hit = at < len(address)
    hit[hit] = address[at[hit]] == wanted[hit]
    return live[hit], active[order[at[hit]]]


class _Replay:
    """The columns of one device's allocations (``every``) and segments, and what the allocator made of those of
    ``ids``.
    """

    def __init__(
        self, is_host: bool, rules: AllocatorRules, allocations: pl.DataFrame, segments: pl.DataFrame, ids: np.ndarray
    ) -> None:
        self._is_host = is_host
        self._rules = rules
        self._every = tuple(allocations[name].to_numpy() for name in ("addr", "alloc_event", "free_event"))
        self._address, self._born, self._freed = (column[ids] for column in self._every)
        self._requested = allocations["size"].to_numpy()[ids]
        self._ends = ends_of(segments["address"].to_numpy(), segments["size"].to_numpy())
        self._expandable = segments["expandable"].to_numpy()
        lifetimes = Lifetimes(*(segments[name].to_numpy() for name in ("address", "alloc_event", "free_event")))
        row = lifetimes.last_to(self._address, self._born)
        self.segment = np.where((row >= 0) & (self._address < self._ends[row]), row, -1) if len(segments) else row

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """(Int64 bytes of each block, whether that is but assumed)."""
        placed = self.segment >= 0
        if self._is_host:
            return self._host_sizes(placed)
        rounded = self._rules.rounded(self._requested)
        assumed = ~placed
        limit = self._rules.max_split_size
        uncut = np.zeros(len(rounded), bool) if limit is None else rounded >= limit
        # Small requests and expandable segments split off whatever remains.
        whole = (rounded > SMALL_SIZE) & placed
        if self._rules.expandable:
            whole[:] = False
        elif len(self._expandable):
            whole &= ~self._expandable[self.segment]
        rows = np.flatnonzero(whole)
        self._keep_remainders(rounded, rows, uncut[rows], assumed)
        return rounded, assumed

    def _host_sizes(self, placed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pinned memory: a block is a segment, a power of two where the segment is not known."""
        power = np.exp2(np.ceil(np.log2(np.maximum(self._requested, 1)))).astype(np.int64)
        size = (
            np.where(placed, (self._ends[self.segment] - self._address).astype(np.int64), power)
            if len(self._ends)
            else power
        )
        return size, ~placed

    def _keep_remainders(self, size: np.ndarray, rows: np.ndarray, uncut: np.ndarray, assumed: np.ndarray) -> None:
        """Add to the blocks of ``rows`` the remainders that were not split off. ``uncut``: those never split, of any
        size.
        """
        if not len(rows):
            return
        lives = Lifetimes(*self._every)
        behind = ends_of(self._address[rows], size[rows])
        end = self._ends[self.segment[rows]]
        reach = np.where(uncut, end, np.minimum(end, ends_of(behind, np.full(len(rows), SMALL_SIZE))))
        neighbour = lives.next_from(behind, self._born[rows], reach)
        free_until = np.where(neighbour >= 0, self._every[0][neighbour], end)
        fits = free_until >= behind
        remainder = np.where(fits, free_until - behind, 0).astype(np.int64)
        kept = (remainder <= SMALL_SIZE) | uncut
        size[rows] += np.where(kept, remainder, 0)
        # Of a block from before the trace nothing tells where the free range ended from which it was cut; but whoever
        # is born behind it while it lives, in a free range, is born where it ends.
        older = np.flatnonzero((self._born[rows] < 0) & ~kept)
        self._from_later_births(lives, size, rows[older], behind[older], reach[older], assumed)

    def _from_later_births(
        self,
        lives: Lifetimes,
        size: np.ndarray,
        rows: np.ndarray,
        behind: np.ndarray,
        reach: np.ndarray,
        assumed: np.ndarray,
    ) -> None:
        freed = np.where(self._freed[rows] < 0, np.iinfo(np.int32).max, self._freed[rows])
        first = lives.first_born_from(behind, reach, freed)
        found = first >= 0
        size[rows[found]] += (self._every[0][first[found]] - behind[found]).astype(np.int64)
        assumed[rows[~found]] = True
