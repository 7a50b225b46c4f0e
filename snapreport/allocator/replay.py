"""Replays a trace: the same requests and frees, in the same order, under given settings on a device of given size."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from snapreport.allocator.blocks import Block
from snapreport.allocator.model import SEGMENT_ALLOC, SEGMENT_MAP, CachingAllocator
from snapreport.allocator.placement import SHIFT, Ascending, Recorded
from snapreport.allocator.settings import AllocatorSettings
from snapreport.allocator.start import in_address_order, restore
from snapreport.allocator.trace import ALLOC, DEFAULT_POOLS, EMPTY_CACHE, FREE, RETRY, Trace
from snapreport.timeline.rounding import AllocatorRules
from snapreport.timeline.state import State

_BATCH = 50_000
"""Operations that are made Python numbers at a time."""


class Replayed(Struct):
    """The result of a replay.

    events Int64, reserved Int64 bytes: the curve, a row for each change; the first row is the start (event -1).
    oom_event: the event whose request failed although it succeeded in the recording; nothing is known after it.
    avoided: ``oom`` events whose request would have succeeded; failed: those whose request fails here as well.
    addresses: Int64 by allocation id (-1: none), where they were collected. segment_events: (event, action, bytes).
    """

    peak_reserved: int
    retries: int
    oom_event: int | None
    avoided: list[int]
    failed: list[int]
    events: np.ndarray
    reserved: np.ndarray
    contradictions: int = 0
    addresses: np.ndarray | None = None
    segment_events: list[tuple[int, str, int]] = field(default_factory=list)

    @property
    def failure(self) -> int | None:
        """The first event whose request fails, whether it failed in the recording or not; None where all succeed."""
        return self.oom_event if self.oom_event is not None else next(iter(self.failed), None)


class _Logging(CachingAllocator):
    """Notes each segment event with the event of the trace that caused it."""

    event = -1

    def __init__(self, memory: Ascending, settings: AllocatorSettings, limit: int | None) -> None:
        super().__init__(memory, settings, None, limit)
        self.log: list[tuple[int, str, int]] = []

    def segment_event(self, action: str, address: int, size: int, block: Block) -> None:
        self.log.append((self.event, action, size))


def replay(
    trace: Trace,
    settings: AllocatorSettings,
    memory: Ascending,
    *,
    start: State | None,
    without: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    recorded_retries: bool = False,
    with_addresses: bool = False,
) -> Replayed:
    """Replays ``trace`` under ``settings`` on ``memory``.

    start: the recorded state to go on from; None: a fresh start, which allocates what was live then in order of
    address. without: Boolean by allocation id, those that never happen. sizes: Int64 bytes by allocation id, in place
    of the recorded ones. recorded_retries: whether the recorded retries happen where they were recorded; else the
    capacity decides, as it does in PyTorch.
    """
    sizes = trace.size if sizes is None else sizes
    limit = None if settings.memory_fraction is None else int(settings.memory_fraction * memory.capacity)
    allocator = _Logging(memory, settings, limit)
    rules = AllocatorRules(settings.divisions)
    rounded = rules.rounded(sizes).tolist()
    streams = trace.stream.tolist()
    pairs = [allocator.pair(name) for name in trace.pools]
    pools = [pairs[index] for index in trace.pool.tolist()]
    live: dict[int, Block] = {}
    contradictions = 0
    left_out = np.zeros(len(sizes), bool) if without is None else without
    first_oom: int | None = None
    if start is not None:
        live, contradictions = restore(allocator, trace, start)
        for gone in [at for at in live if left_out[at]]:
            allocator.free_block(live.pop(gone))
    else:
        for row in in_address_order(trace).tolist():
            if not left_out[row]:
                block = allocator.allocate(rounded[row], streams[row], pools[row])
                if block is None:
                    first_oom = -1
                    break
                live[row] = block
    base = allocator.reserved
    allocator.log.clear()
    kinds, items, events = trace.kind, trace.item, trace.event
    if without is not None:
        keep = (kinds > ALLOC) | ~left_out[np.minimum(items, len(left_out) - 1)]
        kinds, items, events = kinds[keep], items[keep], events[keep]
    run = _Run(trace, allocator, memory, live, rules, rounded, streams, pools, recorded_retries, with_addresses)
    for at in range(0, len(kinds), _BATCH):
        if first_oom is not None:
            break
        part = slice(at, at + _BATCH)
        first_oom = run.operations(kinds[part].tolist(), items[part].tolist(), events[part].tolist())
    changes = allocator.log
    delta = [size if action in (SEGMENT_ALLOC, SEGMENT_MAP) else -size for _, action, size in changes]
    return Replayed(
        allocator.peak_reserved,
        allocator.retries,
        first_oom,
        run.avoided,
        run.failed,
        np.array([-1, *(event for event, _, _ in changes)], np.int64),
        base + np.concatenate(([0], np.cumsum(np.array(delta, np.int64)))).astype(np.int64),
        contradictions,
        np.array(run.addresses, np.int64) if with_addresses else None,
        changes,
    )


class _Run(Struct):
    trace: Trace
    allocator: _Logging
    memory: Ascending
    live: dict[int, Block]
    rules: AllocatorRules
    rounded: list[int]
    streams: list[int]
    pools: list[tuple]  # type: ignore[type-arg]
    recorded_retries: bool
    with_addresses: bool
    avoided: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.with_addresses:
            self.addresses = [-1] * len(self.rounded)

    def operations(self, kinds: list[int], items: list[int], events: list[int]) -> int | None:
        """Runs some operations; the event whose request fails although it succeeded in the recording, else None."""
        allocator, live, rounded, streams, pools = self.allocator, self.live, self.rounded, self.streams, self.pools
        allocate, free_block, pop = allocator.allocate, allocator.free_block, live.pop
        recorded = self.memory if isinstance(self.memory, Recorded) else None
        for kind, item, event in zip(kinds, items, events, strict=True):
            if kind == FREE:
                block = pop(item, None)
                if block is not None:
                    free_block(block)
            elif kind == ALLOC:
                allocator.event = event
                if recorded is not None:
                    recorded.event = event
                block = allocate(rounded[item], streams[item], pools[item])
                if block is None:
                    return event
                live[item] = block
                if self.with_addresses:
                    self.addresses[item] = block.address - SHIFT
            else:
                allocator.event = event
                if recorded is not None:
                    recorded.event = event
                if kind == EMPTY_CACHE or (kind == RETRY and self.recorded_retries):
                    allocator.release_cached()
                elif kind != RETRY:
                    self._request_that_failed(event)
        return None

    def _request_that_failed(self, event: int) -> None:
        """An ``oom`` of the recording. Where the request succeeds here, it is freed at once: the recording does not say
        what the program would have done with it.
        """
        if self.recorded_retries:
            return  # its retry is an operation of its own
        row = self.trace.timeline.events.row(event, named=True)
        # The event has the size as the recorded settings round it; those of the replay may round it further.
        size = int(self.rules.rounded(np.array([row["size"] or 1]))[0])
        # PyTorch 2.9 does not record the pool of a failed request, 2.12 does: without one it counts as the default's.
        pool = None if row["pool"] in DEFAULT_POOLS else row["pool"]
        block = self.allocator.allocate(size, row["stream"] or 0, self.allocator.pair(pool))
        if block is None:
            self.failed.append(event)
        else:
            self.avoided.append(event)
            self.allocator.free_block(block)
