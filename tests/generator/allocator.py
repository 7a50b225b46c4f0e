"""The caching allocator of a sample: the model in snapreport/allocator plus streams, captures and a recorder.

Follows `DeviceCachingAllocator` of c10/cuda/CUDACachingAllocator.cpp: `recordStream`, `process_events`, `emptyCache`
and the entries that each records. Not modelled: pool checkpoints.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from generator.blocks import Block
from generator.memory import DeviceMemory
from generator.recorder import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    SNAPSHOT,
    Frames,
    Recorder,
)  # fmt: skip
from snapreport.allocator.blocks import MIN_BLOCK
from snapreport.allocator.model import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, CachingAllocator
from snapreport.allocator.settings import AllocatorSettings

PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)


def rounded_size(size: int) -> int:
    """`round_size` without roundup_power2_divisions: the bytes of a block for a request of `size` bytes."""
    return MIN_BLOCK if size < MIN_BLOCK else -(-size // MIN_BLOCK) * MIN_BLOCK


class OutOfMemoryError(Exception):
    """torch.cuda.OutOfMemoryError: a request that fails even after cached blocks were released."""


class Allocator(CachingAllocator):
    """The caching allocator of one device.

    `max_split_size` in bytes (None: no limit). `stream_lag_us` is how long a stream recorded by `record_stream` takes
    to pass the event that a later free waits for. `reserved` and `allocated` are bytes: of segments, and requested
    sizes of blocks whose free is not completed.
    """

    memory: DeviceMemory
    block_type = Block

    def __init__(
        self,
        device: int,
        memory: DeviceMemory,
        recorder: Recorder,
        expandable: bool = False,
        max_split_size: int | None = None,
        stream_lag_us: int = 2000,
    ) -> None:
        settings = AllocatorSettings(expandable_segments=expandable, max_split_size=max_split_size)
        super().__init__(memory, settings, DEFAULT_POOL)
        self.device = device
        self.recorder = recorder
        self.stream_lag_us = stream_lag_us
        self.allocated = 0
        self.active: dict[int, Block] = {}
        self._capturing: PoolId | None = None
        self._capture_uses: dict[Block, set[int]] = {}
        self._deferred: list[Block] = []
        self._waiting: dict[int, deque[tuple[int, Block]]] = {}
        self._current = self.pair(DEFAULT_POOL)
        self._frames: Frames | None = None

    def malloc(self, size: int, stream: int = 0, frames: Frames | None = None) -> Block:
        """Allocate a block of `size` > 0 bytes for a stream; raises OutOfMemoryError, after an `oom` entry."""
        if self._capturing is None and (self._waiting or self._deferred):
            self._process_events(frames)
        rounded = rounded_size(size)
        self._frames = frames
        block = self.allocate(rounded, stream, self._current, may_retry=self._capturing is None)
        pool_id = self._current[0].pool_id
        if block is None:
            self.recorder.record(OOM, self.memory.free_bytes, rounded, stream, pool_id, frames)
            raise OutOfMemoryError(f"device {self.device}: {rounded} bytes requested, {self.memory.free_bytes} free")
        assert isinstance(block, Block)
        block.allocated = True
        block.requested = size
        block.frames = frames
        self.active[block.address] = block
        self.allocated += size
        self.recorder.record(ALLOC, block.address, size, stream, pool_id, frames)
        return block

    def free(self, block: Block, frames: Frames | None = None) -> None:
        """Free a block; completion waits for streams of `record_stream`. `frames` None: those of its alloc."""
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
            self._complete_free(block, frames)
        elif self._capturing is not None:
            self._deferred.append(block)
        else:
            self._insert_events(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Record that another stream uses the block: its free will wait for that stream."""
        if stream != block.stream:
            if block.uses is None:
                block.uses = set()
            block.uses.add(stream)
            if self._capturing is not None:
                self._capture_uses.setdefault(block, set()).add(stream)

    def empty_cache(self, frames: Frames | None = None) -> None:
        """torch.cuda.empty_cache(): free every unused segment."""
        self._frames = frames
        self.release_cached()

    def begin_capture(self, pool_id: PoolId) -> None:
        """Send all allocations to a private pool (CUDA graph capture, torch.cuda.use_mem_pool)."""
        self._current = self.pair(pool_id)
        self._capturing = pool_id

    def end_capture(self) -> None:
        """Return to the default pool."""
        self._current = self.pair(DEFAULT_POOL)
        self._capturing = None

    def release_pool(self, pool_id: PoolId) -> None:
        """The graph of a private pool was deleted: its cached segments may be freed."""
        self.freeable.add(pool_id)

    def note_snapshot(self) -> None:
        """The `snapshot` entry that taking a snapshot leaves behind (after the trace was copied)."""
        total = sum(block.size for block in self.active.values())
        self.recorder.record(SNAPSHOT, 0, total, 0, DEFAULT_POOL, None)

    def release_cached(self) -> None:
        """Waits for outstanding streams, then frees every unused segment."""
        self._process_events(self._frames, wait=True)
        super().release_cached()

    def segment_event(self, action: str, address: int, size: int, block: Any) -> None:
        """Records it; a segment keeps the stack trace that it was allocated with."""
        frames = self._frames
        if action in (SEGMENT_FREE, SEGMENT_UNMAP) and frames is None:
            frames = block.segment_frames
        self.recorder.record(action, address, size, block.stream, block.pool.pool_id, frames)
        if action == SEGMENT_ALLOC or (
            action == SEGMENT_MAP and block.previous is None and block.segment_frames is None
        ):
            block.segment_frames = frames

    def _complete_free(self, block: Block, frames: Frames | None) -> None:
        """The end of a lifetime: no stream uses the block any more."""
        self.recorder.record(
            FREE_COMPLETED,
            block.address,
            block.requested,
            block.stream,
            block.pool.pool_id,
            block.frames if frames is None else frames,
        )
        self.allocated -= block.requested
        block.frames = None
        del self.active[block.address]
        self.free_block(block)

    def _insert_events(self, block: Block) -> None:
        ready = self.recorder.now_us + self.stream_lag_us
        for stream in sorted(block.uses or ()):
            block.events += 1
            self._waiting.setdefault(stream, deque()).append((ready, block))
        block.uses = None

    def _process_events(self, frames: Frames | None, wait: bool = False) -> None:
        """Complete the frees whose streams have passed (`wait`: all), those deferred by a capture first."""
        for block in self._deferred:
            # Stream uses recorded during a capture end with the capture.
            block.uses = (block.uses or set()) - self._capture_uses.pop(block, set()) or None
            if block.uses is None:
                self._complete_free(block, frames)
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
                    self._complete_free(block, frames)
            if not queue:
                del self._waiting[stream]
