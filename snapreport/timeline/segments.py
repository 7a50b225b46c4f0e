"""The segment, and so the memory pool, of an address."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.recording import DeviceRecord
from snapreport.timeline.neighbours import containing
from snapreport.vocabulary import DEFAULT_POOL


def pools_of(record: DeviceRecord, address: np.ndarray, own: pl.Series) -> pl.Series:
    """String pool of each address, null if unknown.

    own: the pool that the recorder wrote with the event, which takes precedence. Otherwise the pool of the final
    segment that contains the address, or of a segment allocated there in the trace (only known from recorders that
    write pools with events).
    """
    own = own.cast(pl.String)
    if own.null_count():
        segments = record.segments
        own = own.fill_null(_containing(segments["address"], segments["total_size"], segments["pool"], address))
    if own.null_count():
        # Compared as texts: casting the column's Enum for a million events to find a few segments would be wasteful.
        made = record.events.filter(
            pl.col("action").is_in(["segment_alloc", "segment_map"]) & pl.col("pool").is_not_null()
        )
        if len(made):
            own = own.fill_null(_containing(made["addr"], made["size"], made["pool"], address))
    return own


def is_private(pool: pl.Expr) -> pl.Expr:
    """Whether a pool is one of a CUDA graph or of ``torch.cuda.MemPool``."""
    text = pool.cast(pl.String)
    return text.is_not_null() & ~text.is_in(["", DEFAULT_POOL])


def _containing(start: pl.Series, size: pl.Series, pool: pl.Series, address: np.ndarray) -> pl.Series:
    """Pool of the segment with the highest start at or below each address, null if it ends before the address."""
    if not len(start):
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(address))
    order = np.argsort(start.to_numpy(), kind="stable")
    row = containing(start.to_numpy()[order], size.to_numpy()[order], address)
    return pool.gather(order).gather(np.maximum(row, 0)).set(pl.Series(row < 0), None)
