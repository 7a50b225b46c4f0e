"""Blocks and the pools that keep free ones, as in c10/cuda/CUDACachingAllocator.cpp (`Block`, `BlockPool`)."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from snapreport.samples.memory import ExpandableSegment
    from snapreport.samples.recorder import Frames

MIN_BLOCK = 512
"""kMinBlockSize: sizes are rounded up to a multiple of it."""
SMALL_SIZE = 1024 * 1024
"""kSmallSize: the largest allocation that goes to the small pool."""
SMALL_BUFFER = 2 * 1024 * 1024
"""kSmallBuffer: a segment of the small pool."""
LARGE_BUFFER = 20 * 1024 * 1024
"""kLargeBuffer: a segment for large allocations below MIN_LARGE_ALLOC."""
MIN_LARGE_ALLOC = 10 * 1024 * 1024
"""kMinLargeAlloc: from here on a segment has the size of what was asked, rounded up."""
ROUND_LARGE = 2 * 1024 * 1024
"""kRoundLarge: the rounding of those segments."""

ADDRESS_BITS = 48
_ADDRESS_MASK = (1 << ADDRESS_BITS) - 1


def rounded_size(size: int) -> int:
    """`round_size`: the bytes a block gets for a request of `size` bytes."""
    return MIN_BLOCK if size < MIN_BLOCK else -(-size // MIN_BLOCK) * MIN_BLOCK


def segment_size(size: int) -> int:
    """`get_allocation_size`: the bytes asked of cudaMalloc for a rounded size that no free block fits."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    if size < MIN_LARGE_ALLOC:
        return LARGE_BUFFER
    return -(-size // ROUND_LARGE) * ROUND_LARGE


class Block:
    """A piece of a segment: handed out, free, or (expandable segments) address space without memory.

    `requested` stays what it was when a block is freed: torch reports that stale number for inactive blocks too.
    `uses` are the other streams that used it (record_stream), `events` how many of those are still outstanding.
    """

    __slots__ = (
        "address",
        "allocated",
        "events",
        "expandable",
        "frames",
        "mapped",
        "next",
        "pool",
        "previous",
        "requested",
        "segment_frames",
        "size",
        "stream",
        "uses",
    )  # fmt: skip

    def __init__(self, address: int, size: int, pool: BlockPool, stream: int) -> None:
        self.address = address
        self.size = size
        self.requested = 0
        self.pool = pool
        self.stream = stream
        self.previous: Block | None = None
        self.next: Block | None = None
        self.allocated = False
        self.mapped = True
        self.uses: set[int] | None = None
        self.events = 0
        self.frames: Frames | None = None
        self.segment_frames: Frames | None = None
        self.expandable: ExpandableSegment | None = None

    @property
    def available(self) -> bool:
        """Free in every sense: not handed out and not waiting for another stream."""
        return not self.allocated and not self.events and not self.uses

    def splice(self, before: Block | None, after: Block | None) -> None:
        """Put this block between two neighbours."""
        if before is not None:
            before.next = self
        self.previous = before
        if after is not None:
            after.previous = self
        self.next = after


class BlockPool:
    """The free blocks of one kind: the small or the large pool, the default one or a private one.

    Per stream, `free` holds sorted keys (size, address) packed into one integer, so that best fit is a bisection, and
    `unmapped` sorted addresses of address space without memory. `blocks` finds a free block by its address.
    """

    def __init__(self, small: bool, pool_id: tuple[int, int]) -> None:
        self.small = small
        self.pool_id = pool_id
        self.free: dict[int, list[int]] = {}
        self.unmapped: dict[int, list[int]] = {}
        self.blocks: dict[int, Block] = {}

    def insert(self, block: Block) -> None:
        """Keep a free block."""
        keys = self.free.get(block.stream)
        if keys is None:
            keys = self.free[block.stream] = []
        insort(keys, block.size << ADDRESS_BITS | block.address)
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        """Take a free block out."""
        keys = self.free[block.stream]
        del keys[bisect_left(keys, block.size << ADDRESS_BITS | block.address)]
        del self.blocks[block.address]

    def insert_unmapped(self, block: Block) -> None:
        """Keep a stretch of address space without memory."""
        insort(self.unmapped.setdefault(block.stream, []), block.address)
        self.blocks[block.address] = block

    def remove_unmapped(self, block: Block) -> None:
        """Take out a stretch of address space."""
        addresses = self.unmapped[block.stream]
        del addresses[bisect_left(addresses, block.address)]
        del self.blocks[block.address]

    def at_key(self, key: int) -> Block:
        """The free block of a key of `free`."""
        return self.blocks[key & _ADDRESS_MASK]

    def in_order(self) -> list[Block]:
        """All free blocks that have memory, by stream, size and address (torch's order)."""
        return [self.at_key(key) for stream in sorted(self.free) for key in self.free[stream]]


def merge(dst: Block, src: Block | None, pool: BlockPool) -> None:
    """`try_merge_blocks`: let `dst`, which is in no pool, swallow its neighbour `src` where that is free."""
    if src is None or src.allocated or src.events or src.uses or dst.mapped != src.mapped:
        return
    if src.mapped:
        pool.remove(src)
    else:
        pool.remove_unmapped(src)
    if dst.previous is src:
        dst.address = src.address
        dst.previous = src.previous
        if dst.previous is not None:
            dst.previous.next = dst
        dst.segment_frames = src.segment_frames
    else:
        dst.next = src.next
        if dst.next is not None:
            dst.next.previous = dst
    dst.size += src.size
