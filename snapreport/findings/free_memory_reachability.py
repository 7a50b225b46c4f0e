"""Which of the free memory at a moment a request could have used, and why not the rest."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.timeline.rounding import SMALL_SIZE
from snapreport.timeline.state import State
from snapreport.vocabulary import DEFAULT_POOL

SMALL_SEGMENT = 2 << 20


class Request(Struct, frozen=True):
    """``size`` bytes for ``stream`` from ``pool`` (None: not recorded, taken for the default one)."""

    event: int
    size: int
    stream: int
    pool: str | None


class FreeMemory(Struct, frozen=True):
    """Bytes in free blocks, each counted once.

    usable: in segments that serve the request. other_pool: of a private pool, or not of the request's. other_stream: of
    blocks that belong to another stream. other_size: of the pool for small requests where this one is large, or the
    other way round. largest_usable: the largest free block of ``usable``; largest: of all.
    """

    usable: int
    other_pool: int
    other_stream: int
    other_size: int
    largest_usable: int
    largest: int

    @property
    def locked(self) -> int:
        return self.other_pool + self.other_stream + self.other_size


def reachable_free_memory(state: State, request: Request, *, occupied_only: bool = False) -> FreeMemory:
    """Sort the free blocks of a state by whether they serve a request. ``occupied_only``: without free segments."""
    segments = _reasons(state, request)
    if occupied_only:
        segments = segments.filter(pl.col("blocks") > 0)
    sums = dict(segments.group_by("why").agg(pl.col("free").sum()).iter_rows())
    usable = segments.filter(pl.col("why") == "usable")["largest_free"].max()
    most = segments["largest_free"].max()
    parts = {name: int(sums.get(name, 0)) for name in ("usable", "other_pool", "other_stream", "other_size")}
    return FreeMemory(**parts, largest_usable=int(usable or 0), largest=int(most or 0))  # type: ignore[arg-type]


def usable_segments(state: State, request: Request) -> np.ndarray:
    """Bool per segment of a state: whether it serves a request."""
    return (_reasons(state, request).sort("segment")["why"] == "usable").to_numpy()


def _reasons(state: State, request: Request) -> pl.DataFrame:
    """``state.segments`` with ``why``: "usable" for those that serve a request, else what keeps it out of them."""
    small = request.size <= SMALL_SIZE
    pool = request.pool or DEFAULT_POOL
    # A segment without a recorded type is small if it has the size of small ones, or, expandable, has small blocks
    # only.
    used = state.blocks.filter((pl.col("allocation") >= 0) & (pl.col("segment") >= 0))
    largest_block = used.group_by("segment").agg(most=pl.col("size").max())
    numbered = state.segments.with_columns(segment=pl.int_range(pl.len(), dtype=pl.Int32))
    segments = numbered.join(largest_block, on="segment", how="left")
    small_blocks = pl.col("most").fill_null(SMALL_SIZE + 1) <= SMALL_SIZE
    guessed = pl.when(pl.col("expandable")).then(small_blocks).otherwise(pl.col("size") <= SMALL_SEGMENT)
    is_small = pl.when(pl.col("segment_type").is_null()).then(guessed).otherwise(pl.col("segment_type") == "small")
    why = (
        pl.when(pl.col("pool").fill_null(pool) != pool)
        .then(pl.lit("other_pool"))
        .when(pl.col("stream") != request.stream)
        .then(pl.lit("other_stream"))
        .when(is_small != small)
        .then(pl.lit("other_size"))
        .otherwise(pl.lit("usable"))
    )
    return segments.with_columns(why=why)
