"""The table of a recording's distinct stacks, in an order in which neighbours share their outer frames."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.reading.fields import numbering
from snapreport.reading.frame_table import NUMBER

_AT_ONCE = 1 << 18  # frames


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
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    # Backwards, as big-endian numbers from the outermost frame on, bytes sort as the stacks do.
    backwards = np.frombuffer(b"".join(keys), NUMBER)[::-1].astype(NUMBER.newbyteorder(">")).tobytes()
    ends = len(backwards) - np.cumsum(lengths) + lengths
    outer = [backwards[a:b] for a, b in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]
    order = sorted(range(len(keys)), key=outer.__getitem__)
    backwards = b"".join(map(outer.__getitem__, order))
    del outer
    renumber = np.empty(len(keys), np.int32)
    renumber[order] = np.arange(len(keys), dtype=np.int32)
    frame_order = _first_appearances(np.frombuffer(backwards, NUMBER.newbyteorder(">")), count)
    del backwards
    numbers = np.zeros(count, np.int32)
    numbers[frame_order] = np.arange(len(frame_order), dtype=np.int32)
    offsets = np.concatenate(([0], np.cumsum(lengths[order]))) // NUMBER.itemsize
    flat = np.frombuffer(b"".join(map(keys.__getitem__, order)), NUMBER)
    return offsets, numbers[flat], renumber, frame_order


def _first_appearances(frames: np.ndarray, count: int) -> np.ndarray:
    """The distinct numbers, less than ``count``, in the order of their first appearance."""
    first = np.full(count, len(frames))
    # From the last on: of several writes to one place, the last remains. Some at a time: of stacks of a thousand
    # frames, indices of all take twice the memory of the file.
    for begin in reversed(range(0, len(frames), _AT_ONCE)):
        part = frames[begin : begin + _AT_ONCE].astype(np.int64)
        first[part[::-1]] = np.arange(begin, begin + len(part))[::-1]
    found: np.ndarray = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(frames))]
    return found
