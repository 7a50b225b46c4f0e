"""Blocks and the pools of free ones, as in c10/cuda/CUDACachingAllocator.cpp (`Block`, `BlockPool`)."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Protocol

from snapreport.allocator_facts import CONSTANTS

MIN_BLOCK = CONSTANTS["min_block"]
"""Sizes are rounded up to a multiple of it."""
SMALL_SIZE = CONSTANTS["small_size"]
"""The largest rounded size that the small pool serves."""
SMALL_BUFFER = CONSTANTS["small_buffer"]
"""The size of a segment of the small pool."""
LARGE_BUFFER = CONSTANTS["large_buffer"]
"""The size of a segment for large allocations below MIN_LARGE_ALLOC."""
MIN_LARGE_ALLOC = CONSTANTS["min_large_alloc"]
"""From here on a segment has the size of the request, rounded up to ROUND_LARGE."""
ROUND_LARGE = CONSTANTS["round_large"]

ADDRESS_BITS = 53
"""Addresses are below 2**53, so that JavaScript's numbers hold them exactly as well."""
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1
RANK_BITS = 24
SIZE_SHIFT = ADDRESS_BITS + RANK_BITS
"""Where the size begins in a key of a pool's free blocks: size, rank of the segment, address."""

PoolId = Any
"""Identifies a memory pool: any hashable value."""


def segment_size(size: int, large_segment: int = LARGE_BUFFER) -> int:
    """`get_allocation_size`: the bytes of the cudaMalloc for a rounded size that no free block fits."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    if size < MIN_LARGE_ALLOC:
        return large_segment
    return -(-size // ROUND_LARGE) * ROUND_LARGE


class Memory(Protocol):
    """Device memory as the driver gives it: physical bytes, and addresses."""

    total: int

    def take(self, size: int) -> bool:
        """Takes physical bytes; false where the device has fewer."""

    def give(self, size: int) -> None:
        """Returns physical bytes."""

    def reserve(self, size: int, mapped: bool) -> int:
        """An address range for a segment (`mapped`) or for an expandable segment."""

    def release(self, address: int, size: int) -> None:
        """Returns an address range."""


class Block:
    """A part of a segment: in use, free, or (expandable segments) address space that is not mapped.

    `free` is false while the block is allocated or its free is pending. `age` is the pool's count of requests when the
    block became free. `expandable` is the expandable segment that the block is part of, None in other segments.
    `rank` orders free blocks of equal size before their address does, see `settings.TIE_BREAKS`.
    `segment_frames` is a note of the caller about the segment (its stack trace); as in PyTorch it follows the head
    block when blocks merge.
    """

    __slots__ = (
        "address", "age", "expandable", "free", "mapped", "next", "pool", "previous", "rank",
        "segment_frames", "size", "stream",
    )  # fmt: skip

    def __init__(self, address: int, size: int, pool: BlockPool, stream: int) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.stream = stream
        self.previous: Any = None
        self.next: Any = None
        self.free = True
        self.mapped = True
        self.expandable: ExpandableSegment | None = None
        self.age = 0
        self.rank = 0
        self.segment_frames: Any = None

    def splice(self, before: Block | None, after: Block | None) -> None:
        """Insert this block between two neighbours."""
        if before is not None:
            before.next = self
        self.previous = before
        if after is not None:
            after.previous = self
        self.next = after


class ExpandableSegment:
    """Reserved address space from `address` on, `size` bytes, of which whole granules are mapped."""

    __slots__ = ("address", "granule", "size")

    def __init__(self, address: int, size: int, granule: int) -> None:
        self.address = address
        self.size = size
        self.granule = granule

    def round_up(self, address: int) -> int:
        """The next granule boundary at or after an address."""
        return self.address + -(-(address - self.address) // self.granule) * self.granule

    def round_down(self, address: int) -> int:
        """The granule boundary at or before an address."""
        return self.address + (address - self.address) // self.granule * self.granule


class BlockPool:
    """The free blocks of the small or the large pool, of the default memory pool or of a private one.

    Per stream, `free` holds sorted keys (size, rank, address), each packed into one integer, so that best fit is a
    bisection, and `unmapped` the sorted addresses of address space that is not mapped. `blocks` finds a free block by
    its address.
    `requests` counts the requests while garbage collection is on. Where recorded segments overlap, two free blocks have
    one address, and removing the second raises KeyError or IndexError.
    """

    __slots__ = ("blocks", "free", "pool_id", "requests", "small", "unmapped")

    def __init__(self, small: bool, pool_id: PoolId) -> None:
        self.small = small
        self.pool_id = pool_id
        self.free: dict[int, list[int]] = {}
        self.unmapped: dict[int, list[int]] = {}
        self.blocks: dict[int, Block] = {}
        self.requests = 0

    def insert(self, block: Block) -> None:
        """Add a free block."""
        keys = self.free.get(block.stream)
        if keys is None:
            keys = self.free[block.stream] = []
        address = block.address
        insort(keys, block.size << SIZE_SHIFT | block.rank | address)
        self.blocks[address] = block
        block.age = self.requests

    def remove(self, block: Block) -> None:
        """Remove a free block."""
        keys = self.free[block.stream]
        address = block.address
        del keys[bisect_left(keys, block.size << SIZE_SHIFT | block.rank | address)]
        del self.blocks[address]

    def insert_unmapped(self, block: Block) -> None:
        """Add address space that is not mapped."""
        insort(self.unmapped.setdefault(block.stream, []), block.address)
        self.blocks[block.address] = block

    def remove_unmapped(self, block: Block) -> None:
        """Remove address space."""
        addresses = self.unmapped[block.stream]
        del addresses[bisect_left(addresses, block.address)]
        del self.blocks[block.address]

    def at_key(self, key: int) -> Block:
        """The free block of a key of `free`."""
        return self.blocks[key & ADDRESS_MASK]

    def in_order(self) -> list[Block]:
        """All free mapped blocks, by stream, size and address (PyTorch's order)."""
        return [self.at_key(key) for stream in sorted(self.free) for key in self.free[stream]]


def merge(block: Block, neighbour: Block | None) -> None:
    """`try_merge_blocks`: let `block`, which is in no pool, absorb a neighbour that is free."""
    if neighbour is None or not neighbour.free or block.mapped != neighbour.mapped:
        return
    if neighbour.mapped:
        neighbour.pool.remove(neighbour)
    else:
        neighbour.pool.remove_unmapped(neighbour)
    if block.previous is neighbour:
        block.address = neighbour.address
        block.previous = neighbour.previous
        if block.previous is not None:
            block.previous.next = block
        block.segment_frames = neighbour.segment_frames
    else:
        block.next = neighbour.next
        if block.next is not None:
            block.next.previous = block
    block.size += neighbour.size
