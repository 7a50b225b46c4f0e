"""Expandable segments: address space reserved once, memory mapped into it in granules as needed.

Follows `ExpandableSegment`, `get_free_block`, `find_expandable_block`, `map_block`, `try_allocate_expandable_block` and
`unmap_block` of c10/cuda/CUDACachingAllocator.cpp. A granule is 2 MiB in the small pool and 20 MiB
(large_segment_size_mb) in the large one.
"""

from __future__ import annotations

from typing import Protocol

from snapreport.allocator.blocks import (
    ADDRESS_MASK,
    SMALL_BUFFER,
    Block,
    BlockPool,
    ExpandableSegment,
    Memory,
    merge,
)


class Allocator(Protocol):
    """What mapping and unmapping need of the allocator, ``model.CachingAllocator``."""

    block_type: type[Block]
    memory: Memory
    large_segment: int
    reserved: int
    ranks_blocks: bool

    def next_rank(self) -> int: ...

    def add_reserved(self, size: int) -> None: ...

    def segment_event(self, action: str, address: int, size: int, block: Block) -> None: ...


def best_expandable(pool: BlockPool, keys: list[int], at: int, expandable: bool) -> int:
    """The index in `keys` of the free block to use, from `at` on, where the one at `at` is in an expandable segment.

    While expandable segments are on, a block that can grow counts as what it can grow to; while they are off, only
    other segments serve. `len(keys)`: none does.
    """
    blocks = pool.blocks
    best = blocks[keys[at] & ADDRESS_MASK]
    if not expandable:
        while at < len(keys) and blocks[keys[at] & ADDRESS_MASK].expandable is not None:
            at += 1
        return at
    while best.expandable is not None and at + 1 < len(keys):
        following = blocks[keys[at + 1] & ADDRESS_MASK]
        if _reach(following) >= _reach(best):
            break
        best = following
        at += 1
    return at


def _reach(block: Block) -> int:
    following = block.next
    return block.size if following is None or following.mapped else block.size + following.size


def grow(allocator: Allocator, pool: BlockPool, stream: int, size: int) -> Block | None:
    """A free block of at least `size` bytes made by mapping memory, out of its pool; None where memory is short."""
    candidate = _find_address_space(allocator, pool, stream, size)
    if not candidate.mapped and not _map(allocator, candidate, min(candidate.size, size)):
        return None
    while candidate.size < size:
        # A free block followed by unmapped address space: map there and merge.
        following = candidate.next
        # A request for more than the address space of a segment, 1 1/8 of the device's memory.
        if following is None or not _map(allocator, following, min(size - candidate.size, following.size)):
            return None
        candidate = following
    pool.remove(candidate)
    return candidate


def address_space(allocator: Allocator, small: bool) -> tuple[int, int]:
    """(bytes of a granule, bytes of a new segment's addresses: 1 1/8 of the device's memory, as in PyTorch)."""
    granule = SMALL_BUFFER if small else allocator.large_segment
    total = allocator.memory.total
    return granule, max(1, -(-(total + total // 8) // granule)) * granule


def _find_address_space(allocator: Allocator, pool: BlockPool, stream: int, size: int) -> Block:
    """The lowest run of free or unmapped blocks with room for `size` bytes; a new segment where there is none."""
    block: Block | None
    for address in pool.unmapped.get(stream, ()):
        candidate = pool.blocks[address]
        if candidate.previous is not None and candidate.previous.free:
            candidate = candidate.previous
        room, block = 0, candidate
        while room < size and block is not None and block.free:
            room += block.size
            block = block.next
        if room >= size:
            return candidate
    granule, length = address_space(allocator, pool.small)
    segment = ExpandableSegment(allocator.memory.reserve(length, False), length, granule)
    candidate = allocator.block_type(segment.address, length, pool, stream)
    candidate.mapped = False
    candidate.expandable = segment
    candidate.rank = allocator.next_rank()
    pool.insert_unmapped(candidate)
    return candidate


def _map(allocator: Allocator, block: Block, size: int) -> bool:
    """Map memory at the start of an unmapped block; false where the device has not enough."""
    segment, pool = block.expandable, block.pool
    assert segment is not None
    start = block.address
    length = segment.round_up(start + size) - start
    if not allocator.memory.take(length):
        return False
    pool.remove_unmapped(block)
    block.mapped = True
    if length < block.size:
        rest = _part(allocator, block, start + length, block.size - length)
        rest.mapped = False
        rest.splice(block, block.next)
        pool.insert_unmapped(rest)
        block.size = length
    merge(block, block.previous)
    merge(block, block.next)
    pool.insert(block)
    allocator.add_reserved(length)
    allocator.segment_event("segment_map", start, length, block)
    return True


def unmap(allocator: Allocator, block: Block) -> None:
    """Unmap the whole granules inside a free block."""
    segment, pool = block.expandable, block.pool
    assert segment is not None
    start = segment.round_up(block.address)
    end = segment.round_down(block.address + block.size)
    if start >= end:
        return
    pool.remove(block)
    before, after = start - block.address, block.address + block.size - end
    if before:
        rest = _part(allocator, block, block.address, before)
        rest.splice(block.previous, block)
        pool.insert(rest)
    if after:
        rest = _part(allocator, block, end, after)
        rest.splice(block, block.next)
        pool.insert(rest)
    block.address, block.size, block.mapped = start, end - start, False
    merge(block, block.previous)
    merge(block, block.next)
    pool.insert_unmapped(block)
    allocator.memory.give(end - start)
    allocator.reserved -= end - start
    allocator.segment_event("segment_unmap", start, end - start, block)
    if block.previous is None and block.next is None:
        pool.remove_unmapped(block)
        allocator.memory.release(segment.address, segment.size)


def _part(allocator: Allocator, block: Block, address: int, size: int) -> Block:
    part = allocator.block_type(address, size, block.pool, block.stream)
    part.expandable = block.expandable
    part.rank = allocator.next_rank() if allocator.ranks_blocks else block.rank
    return part
