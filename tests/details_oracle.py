"""What the details panel tells of an allocation, worked out from the oracle's replay with plain loops."""

from __future__ import annotations

from typing import Any

import oracle


def at_address(device: oracle.Device, of: int) -> tuple[int | None, int | None]:
    """(the allocation that covered its first byte last before it, the one that does so first after it)."""
    a = device.allocations[of]
    n = len(device.events)

    def end(b: oracle.Allocation) -> int:
        return n if b.free_event < 0 else b.free_event

    before = after = None
    for i, b in enumerate(device.allocations):
        if i == of or not (b.addr <= a.addr < b.addr + b.size or b.addr == a.addr):
            continue
        if end(b) <= a.alloc_event and (before is None or end(b) >= end(device.allocations[before])):
            before = i
        elif b.alloc_event >= end(a) and (after is None or b.alloc_event < device.allocations[after].alloc_event):
            after = i
    return before, after


def siblings(device: oracle.Device, of: int) -> dict[str, Any]:
    """Allocations with the same stack: count, bytes, those live at the peak, ids of the largest others."""
    same = [i for i, b in enumerate(device.allocations) if b.stack == device.allocations[of].stack]
    live = [i for i in same if device.allocations[i].lives_at(device.peak_event)]
    return {
        "count": len(same),
        "bytes": sum(device.allocations[i].size for i in same),
        "live": len(live),
        "live_bytes": sum(device.allocations[i].size for i in live),
        "largest": sorted((i for i in same if i != of), key=lambda i: (-device.allocations[i].size, i))[:8],
    }
