"""The table of a recording's distinct stacks, in an order in which neighbours share their outer frames."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.reading.fields import numbering
from snapreport.reading.frame_table import NUMBER

_AT_ONCE = 1 << 20  # bytes of stacks


class StackTable(Struct):
    """The distinct stacks; see ``Recording``. ``renumber[provisional id]`` is the final id."""

    frames: pl.DataFrame
    offsets: np.ndarray
    stack_frames: np.ndarray
    renumber: np.ndarray


def stack_table(frames: pl.DataFrame, flat: np.ndarray, lengths: np.ndarray) -> StackTable:
    """The table of stacks given as concatenated rows of ``frames``, innermost first. Equal stacks become one; the empty
    one is always present.
    """
    flat, lengths = flat.astype(NUMBER), np.append(lengths, 0)
    raw = flat.tobytes()
    offsets = np.concatenate(([0], np.cumsum(lengths))) * NUMBER.itemsize
    keys: dict[bytes, int] = numbering()
    code = np.fromiter((keys[raw[a:b]] for a, b in itertools.pairwise(offsets.tolist())), np.int64)
    offsets, flat, renumber, order = sorted_stacks(list(keys), len(frames))
    return StackTable(frames[order], offsets, flat, renumber[code])


def sorted_stacks(keys: list[bytes], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct stacks in their final order, and frames numbered by first appearance there, from the outermost inwards.

    keys: the bytes of their frames' numbers, which are less than ``count``. Returns offsets; Int32 frames; old id of a
    stack → new id; old numbers of the frames in the new order.
    """
    # The bytes of a key backwards are its numbers in big-endian order, outermost first: they sort as the stacks do.
    order = sorted(range(len(keys)), key=[key[::-1] for key in keys].__getitem__)
    keys = list(map(keys.__getitem__, order))
    renumber = np.empty(len(keys), np.int32)
    renumber[order] = np.arange(len(keys), dtype=np.int32)
    frame_order = _first_appearances(keys, count)
    numbers = np.zeros(count, np.int32)
    numbers[frame_order] = np.arange(len(frame_order), dtype=np.int32)
    lengths = np.fromiter(map(len, keys), np.int64, len(keys)) // NUMBER.itemsize
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return offsets, numbers[np.frombuffer(b"".join(keys), NUMBER)], renumber, frame_order


def _first_appearances(keys: list[bytes], count: int) -> np.ndarray:
    """The distinct frames of stacks by first appearance, each stack read from its outermost frame on."""
    seen, place = np.zeros(count, bool), np.zeros(count, np.int64)
    found = []
    # Some at a time: of stacks of a thousand frames, the numbers of all take more memory than the file.
    step = max(1, _AT_ONCE * len(keys) // max(1, sum(map(len, keys))))
    for begin in range(0, len(keys), step):
        # Backwards, since the last of several writes to one place remains below.
        values = np.frombuffer(b"".join(keys[begin : begin + step][::-1]), NUMBER)
        values = values[~seen[values]]
        seen[values] = True
        place[values] = np.arange(len(values))  # of several writes to one place, the last remains
        found.append(values[place[values] == np.arange(len(values))][::-1])
    return np.concatenate(found) if found else np.zeros(0, np.int64)
