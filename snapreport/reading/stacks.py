"""Interning of stacks: lists of frame dicts in, numbers of distinct stacks out.

PyTorch's pickles share the frame dicts by memo, and a free's two events share their list, but every allocation has a list
of its own: some million lists of a few dozen frames that hold a few thousand distinct stacks. So lists are told apart
in three steps, each dearer per list than the one before and fed by what that leaves over: by identity of the list, by
the identities of its frames, and last by value.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from snapreport.errors import SnapshotError
from snapreport.reading.fields import INT64, UINT64, NoneType, Where, integer, shown, text


@dataclass
class StackTable:
    """The distinct stacks; see ``Recording``. ``renumber[provisional id]`` is the final id."""

    frames: pl.DataFrame
    offsets: np.ndarray
    stack_frames: np.ndarray
    renumber: np.ndarray


class StackInterner:
    """Collects stacks under provisional ids (0: the empty stack), then gives the table of them."""

    def __init__(self) -> None:
        self._codes: dict[tuple[int, ...], int] = {(): 0}
        # One list for each provisional id. They keep the frame dicts alive, whose identities are the keys of _codes.
        self._lists: list[list[Any]] = [[]]
        self._origins: list[tuple[Where, int]] = [(lambda row: "", 0)]
        # For each id the two that followed it, the likelier one first.
        self._follows: list[tuple[int, int]] = [(0, 0)]
        self._before = 0

    def add(self, lists: list[Any], where: Where) -> np.ndarray:
        """Int32 provisional ids of a column of ``frames`` values; None and absent ones (None) are the empty stack.

        A list's place in error messages is ``where(row)`` + ".frames".
        """
        if not set(map(type, lists)) <= {list}:
            lists = [self._checked(v, where, i) for i, v in enumerate(lists)]
        identities = np.fromiter(map(id, lists), np.int64, len(lists))
        _, first, inverse = np.unique(identities, return_index=True, return_inverse=True)
        # In order of appearance: addresses differ from run to run, and the same file must give the same report.
        order = np.argsort(first)
        rows = first[order].tolist()
        codes = np.empty(len(rows), np.int32)
        codes[order] = self._by_frames([lists[i] for i in rows], rows, where)
        return codes[inverse]

    def _checked(self, value: Any, where: Where, row: int) -> list[Any]:
        if type(value) is list:
            return value
        if value is None:
            return self._lists[0]
        if type(value) is tuple:
            return list(value)
        raise SnapshotError(f"{where(row)}.frames: {shown(value)}, not a list of frames")

    def _by_frames(self, lists: list[list[Any]], rows: list[int], where: Where) -> list[int]:
        # A loop over lists, and yet the fastest of what was tried: comparing two lists of the same dicts takes a nanosecond a
        # frame, while whatever turns a list into a key (frames' identities as a tuple, or as bytes through numpy) touches
        # every frame for 15 or more. What followed a stack the last two times follows it again in 80 to 95 of 100 cases.
        known, follows, codes, before = self._lists, self._follows, self._codes, self._before
        made = []
        for row, frames in zip(rows, lists, strict=True):
            first, second = follows[before]
            if frames == known[first]:
                code = first
            elif frames == known[second]:
                code = second
                follows[before] = second, first
            else:
                key = tuple(map(id, frames))
                code = codes.get(key, -1)
                if code < 0:
                    code = codes[key] = len(known)
                    known.append(frames)
                    follows.append((0, 0))
                    self._origins.append((where, row))
                follows[before] = code, first
            made.append(code)
            before = code
        self._before = before
        return made

    def finish(self) -> StackTable:
        """The table of all stacks added, interned by value."""
        lengths = np.fromiter(map(len, self._lists), np.int64, len(self._lists))
        ends = np.cumsum(lengths)
        objects = list(itertools.chain.from_iterable(self._lists))
        pointers = np.fromiter(map(id, objects), np.int64, len(objects))
        _, first, inverse = np.unique(pointers, return_index=True, return_inverse=True)
        order = np.argsort(first)
        frames = _FrameTable()
        values = np.empty(len(first), np.int64)
        for k, i in zip(order.tolist(), first[order].tolist(), strict=True):
            try:
                values[k] = frames.add(objects[i])
            except SnapshotError as error:
                stack = int(np.searchsorted(ends, i, "right"))
                where, row = self._origins[stack]
                raise SnapshotError(f"{where(row)}.frames[{i - (ends[stack] - lengths[stack])}]: {error}") from None
        flat = values[inverse]
        offsets, flat, renumber = _sorted_stacks(flat, lengths)
        flat, frame_order = _by_appearance(flat, offsets)
        return StackTable(frames.table(frame_order), offsets, flat, renumber)


def _reverse_each(flat: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """``flat`` with each stack's frames in the opposite order. offsets: S + 1."""
    lengths = np.diff(offsets)
    mirror = np.repeat(offsets[:-1] + offsets[1:] - 1, lengths) - np.arange(len(flat))
    return flat[mirror]


def _sorted_stacks(flat: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(offsets, frames, old id → new id) of the distinct stacks, sorted as tuples of frames, outermost first."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    # Big-endian bytes sort as the numbers do.
    raw = _reverse_each(flat, offsets).astype(">u4").tobytes()
    bounds = (offsets * 4).tolist()
    keys = [raw[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    distinct = sorted(set(keys))
    numbers = {key: i for i, key in enumerate(distinct)}
    renumber = np.fromiter(map(numbers.__getitem__, keys), np.int32, len(keys))
    new_offsets = np.concatenate(([0], np.cumsum(np.fromiter(map(len, distinct), np.int64, len(distinct)) // 4)))
    new_flat = np.frombuffer(b"".join(distinct), ">u4").astype(np.int64)
    return new_offsets, _reverse_each(new_flat, new_offsets), renumber


def _by_appearance(flat: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Int32 frames numbered by first appearance, stack by stack from the outermost; old numbers in the new order)."""
    old, first = np.unique(_reverse_each(flat, offsets), return_index=True)
    order = old[np.argsort(first)]
    numbers = np.zeros(int(order.max()) + 1 if len(order) else 0, np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    return numbers[flat], order


class _FrameTable:
    """Distinct frames by value: (filename, line, name) and the ``fx_*`` keys that some frames have."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}

    def add(self, frame: Any) -> int:
        if type(frame) is not dict:
            raise SnapshotError(f"{shown(frame)}, not a frame")
        try:
            filename, line, name = frame["filename"], frame["line"], frame["name"]
        except KeyError as error:
            raise SnapshotError(f"frame without {error}") from None
        if type(filename) is not str or not filename.isascii():
            filename = text(filename, "frame", "filename")
        if type(name) is not str or not name.isascii():
            name = text(name, "frame", "name")
        line = integer(line, "frame", "line", (INT64[0], UINT64[1]))
        if line > INT64[1]:  # no line, -1, written as an unsigned number
            line -= 1 << 64
        extra = _fx(frame) if len(frame) > 3 else ()
        return self._numbers.setdefault((filename, line, name, extra), len(self._numbers))

    def table(self, order: np.ndarray) -> pl.DataFrame:
        """A row per frame, in ``order``."""
        numbered = list(self._numbers)
        rows = [numbered[i] for i in order.tolist()]
        columns = {
            "filename": pl.Series([row[0] for row in rows], dtype=pl.String),
            "line": pl.Series([row[1] for row in rows], dtype=pl.Int64),
            "name": pl.Series([row[2] for row in rows], dtype=pl.String),
        }
        extras = [dict(row[3]) for row in rows if row[3]]
        for key in sorted({key for extra in extras for key in extra}):
            columns[key] = pl.Series([dict(row[3]).get(key) for row in rows], dtype=pl.String)
        return pl.DataFrame(columns)


def _fx(frame: dict[Any, Any]) -> tuple[tuple[str, str], ...]:
    """The ``fx_*`` items of a frame, sorted; others than texts as what they are called."""
    items = [
        (text(key, "frame", "key"), value if type(value) is str else shown(value))
        for key, value in frame.items()
        if type(key) is str and key.startswith("fx_") and type(value) is not NoneType
    ]
    return tuple(sorted((key, text(value, "frame", key)) for key, value in items))
