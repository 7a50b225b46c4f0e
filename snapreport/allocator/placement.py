"""Device memory for a replay: a budget of bytes, and where the driver places new segments.

Where cudaMalloc places a segment is not known, and PyTorch breaks ties between free blocks of one size by address. So a
replay under other settings is repeated with several placements, and their spread is part of the error bar.
"""

from __future__ import annotations

import random
from collections import deque

from snapreport.allocator.blocks import ROUND_LARGE

UNLIMITED = 1 << 62
TOTAL = 1 << 40
"""Bytes of the device where its size is not known; expandable segments reserve 9/8 of it as address space."""
SHIFT = 1 << 51
"""Recorded addresses are moved up by this much, so that there is room for new segments below and above them."""
_ABOVE = SHIFT + (1 << 48)
_SLOT_BITS, _WIDE_SLOT_BITS = 36, 41


class Ascending:
    """Each new segment lies above all others; `capacity` bytes at most."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = UNLIMITED if capacity is None else capacity
        self.total = TOTAL if capacity is None else min(capacity, TOTAL)
        self.used = 0
        self._next = _ABOVE

    def take(self, size: int) -> bool:
        """Takes physical bytes; false where fewer are left."""
        if self.used + size > self.capacity:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Returns physical bytes."""
        self.used -= size

    def reserve(self, size: int, mapped: bool) -> int:
        """The address of a new segment."""
        start = self._next
        self._next += _aligned(size)
        return start

    def release(self, address: int, size: int) -> None:
        """Addresses are not used twice."""


class Descending(Ascending):
    """Each new segment lies below all others."""

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self._next = SHIFT

    def reserve(self, size: int, mapped: bool) -> int:
        self._next -= _aligned(size)
        return self._next


class Shuffled(Ascending):
    """New segments lie in a random order, above and below the recorded ones."""

    def __init__(self, capacity: int | None, seed: int) -> None:
        super().__init__(capacity)
        self._random = random.Random(seed)
        self._taken: set[int] = set()

    def reserve(self, size: int, mapped: bool) -> int:
        # Two regions on either side of the recorded addresses: one for slots of 64 GiB, one for slots of 2 TiB.
        wide = size > 1 << _SLOT_BITS
        bits = _WIDE_SLOT_BITS if wide else _SLOT_BITS
        while True:
            slot = self._random.randrange(1 << (49 - bits))
            side = self._random.randrange(2)
            start = (SHIFT - (1 << 50) if not side else SHIFT + (1 << 49)) + (slot << bits) + (wide << 49)
            if start not in self._taken:
                self._taken.add(start)
                return start


class Recorded(Ascending):
    """New segments lie where the trace says, where it has one of the same size at that event; else above all others.

    at: by event of the request, the (address, bytes) of the segments that were allocated for it, in order; 0 bytes for
    mapped memory, whose address is that of a new expandable segment.
    """

    def __init__(self, capacity: int | None, at: dict[int, list[tuple[int, int]]]) -> None:
        super().__init__(capacity)
        self._at = {event: deque(segments) for event, segments in at.items()}
        self.event = -1

    def reserve(self, size: int, mapped: bool) -> int:
        segments = self._at.get(self.event)
        if segments and segments[0][1] == (size if mapped else 0):
            return segments.popleft()[0] + SHIFT
        return super().reserve(size, mapped)


def _aligned(size: int) -> int:
    return -(-size // ROUND_LARGE) * ROUND_LARGE


def placements(capacity: int | None, count: int) -> list[Ascending]:
    """The first `count` of: above, below, and three random orders."""
    every = [Ascending(capacity), Descending(capacity)]
    return (every + [Shuffled(capacity, seed) for seed in range(count)])[:count]
