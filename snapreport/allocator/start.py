"""The recorded state at a trace's start, as blocks of the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from snapreport.allocator.blocks import SMALL_BUFFER, Block, ExpandableSegment
from snapreport.allocator.expandable import address_space
from snapreport.allocator.model import CachingAllocator
from snapreport.allocator.placement import SHIFT
from snapreport.allocator.trace import Trace
from snapreport.timeline.state import State, state_at


def start_state(trace: Trace) -> State:
    """The state before the first event."""
    return state_at(trace.timeline, -1)


def restore(allocator: CachingAllocator, trace: Trace, state: State) -> tuple[dict[int, Block], int]:
    """Puts the state into an allocator that has nothing: (blocks in use by allocation id, contradictory blocks).

    Blocks that overlap or lie outside of every segment are contradictions of the record: they are cut or left out.
    """
    restoring = _Restoring(allocator, trace, state)
    for row in range(len(state.segments)):
        restoring.segment(row)
    restoring.finish()
    allocator.peak_reserved = allocator.reserved
    return restoring.live, restoring.contradictions


class _Restoring:
    def __init__(self, allocator: CachingAllocator, trace: Trace, state: State) -> None:
        self.allocator = allocator
        self.live: dict[int, Block] = {}
        self._pools = trace.pools
        names = ("address", "size", "stream", "pool", "segment_type", "expandable")
        self._segments = list(zip(*(state.segments[name].to_list() for name in names), strict=True))
        self._blocks: list[list[tuple[int, int, int]]] = [[] for _ in self._segments]
        columns = (state.blocks[name].to_list() for name in ("segment", "address", "size", "allocation"))
        outside = 0
        for segment, address, size, allocation in zip(*columns, strict=True):
            if segment < 0:
                outside += 1
            else:
                self._blocks[segment].append((address + SHIFT, size, allocation))
        self.contradictions = outside
        self._growing: dict[Any, Block] = {}

    def segment(self, row: int) -> None:
        address, size, stream, pool, kind, is_expandable = self._segments[row]
        address += SHIFT
        small = kind == "small" if kind is not None else size == SMALL_BUFFER and not is_expandable
        key = pool if pool in self._pools else None
        owner = self.allocator.pair(key)[not small]
        previous: Block | None = None
        expandable: ExpandableSegment | None = None
        if is_expandable:
            previous = self._growing.get((stream, key, small))
            expandable = previous.expandable if previous is not None else None
            if previous is None or expandable is None or address + size > expandable.address + expandable.size:
                expandable = self._reserve(address, small)
                if previous is not None:
                    self._close(previous)
                    previous = None
            elif previous.address + previous.size < address:
                previous = self._gap(previous, address)
        end, at = address + size, address
        for start, length, allocation in self._blocks[row]:
            cut = min(max(start + length, at), end) - max(start, at)
            if start != at or cut != length:
                self.contradictions += 1
            if cut <= 0:
                continue
            block = self.allocator.block_type(max(start, at), cut, owner, stream)
            block.expandable = expandable
            block.splice(previous, None)
            previous = block
            at = block.address + cut
            if allocation >= 0:
                block.free = False
                self.live[allocation] = block
            else:
                owner.insert(block)
        self.allocator.memory.take(size)
        self.allocator.reserved += size
        if expandable is not None and previous is not None:
            self._growing[(stream, key, small)] = previous

    def finish(self) -> None:
        for block in self._growing.values():
            self._close(block)

    def _reserve(self, address: int, small: bool) -> ExpandableSegment:
        """Address space whose first mapped memory is at `address`; how much is reserved before it is unknown."""
        granule, length = address_space(self.allocator, small)
        return ExpandableSegment(address, length, granule)

    def _gap(self, previous: Block, address: int) -> Block:
        start = previous.address + previous.size
        gap = self.allocator.block_type(start, address - start, previous.pool, previous.stream)
        gap.mapped = False
        gap.expandable = previous.expandable
        gap.splice(previous, None)
        gap.pool.insert_unmapped(gap)
        return gap

    def _close(self, block: Block) -> None:
        """The rest of an expandable segment's address space, after its last block."""
        segment = block.expandable
        assert segment is not None
        if block.address + block.size < segment.address + segment.size:
            self._gap(block, segment.address + segment.size)


def in_address_order(trace: Trace) -> np.ndarray:
    """Int64 ids of the allocations that were live at the start, by address: the order of a fresh start."""
    older = np.flatnonzero(~trace.born)
    address = trace.timeline.allocations["addr"].to_numpy()[older]
    return older[np.argsort(address, kind="stable")]
