"""How far the clock of a profiler's trace and that of the snapshot lie apart, by the allocations that both have.

PyTorch converts the processor's counter to the time of day by two readings of both, at the beginning and the end: of
the process for the memory recorder, of the profile for the profiler. Where the time of day was adjusted between them,
the two differ: by 0.9 ms in the middle of an hour in which its rate changes by one millionth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

FARTHEST_NS = 50_000_000
"""Looked for: clocks farther apart are not joined."""
_BIN_NS = 20_000
_FIRST = 500  # allocations that are compared with all of their address
_NEAR_NS = 500_000  # from one record of an allocation to the other; the thread may wait between them
_NO_WAIT_NS = 2_000  # a µs of the snapshot, and what the profiler takes
RUN = 20
"""Consecutive allocations whose median is the distance of the clocks there: a single one has waits of its thread."""


class Alignment(Struct, frozen=True):
    """``shift_ns``: to add to the trace's times. ``error_us``: by how much its allocations then differ from the
    snapshot's, in the median, and in the median of that :data:`RUN` in a row where it is largest; None without any.
    """

    matched: int = 0
    shift_ns: int = 0
    error_us: tuple[float, float] | None = None


def align(events: Sequence[pl.DataFrame], allocations: pl.DataFrame) -> Alignment:
    """``events``: of each device, as in :class:`DeviceRecord`. ``allocations``: ``time`` ns, ``addr`` in the trace."""
    own = _allocated(events)
    shift = _rough_shift(own, allocations)
    difference = _differences(own, allocations, shift)
    if not len(difference):
        return Alignment()
    shift += _distance(difference)
    difference = _differences(own, allocations, shift)
    middle = np.array([np.median(part) for part in np.array_split(difference, max(len(difference) // RUN, 1))])
    error = float(np.median(np.abs(difference))), float(np.abs(middle).max())
    return Alignment(len(difference), shift, (round(error[0] / 1000, 2), round(error[1] / 1000, 2)))


def _distance(difference: np.ndarray) -> int:
    """The median: of the quarter that lies closest together, if that is within :data:`_NO_WAIT_NS`. Others wait between
    the two records, as most did where requests called cudaMalloc and had C++ frames: 20 to 40 µs.
    """
    ordered, count = np.sort(difference), max(len(difference) // 4, 1)
    spans = ordered[count - 1 :] - ordered[: len(ordered) - count + 1]
    at = int(np.argmin(spans))
    return int(np.median(ordered[at : at + count] if spans[at] <= _NO_WAIT_NS else ordered))


def _allocated(events: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """``addr``, ``own`` Int64 ns of the allocations with a time, in its order."""
    # The snapshot's µs are whole ones: what they lack is half of one on the average.
    time = pl.col("time_us") * 1000 + 500
    parts = [one.filter(pl.col("action") == "alloc").select("addr", own=time) for one in events]
    empty = pl.DataFrame(schema={"addr": pl.UInt64, "own": pl.Int64})
    return pl.concat([empty, *parts]).drop_nulls().sort("own")


def _rough_shift(own: pl.DataFrame, allocations: pl.DataFrame) -> int:
    """Where most allocations meet one of their address, to some 20 µs. A program that repeats its steps meets itself
    one step later, too, but not in one bin, since no two steps take equally long.
    """
    if own.is_empty():
        return 0
    begin, end = own["own"][0] - FARTHEST_NS, own["own"][-1] + FARTHEST_NS
    first = allocations.filter(pl.col("time").is_between(begin, end)).head(_FIRST)
    if first.is_empty():
        return 0
    around = pl.col("own").is_between(first["time"][0] - FARTHEST_NS, first["time"][-1] + FARTHEST_NS)
    shift = first.join(own.filter(around), "addr").select(pl.col("own") - pl.col("time")).to_series()
    near = shift.filter(shift.abs() <= FARTHEST_NS)
    if near.is_empty():
        return 0
    # Each counts in its bin and in the one above, so that no edge splits those that belong together.
    bins = pl.concat([near // _BIN_NS, near // _BIN_NS + 1]).value_counts(name="count")
    best = bins.sort(pl.col("count"), -pl.col("own").abs(), descending=True)["own"][0]
    return int(best) * _BIN_NS


def _differences(own: pl.DataFrame, allocations: pl.DataFrame, shift: int) -> np.ndarray:
    """Int64 ns from each of the trace's allocations, moved by ``shift``, to the nearest of its address in the snapshot,
    in order of time; of those that have one within :data:`_NEAR_NS`.
    """
    moved = allocations.select("addr", time=pl.col("time") + shift)
    near = moved.join_asof(
        own.with_columns(time="own"), on="time", by="addr", strategy="nearest", check_sortedness=False
    )
    difference = near.drop_nulls("own").select(pl.col("own") - pl.col("time")).to_series()
    return difference.filter(difference.abs() <= _NEAR_NS).to_numpy()
