"""The numbers of findings, recomputed from a snapshot's raw events with plain loops: the expected evidence of each.

Rows are complete where a finding lists the first of them. Holes that fit requests are in ``room_oracle``.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import oracle
import saving_oracle
from held_oracle import Row, by_category, by_stack, function, live_at, module_of, place, rows
from room_oracle import TAKES

MIB = 1 << 20
RELEASES = ("segment_free", "segment_unmap")


def least_bytes(device: oracle.Device) -> float:
    return max(MIB, 0.001 * device.peak_bytes)


def peak_without(device: oracle.Device, stack: oracle.Frames) -> Row:
    """The peak of the allocations of all other stacks."""
    others = oracle.curve([a for a in device.allocations if a.stack != stack], len(device.events))
    return {"peak_without_bytes": max(others), "peak_without_event": others.index(max(others)) - 1}


def peak(device: oracle.Device) -> Row:
    most, event = device.peak_bytes, device.peak_event  # recomputed each time
    live = live_at(device, event)
    low = [i - 1 for i in range(event + 1) if device.allocated[i] <= 0.75 * most]
    start = low[-1] if low else -1
    added = [a for a in live if a.alloc_event > start]
    module = module_of(live)
    modules = [a for a in live if module(a)]
    return {
        "bytes": most,
        "peak_bytes": most,
        "peak_event": event,
        "reserved_bytes": device.reserved[event + 1],
        "count": len(live),
        "categories": by_category(live),
        "unknown_bytes": sum(row["bytes"] for row in by_category(live) if row["category"] == "unknown"),
        "no_frames_bytes": sum(a.size for a in live if not a.stack),
        "before_trace_bytes": sum(a.size for a in live if a.alloc_event < 0),
        "stacks": [
            {**row, **(peak_without(device, row["stack"]) if n < 12 else {})} for n, row in enumerate(by_stack(live))
        ],
        "functions": rows(live, "function", lambda a: function(a.stack)),
        "places": rows(live, "place", lambda a: place(a.stack)),
        "modules": rows(modules, "module", module),
        "module_bytes": sum(a.size for a in modules),
        "last_stretch": {
            "from_event": start,
            "added_bytes": sum(a.size for a in added),
            "count": len(added),
            "categories": by_category(added),
            "stacks": by_stack(added),
        },
    }


def kept(device: oracle.Device, leak_bytes: int, steps: int | None) -> Row | None:
    """What is live at the end and was allocated within the trace; None where it is too small to report."""
    live = [a for a in device.allocations if a.free_event < 0]
    new = [a for a in live if a.alloc_event >= 0]
    older = [a for a in live if a.alloc_event < 0]
    size = sum(a.size for a in new)
    if size < least_bytes(device):
        return None
    return {
        "bytes": size,
        "start_bytes": device.allocated[0],
        "end_bytes": device.allocated[-1],
        "new_bytes": size,
        "new_count": len(new),
        "first_half_bytes": sum(a.size for a in new if a.alloc_event < len(device.events) // 2),
        "older_bytes": sum(a.size for a in older),
        "older_count": len(older),
        "leak_bytes": leak_bytes,
        "steps": steps,
        "categories": by_category(new),
        "stacks": by_stack(new),
        "places": rows(new, "place", lambda a: place(a.stack)),
    }


def step_bounds(spans: list[tuple[Any, ...]]) -> list[int] | None:
    """Events at which annotated steps begin, and the one after the last; None for fewer than four. ``spans``: name,
    first, last.

    A step in which nothing was recorded begins where the next one does.
    """
    steps = sorted((first, last) for name, first, last, *_ in spans if name.startswith("ProfilerStep#"))
    return sorted({*(first for first, _ in steps), steps[-1][1] + 1}) if len(steps) >= 4 else None


def recorded_bounds(events: list[Row], ends: list[int]) -> list[int] | None:
    """The same of steps whose ends ``snapreport record`` noted, in µs."""
    bounds = sorted({0, *(oracle.position_at(events, time) + 1 for time in ends)})
    return bounds if len(bounds) > 4 else None


def stretch(bounds: list[int], event: int) -> int:
    """The step that an event falls into; -1 before the first, their number after the last."""
    return sum(event >= bound for bound in bounds) - 1


def leak(device: oracle.Device, stack: oracle.Frames, bounds: list[int]) -> Row:
    own = [a for a in device.allocations if a.stack == stack]
    left = [a for a in own if a.free_event < 0 and a.alloc_event >= 0]
    count = len(bounds) - 1
    births = [sum(a.size for a in left if stretch(bounds, a.alloc_event) == k) for k in range(count)]
    live = oracle.curve(own, len(device.events))  # entry i + 1 is after event i
    told = births[1:-1] if count - 1 > 4 else births[1:]
    removed = oracle.curve(left, len(device.events))
    counted = saving_oracle.with_failures(device)
    without = [a - b for a, b in zip(counted.allocated, removed, strict=True)]
    failed = [i for i, e in enumerate(device.events) if e["action"] == "oom" and e.get("device_free") is not None]
    return {
        "bytes": sum(a.size for a in left),
        "bytes_per_step": round(median(told)),
        "every": 1,
        "stacks": [
            {
                "stack": stack,
                "bytes": sum(births),
                "count": len(left),
                "bytes_per_step": round(median(told)),
            }
        ],
        "saving": {
            "fraction": 1.0,
            "peak_bytes": max(without),
            "peak_event": without.index(max(without)) - 1,
            "saves_bytes": counted.peak_bytes - max(without),
        },
        "needed_peak_bytes": peak_with_one_each(counted, left, bounds),
        "preallocated_peak_bytes": 0,  # of tensors that are replaced, which test_leak_shapes.py has
        "joined_bytes": 0,  # of what is computed from all that leaks, which test_mistakes.py has
        "live_bytes": sum(births),
        "live_count": len(left),
        "freed_bytes": sum(a.size for a in own if a.alloc_event >= 0 and a.free_event >= bounds[-1]),
        "steps": count,
        "staircase": [min(live[bounds[k] + 1 : bounds[k + 1] + 1]) for k in range(count)],
        "bounds": bounds,
        "device_limit": max((device.reserved[i + 1] + device.events[i]["device_free"] for i in failed), default=0),
    }


def peak_with_one_each(device: oracle.Device, left: list[Any], bounds: list[int]) -> int:
    """The peak where each of ``left`` goes when its step is over and a later one has allocated its own."""
    without = list(device.allocated)
    for a in left:
        own = stretch(bounds, a.alloc_event)
        later = [b.alloc_event for b in left if stretch(bounds, b.alloc_event) > own]
        over = [*bounds, len(device.events)][own + 1]
        goes = max(over, min(later) + 1) if later else len(device.events)
        for i in range(goes + 1, len(without)):
            without[i] -= a.size
    return max(without)


def bursts_of(device: oracle.Device, stack: oracle.Frames, bounds: list[int]) -> tuple[list[Row], int]:
    """(frees of one stack in close succession, of allocations from several steps; bytes of all its frees)."""
    last = len(bounds) - 1
    gone = [a for a in device.allocations if a.stack == stack and a.alloc_event >= 0 and a.free_event >= 0]
    gone = [a for a in gone if stretch(bounds, a.alloc_event) >= 0 and stretch(bounds, a.free_event) < last]
    bursts: list[list[oracle.Allocation]] = []
    for a in sorted(gone, key=lambda a: a.free_event):
        if bursts and a.free_event - bursts[-1][-1].free_event <= 32:
            bursts[-1].append(a)
        else:
            bursts.append([a])
    found = []
    for burst in bursts:
        oldest = min(stretch(bounds, a.alloc_event) for a in burst)
        newest = max(stretch(bounds, a.free_event) for a in burst)
        size = sum(a.size for a in burst)
        if len(burst) >= 3 and newest - oldest >= 2 and size >= least_bytes(device):
            found.append({"bytes": size, "first": burst[0].free_event, "count": len(burst), "steps": newest - oldest})
    return found, sum(a.size for a in gone)


def cycles(device: oracle.Device, stack: oracle.Frames, bounds: list[int]) -> Row:
    found, total = bursts_of(device, stack, bounds)
    most = max(burst["bytes"] for burst in found)
    return {
        "at": min(burst["first"] for burst in found if burst["bytes"] == most) - 1,  # just before the largest is freed
        "bytes": most,
        "bursts": len(found),
        "burst_bytes": most,
        "burst_count": max(burst["count"] for burst in found),
        "share_of_bytes": round(sum(burst["bytes"] for burst in found) / total, 4),
    }


def in_frames(event: Row, *words: str) -> bool:
    return any(word in f"{file} {name}".lower() for file, _, name in oracle.frames_of(event) for word in words)


def explained(events: list[Row]) -> set[int]:
    """Releases that an out-of-memory error or the capture of a CUDA graph explains."""
    found = {i for i, e in enumerate(events) if e["action"] in RELEASES and in_frames(e, "torch/cuda/graphs.py")}
    for oom in (i for i, e in enumerate(events) if e["action"] == "oom"):
        first = oom
        for i in range(max(0, oom - 8), min(len(events), oom + 1000)):
            if events[i]["action"] in RELEASES:
                found.add(i)
                first = min(first, i)
        while first and first in found and events[first - 1]["action"] in RELEASES:
            first -= 1
            found.add(first)
    return found


def churn(device: oracle.Device, bounds: list[int] | None) -> Row | None:
    """Segments released and allocated again after warm-up; None where it is too little to report."""
    events = device.events
    warm = bounds[1] if bounds else int(len(events) * 0.1)
    released = [i for i, e in enumerate(events) if e["action"] in RELEASES]
    if not released:
        return None
    excused = explained(events)
    freed = [i for i in released if i >= warm and i not in excused]
    again, before, most, last_freed = [], [], device.reserved[0], -1
    for i, e in enumerate(events):
        if e["action"] in RELEASES and i >= warm:
            last_freed = i
        grew = device.reserved[i + 1] > most
        if e["action"] in TAKES and i > max(warm, released[0]) and not grew and last_freed not in excused:
            again.append(i)
            before.append(last_freed)
        most = max(most, device.reserved[i + 1])
    if len(again) < 4 or len(set(before)) < 3:
        return None
    times = [e.get("time_us") for e in events]
    stall = None
    if None not in times:
        # cudaFree is called after its entry is recorded, cuMemUnmap before.
        pairs = [(i, i + 1) if events[i]["action"] == "segment_free" else (i - 1, i) for i in freed]
        stall = sum(max(0, times[b] - times[a]) for a, b in pairs if a >= 0 and b < len(times))
    born = {a.alloc_event: a.stack for a in device.allocations if a.alloc_event >= 0}
    found: dict[oracle.Frames, Row] = {}
    for i in again:
        stack = oracle.frames_of(events[i]) or next((born[k] for k in range(i, len(events)) if k in born), ())
        row = found.setdefault(stack, {"stack": stack, "bytes": 0, "count": 0})
        row["bytes"] += events[i]["size"]
        row["count"] += 1
    total = sum(events[i]["size"] for i in again)
    emptied = [
        i for i in freed if any("empty_cache" in n.lower() or "emptycache" in n.lower() for n in names_of(events[i]))
    ]
    return {
        "first": again[0],
        "last": again[-1],
        "bytes": total,
        "segments_again": len(again),
        "segments_freed": len(freed),
        "bytes_again": total,
        "stall_us": stall,
        "retries": retries(device, [i for i in freed if i not in set(emptied)]),
        "emptied": len(emptied),
        "warm_event": warm,
        "stacks": sorted(found.values(), key=lambda row: -row["bytes"]),
    }


def names_of(event: Row) -> list[str]:
    return [name for _, _, name in oracle.frames_of(event)]


def retries(device: oracle.Device, freed: list[int]) -> int:
    """Runs of releases directly followed by a segment that would not have fitted beside them."""
    count, start = 0, None
    for i in freed:
        start = i if start is None or i - 1 not in freed else start
        following = device.events[i + 1] if i + 1 < len(device.events) else {"action": ""}
        if i + 1 not in freed and following["action"] in TAKES:
            count += device.reserved[start] + following["size"] > max(device.reserved)
    return count
