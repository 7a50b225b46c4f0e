"""The pyramid: which columns a tile has, which position each column shows, and the spans drawn there.

A column shows the position at which allocated is greatest within it, so that a peak never vanishes and what is shown is
the true live set of one true moment. Column widths are powers of two: the page computes the very same columns with
integer arithmetic alone (``static/src/layout``), and lays out whatever the file does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from snapreport.mesh.spans import Spans, tile_spans
from snapreport.mesh.stacking import Ints, Lifetimes, birth_offsets

COLUMNS = 1024
ROWS = 1024
# Up to this many positions the page has laid the tile out from the allocation columns before a stored one would be on
# screen: on 22,000 and on 100,000 events a stored tile came no sooner and cost 7 and 17 KB (docs/file-format.md).
STORED_ABOVE = 1 << 18
# Rows of the stored tile, which is shown until the columns are decoded, a moment later: a quarter of the page's. At
# 1024 rows it is two thirds of a large file's first blob (90,000 spans on 920,183 events), and the difference is not
# seen in that time.
STORED_ROWS, MIN_STORED_ROWS = 256, 32
# A span costs about a byte in the file and a microsecond in the browser.
STORED_SPANS = 60_000


@dataclass(frozen=True)
class Pyramid:
    """The shape of a device's pyramid.

    ``positions``: P = events + 1. ``depth``: the exact level, whose columns hold one position each. ``tolerance``:
    bytes of one raster row at full height; allocations smaller than this merge with their neighbours.
    """

    positions: int
    depth: int
    tolerance: float

    def width(self, level: int) -> int:
        """Positions in a column of this level."""
        return 1 << (self.depth - level)

    def tiles(self, level: int) -> int:
        """Tiles of this level that hold at least one position."""
        return -(-self.positions // (COLUMNS * self.width(level)))


@dataclass(frozen=True)
class Tile:
    """One laid-out tile: ``samples`` int64[columns] (s shown by each column) and its spans."""

    level: int
    tile: int
    samples: Ints
    spans: Spans


def pyramid(allocated: Ints) -> Pyramid:
    """The pyramid of a device with this curve (int64[P])."""
    positions = len(allocated)
    depth = 0
    while COLUMNS << depth < positions:
        depth += 1
    peak = int(allocated.max()) if positions else 0
    return Pyramid(positions, depth, row_bytes(peak, ROWS))


def row_bytes(peak: int, rows: int) -> float:
    """Bytes of one of ``rows`` raster rows that ``peak`` bytes fill."""
    return float(max(1, -(-peak // rows)))


def column_samples(allocated: Ints, shape: Pyramid, level: int, tile: int) -> Ints:
    """The s that each column of a tile shows: the first of its greatest. int64[columns within the trace]."""
    width = shape.width(level)
    begin = tile * COLUMNS * width
    window = allocated[begin : begin + COLUMNS * width]
    columns = -(-len(window) // width)
    padded = np.full(columns * width, -1, dtype=np.int64)
    padded[: len(window)] = window
    samples: Ints = begin + np.arange(columns) * width + padded.reshape(columns, width).argmax(axis=1)
    return samples


def lay_out(lifetimes: Lifetimes, shape: Pyramid, level: int, tile: int, birth: Ints | None = None) -> Tile:
    """Lay out one tile. ``birth``: :func:`birth_offsets`, where the caller has them already."""
    samples = column_samples(lifetimes.allocated, shape, level, tile)
    birth = birth_offsets(lifetimes) if birth is None else birth
    return Tile(level, tile, samples, tile_spans(lifetimes, birth, samples, shape.tolerance))


def stored_tile(lifetimes: Lifetimes, shape: Pyramid) -> tuple[Tile, int] | None:
    """The coarsest tile, and the raster rows it was laid out for; None where the page needs none.

    Small snapshots store no tile: the page lays them out at once. Of large ones the first picture alone is stored; all
    else the page makes from the columns. ``STORED_ROWS`` are halved as long as there are more than ``STORED_SPANS``.
    """
    if COLUMNS * shape.width(0) <= STORED_ABOVE:
        return None
    birth, peak, rows = birth_offsets(lifetimes), int(lifetimes.allocated.max()), STORED_ROWS
    while True:
        tile = lay_out(lifetimes, replace(shape, tolerance=row_bytes(peak, rows)), 0, 0, birth)
        if len(tile.spans.first) <= STORED_SPANS or rows <= MIN_STORED_ROWS:
            return tile, rows
        rows //= 2
