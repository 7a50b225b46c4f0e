"""Traces whose waste has one cause, recorded by the tests' own slow allocator under PyTorch's default settings."""

from __future__ import annotations

import random
from typing import Any

from slow_allocator import MIB, Segment, SlowAllocator


class Recording(SlowAllocator):
    """A device with `capacity` bytes, and every event in a snapshot's format. `settings`: of the slow allocator."""

    def __init__(self, capacity: int = 1 << 40, **settings: Any) -> None:
        self.trace: list[dict[str, Any]] = []
        self.at = 1 << 40
        usual = {
            "expandable": False, "max_split": None, "rounding": 20 * MIB, "divisions": [0] * 16, "threshold": 0.0,
            "limit": None, "tie_break": "address",
        }  # fmt: skip
        super().__init__(self.place, capacity, 1 << 40, **(usual | settings))
        self.sizes: dict[int, int] = {}

    def place(self, size: int) -> int:
        self.at += 1 << 36
        return self.at

    def event(self, action: str, address: int, size: int, line: int, **more: object) -> None:
        frames = [{"filename": "/w/train.py", "line": line, "name": "step"}]
        self.trace.append({"action": action, "addr": address, "size": size, "stream": 0, "frames": frames, **more})

    def note(self, action: str, size: int) -> None:
        if action == "segment_alloc":
            self.event(action, self.at, size, 1)
        super().note(action, size)

    def release(self, segment: Segment) -> None:
        self.event("segment_free", segment.start, segment.ranges[0].size, 1)
        super().release(segment)

    def request(self, mib: int, line: int = 1) -> int:
        address = self.malloc(mib * MIB, 0, None)
        if address is None:
            raise MemoryError(f"{mib} MiB")
        self.event("alloc", address, mib * MIB, line)
        self.sizes[address] = mib * MIB
        return address

    def fail(self, mib: int, pool: tuple[int, int]) -> None:
        """A request of a memory pool that runs out of memory."""
        assert self.malloc(mib * MIB, 0, pool) is None
        self.event("oom", 0, mib * MIB, 2, device_free=self.capacity - self.reserved, pool_id=pool)

    def drop(self, address: int) -> None:
        for action in ("free_requested", "free_completed"):
            self.event(action, address, self.sizes[address], 1)
        del self.sizes[address]
        self.free(address)

    def snapshot(self) -> dict[str, Any]:
        segments = []
        for one in self.segments:
            blocks = [
                {
                    "address": r.start, "size": r.size, "requested_size": self.sizes.get(r.start, 0),
                    "state": "active_allocated" if r.start in self.sizes else "inactive", "frames": [],
                }
                for r in one.ranges
            ]  # fmt: skip
            total = sum(r.size for r in one.ranges)
            live = sum(block["size"] for block in blocks if block["state"] != "inactive")
            segments.append({
                "device": 0, "address": one.start, "total_size": total, "stream": 0, "allocated_size": live,
                "active_size": live, "segment_type": "small" if one.small else "large", "blocks": blocks,
            })  # fmt: skip
        return {"segments": segments, "device_traces": [self.trace], "allocator_settings": {}}


def split_large_blocks(rounds: int = 5, times: int = 1) -> dict[str, Any]:
    """Long-lived tensors of 113 MiB split cached blocks of 220 MiB, which lie between other long-lived ones: only a
    limit on splitting between the two sizes leaves the large blocks whole.
    """
    record = Recording()
    for _ in range(times):
        large = []
        for _ in range(rounds):
            large.append(record.request(220))
            record.request(2)
        for address in large:
            record.drop(address)
        for _ in range(rounds):
            record.request(113)
    for _ in range(rounds):
        record.request(220)
    return record.snapshot()


def growing_sizes(factor: int = 1) -> dict[str, Any]:
    """Requests of 67 to 80 MiB after blocks of 65 MiB between small long-lived tensors: only sizes rounded up to 80 MiB
    are reused.
    """
    record = Recording()
    cached = []
    for _ in range(14):
        cached.append(record.request(65 * factor))
        record.request(2)
    for address in cached:
        record.drop(address)
    for mib in range(67, 81):
        record.request(mib * factor)
    return record.snapshot()


def growing_alone() -> dict[str, Any]:
    """Each request is twice as large as all before, with nothing between: a segment that grows serves all."""
    record = Recording()
    for mib in (24, 50, 102, 206, 414, 830):
        record.drop(record.request(mib))
    return record.snapshot()


def full_device() -> dict[str, Any]:
    """Each request is larger than all that is cached, which fills a device of 4 GiB repeatedly: where old blocks are
    collected early, nothing is retried.
    """
    record = Recording(4096 * MIB)
    for number in range(60):
        record.drop(record.request(100 + 10 * number))
    assert record.retries > 3
    return record.snapshot()


def mixed_sizes(seed: int) -> list[int]:
    """Requests of 21 to 499 MiB, of which at most 620 MiB are live: a positive number requests so many MiB, a negative
    one frees the request of that place, the first being -1.
    """
    draw = random.Random(seed)
    program: list[int] = []
    live: list[tuple[int, int]] = []
    for number in range(1, 61):
        mib = draw.randrange(21, 500)
        while live and sum(size for _, size in live) + mib > 620:
            program.append(-live.pop(draw.randrange(len(live)))[0])
        live.append((number, mib))
        program.append(mib)
    return program


def peak_reserved(record: Recording, program: list[int]) -> int | None:
    """Runs a program of :func:`mixed_sizes` and returns its peak in bytes; None where it runs out of memory."""
    addresses: list[int] = []
    peak = 0
    for step in program:
        if step < 0:
            record.drop(addresses[-step - 1])
            continue
        try:
            addresses.append(record.request(step))
        except MemoryError:
            return None
        peak = max(peak, record.reserved)
    return peak


def failures_in_private_pools() -> dict[str, Any]:
    """Three requests of 450 MiB fail although 500 MiB are free in a block of the default pool: two are of private
    pools, one with memory and one without, and one of the default pool after that block is in use.
    """
    record = Recording(1024 * MIB)
    record.drop(record.request(600))
    record.request(100)
    record.fail(450, (0, 1))
    record.fail(450, (0, 2))
    record.request(450)
    record.fail(450, (0, 0))
    return record.snapshot()
