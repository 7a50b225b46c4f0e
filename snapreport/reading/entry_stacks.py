"""Stacks of trace entries by the bytes of their frames' values: lists of frames and of references to them."""

from __future__ import annotations

import io
import pickle
import re
from array import array
from itertools import filterfalse, islice, repeat
from typing import Any

import numpy as np
from msgspec import Struct

from snapreport.reading.entry_memo import Memo
from snapreport.reading.entry_tokens import LONG1
from snapreport.reading.frame_table import NUMBER
from snapreport.reading.stacks import StackInterner

NEW, UNREADABLE = -1, -2
"""Codes of values that were not added, and of those that cannot be."""
_MOST_PLACES = 1 << 21  # that the decoder has: its table takes 16 bytes for each
_AT_ONCE = 8  # lists, for which it is faster
_MOST_SKIPPED = 64  # calls of the decoder, after some that were in vain
_MOST_REFERENCES = 400  # of a new value, some in texts: more are unpickled in less time
_DEEP = 5 * _MOST_REFERENCES  # bytes
_REFERENCE = rb"(?:h.|j.{4})"
# No character begins with MEMOIZE (0x94), which follows the text. The length before it is compared later.
_TEXT = rb"[\x00-\x7f]*+(?:(?:[\xc2-\xdf].|[\xe0-\xef]..|[\xf0-\xf4]...)[\x00-\x7f]*+)*+"
_INLINE = rb"(?:\x8c.|X.{4})" + _TEXT + rb"\x94"
_LONG = b"|".join(rb"\x8a" + re.escape(bytes([n])) + b".{%d}" % n for n in range(1, 10))
_NUMBER = rb"(?:K.|M..|J.{4}|[N\x88\x89]|" + _LONG + b")"  # and None, True, False
_PAIRS = rb"(?:(?:" + _REFERENCE + b"|" + _INLINE + b")(?:" + _REFERENCE + b"|" + _INLINE + b"|" + _NUMBER + b"))++"
# Lists in batches, as pickle writes them.
_OF_REFERENCES = re.compile(rb"\]\x94(?:\(" + _REFERENCE + rb"++e)*+(?:" + _REFERENCE + b"a)?", re.DOTALL)
_REFERENCES = re.compile(_REFERENCE, re.DOTALL)
_ITEMS = re.compile(b"(" + _REFERENCE + rb")|\}\x94\((" + _PAIRS + b")u", re.DOTALL)
_VALUES = re.compile(_REFERENCE + b"|" + _INLINE + b"|" + _NUMBER, re.DOTALL)
_EMPTY_LIST = b"]"[0]
_TEXTS = {0x8C: 2, 0x58: 5}  # opcode of a text → bytes before it


class Frames(Struct):
    """A list of which some frames are no references. items: the bytes of a reference, and those of a frame's keys and
    values in turn. fills: memo places that it fills.
    """

    items: list[tuple[bytes, list[bytes]]]
    fills: int


class _Numbers(dict[bytes, int]):
    """The number of a frame by the bytes of a reference to it. Raises ``KeyError`` for anything else."""

    def __init__(self, stacks: StackInterner, memo: Memo) -> None:
        self._stacks = stacks
        self._memo = memo

    def __missing__(self, reference: bytes) -> int:
        index = int.from_bytes(reference[1:], "little")
        frame = self._memo.object_at(index)
        if type(frame) is not dict:
            raise KeyError(reference)
        number = self[reference] = self._stacks.number(frame)
        return number


class _Decoder:
    """Reads lists of references with an unpickler that has the bytes of the frames' numbers in their places: 30 ns a
    frame, which a regular expression and a dict take 150 for.
    """

    def __init__(self, numbers: _Numbers) -> None:
        self._numbers = numbers
        self._skipped = self._skip = 0  # calls
        self._begin()

    def _begin(self) -> None:
        self._put = 0  # of the numbers
        self._feed = io.BytesIO()
        self._unpickler = pickle.Unpickler(self._feed)

    def keys(self, values: list[bytes]) -> list[bytes]:
        """The bytes of the frames' numbers of each; none if a reference is not to one of the numbers."""
        if self._skip:
            self._skip -= 1
            return []
        new = islice(reversed(self._numbers.items()), len(self._numbers) - self._put)
        self._put = len(self._numbers)
        puts = [
            b"C\x04" + number.to_bytes(4, "little") + b"r" + reference[1:].ljust(4, b"\0") + b"0"
            for reference, number in new
            if int.from_bytes(reference[1:], "little") < _MOST_PLACES
        ]
        body = b"".join([*puts, b"](", *[b"]" + value[2:] for value in values], b"e."])
        self._feed.seek(0)
        self._feed.truncate()
        self._feed.write(b"\x80\x04\x95" + len(body).to_bytes(8, "little") + body)
        self._feed.seek(0)
        try:
            found = self._unpickler.load()
        except pickle.UnpicklingError:
            self._begin()  # it has stopped half way
            self._skip = self._skipped = min(2 * self._skipped + 1, _MOST_SKIPPED)
            return []
        self._skipped = 0
        return list(map(b"".join, found))


class EntryStacks:
    """Codes of stacks. Frames are numbered in the order of the calls."""

    def __init__(self, stacks: StackInterner, memo: Memo) -> None:
        self._stacks = stacks
        self._memo = memo
        self._codes = {b"N": 0}
        self._numbers = _Numbers(stacks, memo)
        self._decoder = _Decoder(self._numbers)
        self._values: dict[bytes, Any] = {}  # of frames, by their bytes

    def of(self, data: bytes, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, dict[int, Frames]]:
        """Int32 codes of the values ``data[begin:end]``. By row, those of ``NEW`` that hold frames."""
        # A dict compares bytes faster than numpy could group them.
        values = [data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        codes = np.fromiter(map(self._codes.get, values, repeat(NEW)), np.int32, len(values))
        inline: dict[int, Frames] = {}
        rows = np.flatnonzero(codes == NEW).tolist()
        new = list(dict.fromkeys(map(values.__getitem__, rows)))
        if _are_of_references(new):
            return codes, inline
        seen: set[bytes] = set()
        for i in rows:
            value = values[i]
            if value in seen:
                continue
            is_deep = len(value) > _DEEP and value.count(b"j") > _MOST_REFERENCES
            is_readable, frames = (False, None) if is_deep else read_frames(value)
            if not is_readable:
                codes[i] = UNREADABLE
            elif frames:
                inline[i] = frames
            else:
                seen.add(value)
        return codes, inline

    def add(self, values: list[bytes], inline: dict[int, Frames], places: list[int]) -> list[int]:
        """Codes of new values, up to the first that refers to anything but a frame or a list of frames.

        inline: the frames in some of them, by their index, in order. places: of the memo before each value.
        """
        made: list[int] = []
        try:
            # Those up to the next with frames, which those after it may refer to.
            for i, frames in inline.items():
                self._add(values[len(made) : i], made)
                made.append(self._code_of_frames(frames, places[i]))
            self._add(values[len(made) :], made)
        except KeyError:
            pass
        return made

    def _add(self, values: list[bytes], made: list[int]) -> None:
        """Appends the codes of values that hold no frames. Raises ``KeyError`` after those before another one."""
        codes = self._codes
        new = list(dict.fromkeys(filterfalse(codes.__contains__, values)))
        if len(new) >= _AT_ONCE and {value[0] for value in new} == {_EMPTY_LIST}:
            codes.update(zip(new, map(self._stacks.register, self._decoder.keys(new)), strict=False))
        for value in values:
            if value not in codes:
                codes[value] = self._code(value)
            made.append(codes[value])

    def _code(self, value: bytes) -> int:
        if value[0] == _EMPTY_LIST:
            numbers = array(NUMBER.char, map(self._numbers.__getitem__, _REFERENCES.findall(value, 2)))
            return self._stacks.register(numbers.tobytes())
        known = self._memo.object_at(int.from_bytes(value[1:], "little"))
        if type(known) is not list:
            raise KeyError(value)
        return int(self._stacks.add([known], lambda row: "trace")[0])

    def _code_of_frames(self, frames: Frames, place: int) -> int:
        numbers = array(NUMBER.char)
        place += 1  # of the list
        for reference, tokens in frames.items:
            if not reference:
                own, (frame, place) = _reference_to(place), self._frame(tokens, place + 1)
                self._numbers[own] = self._stacks.number(frame)
            numbers.append(self._numbers[reference or own])
        return self._stacks.register(numbers.tobytes())

    def _frame(self, tokens: list[bytes], place: int) -> tuple[dict[str, Any], int]:
        """A frame, and the place of the memo after it."""
        values = list(map(self._values.get, tokens))
        for i in [i for i, value in enumerate(values) if value is None]:
            token = tokens[i]
            head = _TEXTS.get(token[0])
            if head:
                if int.from_bytes(token[1:head], "little") != len(token) - head - 1:
                    raise KeyError(token)
                values[i] = self._memo.objects[place] = token[head:-1].decode("utf-8", "surrogatepass")
                place += 1
            elif token[0] in b"hj":
                values[i] = self._memo.known_at(int.from_bytes(token[1:], "little"))
                if values[i] is None:
                    raise KeyError(token)
                self._values[token] = values[i]
            elif token != b"N":
                values[i] = self._values[token] = _number(token)
        keys: list[Any] = values[::2]
        if set(map(type, keys)) != {str}:
            raise KeyError(tokens)
        return dict(zip(keys, values[1::2], strict=True)), place


def _are_of_references(values: list[bytes]) -> bool:
    """Whether all are lists of references, and none is deep."""
    # One search of all takes a third of the time of a call for each.
    return max(map(len, values), default=0) <= _DEEP and _OF_REFERENCES.findall(b"".join(values)) == values


def read_frames(value: bytes) -> tuple[bool, Frames | None]:
    """Whether a value can be added, and the items of a list unless all are references."""
    if value == b"N" or _OF_REFERENCES.fullmatch(value) or _REFERENCES.fullmatch(value):
        return True, None
    found = _ITEMS.findall(value, 2)
    read = b"".join([reference or b"}\x94(%bu" % pairs for reference, pairs in found])
    if value not in (b"]\x94(" + read + b"e", b"]\x94" + read + b"a"):
        return False, None
    items = [(reference, _VALUES.findall(pairs)) for reference, pairs in found]
    texts = sum(1 for _, tokens in items for token in tokens if token[0] in _TEXTS)
    return True, Frames(items, 1 + texts + sum(1 for reference, _ in items if not reference))


def _reference_to(place: int) -> bytes:
    return b"h" + bytes([place]) if place < 256 else b"j" + place.to_bytes(4, "little")


def _number(raw: bytes) -> int | bool:
    if raw[0] in b"\x88\x89":
        return raw == b"\x88"
    return int.from_bytes(raw[2 if raw[0] == LONG1 else 1 :], "little", signed=raw[0] in (LONG1, b"J"[0]))
