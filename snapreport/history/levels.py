"""Levels of a series of measurements, and the commits at which they shift; sequential, some microseconds a value.

A value belongs to the level before it if it lies within the level's band: three times the usual noise around the
median. The noise is the larger of the level's own spread (the median of absolute deviations, which single outliers do
not move) and the spread from commit to commit in the whole series, and at least half a percent, and beyond that one
unit in which the memory is had at all, as which of two equal requests comes first may decide. A value outside begins
a new level if the next one is outside on the same side; alone it is an outlier, and at the end it is not confirmed yet.
Where the program's conditions changed, a level ends as well: values before tell nothing about those after.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean, median

from msgspec import Struct

_TO_SIGMA = 1.4826  # of a normal distribution: the standard deviation by the median absolute deviation
_CHANGE_TO_SIGMA = 0.8862  # and by the mean absolute difference of two values
_SHIFTS = 0.1  # of the changes, the largest: these may be shifts, and not noise
_WIDTH = 3.0
_LEAST_SHARE = 0.005


class Level(Struct, frozen=True):
    """The values from ``first`` to before ``end`` lie within ``low`` and ``high`` around ``middle``; is_confirmed: by
    another value after the first.
    """

    first: int
    end: int
    low: float
    middle: float
    high: float
    is_confirmed: bool = True


def levels(values: Sequence[int], unit: int, breaks: Collection[int] = ()) -> list[Level]:
    """At least one level for at least one value; together they cover all. Outliers stay in the level around them.
    ``unit``: bytes by which values differ without a reason; ``breaks``: indices that begin a level in any case.
    """
    noise = _noise_between(values, breaks)
    last = len(values) - 1
    found: list[Level] = []
    first, members = 0, [float(values[0])]
    for number in range(1, len(values)):
        low, middle, high = band(members, noise, unit)
        value = values[number]
        if number not in breaks:
            if low <= value <= high:
                members.append(float(value))
                continue
            if number < last and (values[number + 1] <= high if value > high else values[number + 1] >= low):
                continue
        found.append(Level(first, number, low, middle, high))
        first, members = number, [float(value)]
    low, middle, high = band(members, noise, unit)
    found.append(Level(first, len(values), low, middle, high, first < last or not found))
    return found


def band(members: Sequence[float], noise: float, unit: int) -> tuple[float, float, float]:
    """Low, middle, high."""
    middle = median(members)
    own = _TO_SIGMA * median([abs(value - middle) for value in members])
    half = max(_WIDTH * max(own, noise), _LEAST_SHARE * middle) + unit
    return middle - half, middle, middle + half


def _noise_between(values: Sequence[int], breaks: Collection[int]) -> float:
    """The standard deviation of a value, by the changes from one to the next, without the largest, which may be shifts.

    Their mean, not their median: peaks of reserved memory take a few values, and often the same one twice.
    """
    changes = [abs(values[n] - values[n - 1]) for n in range(1, len(values)) if n not in breaks]
    usual = sorted(changes)[: len(changes) - math.ceil(_SHIFTS * len(changes))]
    return _CHANGE_TO_SIGMA * fmean(usual) if len(usual) > 2 else 0.0
