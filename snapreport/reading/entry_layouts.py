"""Reads many trace entries of a pickle at once, as columns.

A recorder writes millions of entries with the same keys in the same order, each a reference to the memo, and with
values of one or two opcodes. Most of an entry's bytes are therefore those of others: all but the arguments of its
values' opcodes. A layout is such an entry with the arguments masked; a recording has 10 to 30 of them (a size takes
one, two, four or five bytes). All entries of a layout have each value at the same distance from their start, so it is
one strided view. An entry takes 0.1 µs this way; the unpickler takes 0.7 to make a dict of it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.reading.entry_tokens import INTEGERS, LONG1, MEMOIZE, NONE, REFERENCES, SHORT_TEXT, Entry

HEAD = b"}\x94("  # EMPTY_DICT MEMOIZE MARK
INT_KEYS = ("addr", "size", "stream", "time_us", "device_free")
TEXT_KEYS = ("action", "compile_context", "user_metadata", "category")
POOL_KEYS = ("pool_id", "segment_pool_id")
_UNSUPPORTED = ("forward_frames",)

_NO_ARGUMENT = (NONE, 0x88, 0x89, 0x86, MEMOIZE)  # and NEWTRUE, NEWFALSE, TUPLE2
_WORD = 8
_LONGEST = 256  # bytes of an entry before its frames
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], np.uint64)
_NUMBERS = {1: "u1", 2: "<u2", 4: "<i4"}  # by bytes of the opcode's argument; only BININT is signed


class Bytes:
    """Bytes to read. ``words[i]``: the eight bytes from ``i`` on, as a number."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        self.words = np.ndarray((max(0, len(data) - 7),), "<u8", buffer=data, strides=(1,))

    def starts(self, key: bytes, at: int, width: int) -> np.ndarray:
        """Int64 places from ``at`` on where an entry with this first key may begin, ``width`` bytes or more before the
        end.
        """
        head = HEAD + key
        # Compare a byte of all, then eight bytes of the few that are equal.
        places = np.flatnonzero(self.bytes[at : max(at, len(self.data) + 1 - max(width, _WORD))] == head[0]) + at
        word = np.uint64(int.from_bytes(head[:_WORD], "little"))
        found: np.ndarray = places[self.words[places] & _MASKS[min(_WORD, len(head))] == word]
        return found

    def heads(self, starts: np.ndarray, width: int) -> Heads:
        """The ``width`` bytes from each start on; a multiple of eight."""
        runs = np.ndarray((max(0, len(self.data) + 1 - width),), f"V{width}", buffer=self.data, strides=(1,))
        rows = runs[starts]
        return Heads(rows, np.ascontiguousarray(rows.view("<u8").reshape(len(starts), width // _WORD).T))


class Heads(Struct):
    """The first bytes of n candidates. rows: Void n. words: UInt64 (words, n), eight bytes of each in a line."""

    rows: np.ndarray
    words: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> Heads:
        return Heads(self.rows[chosen], self.words.take(chosen, axis=1))


class Layout(Struct):
    """What entries have in common whose keys are the same, and the opcodes of their values. ``frames``, if present, is
    the last key.

    names: the keys. first: the bytes of the first one. values: key → where its value begins, and the value of the entry
    that the layout was made of. places: key → memo places that the entry fills before its value. memo: those before the
    frames. length: bytes before the value of
    ``frames``, or before the entry's end if it has none. fixed, mask: UInt64, these bytes; the masked ones are free.
    """

    names: list[str]
    first: bytes
    values: dict[str, tuple[int, bytes]]
    places: dict[str, int]
    memo: int
    length: int
    fixed: np.ndarray
    mask: np.ndarray

    @property
    def has_frames(self) -> bool:
        return self.names[-1] == "frames"

    def is_inline(self, key: str) -> bool:
        """Whether the value of one of ``TEXT_KEYS`` or ``POOL_KEYS`` is no reference and not None."""
        code = self.values[key][1][0]
        return code != NONE and code not in REFERENCES

    def is_null(self, key: str) -> bool:
        """Whether the value of one of ``INT_KEYS`` is None."""
        return self.values[key][1][0] == NONE

    @property
    def width(self) -> int:
        """Bytes of a row of :class:`Heads` that this layout needs: a word can be read where a value begins."""
        return _WORD * (len(self.mask) + 1)

    def is_like(self, other: Layout) -> bool:
        """Whether the same entries fit both."""
        return np.array_equal(self.mask, other.mask) and np.array_equal(self.fixed, other.fixed)

    def fits(self, heads: Heads) -> np.ndarray:
        """Boolean n."""
        differences = heads.words[: len(self.mask)] ^ self.fixed[:, None]
        differences &= self.mask[:, None]
        fit: np.ndarray = np.bitwise_or.reduce(differences, axis=0) == 0
        return fit

    def integers(self, key: str, rows: np.ndarray) -> np.ndarray:
        """Int64 values of one of ``INT_KEYS``. ``rows``: those of :class:`Heads` that fit."""
        at, value = self.values[key]
        if value[0] != LONG1:
            return _column(rows, _NUMBERS[INTEGERS[value[0]]], at + 1).astype(np.int64)
        shift = 8 * (_WORD - value[1])
        moved = _column(rows, "<u8", at + 2) << np.uint64(shift)
        numbers: np.ndarray = moved.view(np.int64) >> shift
        return numbers

    def tokens(self, key: str, rows: np.ndarray) -> np.ndarray:
        """The bytes of each value of one of ``TEXT_KEYS`` or ``POOL_KEYS``: UInt64; of longer texts those of the text
        alone, as Void.
        """
        at, value = self.values[key]
        if len(value) > _WORD:
            return _column(rows, f"V{len(value) - 3}", at + 2)
        found: np.ndarray = _column(rows, "<u8", at) & _MASKS[len(value)]
        return found


def _column(rows: np.ndarray, dtype: str, offset: int) -> np.ndarray:
    """A view of the same place in each row."""
    return np.ndarray(rows.shape, dtype, buffer=rows, offset=offset, strides=rows.strides)


def layout_of(entry: Entry, data: bytes) -> Layout | None:
    """The layout of an entry whose keys are all references; None if entries like it are not read at once."""
    keys, items = entry.items[::2], entry.items[1::2]
    names = [key.known for key in keys]
    if any(key.reference is None for key in keys) or set(map(type, names)) != {str}:
        return None
    if len(set(names)) < len(names) or "action" not in names or any(key in names for key in _UNSUPPORTED):
        return None
    if "frames" in names[:-1]:
        return None
    has_frames = names[-1] == "frames"
    end = items[-1].start if has_frames else entry.end - 1
    length = end - entry.start
    if length > _LONGEST:
        return None
    words = -(-length // _WORD)
    mask = bytearray(b"\xff" * length)
    values, places = {}, {}
    for name, item in zip(names, items[:-1] if has_frames else items, strict=False):
        value = data[item.start : item.end]
        free = _arguments(value)
        if free is None or not _is_read(name, value):
            return None
        for begin, stop in free:
            at = item.start - entry.start
            mask[at + begin : at + stop] = bytes(stop - begin)
        values[name] = item.start - entry.start, value
        places[name] = item.memo
    masks = np.frombuffer(bytes(mask).ljust(_WORD * words, b"\0"), "<u8")
    fixed = np.frombuffer(data[entry.start : end].ljust(_WORD * words, b"\0"), "<u8") & masks
    memo = items[-1].memo if has_frames else entry.memo
    return Layout(names, data[keys[0].start : keys[0].end], values, places, memo, length, fixed, masks)


def _is_read(key: str, value: bytes) -> bool:
    if key in INT_KEYS:
        return value[0] in INTEGERS or value[0] == NONE or (value[0] == LONG1 and 1 <= value[1] <= _WORD)
    is_text = key in TEXT_KEYS and value[0] == SHORT_TEXT and value[-1] == MEMOIZE
    return is_text or not (key in TEXT_KEYS or key in POOL_KEYS) or len(value) <= _WORD


def _arguments(value: bytes) -> list[tuple[int, int]] | None:
    """Where the arguments of a value's opcodes begin and end; None if it has others than whole numbers, references,
    short texts, pairs of numbers, None and Booleans.
    """
    found, at = [], 0
    while at < len(value):
        code = value[at]
        count = INTEGERS.get(code) or REFERENCES.get(code)
        head = 1
        if code in (LONG1, SHORT_TEXT):
            head, count = 2, value[at + 1]
        elif code in _NO_ARGUMENT:
            count = 0
        if count is None:
            return None
        found.append((at + head, at + head + count))
        at += head + count
    return found
