"""The part of a recorded trace that a replay needs: requests, completed frees and empty_cache() calls, in their
order.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.blocks import segment_size
from snapreport.allocator.settings import AllocatorSettings, read_since_2_10, recorded_settings
from snapreport.reading.recording import ACTIONS
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import action_codes

FREE, ALLOC, EMPTY_CACHE, RETRY, OOM = range(5)
"""The kind of an operation. OOM: a request that failed in the recording."""

CODE = {action: code for code, action in enumerate(ACTIONS)}
RELEASES = [CODE["segment_free"], CODE["segment_unmap"]]
GROWS = [CODE["segment_alloc"], CODE["segment_map"]]
DEFAULT_POOLS = ("(0, 0)", "0, 0")


class Capacity(Struct, frozen=True):
    """How much the allocator could reserve, in bytes, as far as the trace shows.

    least: it reserved so much. most: a request for more failed; None where none did. bytes: what replays use, None for
    unlimited. exact: whether ``bytes`` is exact, because an ``oom`` event recorded the free memory of the device.
    """

    least: int
    most: int | None
    bytes: int | None
    exact: bool

    @property
    def lowest(self) -> int | None:
        """``least`` where the trace shows a range and replays use its upper end; otherwise None."""
        return self.least if not self.exact and self.bytes is not None and self.least < self.bytes else None


class Trace(Struct, frozen=True, dict=True):
    """One device's trace as operations.

    kind UInt8, item Int64, event Int64: a row per operation, in order. ``item`` is the allocation's id, of an OOM the
    event, of a release the last event of its burst. size, stream Int64, pool Int64 (index into ``pools``; 0 is the
    default pool): a row per allocation. born: whether the allocation is in the trace; others are there at its start.
    """

    timeline: DeviceTimeline
    settings: AllocatorSettings
    kind: np.ndarray
    item: np.ndarray
    event: np.ndarray
    size: np.ndarray
    stream: np.ndarray
    pool: np.ndarray
    pools: list[str | None]
    born: np.ndarray
    capacity: Capacity

    @property
    def starts_empty(self) -> bool:
        """Whether nothing was reserved at the start of the trace."""
        return int(self.timeline.reserved[0]) == 0

    @property
    def peak_reserved(self) -> int:
        return int(self.timeline.reserved.max())

    @cached_property
    def owner(self) -> np.ndarray:
        """Int64 by event: the next alloc or oom event from there on, ``events`` where there is none."""
        action = action_codes(self.timeline.events)
        ends = np.flatnonzero((action == CODE["alloc"]) | (action == CODE["oom"]))
        at = np.searchsorted(ends, np.arange(len(action)))
        return np.concatenate((ends, [len(action)]))[at]

    @cached_property
    def segments_at(self) -> dict[int, list[tuple[int, int]]]:
        """By event of the request: (address, bytes) of each segment allocated for it; 0 bytes where memory was
        mapped.
        """
        events = self.timeline.events
        action = action_codes(events)
        rows = np.flatnonzero(np.isin(action, GROWS))
        mapped = action[rows] == CODE["segment_map"]
        size = np.where(mapped, 0, events["size"].to_numpy()[rows])
        found: dict[int, list[tuple[int, int]]] = {}
        address = events["addr"].fill_null(0).to_numpy()[rows]
        for owner, start, length in zip(self.owner[rows].tolist(), address.tolist(), size.tolist(), strict=True):
            found.setdefault(owner, []).append((start, length))
        return found


def trace_of(timeline: DeviceTimeline) -> Trace:
    """The operations of a device's trace."""
    events, allocations = timeline.events, timeline.allocations
    action = action_codes(events)
    alloc, free = (allocations[name].to_numpy().astype(np.int64) for name in ("alloc_event", "free_event"))
    born, freed = np.flatnonzero(alloc >= 0), np.flatnonzero(free >= 0)
    releases, is_retry, last = _releases(action, events["stack"].to_numpy())
    failed = np.flatnonzero(action == CODE["oom"])
    kind = np.concatenate((
        np.full(len(freed), FREE),
        np.full(len(born), ALLOC),
        np.where(is_retry, RETRY, EMPTY_CACHE),
        np.full(len(failed), OOM),
    )).astype(np.uint8)  # fmt: skip
    item = np.concatenate((freed, born, last, failed))
    event = np.concatenate((free[freed], alloc[born], releases, failed))
    order = np.lexsort((kind, event))
    names, pool = _pools(timeline)
    settings = recorded_settings(timeline.recording.settings, bool(timeline.segment_history["expandable"].any()))
    settings = replace(settings, since_2_10=read_since_2_10(timeline.recording))
    return Trace(
        timeline,
        settings,
        kind[order],
        item[order],
        event[order],
        allocations["size"].to_numpy(),
        allocations["stream"].fill_null(0).to_numpy(),
        pool,
        names,
        alloc >= 0,
        _capacity(timeline, action, releases[is_retry], last[is_retry], settings),
    )


def _pools(timeline: DeviceTimeline) -> tuple[list[str | None], np.ndarray]:
    """(names of the pools, index into them of each allocation); older PyTorch records the pool of segments only."""
    column = timeline.allocations["pool"]
    segments = timeline.segment_history["pool"]
    if column.null_count() and segments.drop_nulls().n_unique() > 1:
        blocks = timeline.blocks
        row = pl.Series(np.maximum(blocks.segment, 0))
        behind = blocks.segments["pool"].gather(row).set(pl.Series(blocks.segment < 0), None)
        column = column.zip_with(column.is_not_null(), behind)
    column = column.replace(dict.fromkeys(DEFAULT_POOLS))
    names = column.drop_nulls().unique().sort().to_list()
    index = column.replace_strict({name: at + 1 for at, name in enumerate(names)}, default=0, return_dtype=pl.Int64)
    return [None, *names], index.fill_null(0).to_numpy()


def _releases(action: np.ndarray, stack: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first event of each burst of segment frees, whether it is a retry of the request behind it, its last event).

    A burst may have completed frees in it: the allocator waits for other streams before it releases. It is a retry, and
    no empty_cache(), where a new segment for a request follows and the stack trace is the request's; where nothing has
    a stack trace, such a request is enough.
    """
    rows = np.flatnonzero(np.isin(action, RELEASES))
    if not len(rows):
        return rows, np.zeros(0, bool), rows
    completed = np.concatenate(([0], np.cumsum(action == CODE["free_completed"])))
    between = rows[1:] - rows[:-1] - 1
    apart = completed[rows[1:]] - completed[rows[:-1]] < between
    first = rows[np.concatenate(([True], apart))]
    last = rows[np.concatenate((apart, [True]))]
    other = np.flatnonzero(~np.isin(action, GROWS))
    at = np.searchsorted(other, last + 1)
    none = at == len(other)
    following = other[np.minimum(at, len(other) - 1)]
    nameless = stack[first] == 0
    is_alloc = action[following] == CODE["alloc"]
    request = (is_alloc & ((following > last + 1) | ~nameless)) | (action[following] == CODE["oom"])
    retry = ~none & request & (nameless | (stack[first] == stack[following]))
    return first, retry, last


def _capacity(
    timeline: DeviceTimeline, action: np.ndarray, first: np.ndarray, last: np.ndarray, settings: AllocatorSettings
) -> Capacity:
    events, reserved = timeline.events, timeline.reserved
    least = int(reserved.max())
    size = events["size"].to_numpy()
    bounds = []
    following = last + 1
    inside = following < len(action)
    grew = np.zeros(len(last), bool)
    grew[inside] = action[following[inside]] == CODE["segment_alloc"]
    if grew.any():
        bounds.append(int((reserved[first[grew]] + size[following[grew]]).min()))
    exact = None
    for event in timeline.oom_events:
        row = events.row(event, named=True)
        left = row["device_free"]
        if left is None:
            continue
        at_failure = int(reserved[event + 1])
        # A request that the device had room for failed at the process's own limit (set_per_process_memory_fraction).
        granules = 2 * settings.large_segment if settings.expandable_segments else 0
        needed = segment_size(row["size"], settings.large_segment) + granules
        if left >= needed:
            bounds.append(at_failure + needed)
        else:
            exact = at_failure + int(left)
    most = min(bounds) if bounds else None
    if exact is not None:
        return Capacity(least, most, max(exact, least), True)
    return Capacity(least, most, max(most - 1, least) if most is not None else None, False)
