"""Reads a trace entry of a pickle without unpickling it: where its values stand, and what it adds to the memo.

Opcodes: Lib/pickletools.py. The memo: Modules/_pickle.c (``load_memoize``: the next index is the number of filled
places).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from snapreport.reading.fields import is_pool

INTEGERS = {0x4B: 1, 0x4D: 2, 0x4A: 4}  # BININT1, BININT2, BININT: bytes of the argument
LONG1 = 0x8A
NONE = 0x4E
REFERENCES = {0x68: 1, 0x6A: 4}  # BINGET, LONG_BINGET
SHORT_TEXT = 0x8C
MEMOIZE = 0x94
_NUMBERS = {**INTEGERS, NONE: 0, 0x88: 0, 0x89: 0, 0x47: 8}  # and NEWTRUE, NEWFALSE, BINFLOAT
_TEXTS = {SHORT_TEXT: 1, 0x58: 4}  # and BINUNICODE: bytes of the length
_EMPTY = (0x5D, 0x7D, 0x29)  # EMPTY_LIST, EMPTY_DICT, EMPTY_TUPLE
_MARK = 0x28
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}  # items
_TUPLE = 0x74
_LONGEST = 16  # bytes of an opcode and its argument, or the length of it
_APPENDS, _SETITEMS, _APPEND, _SETITEM = 0x65, 0x75, 0x61, 0x73


class Unusual(Exception):  # noqa: N818  the file is not invalid
    """The pickle is not written as ``pickle.dump`` writes a snapshot: read it the plain way."""


class Incomplete(Exception):  # noqa: N818
    """The entry continues after the bytes given."""


class Value(Struct):
    """A key or value of an entry.

    start, end: its bytes, ``MEMOIZE`` included. known: its text, whole number or pair of numbers; None for any other.
    memo: memo places that the entry fills before it. reference: the memo index that it refers to, or None.
    """

    start: int
    end: int
    known: Any
    memo: int
    reference: int | None = None


class Entry(Struct):
    """start, end: its bytes. items: its keys and values in turn. memo: memo places that it fills. objects: the texts
    and pairs of numbers among these, by place. references: all in it.
    """

    start: int
    end: int
    items: list[Value]
    memo: int
    objects: dict[int, Any] = field(default_factory=dict)
    references: list[Value] = field(default_factory=list)


def read_entry(data: bytes, start: int, known_at: Callable[[int], Any]) -> Entry:
    """The entry that begins at ``data[start]`` with ``EMPTY_DICT MEMOIZE MARK``. ``known_at``: the text or pair of
    numbers at an index of the memo, or None.

    Raises :class:`Incomplete`, and :class:`Unusual` for opcodes that no recorder's entries have. Takes some 0.4 µs an
    opcode: for entries with keys not seen before.
    """
    # As on the unpickler's stack, a container's items are those above its mark.
    stack: list[Value] = []
    marks: list[int] = []
    memo, references = 0, []
    made: dict[int, Any] = {}
    at = start
    try:
        while True:
            code = data[at]
            if code in REFERENCES:
                end = at + 1 + REFERENCES[code]
                index = int.from_bytes(data[at + 1 : end], "little")
                references.append(Value(at, end, known_at(index), memo, index))
                stack.append(references[-1])
            elif code in _NUMBERS:
                end = at + 1 + _NUMBERS[code]
                number = int.from_bytes(data[at + 1 : end], "little", signed=code == 0x4A)
                stack.append(Value(at, end, number if code in INTEGERS else None, memo))
            elif code == MEMOIZE:
                end = at + 1
                value = stack[-1]
                if value.reference is not None:
                    raise Unusual("a value that is in the memo twice")
                value.end = end
                if type(value.known) is str or is_pool(value.known):
                    made[memo] = value.known
                memo += 1
            elif code in _TEXTS:
                head = at + 1 + _TEXTS[code]
                end = head + int.from_bytes(data[at + 1 : head], "little")
                if end > len(data):
                    raise Incomplete
                stack.append(Value(at, end, data[head:end].decode("utf-8", "surrogatepass"), memo))
            elif code == LONG1:
                end = at + 2 + data[at + 1]
                stack.append(Value(at, end, int.from_bytes(data[at + 2 : end], "little", signed=True), memo))
            elif code in _EMPTY:
                end = at + 1
                stack.append(Value(at, end, None, memo))
            elif code == _MARK:
                end = at + 1
                marks.append(len(stack))
            elif code in (_APPENDS, _SETITEMS):
                end = at + 1
                mark = marks.pop()
                items = stack[mark:]
                del stack[mark:]
                if not marks:
                    if end > len(data):
                        raise Incomplete
                    return Entry(start, end, items, memo, made, references)
                _extend(stack[-1], end)
            elif code in (_APPEND, _SETITEM):
                end = at + 1
                del stack[-1 if code == _APPEND else -2 :]
                _extend(stack[-1], end)
            elif code in _TUPLES or code == _TUPLE:
                end = at + 1
                mark = marks.pop() if code == _TUPLE else len(stack) - _TUPLES[code]
                parts = stack[mark:]
                begin = parts[0].start - (code == _TUPLE)
                stack[mark:] = [Value(begin, end, tuple(part.known for part in parts), parts[0].memo)]
            else:
                raise Unusual(f"opcode {code:#x} in an entry")
            at = end
    except IndexError:
        if at + _LONGEST > len(data):
            raise Incomplete from None
        raise Unusual("an entry out of order") from None
    except UnicodeDecodeError:
        raise Unusual("a text that is not UTF-8") from None


def _extend(container: Value, end: int) -> None:
    """Items were added to ``container``. An earlier value must not change: other entries may have it."""
    if container.reference is not None:
        raise Unusual("an entry that changes an earlier value")
    container.end = end
