"""Which events a part of a trace has, and when what a device uses has changed, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from snapreport.timeline import device_use, part
from snapreport.timeline.part import PartChoice


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
