"""Distinct frames of stacks by value, found by the addresses of the dicts that a pickle shares among its lists."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl

from snapreport.errors import SnapshotError
from snapreport.reading.fields import INT64, UINT64, NoneType, Where, integer, numbering, shown, text

NUMBER = np.dtype(np.uint32)
"""Of a frame's number."""
MARKED = 1 << 31
"""Added to the stack's code, the number of a :class:`StackMark`."""
_MOST_FX_KEYS = 64  # each is a column; torch.fx writes four
_MOST_ADDRESSES = 1 << 20  # dicts whose addresses are remembered: 100 MB
_PLACES_PER_KEY = 4
_BY_VALUE = 16  # calls, after one of _MANY frames of which most were dicts of their own
_MANY = 4096
_NAMED = itemgetter("filename", "line", "name")
NOT_FOUND = -1


class StackMark:
    """The only item of a list of frames that was emptied after its stack was interned; the list may recur."""

    __slots__ = ("stack",)

    def __init__(self, stack: int) -> None:
        self.stack = stack


class FrameTable:
    """Distinct frames by value: (filename, line, name) and the ``fx_*`` keys that some frames have."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = numbering()
        self._by_identity: dict[int, int] = {}
        self._by_address = NumberTable()
        self._fx_keys: set[str] = set()
        # The dicts whose addresses are remembered, so that no other object gets the same one.
        self._alive: list[Any] = []
        self._by_value = 0  # calls for which addresses are not looked up

    @property
    def is_full(self) -> bool:
        """Whether no more addresses are remembered."""
        return len(self._alive) >= _MOST_ADDRESSES

    def numbers(self, frames: Sequence[Any], where: Where, row: int) -> array[int]:
        """The numbers of the frames of one list, new ones included."""
        known = self._by_identity
        numbers: list[Any] = list(map(known.get, map(id, frames)))
        for i in [i for i, number in enumerate(numbers) if number is None] if None in numbers else ():
            frame = frames[i]
            numbers[i] = known.get(id(frame))  # a list may have a frame many times
            if numbers[i] is not None:
                continue
            try:
                numbers[i] = self.number(frame)
            except SnapshotError as error:
                raise SnapshotError(f"{where(row)}.frames[{i}]: {error}") from None
            if not self.is_full:
                known[id(frame)] = numbers[i]
                self._alive.append(frame)
        return array(NUMBER.char, numbers)

    def numbers_at_once(self, frames: np.ndarray) -> np.ndarray:
        """UInt32 numbers of many frames, an array of objects. Raises :class:`SnapshotError` if any is no frame.

        A Python loop takes 65 ns per frame; this takes 4 for those whose address is known. Where each list has frames
        of its own, as in a file that was JSON, addresses say nothing.
        """
        if self._by_value:
            self._by_value -= 1
            return self._numbered(frames.tolist()).astype(NUMBER)
        addresses = np.frombuffer(frames, np.uint64) if len(frames) else np.zeros(0, np.uint64)
        numbers = self._by_address.find(addresses)
        unknown = np.flatnonzero(numbers == NOT_FOUND)
        if len(unknown):
            distinct, first, of_each = np.unique(addresses[unknown], return_index=True, return_inverse=True)
            order = np.argsort(first)  # numbers are those of the first appearance, whichever way a list is read
            objects = frames[unknown[first[order]]].tolist()
            found = np.empty(len(order), np.int64)
            found[order] = self._numbered(objects)
            numbers[unknown] = found[of_each]
            if 2 * len(distinct) > len(addresses) >= _MANY:
                self._by_value = _BY_VALUE
            elif not self.is_full:
                self._by_address.insert(distinct, found)
                self._alive += objects
        return numbers.astype(NUMBER)

    def _numbered(self, objects: list[Any]) -> np.ndarray:
        """Int64 numbers of frames by their values; a mark's is its stack's."""
        rows = _plain_rows(objects)
        if rows is None:
            return np.array(
                [MARKED + one.stack if type(one) is StackMark else self.number(one) for one in objects], np.int64
            )
        return np.fromiter(map(self._numbers.__getitem__, rows), np.int64, len(rows))

    def number(self, frame: Any) -> int:
        """The number of a frame by its value. Raises :class:`SnapshotError` if it is none."""
        if type(frame) is not dict:
            raise SnapshotError(f"{shown(frame)}, not a frame")
        try:
            filename, line, name = frame["filename"], frame["line"], frame["name"]
        except KeyError as error:
            raise SnapshotError(f"frame without {error}") from None
        if len(frame) == 3 and type(filename) is str and type(name) is str and type(line) is int:
            number = self._numbers.get((filename, line, name))
            if number is not None:
                return number
        line = integer(line, "frame", "line", (INT64[0], UINT64[1]))
        if line > INT64[1]:  # no line, -1, written as an unsigned number
            line -= 1 << 64
        extra = self._fx(frame) if len(frame) > 3 else ()
        key: tuple[Any, ...] = (text(filename, "frame", "filename"), line, text(name, "frame", "name"))
        if extra:
            key = *key, extra
        return self._numbers[key]

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

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def characters(self) -> int:
        """Of the texts of all distinct frames."""
        named = sum(sum(map(len, map(itemgetter(i), self._numbers))) for i in (0, 2))
        return named + sum(len(value) for key in self._numbers if len(key) > 3 for _, value in key[3])

    def table(self, order: np.ndarray) -> pl.DataFrame:
        """A row per frame, in ``order``."""
        numbered = list(self._numbers)
        rows = [numbered[i] for i in order.tolist()]
        columns = {
            name: pl.Series(list(map(itemgetter(i), rows)), dtype=dtype)
            for i, (name, dtype) in enumerate((("filename", pl.String), ("line", pl.Int64), ("name", pl.String)))
        }
        extras: dict[str, list[str | None]] = {key: [None] * len(rows) for key in sorted(self._fx_keys)}
        for i, row in enumerate(rows):
            for key, value in row[3] if len(row) > 3 else ():
                extras[key][i] = value
        columns |= {key: pl.Series(values, dtype=pl.String) for key, values in extras.items()}
        return pl.DataFrame(columns)


def _plain_rows(objects: list[Any]) -> list[tuple[str, int, str]] | None:
    """(filename, line, name) of frames that have no other keys, and no text that must be escaped; None for others."""
    if set(map(type, objects)) != {dict} or set(map(len, objects)) != {3}:
        return None
    try:
        rows = list(map(_NAMED, objects))
    except KeyError:
        return None
    files, lines, names = zip(*rows, strict=True)
    if {*map(type, files), *map(type, names)} != {str} or set(map(type, lines)) != {int}:
        return None
    is_plain = min(lines) >= INT64[0] and max(lines) <= INT64[1]
    return rows if is_plain and all(map(str.isascii, files)) and all(map(str.isascii, names)) else None


class NumberTable:
    """UInt64 key other than 0 → number: a hash table with open addressing, read and written by whole arrays."""

    def __init__(self) -> None:
        self._count = 0
        self._resize(12)

    def _resize(self, bits: int) -> None:
        self._bits = bits
        self._keys = np.zeros(1 << bits, np.uint64)
        self._values = np.zeros(1 << bits, np.int64)

    def _places(self, keys: np.ndarray) -> np.ndarray:
        # Fibonacci hashing: the upper bits of the product depend on all bits of the key.
        places: np.ndarray = (keys * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - self._bits)).view(np.int64)
        return places

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Int64 numbers; -1 for keys that are not in the table."""
        places = self._places(keys)
        numbers: np.ndarray = self._values[places]
        left = np.flatnonzero(self._keys[places] != keys)
        while len(left):
            empty = self._keys[places[left]] == 0
            numbers[left[empty]] = NOT_FOUND
            left = left[~empty]
            places[left] = (places[left] + 1) & (len(self._keys) - 1)
            numbers[left] = self._values[places[left]]
            left = left[self._keys[places[left]] != keys[left]]
        return numbers

    def insert(self, keys: np.ndarray, numbers: np.ndarray) -> None:
        """Adds distinct keys that are not in the table."""
        self._count += len(keys)
        if self._count * _PLACES_PER_KEY > len(self._keys):
            full = np.flatnonzero(self._keys)
            keys = np.concatenate([self._keys[full], keys])
            numbers = np.concatenate([self._values[full], numbers])
            self._resize((2 * self._count * _PLACES_PER_KEY).bit_length())
        places, left = self._places(keys), np.arange(len(keys))
        while len(left):
            free = left[self._keys[places[left]] == 0]
            self._keys[places[free]] = keys[free]  # of several for one place, one remains
            self._values[places[free]] = numbers[free]
            left = left[self._keys[places[left]] != keys[left]]
            places[left] = (places[left] + 1) & (len(self._keys) - 1)
