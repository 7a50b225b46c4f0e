"""Stretches of a trace that do the same again and again: training steps, or where none were recorded, what the curve
repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from snapreport.timeline.build import DeviceTimeline

FEWEST = 4
"""Fewer repetitions than this tell nothing of a trend: the first one warms up, and two points make a line."""
_SOURCES = {
    "annotation": "annotations",
    "metadata": "user metadata",
    "optimizer": "annotated optimizer steps",
    "recorder": "the recorder's step marks",
    "stack": "optimizer's own allocations",
}
_COLUMNS = 8192
_ALIKE, _MOSTLY = 0.7, 0.75
_SWING = 0.3
"""A cycle falls and rises again by at least this share of what the whole trace moves."""


@dataclass(frozen=True)
class Slices:
    """``bounds``: Int64 places in a curve (event + 1, 0 is before the first); stretch k is ``[bounds[k], bounds[k +
    1])``. ``unit``: what one is called, "step" or "cycle".
    """

    bounds: np.ndarray
    unit: str
    source: str

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    def of(self, positions: np.ndarray) -> np.ndarray:
        """The stretch of each position; -1 before the first and ``count`` after the last."""
        return np.searchsorted(self.bounds, positions, "right") - 1


def repetitions(timeline: DeviceTimeline) -> Slices | None:
    """The recorded steps, else the cycles of the allocated curve; None where nothing repeats at least ``FEWEST``
    times.
    """
    table = timeline.steps
    if len(table) >= FEWEST:
        first = table["first_event"].to_numpy().astype(np.int64) + 1
        bounds = np.append(first, int(table["last_event"][-1]) + 2)
        bounds = np.unique(bounds)
        if len(bounds) > FEWEST:
            return Slices(bounds, "step", f"told by the {_SOURCES[table['source'][0]]}")
    bounds = _cycles(timeline.allocated)
    if len(bounds) <= FEWEST or not _recurs(timeline, bounds):
        return None
    return Slices(bounds, "cycle", "the curve falls and rises again, with the same stacks")


def _recurs(timeline: DeviceTimeline, bounds: np.ndarray) -> bool:
    """Whether most cycles do what the one before did: their bytes come from stacks that it has too.

    The waves of a single step (forward, backward, optimizer) rise and fall as well, and are no repetition.
    """
    table = timeline.allocations
    cycle = np.searchsorted(bounds, table["alloc_event"].to_numpy().astype(np.int64) + 1, "right") - 1
    rows = table.select("stack", "size").with_columns(cycle=pl.Series(cycle))
    rows = rows.filter((pl.col("cycle") >= 0) & (pl.col("cycle") < len(bounds) - 1))
    sums = rows.group_by("cycle", "stack").agg(pl.col("size").sum())
    earlier = sums.select(cycle=pl.col("cycle") + 1, stack="stack", was=pl.lit(value=True))
    known = (
        sums.join(earlier, on=["cycle", "stack"], how="left")
        .group_by("cycle")
        .agg(share=pl.col("size").filter(pl.col("was").is_not_null()).sum() / pl.col("size").sum())
    )
    later = known.filter(pl.col("cycle") > 0)["share"]
    alike = int((later >= _ALIKE).sum())
    return len(later) >= FEWEST - 1 and alike / max(1, len(later)) >= _MOSTLY


def _cycles(allocated: np.ndarray) -> np.ndarray:
    """Positions of the troughs between rises, with hysteresis, after the trend is taken off."""
    size = len(allocated)
    if size < 4 * FEWEST:
        return np.zeros(0, np.int64)
    edges = np.unique(np.linspace(0, size, min(_COLUMNS, size) + 1).astype(np.int64))
    starts = edges[:-1]
    high = np.maximum.reduceat(allocated, starts)
    low = np.minimum.reduceat(allocated, starts)
    # A leak must not hide the cycles that it rides on, so that they are measured against the line of the lows: from the
    # least of the first fifth to the least of the last.
    fifth = max(1, len(low) // 5)
    line = np.linspace(low[:fifth].min(), low[-fifth:].min(), len(low))
    high, low = high - line, low - line
    need = _SWING * (high.max() - low.min())
    troughs, is_falling, extreme, place = [], True, np.inf, 0
    # A few thousand columns at most, whatever the trace.
    for column in range(len(starts)):
        if is_falling:
            if low[column] < extreme:
                extreme, place = low[column], column
            if high[column] > extreme + need and column > place:
                troughs.append(place)
                is_falling, extreme = False, high[column]
        else:
            extreme = max(extreme, high[column])
            if low[column] < extreme - need:
                is_falling, extreme, place = True, low[column], column
    if is_falling and troughs and troughs[-1] != place:
        troughs.append(place)
    return np.array([starts[t] + int(np.argmin(allocated[starts[t] : edges[t + 1]])) for t in troughs], np.int64)
