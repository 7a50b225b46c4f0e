"""Device memory for a replay: a budget of bytes, and where the driver places new segments.

Where cudaMalloc would place a segment is unknown, and PyTorch breaks ties between free blocks of one size by address.
So a replay under other settings is repeated with several placements, and their spread is part of the error bar.
"""

from __future__ import annotations

from collections import deque

from snapreport.allocator.blocks import ROUND_LARGE
from snapreport.allocator_facts import REPLAYS

UNLIMITED = 1 << 62
TOTAL = REPLAYS["device_bytes"]
"""Bytes of the device where its size is not known; expandable segments reserve 9/8 of it as address space."""
SHIFT = 1 << 51
"""Recorded addresses are shifted up by this much, to leave room for new segments below and above them."""
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
    """New segments lie in a random order, above and below the recorded ones: the same order in the page for one seed.

    Two regions on either side of the recorded addresses: one of slots of 64 GiB, one of slots of 2 TiB. Where most are
    in use, new segments lie above all others.
    """

    def __init__(self, capacity: int | None, seed: int) -> None:
        super().__init__(capacity)
        self._next = SHIFT + (3 << 49)
        self._random = (seed + 1) * 0x9E3779B1 & 0xFFFFFFFF
        self._taken: set[int] = set()
        self._slots = [0, 0]

    def reserve(self, size: int, mapped: bool) -> int:
        wide = size > 1 << _SLOT_BITS
        bits = _WIDE_SLOT_BITS if wide else _SLOT_BITS
        count = 1 << (49 - bits)
        if size > 1 << _WIDE_SLOT_BITS or self._slots[wide] > count:  # half of both sides
            return super().reserve(size, mapped)
        while True:
            draw = self._draw()
            side = SHIFT - (1 << 50) if not draw & 1 else SHIFT + (1 << 49)
            start = side + ((draw >> 1) % count << bits) + (wide << 49)
            if start not in self._taken:
                self._taken.add(start)
                self._slots[wide] += 1
                return start

    def release(self, address: int, size: int) -> None:
        if address in self._taken:
            self._taken.remove(address)
            self._slots[size > 1 << _SLOT_BITS] -= 1

    def _draw(self) -> int:
        """The next number of xorshift32 (Marsaglia 2003), which 32-bit integers of JavaScript compute as well."""
        value = self._random
        value ^= value << 13 & 0xFFFFFFFF
        value ^= value >> 17
        value ^= value << 5 & 0xFFFFFFFF
        self._random = value
        return value


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
