"""PyTorch's CUDACachingAllocator for one device: the same blocks and addresses for the same requests.

Follows `DeviceCachingAllocator` of c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.6 to 2.15): `malloc`, `get_free_block`,
`should_split`, `free_block`, `garbage_collect_cached_blocks`, `release_available_cached_blocks`,
`release_cached_blocks`. The generated samples and the replay of recorded traces both run on it. Streams that delay a
free and the recorder are up to the caller.
"""

from __future__ import annotations

from bisect import bisect_left

from snapreport.allocator.blocks import (
    ADDRESS_BITS,
    ADDRESS_MASK,
    MIN_BLOCK,
    SIZE_SHIFT,
    SMALL_SIZE,
    Block,
    BlockPool,
    Memory,
    PoolId,
    merge,
    segment_size,
)
from snapreport.allocator.expandable import best_expandable, grow, unmap
from snapreport.allocator.settings import ADDRESS, BLOCK, AllocatorSettings

SEGMENT_ALLOC = "segment_alloc"
SEGMENT_FREE = "segment_free"
SEGMENT_MAP = "segment_map"
SEGMENT_UNMAP = "segment_unmap"


class CachingAllocator:
    """The caching allocator of one device.

    `limit`: bytes that `set_per_process_memory_fraction` allows, None where it was not called; without it garbage
    collection does nothing. `reserved` is the bytes of all segments now, `peak_reserved` at most, `retries` PyTorch's
    num_alloc_retries, `collected` the segments that garbage collection freed.
    """

    block_type: type[Block] = Block

    def __init__(
        self, memory: Memory, settings: AllocatorSettings, default_pool: PoolId = None, limit: int | None = None
    ) -> None:
        self.memory = memory
        self.expandable = settings.expandable_segments
        self.max_split_size = settings.max_split_size
        self.max_non_split_rounding = settings.max_non_split_rounding
        self.large_segment = settings.large_segment
        self.limit = limit
        self.collects = limit is not None and settings.garbage_collection_threshold > 0
        self._threshold = int(settings.garbage_collection_threshold * (limit or 0))
        self.reserved = self.peak_reserved = 0
        self.retries = self.collected = 0
        self._ranked = 0 if settings.tie_break != ADDRESS else None
        self.ranks_blocks = settings.tie_break == BLOCK
        self.default_pool = default_pool
        self.pools: dict[PoolId, tuple[BlockPool, BlockPool]] = {}
        self.freeable: set[PoolId] = set()
        self.pair(default_pool)

    def pair(self, pool_id: PoolId) -> tuple[BlockPool, BlockPool]:
        """The small and the large pool of a memory pool; made where there are none."""
        found = self.pools.get(pool_id)
        if found is None:
            found = self.pools[pool_id] = BlockPool(True, pool_id), BlockPool(False, pool_id)
        return found

    def allocate(
        self, size: int, stream: int, pools: tuple[BlockPool, BlockPool], may_retry: bool = True
    ) -> Block | None:
        """A block for a rounded size; None when out of memory. `may_retry` is false during a graph capture."""
        pool = pools[size > SMALL_SIZE]
        block = self._take_free(pool, stream, size)
        if block is None:
            block = self._get_memory(pool, stream, size, may_retry)
            if block is None:
                return None
        left = block.size - size
        if left and (
            left >= MIN_BLOCK
            if pool.small or self.expandable
            else left > SMALL_SIZE and (self.max_split_size is None or size < self.max_split_size)
        ):
            rest = block
            block = self.block_type(rest.address, size, pool, stream)
            block.expandable = rest.expandable
            block.rank = self.next_rank() if self.ranks_blocks else rest.rank
            before = rest.previous
            if before is not None:
                before.next = block
                block.previous = before
            block.next = rest
            rest.previous = block
            rest.address += size
            rest.size = left
            pool.insert(rest)
        block.free = False
        return block

    def free_block(self, block: Block) -> None:
        """`free_block`: a completed free; the block merges with its free neighbours and becomes free itself."""
        neighbour = block.previous
        if neighbour is not None and neighbour.free and neighbour.mapped:
            merge(block, neighbour)
        neighbour = block.next
        if neighbour is not None and neighbour.free and neighbour.mapped:
            merge(block, neighbour)
        block.free = True
        block.pool.insert(block)

    def release_cached(self) -> None:
        """`release_cached_blocks`: free every unused segment, unmap every unused granule."""
        small, large = self.pools[self.default_pool]
        pools = [large, small] + [pool for pool_id in sorted(self.freeable) for pool in self.pools[pool_id]]
        for pool in pools:
            to_unmap = []
            for block in pool.in_order():
                if block.expandable is not None:
                    to_unmap.append(block)
                elif block.previous is None and block.next is None:
                    self._release_segment(block)
            for block in to_unmap:
                unmap(self, block)

    def segment_event(self, action: str, address: int, size: int, block: Block) -> None:
        """Called for each segment that is allocated, freed, mapped or unmapped; `block` is part of it."""

    def next_rank(self) -> int:
        """The rank of a new segment or block, in place in a key; 0 for all where addresses alone decide."""
        if self._ranked is None:
            return 0
        self._ranked += 1
        return self._ranked << ADDRESS_BITS

    def add_reserved(self, size: int) -> None:
        """Counts bytes of a new segment."""
        self.reserved += size
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved

    def _take_free(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """`get_free_block`: best fit, the smallest free block that is large enough, of those the lowest."""
        if self.collects:
            pool.requests += 1
        keys = pool.free.get(stream)
        if not keys:
            return None
        at = bisect_left(keys, size << SIZE_SHIFT)
        if at == len(keys):
            return None
        block = pool.blocks[keys[at] & ADDRESS_MASK]
        if block.expandable is not None:
            at = best_expandable(pool, keys, at, self.expandable)
            if at == len(keys):
                return None
            block = pool.blocks[keys[at] & ADDRESS_MASK]
        limit = self.max_split_size
        if limit is not None:
            if size < limit:
                if block.size >= limit:
                    return None
            elif block.size >= size + self.max_non_split_rounding:
                return None
        del keys[at]
        del pool.blocks[block.address]
        return block

    def _get_memory(self, pool: BlockPool, stream: int, size: int, may_retry: bool) -> Block | None:
        """Memory from the device: at once, or after oversize blocks, or all cached segments, were released."""
        if self.collects:
            self._collect_garbage()
        block = self._new_segment(pool, stream, size)
        if block is None and self._release_oversize(pool, stream, size):
            block = self._new_segment(pool, stream, size)
        if block is None and may_retry:
            self.release_cached()
            self.retries += 1
            block = self._new_segment(pool, stream, size)
        return block

    def _new_segment(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        length = segment_size(size, self.large_segment)
        if self.limit is not None and self.reserved + length > self.limit:
            return None
        if self.expandable:
            return grow(self, pool, stream, size)
        if not self.memory.take(length):
            return None
        block = self.block_type(self.memory.reserve(length, True), length, pool, stream)
        block.rank = self.next_rank()
        self.add_reserved(length)
        self.segment_event(SEGMENT_ALLOC, block.address, length, block)
        return block

    def _release_segment(self, block: Block) -> None:
        self.segment_event(SEGMENT_FREE, block.address, block.size, block)
        block.pool.remove(block)
        self.memory.give(block.size)
        self.memory.release(block.address, block.size)
        self.reserved -= block.size

    def _release_oversize(self, pool: BlockPool, stream: int, size: int) -> bool:
        """`release_available_cached_blocks`: with max_split_size, release enough oversize blocks for the request."""
        limit = self.max_split_size
        if limit is None:
            return False
        wanted = max(size, limit)
        keys = pool.free.get(stream, [])
        at = bisect_left(keys, wanted << SIZE_SHIFT)
        if at < len(keys):
            block = pool.at_key(keys[at])
            if block.expandable is None:
                self._release_segment(block)
                return True
        released = 0
        for key in keys[::-1]:
            block = pool.at_key(key)
            if released >= wanted or block.size < limit:
                break
            if block.expandable is None and block.previous is None and block.next is None:
                released += block.size
                self._release_segment(block)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """`garbage_collect_cached_blocks`: above the threshold, free unused segments older than the average."""
        excess = self.reserved - self._threshold
        if excess <= 0:
            return
        pool = self.pools[self.default_pool][1]
        blocks = [b for b in pool.in_order() if b.previous is None and b.next is None and b.expandable is None]
        total_age = sum(pool.requests - block.age for block in blocks)
        released, found = 0, True
        while released < excess and found and blocks:
            average = total_age / len(blocks)
            found = False
            younger = []
            # The threshold on age applies to the whole pass: PyTorch does not stop once it has released enough.
            for block in blocks:
                age = pool.requests - block.age
                if age >= average:
                    found = True
                    released += block.size
                    total_age -= age
                    self.collected += 1
                    self._release_segment(block)
                else:
                    younger.append(block)
            blocks = younger
