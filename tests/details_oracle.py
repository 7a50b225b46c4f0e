"""What the details panel shows of an allocation, computed from the oracle's replay with plain loops."""

from __future__ import annotations

from typing import Any

import block_oracle
import oracle


def at_address(device: oracle.Device, of: int) -> tuple[int | None, int | None]:
    """(the allocation that last covered its first byte before it, the one that does so first after it)."""
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


def beside(
    device: oracle.Device, segments: list[list[block_oracle.Segment]], of: int
) -> tuple[Any, int | None, int | None]:
    """(its segment when it is born, and its neighbours there below and above)."""
    a = device.allocations[of]
    around = [s for s in segments[a.alloc_event + 1] if s.start <= a.addr < s.end]
    if not around:
        return None, None, None
    live = [i for i in device.live_at(a.alloc_event) if around[0].start <= device.allocations[i].addr < around[0].end]
    inside = sorted(live, key=lambda i: device.allocations[i].addr)
    at = inside.index(of)
    return around[0], inside[at - 1] if at else None, inside[at + 1] if at + 1 < len(inside) else None


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
