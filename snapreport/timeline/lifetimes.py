"""Pairing of alloc and free events into lifetimes.

The rules (the meaning of a trace is fixed, including ring buffers and skipped actions):

* A lifetime of an address begins at ``alloc`` and ends at ``free_completed``; in a trace without any ``free_completed``
  (recorded with skip_actions, or too short to contain one) at ``free_requested``, unless the final state has a block
  there whose free is pending. Between request and completion it is pending and still allocated.
* An ``alloc`` at a live address ends the older lifetime there: its free was not recorded.
* A free without a live alloc belongs to an allocation from before the trace (origin ``freed``).
* An active block of the final state without a live alloc is also an allocation from before the trace (``ghost``). A
  requested but uncompleted free of it belongs to it.

All vectorised: relevant events sorted by (address, event) form runs, one per lifetime.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.integers import stable_order
from snapreport.memoize import memoize_by_identity
from snapreport.reading.recording import ACTIONS, ACTIVE_STATES, PENDING_STATES, DeviceRecord

ALLOC, FREE_REQUESTED, FREE_COMPLETED = (ACTIONS.index(a) for a in ("alloc", "free_requested", "free_completed"))
ORIGINS = ("traced", "freed", "ghost")
TRACED, FREED, GHOST = range(3)
NEVER = np.iinfo(np.int32).max
"""In place of an event that never comes: after all others."""


class Pairing(Struct):
    """Lifetimes in birth order: ghosts in segment order, freed ones in reverse order of their free, traced ones.

    alloc_event, free_requested_event, free_event: Int32 event indices, -1 for none.
    source: Int64, the event with size, stream, stack and address; for ghosts the row of the final block.
    origin: UInt8, index into ``ORIGINS``.
    used: bool per event, whether it is a lifetime's alloc, request or free.
    """

    alloc_event: np.ndarray
    free_requested_event: np.ndarray
    free_event: np.ndarray
    source: np.ndarray
    origin: np.ndarray
    used: np.ndarray


def pair(record: DeviceRecord) -> Pairing:
    """The lifetimes of one device's trace and final blocks."""
    events, blocks = record.events, record.blocks
    action = action_codes(events)
    pending = blocks["address"].filter(blocks["state"].is_in(PENDING_STATES)).to_numpy()
    runs = _runs(action, _addresses(events), pending)
    begins, first = runs.begins_with_alloc, runs.first
    alloc_event = np.where(begins, first, -1)
    live = runs.free < 0

    active = np.flatnonzero(blocks["state"].is_in(ACTIVE_STATES).to_numpy())
    block_address = blocks["address"].to_numpy()[active]
    is_ghost = ~np.isin(block_address, runs.address[begins & live])
    ghosts, ghost_address = active[is_ghost], block_address[is_ghost]
    ghost_request, is_pending = _pending_requests(ghost_address, runs, live & ~begins)

    freed = np.flatnonzero(~begins & ~is_pending)
    # Those never freed in the trace count as freed after its end, in the order in which their frees were requested.
    end = np.where(live[freed], len(events) + runs.requested[freed].astype(np.int64), runs.free[freed])
    freed = freed[np.argsort(-end, kind="stable")]
    # In the order of their allocs, each of which is an event of its own: no sorting needed.
    run_of_event = np.full(len(events), -1, np.int32)
    run_of_event[first[begins]] = np.flatnonzero(begins)
    traced = run_of_event[run_of_event >= 0]
    rest = np.concatenate((freed, traced))

    none = np.full(len(ghosts), -1, np.int32)
    used = np.zeros(len(events), bool)
    for column in (alloc_event, runs.requested, runs.free):
        used[column[column >= 0]] = True
    return Pairing(
        alloc_event=np.concatenate((none, alloc_event[rest])).astype(np.int32),
        free_requested_event=np.concatenate((ghost_request, runs.requested[rest])).astype(np.int32),
        free_event=np.concatenate((none, runs.free[rest])).astype(np.int32),
        source=np.concatenate((ghosts, first[rest])).astype(np.int64),
        origin=np.repeat(np.array([GHOST, FREED, TRACED], np.uint8), [len(ghosts), len(freed), len(traced)]),
        used=used,
    )


IS_TRACED, IS_FREED = pl.col("alloc_event") >= 0, pl.col("free_event") >= 0
"""Boolean per allocation: whether the trace has its allocation, and its free."""


@memoize_by_identity
def action_codes(events: pl.DataFrame) -> np.ndarray:
    """Codes of the action column; the first are those of ``ACTIONS``."""
    return events["action"].to_physical().to_numpy()


def allocates(events: pl.DataFrame) -> np.ndarray:
    """Bool per event: whether it is an allocation."""
    return np.asarray(action_codes(events) == ALLOC)


def is_live_at(position: int) -> pl.Expr:
    """Boolean: whether an allocation is live at ``position``."""
    return (pl.col("alloc_event") <= position) & (~IS_FREED | (pl.col("free_event") > position))


def _addresses(events: pl.DataFrame) -> np.ndarray:
    return events["addr"].fill_null(0).to_numpy()


class _Runs(Struct):
    """One row per lifetime with events in the trace, by address and time. Events are indices, -1 for none.

    first: the run's first event (its alloc, or the first free of an allocation from before the trace).
    free: the event that ended it.
    """

    address: np.ndarray
    begins_with_alloc: np.ndarray
    first: np.ndarray
    requested: np.ndarray
    free: np.ndarray


def _runs(action: np.ndarray, address: np.ndarray, pending: np.ndarray) -> _Runs:
    """``pending``: UInt64 addresses of the final blocks whose free is pending."""
    relevant = np.flatnonzero(action <= FREE_COMPLETED)
    if not len(relevant):
        nothing = np.zeros(0, np.int32)
        return _Runs(address[:0], np.zeros(0, bool), nothing, nothing, nothing)
    event = relevant[stable_order(address[relevant])].astype(np.int32)
    kind, address = action[event], address[event]
    closing = FREE_COMPLETED if (kind == FREE_COMPLETED).any() else FREE_REQUESTED
    closes = kind == closing
    new_address = np.ones(len(event), bool)
    new_address[1:] = address[1:] != address[:-1]
    begins_run = new_address | (kind == ALLOC)
    begins_run[1:] |= closes[:-1]

    first = np.flatnonzero(begins_run)
    last = np.append(first[1:], len(event)) - 1
    begins_with_alloc = kind[first] == ALLOC
    # A run is: alloc (if recorded), requests (a second one adds nothing), one closing event (if recorded).
    request = np.minimum(first + begins_with_alloc, last)
    requested = np.where(kind[request] == FREE_REQUESTED, event[request], -1)
    # A run that is not closed, and not the last of its address, is followed by the alloc that ends it.
    after = np.minimum(last + 1, len(event) - 1)
    replaced = (last + 1 < len(event)) & ~new_address[after]
    closed = closes[last]
    if closing == FREE_REQUESTED:  # the last request for a block still pending at the end has not freed it
        is_last = (last + 1 == len(event)) | new_address[after]
        closed &= ~(is_last & np.isin(address[first], pending))
    free = np.where(closed, event[last], np.where(replaced, event[after], -1))
    return _Runs(address[first], begins_with_alloc, event[first], requested, free)


def _pending_requests(ghost_address: np.ndarray, runs: _Runs, is_open: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(request event of each ghost or -1, runs that belong to ghosts). ``is_open``: final runs of only requests."""
    request = np.full(len(ghost_address), -1, np.int32)
    is_pending = np.zeros(len(is_open), bool)
    candidates = np.flatnonzero(is_open)  # at most one per address, in address order
    if len(candidates) and len(ghost_address):
        at = np.minimum(np.searchsorted(runs.address[candidates], ghost_address), len(candidates) - 1)
        hit = runs.address[candidates][at] == ghost_address
        # If two blocks have the same address, the first gets it.
        taken, first = np.unique(at[hit], return_index=True)
        ghost = np.flatnonzero(hit)[first]
        request[ghost] = runs.requested[candidates[taken]]
        is_pending[candidates[taken]] = True
    return request, is_pending
