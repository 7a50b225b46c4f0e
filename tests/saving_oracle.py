"""What a saving is, computed independently: the allocated curve summed event by event, without the bytes that a change
removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import accumulate
from typing import Any

import oracle

from snapreport.snapshot import Snapshot


def bytes_out(snapshot: Snapshot, device: int, replayed: oracle.Device, saving: Mapping[str, Any]) -> dict[int, int]:
    """By allocation: the bytes saved, of those that the saving's query selects. Whole bytes, rounded down for each."""
    ids = snapshot.query(saving["query"], device)["id"].to_list()  # type: ignore[attr-defined]
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
