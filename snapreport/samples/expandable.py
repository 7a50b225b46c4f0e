"""Expandable segments: address space reserved once, memory mapped into it in granules as needed.

Follows `ExpandableSegment`, `find_expandable_block`, `map_block`, `try_allocate_expandable_block` and `unmap_block` of
c10/cuda/CUDACachingAllocator.cpp. A granule is 2 MiB in the small pool and 20 MiB in the large one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from snapreport.samples.blocks import ADDRESS_BITS, LARGE_BUFFER, SMALL_BUFFER, Block, BlockPool, merge
from snapreport.samples.memory import DeviceMemory, ExpandableSegment
from snapreport.samples.recorder import SEGMENT_MAP, SEGMENT_UNMAP

if TYPE_CHECKING:
    from snapreport.samples.recorder import Frames, Recorder


class Owner(Protocol):
    """What growing and shrinking need of the allocator: its memory, its trace and its count of reserved bytes."""

    memory: DeviceMemory
    recorder: Recorder
    reserved: int


def find_best_expandable(pool: BlockPool, stream: int, at: int) -> int:
    """Of the free blocks from index `at` on, the one to use: one that can grow counts as what it can grow to."""
    keys = pool.free[stream]

    def reach(block: Block) -> int:
        return block.size + (block.next.size if block.next is not None and not block.next.mapped else 0)

    best = pool.at_key(keys[at])
    while best.expandable is not None and at + 1 < len(keys):
        following = pool.at_key(keys[at + 1])
        if reach(following) >= reach(best):
            break
        best = following
        at += 1
    return at


def grow(allocator: Owner, pool: BlockPool, stream: int, size: int, frames: Frames | None) -> Block | None:
    """A free block of at least `size` bytes made by mapping memory, out of its pool; None where memory is short."""
    candidate = _find_address_space(allocator, pool, stream, size)
    if not candidate.mapped and not _map(allocator, candidate, min(candidate.size, size), frames):
        return None
    while candidate.size < size:
        # A free block followed by address space without memory: map there and merge.
        following = candidate.next
        assert following is not None, "address space was found behind it"
        if not _map(allocator, following, min(size - candidate.size, following.size), frames):
            return None
        candidate = following
    pool.remove(candidate)
    return candidate


def _find_address_space(allocator: Owner, pool: BlockPool, stream: int, size: int) -> Block:
    """The lowest run of free or unmapped blocks with room for `size` bytes; a new segment where there is none."""
    block: Block | None
    for address in pool.unmapped.get(stream, ()):
        candidate = pool.blocks[address]
        if candidate.previous is not None and candidate.previous.available:
            candidate = candidate.previous
        room, block = 0, candidate
        while room < size and block is not None and block.available:
            room += block.size
            block = block.next
        if room >= size:
            return candidate
    segment = ExpandableSegment(allocator.memory, SMALL_BUFFER if pool.small else LARGE_BUFFER)
    candidate = Block(segment.address, segment.size, pool, stream)
    candidate.mapped = False
    candidate.expandable = segment
    pool.insert_unmapped(candidate)
    return candidate


def _map(allocator: Owner, block: Block, size: int, frames: Frames | None) -> bool:
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
        rest = Block(start + length, block.size - length, pool, block.stream)
        rest.mapped = False
        rest.expandable = segment
        rest.splice(block, block.next)
        pool.insert_unmapped(rest)
        block.size = length
    merge(block, block.previous, pool)
    merge(block, block.next, pool)
    pool.insert(block)
    allocator.reserved += length
    allocator.recorder.record(SEGMENT_MAP, start, length, block.stream, pool.pool_id, frames)
    if block.previous is None and block.segment_frames is None:
        block.segment_frames = frames
    return True


def unmap(allocator: Owner, block: Block, frames: Frames | None) -> None:
    """Give the whole granules inside a free block back to the device (torch does so before it reports an OOM)."""
    segment, pool = block.expandable, block.pool
    assert segment is not None
    start = segment.round_up(block.address)
    end = segment.round_down(block.address + block.size)
    if start >= end:
        return
    pool.remove(block)
    before, after = start - block.address, block.address + block.size - end
    if before:
        piece = Block(block.address, before, pool, block.stream)
        piece.expandable = segment
        piece.splice(block.previous, block)
        pool.insert(piece)
    if after:
        piece = Block(end, after, pool, block.stream)
        piece.expandable = segment
        piece.splice(block, block.next)
        pool.insert(piece)
    block.address, block.size, block.mapped = start, end - start, False
    merge(block, block.previous, pool)
    merge(block, block.next, pool)
    pool.insert_unmapped(block)
    allocator.memory.give(end - start)
    allocator.reserved -= end - start
    stack = block.segment_frames if frames is None else frames
    allocator.recorder.record(SEGMENT_UNMAP, start, end - start, block.stream, pool.pool_id, stack)
    if block.previous is None and block.next is None:
        pool.remove_unmapped(block)
        allocator.memory.release(segment.address, segment.size)


def best_fit_key(pool: BlockPool, stream: int, size: int) -> int:
    """The index in `pool.free[stream]` of the smallest free block of at least `size` bytes, or -1."""
    keys = pool.free.get(stream)
    if not keys:
        return -1
    at = bisect_left(keys, size << ADDRESS_BITS)
    return at if at < len(keys) else -1
