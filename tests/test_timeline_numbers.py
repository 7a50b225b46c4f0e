"""Rounded requests, parts of a trace, steps of what a device uses, and curves: by plain loops, or by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from snapreport.errors import SnapshotError
from snapreport.reading.fields import MAX_SIZE
from snapreport.reading.recording import ACTIONS
from snapreport.timeline import device_use, part
from snapreport.timeline.curves import allocated_curve, reserved_curve
from snapreport.timeline.part import PartChoice
from snapreport.timeline.rounding import AllocatorRules, allocator_rules


def plain_block(size: int, divisions: tuple[int, ...]) -> int:
    """c10/cuda/CUDACachingAllocator.cpp: round_size and roundup_power2_next_division."""
    power = size.bit_length() - 1
    count = divisions[min(max(power - 20, 0), len(divisions) - 1)]
    if count > 1 and size > 512 * count:
        step = max(1, (1 << power) >> (count.bit_length() - 1))
        return -(-size // step) * step
    return max(-(-size // 512), 1) * 512


@pytest.mark.parametrize(
    "divisions", [(0,) * 16, (1,) * 16, (4,) * 16, (0, 2, 4, 8, 16, *[32] * 11), (2048, *[8] * 15)]
)
def test_requests_are_rounded_as_pytorch_does(divisions: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(set(divisions)))
    near = [max(0, (1 << power) + more) for power in range(9, 41) for more in (-513, -1, 0, 1, 512)]
    sizes = np.array([0, 1, *near, *(2 ** rng.uniform(0, 40, 300)).astype(np.int64)], np.int64)
    expected = [plain_block(size, divisions) for size in sizes.tolist()]
    assert AllocatorRules(divisions).rounded(sizes).tolist() == expected


def test_rules_of_recorded_settings() -> None:
    def divisions(given: dict[str, Any]) -> list[int]:
        return list(allocator_rules({"roundup_power2_divisions": given}).divisions)

    assert divisions({"1": 4, "2": 8, "32768": 2, "3": 9}) == [4, 8, *[0] * 13, 2]
    assert divisions({"1": -1, "2": True, "4": 1 << 20, "8": (1 << 20) + 1, "16": "4"}) == [0, 0, 1 << 20, *[0] * 13]
    assert allocator_rules({"roundup_power2_divisions": 4}).divisions == (0,) * 16
    limits = [allocator_rules({"max_split_size": size}).max_split_size for size in (1, 0, -1, 2**62 - 1, 2**62, True)]
    assert limits == [1, None, None, 2**62 - 1, None, None]
    given = [allocator_rules({"expandable_segments": one}).expandable for one in (True, False, 1, None)]
    assert given == [True, False, False, False]


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ({"last": 5}, (95, 100)),
        ({"last": 200}, (0, 100)),
        ({"events": (10, 20)}, (10, 20)),
        ({"events": (None, 20)}, (0, 20)),
        ({"events": (10, None)}, (10, 100)),
        ({"events": (90, 300)}, (90, 100)),
        ({"events": (200, 300)}, (100, 100)),
        ({"steps": (4, 6)}, (20, 46)),
        ({"steps": (4, 5)}, (20, 30)),
        ({"steps": (None, 4)}, (10, 20)),
        ({"steps": (4, None)}, (20, 46)),
        ({"steps": (6, None)}, (100, 100)),
        ({"steps": (None, 3)}, (100, 100)),
    ],
)
def test_events_of_a_part(choice: dict[str, Any], chosen: tuple[int, int]) -> None:
    steps = pl.DataFrame({"step": [3, 4, 5], "first_event": [10, 20, 30], "last_event": [19, 29, 45]})
    whole: Any = SimpleNamespace(events=range(100), steps=steps)
    found = part._chosen(whole, PartChoice(**choice))
    assert (found.first, found.end, found.whole) == (*chosen, 100)


def test_parts_that_are_none() -> None:
    for good in ({}, {"events": (None, 1)}, {"events": (0, 1)}, {"steps": (3, 4)}, {"steps": (3, None)}, {"last": 1}):
        assert bool(PartChoice(**good)) == bool(good)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"events": (5, 5)}, "events 5:5 are none"),
        ({"events": (-1, None)}, "events -1: are none"),
        ({"steps": (None, 0)}, "steps :0 are none"),
        ({"last": 0}, "the last 0 events are none"),
        ({"last": 1, "events": (0, 1)}, "give one of them"),
    ]
    for choice, said in wrong:
        with pytest.raises(ValueError, match=said):
            PartChoice(**choice)


@pytest.mark.parametrize(
    ("lowest", "highest", "changes"),
    [
        ([10], [10], [(0, 10)]),
        ([9], [9], []),
        ([-10], [-10], [(0, -10)]),
        ([-9], [-9], []),
        ([0, 10, 10, 30], [0, 10, 10, 30], [(1, 10), (3, 20)]),
        ([20, 10], [20, 10], [(0, 20), (1, -10)]),
        ([20, 11], [20, 11], [(0, 20)]),
        ([10, 15, 30], [20, 30, 40], [(0, 15), (2, 15)]),  # what all bounds agree on
        ([10, 5, 22], [20, 12, 30], [(0, 10), (2, 12)]),
        ([10, 5, 21], [20, 12, 30], [(0, 10)]),
        ([10, 25, 20], [12, 30, 30], [(0, 10), (1, 15)]),
        ([9, 19], [30, 40], [(1, 19)]),
    ],
)
def test_changes_of_a_value_between_bounds(
    lowest: list[int], highest: list[int], changes: list[tuple[int, int]]
) -> None:
    assert device_use._steps(np.array(lowest), np.array(highest), 10) == changes


@pytest.mark.parametrize("seed", range(3))
def test_allocated_bytes_after_each_event(seed: int) -> None:
    rng = np.random.default_rng(seed)
    events = rng.permutation(30)
    alloc = np.array([-1, -1, *np.minimum(events[:10], events[10:20])])
    free = np.array([events[20], -1, *np.maximum(events[:10], events[10:20])])
    free[5] = -1
    size = rng.integers(1, 99, 12)
    expected = [
        sum(
            n
            for n, a, f in zip(size.tolist(), alloc.tolist(), free.tolist(), strict=True)
            if a < at and not 0 <= f < at
        )
        for at in range(31)
    ]
    assert allocated_curve(alloc, free, size, 30).tolist() == expected


def test_bytes_beyond_any_memory_are_refused() -> None:
    one = np.zeros(1, np.int64)
    assert allocated_curve(one, one - 1, np.array([MAX_SIZE]), 1).tolist() == [0, MAX_SIZE]
    for size in (MAX_SIZE + 1, 2**62, 2**63 - 1):
        with pytest.raises(SnapshotError, match="more than any memory"):
            allocated_curve(one, one - 1, np.array([size]), 1)
    action = np.array([ACTIONS.index("segment_alloc")])
    with pytest.raises(SnapshotError, match="more than any memory"):
        reserved_curve(action, np.array([2**61]), 2**61)


def test_reserved_bytes_end_at_what_the_segments_have() -> None:
    changes = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
    names = ["segment_alloc", "alloc", "segment_map", "free_completed", "segment_unmap", "segment_free", "oom"]
    size = [32, 7, 16, 7, 8, 32, 99]
    curve = reserved_curve(np.array([ACTIONS.index(name) for name in names]), np.array(size), 40)
    before = 40 - sum(changes.get(name, 0) * one for name, one in zip(names, size, strict=True))
    expected = [before]
    for name, one in zip(names, size, strict=True):
        expected.append(expected[-1] + changes.get(name, 0) * one)
    assert curve.tolist() == expected and expected[-1] == 40
