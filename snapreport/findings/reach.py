"""Which of the free memory at a moment a request could have used, and why the rest was out of its reach."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from snapreport.scalars import greatest
from snapreport.timeline.rounding import SMALL_SIZE
from snapreport.timeline.state import State

SMALL_SEGMENT = 2 << 20
DEFAULT_POOL = "(0, 0)"


@dataclass(frozen=True)
class Request:
    """What was asked for: ``size`` bytes for ``stream`` from ``pool`` (None: not recorded, taken for the default
    one).
    """

    event: int
    size: int
    stream: int
    pool: str | None


@dataclass(frozen=True)
class Reach:
    """Bytes in holes, each counted once.

    own: in segments that serve the request. other_pool: of a private pool, or not of the request's. other_stream: of
    blocks that belong to another stream. other_size: of the pool for small requests where this one is large, or the
    other way round. largest_own: the largest hole of ``own``; largest: of all.
    """

    own: int
    other_pool: int
    other_stream: int
    other_size: int
    largest_own: int
    largest: int

    @property
    def locked(self) -> int:
        return self.other_pool + self.other_stream + self.other_size


def reach_of(state: State, request: Request, *, occupied_only: bool = False) -> Reach:
    """Sort the holes of a state by whether they serve a request. ``occupied_only``: leave wholly free segments out."""
    small = request.size <= SMALL_SIZE
    pool = request.pool or DEFAULT_POOL
    # A segment that does not tell is small if it has the size of small ones, or, expandable, holds small blocks only.
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
        .otherwise(pl.lit("own"))
    )
    if occupied_only:
        segments = segments.filter(pl.col("blocks") > 0)
    sums: dict[str, int] = dict(segments.group_by(why.alias("why")).agg(pl.col("free").sum()).iter_rows())
    return Reach(
        own=sums.get("own", 0),
        other_pool=sums.get("other_pool", 0),
        other_stream=sums.get("other_stream", 0),
        other_size=sums.get("other_size", 0),
        largest_own=greatest(segments.filter(why == "own")["largest_free"]),
        largest=greatest(segments["largest_free"]),
    )
