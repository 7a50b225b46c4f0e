"""The memory of one device as the driver sees it: physical bytes and virtual addresses.

Models cudaMalloc/cudaFree and cuMemAddressReserve/cuMemCreate: a budget of physical bytes, and 2 MiB aligned addresses
that are reused after release, lowest first.
"""

from __future__ import annotations

from bisect import bisect_left, insort

ADDRESS_BASE = 0x7000_0000_0000
"""Device memory is near the top of the 47-bit address space of x86-64."""
DEVICE_STRIDE = 1 << 42
ALIGNMENT = 2 * 1024 * 1024


class DeviceMemory:
    """Physical memory of `total` bytes, of which `other` are used outside the allocator (context, NCCL)."""

    def __init__(self, device: int, total: int, other: int) -> None:
        self.total = total
        self.other = other
        self.used = 0
        self._next = ADDRESS_BASE + device * DEVICE_STRIDE + ALIGNMENT
        self._holes: list[tuple[int, int]] = []

    @property
    def free_bytes(self) -> int:
        """What cudaMemGetInfo calls free."""
        return self.total - self.other - self.used

    def take(self, size: int) -> bool:
        """Take physical bytes; false if the device does not have enough."""
        if size > self.free_bytes:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Return physical bytes."""
        self.used -= size

    def reserve(self, size: int, mapped: bool = True) -> int:
        """An address range of `size` bytes: the lowest unused range that fits, otherwise a new one."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        for index, (start, length) in enumerate(self._holes):
            if length >= size:
                if length == size:
                    del self._holes[index]
                else:
                    self._holes[index] = (start + size, length - size)
                return start
        start = self._next
        self._next += size
        return start

    def release(self, start: int, size: int) -> None:
        """Release an address range, merging it with adjacent free ranges."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        holes = self._holes
        at = bisect_left(holes, (start, 0))
        if at < len(holes) and holes[at][0] == start + size:
            size += holes.pop(at)[1]
        if at and holes[at - 1][0] + holes[at - 1][1] == start:
            at -= 1
            start, length = holes.pop(at)
            size += length
        insort(holes, (start, size))
