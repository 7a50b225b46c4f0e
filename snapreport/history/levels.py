"""Levels of a series of measurements, and the commits at which they shift; sequential, some microseconds a value.

A value belongs to the level before it if it lies within the level's band: three times the usual noise around the
median. The noise is the larger of the level's own spread and the spread from commit to commit in the whole series
(medians of absolute deviations, which single outliers do not move), and at least half a percent. A value outside begins
a new level if the next one is outside on the same side; alone it is an outlier, and at the end it is not confirmed yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

_TO_SIGMA = 1.4826  # of a normal distribution: the standard deviation by the median absolute deviation
_WIDTH = 3.0
_LEAST_SHARE, _LEAST = 0.005, 1 << 20  # half a percent, and an allocator's small segment of 2 MiB rounded either way


@dataclass(frozen=True)
class Level:
    """The values from ``first`` to before ``end`` lie within ``low`` and ``high`` around ``middle``; is_confirmed: by a
    second value.
    """

    first: int
    end: int
    low: float
    middle: float
    high: float
    is_confirmed: bool = True


def levels(values: Sequence[int]) -> list[Level]:
    """At least one level for at least one value; together they cover all. Outliers stay in the level around them."""
    noise = _noise_between(values)
    found: list[Level] = []
    first, members = 0, [float(values[0])]
    for number in range(1, len(values)):
        low, middle, high = band(members, noise)
        value = values[number]
        if low <= value <= high:
            members.append(float(value))
            continue
        is_last = number + 1 == len(values)
        if is_last or (values[number + 1] > high if value > high else values[number + 1] < low):
            found.append(Level(first, number, low, middle, high, len(members) > 1 or not found))
            first, members = number, [float(value)]
    low, middle, high = band(members, noise)
    found.append(Level(first, len(values), low, middle, high, len(members) > 1 or not found))
    return found


def band(members: Sequence[float], noise: float) -> tuple[float, float, float]:
    """Low, middle, high."""
    middle = median(members)
    own = _TO_SIGMA * median([abs(value - middle) for value in members])
    half = max(_WIDTH * max(own, noise), _LEAST_SHARE * middle, _LEAST)
    return middle - half, middle, middle + half


def _noise_between(values: Sequence[int]) -> float:
    """The standard deviation of a value, by the changes from one to the next, of which shifts are few."""
    changes = [abs(after - before) for before, after in pairwise(values)]
    return _TO_SIGMA * median(changes) / 2**0.5 if len(changes) > 3 else 0.0
