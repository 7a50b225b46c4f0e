"""Interning of stacks: lists of frame dicts in, numbers of distinct stacks out.

PyTorch's pickles share the frame dicts by memo, and a free's two events share their list, but every allocation has a
separate list: about a million lists of a few dozen frames, with a few thousand distinct stacks. So lists are matched in
steps, each more expensive per list than the one before and applied only to the remaining lists: by identity with the
previous list, by comparison with the likeliest stacks, by the frames' identities, and finally by the frames' numbers.
"""

from __future__ import annotations

import itertools
from array import array
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


class StackMark:
    """The only item of a list of frames that was emptied after its stack was interned; the list may recur."""

    __slots__ = ("stack",)

    def __init__(self, stack: int) -> None:
        self.stack = stack


_NUMBER = np.dtype(np.uint32)  # of a frame
_MOST_FX_KEYS = 64  # each is a column; torch.fx writes four
_RECALLED = 8192  # stacks also indexed by the identities of their frames


class StackInterner:
    """Collects stacks under provisional ids (0: the empty stack), then returns their table."""

    def __init__(self) -> None:
        # Stacks by their frames' numbers, as bytes; the order is that of the ids.
        self._codes: dict[bytes, int] = {b"": 0}
        # One list per stack, to compare others with.
        self._lists: list[list[Any]] = [[]]
        self._marks: list[StackMark] = [StackMark(0)]
        # For each id, the last two ids that followed it, the likelier one first.
        self._follows: list[tuple[int, int]] = [(0, 0)]
        self._before = 0
        # Stacks by the identities of their frames: takes a third of the time of numbering them, but many times the
        # memory.
        self._recalled: dict[tuple[int, ...], int] = {}
        self._frames = _FrameTable()

    def add(self, lists: list[Any], where: Where, *, release: bool = False) -> np.ndarray:
        """Int32 provisional ids of a column of ``frames`` values; None and absent ones (None) are the empty stack.

        A list's place in error messages is ``where(row)`` + ".frames". ``release``: empty each list once it is
        interned, except for a mark that names its stack.
        """
        # A Python loop, but the fastest of the alternatives tried: comparing two lists of the same dicts takes a
        # nanosecond per frame, while turning a list into a key (frames' identities as a tuple, or as bytes through
        # numpy) takes 15 or more. One of the last two stacks that followed a stack follows it again in 80 to 95 of 100
        # cases.
        known, follows, before, marks = self._lists, self._follows, self._before, self._marks
        made = array("i")
        append = made.append
        previous = known[before]
        for row, frames in enumerate(lists):
            if frames is not previous:  # a free's request and its completion
                first, second = follows[before]
                if frames == known[first]:
                    code = first
                elif frames == known[second]:
                    code = second
                    follows[before] = second, first
                else:
                    code = self._code(frames, where, row)
                    follows[before] = code, first
                before, previous = code, frames
                if release and frames and frames is not known[code] and type(frames) is list:
                    # clear(), not a slice assignment, which leaves the list's array in a fragmented heap: 2.2 GB
                    # instead of 0.4 on a pickle of 784 MB.
                    frames.clear()
                    frames.append(marks[code])
            append(before)
        self._before = before
        return np.frombuffer(made, np.int32) if len(made) else np.zeros(0, np.int32)

    def _code(self, value: Any, where: Where, row: int) -> int:
        """The id of a stack that does not usually follow the previous one, or is new."""
        frames = value if type(value) is list else self._checked(value, where, row)
        if len(frames) == 1 and type(frames[0]) is StackMark:
            return int(frames[0].stack)
        identities = tuple(map(id, frames))
        code = self._recalled.get(identities, -1)
        if code < 0:
            key = self._frames.numbers(frames, where, row).tobytes()
            code = self._codes.setdefault(key, len(self._lists))
            if code == len(self._lists):
                # Comparing with a list of plain frames is always quick. Additional keys of frames may take forever to
                # compare.
                self._lists.append(frames if all(map(_is_plain, frames)) else [_INCOMPARABLE])
                self._follows.append((0, 0))
                self._marks.append(StackMark(code))
            if len(self._recalled) < _RECALLED:
                self._recalled[identities] = code
        return code

    def _checked(self, value: Any, where: Where, row: int) -> list[Any]:
        if value is None:
            return self._lists[0]
        if type(value) is tuple:
            return list(value)
        raise SnapshotError(f"{where(row)}.frames: {shown(value)}, not a list of frames")

    def finish(self, most_characters: int) -> StackTable:
        """The table of all stacks added.

        Raises :class:`SnapshotError` if the texts of distinct frames exceed ``most_characters``: a text shared by many
        frames is stored once in a pickle, but once per frame here.
        """
        if self._frames.characters > most_characters:
            raise SnapshotError(
                f"frames with {self._frames.characters:,} characters of text: not recorded by any program"
            )
        keys = list(self._codes)
        lengths = np.fromiter(map(len, keys), np.int64, len(keys)) // _NUMBER.itemsize
        flat = np.frombuffer(b"".join(keys), _NUMBER)
        offsets, flat, renumber = _sorted_stacks(flat, lengths)
        flat, frame_order = _by_appearance(flat, offsets)
        return StackTable(self._frames.table(frame_order), offsets, flat, renumber)


def stack_table(frames: pl.DataFrame, flat: np.ndarray, lengths: np.ndarray) -> StackTable:
    """The table of stacks given as concatenated rows of ``frames``, innermost first. Equal stacks become one; the empty
    one is always present.
    """
    flat, lengths = flat.astype(_NUMBER), np.append(lengths, 0)
    raw = flat.tobytes()
    offsets = np.concatenate(([0], np.cumsum(lengths))) * _NUMBER.itemsize
    keys: dict[bytes, int] = {}
    code = np.fromiter(
        (keys.setdefault(raw[a:b], len(keys)) for a, b in itertools.pairwise(offsets.tolist())), np.int64
    )
    distinct = np.frombuffer(b"".join(keys), _NUMBER)
    distinct_lengths = np.fromiter(map(len, keys), np.int64, len(keys)) // _NUMBER.itemsize
    new_offsets, new_flat, renumber = _sorted_stacks(distinct, distinct_lengths)
    new_flat, frame_order = _by_appearance(new_flat, new_offsets)
    return StackTable(frames[frame_order], new_offsets, new_flat, renumber[code])


def _reverse_each(flat: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """``flat`` with each stack's frames reversed. offsets: S + 1."""
    lengths = np.diff(offsets)
    mirror = np.repeat(offsets[:-1] + offsets[1:] - 1, lengths) - np.arange(len(flat))
    return flat[mirror]


def _sorted_stacks(flat: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(offsets, frames, old id → new id) of the stacks, sorted as tuples of frames, outermost first."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    # Big-endian bytes sort as the numbers do.
    raw = _reverse_each(flat, offsets).astype(">u4").tobytes()
    keys = [raw[a:b] for a, b in itertools.pairwise((offsets * 4).tolist())]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    renumber = np.empty(len(keys), np.int32)
    renumber[order] = np.arange(len(keys), dtype=np.int32)
    new_offsets = np.concatenate(([0], np.cumsum(lengths[order])))
    new_flat = np.frombuffer(b"".join([keys[i] for i in order.tolist()]), ">u4").astype(np.int64)
    return new_offsets, _reverse_each(new_flat, new_offsets), renumber


def _by_appearance(flat: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Int32 frames numbered by first appearance, stack by stack from the outermost; old numbers in the new order)."""
    old, first = np.unique(_reverse_each(flat, offsets), return_index=True)
    order = old[np.argsort(first)]
    numbers = np.zeros(int(order.max()) + 1 if len(order) else 0, np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    return numbers[flat], order


_INCOMPARABLE = object()
_PLAIN = {str, int, NoneType, bool, float}


def _is_plain(frame: Any) -> bool:
    return len(frame) == 3 or set(map(type, frame.values())) <= _PLAIN


class _FrameTable:
    """Distinct frames by value: (filename, line, name) and the ``fx_*`` keys that some frames have."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._by_identity: dict[int, int] = {}
        self._fx_keys: set[str] = set()
        self.characters = 0
        self._alive: list[Any] = []  # the dicts whose identities are keys, so that no other object gets the same id

    def numbers(self, frames: list[Any], where: Where, row: int) -> array[int]:
        """The numbers of the frames of one list, new ones included."""
        try:
            return array(_NUMBER.char, map(self._by_identity.__getitem__, map(id, frames)))
        except KeyError:
            pass
        for i, frame in enumerate(frames):
            if id(frame) not in self._by_identity:
                try:
                    self._by_identity[id(frame)] = self._number(frame)
                except SnapshotError as error:
                    raise SnapshotError(f"{where(row)}.frames[{i}]: {error}") from None
                self._alive.append(frame)
        return array(_NUMBER.char, map(self._by_identity.__getitem__, map(id, frames)))

    def _number(self, frame: Any) -> int:
        if type(frame) is not dict:
            raise SnapshotError(f"{shown(frame)}, not a frame")
        try:
            filename, line, name = frame["filename"], frame["line"], frame["name"]
        except KeyError as error:
            raise SnapshotError(f"frame without {error}") from None
        line = integer(line, "frame", "line", (INT64[0], UINT64[1]))
        if line > INT64[1]:  # no line, -1, written as an unsigned number
            line -= 1 << 64
        extra = self._fx(frame) if len(frame) > 3 else ()
        key = (text(filename, "frame", "filename"), line, text(name, "frame", "name"), extra)
        if key not in self._numbers:
            self.characters += len(key[0]) + len(key[2]) + sum(len(value) for _, value in extra)
        return self._numbers.setdefault(key, len(self._numbers))

    def _fx(self, frame: dict[Any, Any]) -> tuple[tuple[str, str], ...]:
        """The ``fx_*`` items of a frame, sorted; values other than texts as :func:`shown` describes them."""
        items = [
            (text(key, "frame", "key"), text(value if type(value) is str else shown(value), "frame", key))
            for key, value in frame.items()
            if type(key) is str and key.startswith("fx_") and type(value) is not NoneType
        ]
        self._fx_keys.update(key for key, _ in items)
        if len(self._fx_keys) > _MOST_FX_KEYS:
            raise SnapshotError(
                f"more than {_MOST_FX_KEYS} different keys that begin with fx_ in the frames of one file"
            )
        return tuple(sorted(items))

    def table(self, order: np.ndarray) -> pl.DataFrame:
        """A row per frame, in ``order``."""
        numbered = list(self._numbers)
        rows = [numbered[i] for i in order.tolist()]
        columns = {
            "filename": pl.Series([row[0] for row in rows], dtype=pl.String),
            "line": pl.Series([row[1] for row in rows], dtype=pl.Int64),
            "name": pl.Series([row[2] for row in rows], dtype=pl.String),
        }
        extras: dict[str, list[str | None]] = {key: [None] * len(rows) for key in sorted(self._fx_keys)}
        for i, row in enumerate(rows):
            for key, value in row[3]:
                extras[key][i] = value
        columns |= {key: pl.Series(values, dtype=pl.String) for key, values in extras.items()}
        return pl.DataFrame(columns)
