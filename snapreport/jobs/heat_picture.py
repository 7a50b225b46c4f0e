"""The heat map as a picture for print and pages without scripts: a small PNG of rank by step, and its legend."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from msgspec import Struct

from snapreport.jobs.heat import Heat, clipped_end
from snapreport.number_format import bytes_text, count_text

MOST_PICTURE_ROWS, MOST_PICTURE_COLUMNS = 256, 256
"""Cells of the picture; more ranks or columns share one, which shows their maximum. Such a PNG takes at most 64 KB,
usually 10."""
COLOURS = 64
# Dark means more, in print and on screen; lightness decreases monotonically. Grey means not recorded.
_STOPS = ("#f7f3c6", "#b5dd8a", "#4db39b", "#2f7ca3", "#3b4a94", "#2d1253")
_UNKNOWN = "#e4e4e4"


class HeatPicture(Struct, frozen=True):
    """uri: a PNG as a data URI. width, height: in CSS pixels. title, low, high: labels of the colour scale; colours:
    samples between both ends; note: values beyond the scale.
    """

    uri: str
    width: int
    height: int
    title: str
    low: str
    high: str
    colours: list[str]
    note: str


def heat_picture(heat: Heat) -> HeatPicture | None:
    """Allocated memory on the first axis of a heat map, rank by rank downwards; None if nothing was recorded."""
    axis = heat.axes[0]
    cells = axis.cells["allocated"].astype(np.int64)
    ranks = len(cells)
    known = cells > 0
    if not known.any():
        return None
    highest = cells.max(axis=1)
    most, end = int(highest.max()), clipped_end(highest)
    least = int(cells[known].min())
    begin = 1 if least < end / 2 or least == end else least
    share = np.clip((cells - begin) / max(end - begin, 1), 0, 1)
    levels = np.where(known, 1 + np.round(share * (COLOURS - 1)), 0).astype(np.uint8)
    levels = _pooled(_pooled(levels, MOST_PICTURE_ROWS, 0), MOST_PICTURE_COLUMNS, 1)
    low, high = ((value - 1) * heat.scale for value in (begin, end))
    per = -(-ranks // MOST_PICTURE_ROWS)
    rows = "a row for each rank" if per == 1 else f"{count_text(per)} ranks a row, the highest shown"
    return HeatPicture(
        "data:image/png;base64," + base64.b64encode(_png(levels)).decode("ascii"),
        720,
        int(np.clip(len(levels) * (16 if ranks <= 32 else 6), 48, 480)),
        f"Allocated memory by rank and {axis.label}: {rows}, rank 0 at the top",
        bytes_text(low) if low else "0",
        bytes_text(high),
        [_hex(colour) for colour in _palette()[1 :: COLOURS // 8]],
        f"A few ranks lie beyond the colours, up to {bytes_text((most - 1) * heat.scale)}." if end < most else "",
    )


def _pooled(levels: np.ndarray, most: int, axis: int) -> np.ndarray:
    """Max-pools neighbours along an axis to at most ``most`` values."""
    each = -(-levels.shape[axis] // most)
    return np.maximum.reduceat(levels, np.arange(0, levels.shape[axis], each), axis=axis)


def _palette() -> np.ndarray:
    """UInt8 (1 + COLOURS, 3): not recorded, then from low to high."""
    stops = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in _STOPS], np.float64)
    at = np.linspace(0, len(stops) - 1, COLOURS)
    mixed = np.stack([np.interp(at, np.arange(len(stops)), stops[:, i]) for i in range(3)], axis=1)
    unknown = [[int(_UNKNOWN[i : i + 2], 16) for i in (1, 3, 5)]]
    return np.concatenate([unknown, np.round(mixed)]).astype(np.uint8)


def _hex(colour: np.ndarray) -> str:
    return "#" + bytes(colour.tolist()).hex()


def _png(levels: np.ndarray) -> bytes:
    """An image of 8-bit palette indices as PNG (ISO/IEC 15948): no row is filtered."""
    height, width = levels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), levels], axis=1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", _palette().tobytes()), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
