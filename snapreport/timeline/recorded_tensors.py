"""Allocations that a recorder named: parameters, gradients and optimizer state, by address and time."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.recorder_metadata import RecorderMetadata
from snapreport.timeline.annotations import clock_of
from snapreport.timeline.lifetimes import IS_FREED

# The recorder's names → ours. Buffers are used like parameters and live as long.
CATEGORY_OF = {"buffer": "parameter"}


def recorded_tensors(
    metadata: RecorderMetadata, device: int, events: pl.DataFrame, allocations: pl.DataFrame
) -> pl.DataFrame:
    """``category``, ``name``, ``shape``, ``dtype`` String of each allocation, null if the recorder did not name it.

    allocations: the device's, with ``addr``, ``alloc_event``, ``free_event``. An allocation gets the recorder's name
    for its address at a time when it is live. Times outside the trace are ignored: the address may have belonged to
    another allocation. The latest time wins.
    """
    known = metadata.tensors.filter(pl.col("device") == device)
    time = known["time_us"].to_numpy()
    position = np.where(time == metadata.tensors_us, len(events) - 1, positions(time, events))
    found = live_at(known.with_columns(position=pl.Series(position, dtype=pl.Int64)), allocations)
    category = pl.col("category").cast(pl.String).replace(CATEGORY_OF)
    return of_rows(found.reverse(), len(allocations), category, "name", "shape", "dtype")


def positions(time: np.ndarray, events: pl.DataFrame) -> np.ndarray:
    """Int64: the last event at or before each time (µs); -2 for times before the trace, or without a clock."""
    clock = clock_of(events)
    if clock is None:
        return np.full(len(time), -2)
    return np.where(time < clock[0], -2, np.searchsorted(clock, time, "right") - 1)


def live_at(noted: pl.DataFrame, allocations: pl.DataFrame) -> pl.DataFrame:
    """The rows of ``noted`` (``address``, ``position``) for which an allocation was live there, in order of position,
    with its ``row``, and its ``size``, ``alloc_event`` and ``free_event`` where ``allocations`` has them.
    """
    rows = allocations.with_columns(
        row=pl.int_range(pl.len(), dtype=pl.Int64), position=pl.col("alloc_event").cast(pl.Int64)
    ).sort("position", maintain_order=True)
    found = noted.sort("position", maintain_order=True).join_asof(
        rows, on="position", by_left="address", by_right="addr", check_sortedness=False
    )
    is_live = ~IS_FREED | (pl.col("free_event") > pl.col("position"))
    return found.filter(pl.col("row").is_not_null() & is_live)


def of_rows(found: pl.DataFrame, count: int, *columns: pl.Expr | str) -> pl.DataFrame:
    """``columns`` of the first of ``found`` for each of ``count`` rows; null for rows that it does not have."""
    first = found.unique("row", keep="first", maintain_order=True).select("row", *columns)
    rows = pl.DataFrame({"row": pl.int_range(count, dtype=pl.Int64, eager=True)})
    return rows.join(first, on="row", how="left", maintain_order="left").drop("row")
