"""PyTorch's CUDACachingAllocator replayed: the same blocks, addresses and trace entries for the same requests.

Follows `DeviceCachingAllocator` of c10/cuda/CUDACachingAllocator.cpp: `malloc`, `alloc_found_block`, `should_split`,
`free`, `free_block`, `recordStream`, `process_events`, `release_cached_blocks`, `emptyCache` and `snapshot`.
Fed with the requests of traces that real GPUs recorded from the start, it gives their addresses and their final blocks.
Not replayed: garbage_collection_threshold, roundup_power2_divisions, pool checkpoints.
"""

from __future__ import annotations

from collections import deque

from snapreport.samples.blocks import (
    LARGE_BUFFER,
    MIN_BLOCK,
    SMALL_SIZE,
    Block,
    BlockPool,
    merge,
    rounded_size,
    segment_size,
)
from snapreport.samples.expandable import best_fit_key, find_best_expandable, grow, unmap
from snapreport.samples.memory import DeviceMemory
from snapreport.samples.recorder import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SNAPSHOT,
    Frames,
    Recorder,
)  # fmt: skip

PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)


class OutOfMemoryError(Exception):
    """torch.cuda.OutOfMemoryError: a request that cannot be met, after cached blocks were given back."""


class Allocator:
    """The caching allocator of one device.

    `max_split_size` in bytes (None: no limit). `stream_lag_us` is how long a stream recorded by `record_stream` takes
    to pass the event that a later free waits for. `reserved` and `allocated` are bytes: segments, and sizes requested
    of the blocks not freed to completion.
    """

    def __init__(
        self,
        device: int,
        memory: DeviceMemory,
        recorder: Recorder,
        expandable: bool = False,
        max_split_size: int | None = None,
        stream_lag_us: int = 2000,
    ) -> None:
        self.device = device
        self.memory = memory
        self.recorder = recorder
        self.expandable = expandable
        self.max_split_size = max_split_size
        self.stream_lag_us = stream_lag_us
        self.reserved = 0
        self.allocated = 0
        self.active: dict[int, Block] = {}
        self.pools: dict[PoolId, tuple[BlockPool, BlockPool]] = {}
        self._freeable: set[PoolId] = set()
        self._capturing: PoolId | None = None
        self._capture_uses: dict[Block, set[int]] = {}
        self._deferred: list[Block] = []
        self._waiting: dict[int, deque[tuple[int, Block]]] = {}
        self._small, self._large = self._make_pool(DEFAULT_POOL)

    def malloc(self, size: int, stream: int = 0, frames: Frames | None = None) -> Block:
        """Hand out a block for `size` > 0 bytes to a stream; raises OutOfMemoryError, after an `oom` entry."""
        if self._capturing is None and (self._waiting or self._deferred):
            self._process_events(frames)
        rounded = rounded_size(size)
        pool = self._small if rounded <= SMALL_SIZE else self._large
        block = self._take_free(pool, stream, rounded)
        if block is None:
            block = self._get_memory(pool, stream, rounded, frames)
            if block is None:
                self.recorder.record(OOM, self.memory.free_bytes, rounded, stream, pool.pool_id, frames)
                raise OutOfMemoryError(
                    f"device {self.device}: asked for {rounded} bytes, {self.memory.free_bytes} free"
                )
        left = block.size - rounded
        if left and self._should_split(pool, rounded, left):
            rest = block
            block = Block(rest.address, rounded, pool, stream)
            block.expandable = rest.expandable
            block.splice(rest.previous, rest)
            rest.address += rounded
            rest.size = left
            pool.insert(rest)
        block.allocated = True
        block.requested = size
        block.frames = frames
        self.active[block.address] = block
        self.allocated += size
        self.recorder.record(ALLOC, block.address, size, stream, pool.pool_id, frames)
        return block

    def free(self, block: Block, frames: Frames | None = None) -> None:
        """Take a block back; it waits for the streams that `record_stream` named. `frames` None: those of its alloc."""
        block.allocated = False
        self.recorder.record(
            FREE_REQUESTED,
            block.address,
            block.requested,
            block.stream,
            block.pool.pool_id,
            block.frames if frames is None else frames,
        )
        if not block.uses:
            self._free_block(block, frames)
        elif self._capturing is not None:
            self._deferred.append(block)
        else:
            self._insert_events(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Tell that another stream uses the block: its free will wait for that stream."""
        if stream != block.stream:
            if block.uses is None:
                block.uses = set()
            block.uses.add(stream)
            if self._capturing is not None:
                self._capture_uses.setdefault(block, set()).add(stream)

    def empty_cache(self, frames: Frames | None = None) -> None:
        """torch.cuda.empty_cache(): give every wholly free segment back to the device."""
        self._release_cached(frames)

    def begin_capture(self, pool_id: PoolId) -> None:
        """Send all allocations to a private pool (CUDA graph capture, torch.cuda.use_mem_pool)."""
        self._small, self._large = self.pools.get(pool_id) or self._make_pool(pool_id)
        self._capturing = pool_id

    def end_capture(self) -> None:
        """Back to the default pool."""
        self._small, self._large = self.pools[DEFAULT_POOL]
        self._capturing = None

    def release_pool(self, pool_id: PoolId) -> None:
        """The graph of a private pool is gone: its cached segments may be given back."""
        self._freeable.add(pool_id)

    def note_snapshot(self) -> None:
        """The `snapshot` entry that taking a snapshot leaves behind (after the trace was copied)."""
        total = sum(block.size for block in self.active.values())
        self.recorder.record(SNAPSHOT, 0, total, 0, DEFAULT_POOL, None)

    def _make_pool(self, pool_id: PoolId) -> tuple[BlockPool, BlockPool]:
        self.pools[pool_id] = BlockPool(True, pool_id), BlockPool(False, pool_id)
        return self.pools[pool_id]

    def _should_split(self, pool: BlockPool, size: int, left: int) -> bool:
        if pool.small or self.expandable:
            return left >= MIN_BLOCK
        return left > SMALL_SIZE and (self.max_split_size is None or size < self.max_split_size)

    def _take_free(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """`get_free_block`: best fit, the smallest block that is large enough, of those the lowest."""
        at = best_fit_key(pool, stream, size)
        if at < 0:
            return None
        keys = pool.free[stream]
        if self.expandable:
            at = find_best_expandable(pool, stream, at)
        block = pool.at_key(keys[at])
        limit = self.max_split_size
        if limit is not None:
            if size < limit <= block.size:
                return None
            if size >= limit and block.size >= size + LARGE_BUFFER:
                return None
        del keys[at]
        del pool.blocks[block.address]
        return block

    def _get_memory(self, pool: BlockPool, stream: int, size: int, frames: Frames | None) -> Block | None:
        """Memory from the device: at once, or after oversize blocks, or all cached segments, were given back."""
        block = self._new_segment(pool, stream, size, frames)
        if block is None and self._release_oversize(pool, stream, size, frames):
            block = self._new_segment(pool, stream, size, frames)
        if block is None and self._capturing is None:
            self._release_cached(frames)
            block = self._new_segment(pool, stream, size, frames)
        return block

    def _new_segment(self, pool: BlockPool, stream: int, size: int, frames: Frames | None) -> Block | None:
        if self.expandable:
            return grow(self, pool, stream, size, frames)
        length = segment_size(size)
        if not self.memory.take(length):
            return None
        block = Block(self.memory.reserve(length), length, pool, stream)
        block.segment_frames = frames
        self.reserved += length
        self.recorder.record(SEGMENT_ALLOC, block.address, length, stream, pool.pool_id, frames)
        return block

    def _release_oversize(self, pool: BlockPool, stream: int, size: int, frames: Frames | None) -> bool:
        """`release_available_cached_blocks`: with max_split_size, give back enough oversize blocks for the request."""
        if self.max_split_size is None or self.expandable:
            return False
        wanted = max(size, self.max_split_size)
        at = best_fit_key(pool, stream, wanted)
        if at >= 0:
            self._release_block(pool.at_key(pool.free[stream][at]), frames)
            return True
        released = 0
        for key in reversed(pool.free.get(stream, [])[:]):
            block = pool.at_key(key)
            if released >= wanted or block.size < self.max_split_size:
                break
            released += block.size
            self._release_block(block, frames)
        return released >= wanted

    def _release_cached(self, frames: Frames | None) -> None:
        """`release_cached_blocks`: wait for outstanding streams, then give back all that is wholly free."""
        self._process_events(frames, wait=True)
        small, large = self.pools[DEFAULT_POOL]
        pools = [large, small] + [pool for pool_id in sorted(self._freeable) for pool in self.pools[pool_id]]
        for pool in pools:
            to_unmap = []
            for block in pool.in_order():
                if block.expandable is not None:
                    to_unmap.append(block)
                elif block.previous is None and block.next is None:
                    self._release_block(block, frames)
            for block in to_unmap:
                unmap(self, block, frames)

    def _release_block(self, block: Block, frames: Frames | None) -> None:
        self.recorder.record(
            SEGMENT_FREE,
            block.address,
            block.size,
            block.stream,
            block.pool.pool_id,
            block.segment_frames if frames is None else frames,
        )
        block.pool.remove(block)
        self.memory.give(block.size)
        self.memory.release(block.address, block.size)
        self.reserved -= block.size

    def _free_block(self, block: Block, frames: Frames | None) -> None:
        """`free_block`: the end of a lifetime; the block joins its free neighbours and goes to its pool."""
        pool = block.pool
        self.recorder.record(
            FREE_COMPLETED,
            block.address,
            block.requested,
            block.stream,
            pool.pool_id,
            block.frames if frames is None else frames,
        )
        self.allocated -= block.requested
        block.frames = None
        del self.active[block.address]
        merge(block, block.previous, pool)
        merge(block, block.next, pool)
        pool.insert(block)

    def _insert_events(self, block: Block) -> None:
        ready = self.recorder.now_us + self.stream_lag_us
        for stream in sorted(block.uses or ()):
            block.events += 1
            self._waiting.setdefault(stream, deque()).append((ready, block))
        block.uses = None

    def _process_events(self, frames: Frames | None, wait: bool = False) -> None:
        """Complete the frees whose streams have passed (`wait`: all), those put off by a capture first."""
        for block in self._deferred:
            # What a capture recorded on the streams that it captured is over with the capture.
            block.uses = (block.uses or set()) - self._capture_uses.pop(block, set()) or None
            if block.uses is None:
                self._free_block(block, frames)
            else:
                self._insert_events(block)
        self._deferred.clear()
        now = self.recorder.now_us
        for stream in list(self._waiting):
            queue = self._waiting[stream]
            while queue and (wait or queue[0][0] <= now):
                block = queue.popleft()[1]
                block.events -= 1
                if not block.events:
                    self._free_block(block, frames)
            if not queue:
                del self._waiting[stream]
