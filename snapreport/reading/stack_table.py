"""The table of a recording's distinct stacks, in an order in which neighbours share their outer frames."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import polars as pl

from snapreport.reading.frame_table import NUMBER


@dataclass
class StackTable:
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
    keys: dict[bytes, int] = {}
    code = np.fromiter(
        (keys.setdefault(raw[a:b], len(keys)) for a, b in itertools.pairwise(offsets.tolist())), np.int64
    )
    offsets, flat, renumber, order = sorted_stacks(list(keys), len(frames))
    return StackTable(frames[order], offsets, flat, renumber[code])


def sorted_stacks(keys: list[bytes], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct stacks in their final order, and frames numbered by first appearance there, from the outermost inwards.

    keys: the bytes of their frames' numbers, which are less than ``count``. Returns offsets; Int32 frames; old id of a
    stack → new id; old numbers of the frames in the new order.
    """
    lengths = np.fromiter(map(len, keys), np.int64, len(keys)) // NUMBER.itemsize
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    # Big-endian bytes, outermost first, sort as the stacks do.
    raw = np.frombuffer(b"".join(keys), NUMBER)[_mirror(offsets)].astype(">u4").tobytes()
    outer = [raw[a:b] for a, b in itertools.pairwise((offsets * NUMBER.itemsize).tolist())]
    order = sorted(range(len(keys)), key=outer.__getitem__)
    renumber = np.empty(len(keys), np.int32)
    renumber[order] = np.arange(len(keys), dtype=np.int32)
    from_outer = np.frombuffer(b"".join([outer[i] for i in order]), ">u4").astype(np.int64)
    frame_order = _first_appearances(from_outer, count)
    numbers = np.zeros(count, np.int32)
    numbers[frame_order] = np.arange(len(frame_order), dtype=np.int32)
    offsets = np.concatenate(([0], np.cumsum(lengths[order])))
    return offsets, numbers[from_outer][_mirror(offsets)], renumber, frame_order


def _first_appearances(values: np.ndarray, count: int) -> np.ndarray:
    """The distinct values, in the order of their first appearance."""
    first = np.full(count, len(values), np.int64)
    # Of several values for one place, the last one remains.
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    return np.argsort(first, kind="stable")[: np.count_nonzero(first < len(values))]


def _mirror(offsets: np.ndarray) -> np.ndarray:
    """Where to find each item of stacks whose frames are reversed. offsets: S + 1."""
    made = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets))
    made -= np.arange(len(made))
    return made
