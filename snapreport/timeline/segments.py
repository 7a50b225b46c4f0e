"""Which segment, and so which memory pool, an address belongs to."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.recording import ACTIONS, DeviceRecord


def pools_of(record: DeviceRecord, address: np.ndarray, own: pl.Series) -> pl.Series:
    """String pool of each address, null where nothing tells.

    own: the pool that the recorder wrote with the event, which wins. Else that of the final segment that contains the
    address, else that of a segment that the trace shows being made there (only recorders that write pools with
    events tell those).
    """
    own = own.cast(pl.String)
    if own.null_count():
        segments = record.segments
        own = own.fill_null(_containing(segments["address"], segments["total_size"], segments["pool"], address))
    if own.null_count():
        # Compared as texts: casting the column's Enum for a million events to find some segments would be waste.
        made = record.events.filter(pl.col("action").is_in([ACTIONS[3], ACTIONS[5]]) & pl.col("pool").is_not_null())
        if len(made):
            own = own.fill_null(_containing(made["addr"], made["size"], made["pool"], address))
    return own


def _containing(start: pl.Series, size: pl.Series, pool: pl.Series, address: np.ndarray) -> pl.Series:
    """Pool of the segment with the greatest start at or below each address, null where it does not reach that far."""
    if not len(start):
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(address))
    starts = start.to_numpy()
    order = np.argsort(starts, kind="stable")
    starts = starts[order]
    at = np.searchsorted(starts, address, "right") - 1
    row = np.maximum(at, 0)
    inside = (at >= 0) & (address - starts[row] < size.to_numpy()[order][row].astype(np.uint64))
    return pool.gather(order).gather(row).set(pl.Series(~inside), None)
