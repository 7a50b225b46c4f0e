"""Whether a line's bytes grow: how often and how regularly they reach a level from which they never come down.

Lowest live bytes by repetition leave out what is allocated and freed within each. A repetition adds to a line if from
then on at least so much stays allocated, and never was before. A ring buffer that is full, the next tooth of a
sawtooth, and a tensor that takes the place of its like add nothing.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

FEWEST_GROWTHS = 4
"""Fewer show no trend: a cache with three entries has as many."""
_FEW_GROWTHS = 6
"""With fewer growths they must be regular: as many tensors of different sizes are built up once."""
_MIN_LATE_GROWTH = 0.35
"""The share of its growth that falls into the later half of the repetitions since it began."""
_MAX_GROWTH_RATIO = 2.5
"""By this factor at most, a growth differs from the median one to be of the same kind."""
_MIN_DURATION = 0.25
"""The share of the repetitions that growth lasts for at least: later, it may be the build-up of something new."""


class Growth(Struct, frozen=True):
    """Growth of one line.

    ``status``: "grows"; "suspect" where it may, and the trace is too short to tell; ``count``: growths. ``at``: Int64,
    the repetitions of the growths. ``per_repetition``: bytes that each repetition adds; ``every``: 1, or after how many
    repetitions something is added.
    """

    status: Literal["grows", "suspect"]
    count: int
    at: np.ndarray
    per_repetition: float
    every: int


def added_bytes(levels: np.ndarray) -> np.ndarray:
    """Float64 by repetition, one fewer than ``levels``: what each adds for good, to more than there ever was before.

    ``levels``: lowest live bytes of each repetition, then those after the last.
    """
    never_below = np.minimum.accumulate(levels[::-1])[::-1]
    most_before = np.maximum.accumulate(levels)
    added: np.ndarray = np.maximum(0, never_below[1:] - most_before[:-1]).astype(float)
    return added


def growth_of(levels: np.ndarray, least: float) -> Growth | None:
    """None where a line does not grow. ``levels``: see :func:`added_bytes`. ``least``: bytes below which growth over
    all repetitions is not reported.
    """
    added = added_bytes(levels)
    if added.sum() < least:
        return None
    size = float(np.median(added[added > 0]))
    # What the first repetition adds may be warm-up. The last one may be cut short, or hold what it still works with.
    for end in (0, -1):
        if added[end] and not size / _MAX_GROWTH_RATIO <= added[end] <= size * _MAX_GROWTH_RATIO:
            added[end] = 0
    at = np.flatnonzero(added)
    if added.sum() < least or len(at) < 2 or (len(at) == 2 and not at[0]):  # warm-up, and one
        return None
    gaps, after = np.diff(at), len(added) - 1 - int(at[-1])
    count = len(at) + int(round(added[-1] / size) == 2)  # what two steps add: the trace ends before the second is over
    is_regular = gaps.max() <= 2 * gaps.min() + 1
    if count < FEWEST_GROWTHS and not is_regular:
        return None
    if after > gaps.max():
        # Longer without growth than ever before: a cache that is full, or a leak whose moments vary.
        is_open = count >= FEWEST_GROWTHS and after <= 2 * gaps.max() and _grows_late(added, int(at[0]))
        return _growth("suspect", added, at, count) if is_open else None
    lasts = len(added) - int(at[0]) >= max(FEWEST_GROWTHS, _MIN_DURATION * len(added))
    grows = (
        count >= FEWEST_GROWTHS and lasts and (is_regular or count >= _FEW_GROWTHS) and _grows_late(added, int(at[0]))
    )
    return _growth("grows" if grows else "suspect", added, at, count)


class SingleGrowth(Struct, frozen=True):
    """A line that grows once and keeps it: a buffer made late, or a leak whose next moment was not recorded.

    ``is_open``: whether something that grows after every so many repetitions may have grown once so far.
    """

    at: int
    bytes: int
    is_open: bool


def single_growth(levels: np.ndarray, least: float, *, uncertain: int = 1) -> SingleGrowth | None:
    """The only growth by ``least`` or more after the first repetition, which may be warm-up; None for other lines.

    ``uncertain``: the number of last repetitions whose growth does not count: they may hold what they still work with.
    """
    added = added_bytes(levels)
    (at,) = np.nonzero(added >= least)
    at = at[at > 0]
    if len(at) != 1 or at[0] >= len(added) - uncertain:
        return None
    first = int(at[0])
    return SingleGrowth(first, int(added[first]), is_open=len(added) < 2 * (first + 1))


def _grows_late(added: np.ndarray, begin: int) -> bool:
    since = added[begin:]
    return float(since[len(since) // 2 :].sum()) >= _MIN_LATE_GROWTH * float(since.sum())


def _growth(status: Literal["grows", "suspect"], added: np.ndarray, at: np.ndarray, count: int) -> Growth:
    sizes, begins = added[at], at
    parts = np.flatnonzero(np.append(True, np.diff(at) > 1))
    # Where one repetition ends, what the program adds there is in two parts: of a copy of 313 MiB after every third
    # step 47 MiB are in one step, and 266 in the next. The first may be in one, with what was made before the loop.
    two = np.diff(parts) == 2
    if len(parts) >= FEWEST_GROWTHS and two[1:].all() and parts[1] <= 2:
        sizes, begins = np.add.reduceat(sizes, parts), at[parts]
    every = round(float(np.median(np.diff(begins))))
    return Growth(status, count, at, float(np.median(sizes)) / every, every)
