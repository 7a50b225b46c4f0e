"""What a saving is, computed independently: the allocated curve summed event by event, without the bytes that a change
removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import oracle

from snapreport.snapshot import Snapshot


def failures(device: oracle.Device) -> list[int]:
    """``oom`` events, but those after which the next allocation has the same stack: the line went on."""

    def frames(event: int) -> list[tuple[Any, ...]]:
        return [tuple(frame.values()) for frame in device.events[event].get("frames") or ()]

    births = [i for i, e in enumerate(device.events) if e["action"] == "alloc"]
    ooms = [i for i, e in enumerate(device.events) if e["action"] == "oom"]
    following = {i: next((b for b in births if b > i), None) for i in ooms}
    return [i for i, b in following.items() if b is None or frames(b) != frames(i)]


def with_failures(device: oracle.Device) -> oracle.Device:
    """The device with every request that failed as an allocation, alive at its event alone; ``device`` without any."""
    failed = failures(device)
    if not failed:
        return device
    last, allocated = len(device.events) - 1, list(device.allocated)
    more = [oracle.Allocation(0, device.events[i]["size"], "traced", i, -1, i + 1 if i < last else -1) for i in failed]
    for i in failed:
        allocated[i + 1] += device.events[i]["size"]
    return replace(device, allocations=[*device.allocations, *more], allocated=allocated)


def bytes_out(snapshot: Snapshot, device: int, replayed: oracle.Device, saving: Mapping[str, Any]) -> dict[int, int]:
    """By allocation: the bytes saved, of those that the saving's query selects, and of its requests that failed. Whole
    bytes, rounded down for each.
    """
    ids = snapshot.query(saving["query"], device)["id"].to_list()  # type: ignore[attr-defined]
    known = len(snapshot.allocations(device))
    ids += [n for n, a in enumerate(replayed.allocations) if n >= known and a.alloc_event in saving["failed_events"]]
    fraction = Fraction(saving["fraction"])
    return {number: int(replayed.allocations[number].size * fraction) for number in ids}


def largest(changes: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Several changes at once: what is in more than one loses the largest of their amounts, once."""
    every: dict[int, int] = {}
    for change in changes:
        for number, size in change.items():
            every[number] = max(size, every.get(number, 0))
    return every


def peak_without(replayed: oracle.Device, change: Mapping[int, int]) -> tuple[int, int]:
    """(highest allocated, first position) of the curve that all allocations make with their bytes changed."""
    steps = [0] * (len(replayed.events) + 1)
    for number, a in enumerate(replayed.allocations):
        size = a.size - change.get(number, 0)
        steps[a.alloc_event + 1] += size
        if a.free_event >= 0:
            steps[a.free_event + 1] -= size
    curve = list(accumulate(steps))
    most = max(curve)
    return most, curve.index(most) - 1


def at_peak(replayed: oracle.Device, numbers: Iterable[int]) -> int:
    """Bytes of some allocations at the peak, unchanged."""
    return sum(replayed.allocations[n].size for n in numbers if replayed.allocations[n].lives_at(replayed.peak_event))
