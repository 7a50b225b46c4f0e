"""The fields of the query language, and how their values are parsed. The page's twin is
``static/src/search/fields.ts``.

Numbers become closed intervals of integers, since every column they are compared with is integral (bytes, µs, events).
"""

from __future__ import annotations

import math
import re

from msgspec import Struct
from msgspec.structs import replace

from snapreport.errors import QueryError
from snapreport.sizes import NUMBER, parse_size, scaled
from snapreport.vocabulary import (
    CATEGORIES,
    CATEGORY_SOURCES,
    MOMENTS,
    ORIGINS,
    PART_SEPARATORS,
    POOLS,
    QUERY_ERRORS,
    QUERY_FIELDS,
    TIME_UNITS_US,
)  # fmt: skip

PREEXISTING = "preexisting"

# A bound beyond any data; both ends fit every column.
_LIMIT = 2**64
_TIME = re.compile(rf"({NUMBER}) *(ns|us|µs|μs|ms|s|min|h|)")
_WHOLE = re.compile(r"(-?)([0-9](?:[0-9,_]{0,24}[0-9])?)")
_ADDRESS = re.compile(r"0[xX]([0-9a-fA-F]{1,16})|([0-9]{1,20})")
_STEP = re.compile(r"[Ss][Tt][Ee][Pp][ \t\n\r\f\v\u00a0]+(-?[0-9][0-9,_.]*)")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_PLACE = re.compile(r"(.+):([0-9]{1,9})", re.DOTALL)


class Range(Struct, frozen=True):
    """Integers from ``low`` to ``high``, inclusive; None: no bound. ``unit``: "events" or "us" for a lifetime, "step"
    for numbers of steps where a field has other numbers, too.
    """

    low: int | None
    high: int | None
    unit: str = ""


class Text(Struct, frozen=True):
    """Text that contains ``parts`` in this order, all folded. ``place``: or a frame in such a file at this line."""

    parts: tuple[str, ...]
    place: tuple[tuple[str, ...], int] | None = None


class Choice(Struct, frozen=True):
    """One of some names."""

    names: tuple[str, ...]


Test = Range | Text | Choice


def fold(text: str) -> str:
    """Text normalised for comparison: lower case, and with one kind of slash."""
    return text.lower().replace("\\", "/")


def text_of(words: str, *, is_quoted: bool) -> Text:
    """The test of a bare word. ``*`` stands for anything and ``file.py:12`` for a place unless the word is quoted."""
    return Text((fold(words),)) if is_quoted else Text(_parts(words), _place(words))


def read_value(field: str, op: str, value: str, at: int, is_quoted: bool) -> Test:
    """The test for a value. ``at``: where it begins in the query. Raises :class:`QueryError`."""
    kind = QUERY_FIELDS[field]
    is_equal = op in (":", "=")
    bad = _ValueErrors(value, at)
    if kind in ("step", "moment") and is_equal and (step := _STEP.fullmatch(value)):
        return replace(_range(field, "step", op, step[1], _ValueErrors(step[1], at + step.start(1))), unit="step")
    if kind == "step" and is_equal and _is_whole_range(value):
        return replace(_range(field, "step", op, value, bad), unit="step")
    if kind == "count":
        if not is_equal:
            raise bad("name_only", field=field)
        if not _COUNT.fullmatch(value):
            raise bad("count")
        return Range(None, int(value))
    if kind in ("text", "step") or (kind == "whole or text" and is_equal and not _is_whole_range(value)):
        if not is_equal:
            raise bad("text_only", field=field)
        return Text((fold(value),) if is_quoted else _parts(value), _place(value) if field == "file" else None)
    if kind == "parts":
        if not is_equal:
            raise bad("text_only", field=field)
        return Text(_bounded(value, PART_SEPARATORS[field], is_quoted, is_path=field == "module"))
    if kind in ("category", "source", "origin", "pool"):
        if not is_equal:
            raise bad("name_only", field=field)
        return _choice(kind, value, bad)
    if kind == "moment" and is_equal and value.lower() in MOMENTS:
        return Choice((value.lower(),))
    if kind == "device" and is_equal and re.fullmatch(r"[A-Za-z]+", value):
        return Choice((value.lower(),))
    return _range(field, kind, op, value, bad)


def is_quantity(text: str) -> bool:
    """Whether text can only be meant as a number with or without a unit."""
    return parse_size(text) is not None or bool(_TIME.fullmatch(text))


class _ValueErrors:
    """Creates errors about a value, or about a part of it that begins at ``begin``."""

    def __init__(self, value: str, at: int) -> None:
        self.value, self.at = value, at

    def __call__(self, error: str, part: str | None = None, begin: int = 0, **values: str) -> QueryError:
        part = self.value if part is None else part
        reason = QUERY_ERRORS[error].format(value=part, **values)
        return QueryError(reason, self.at + begin, max(len(part), 1))


def _parts(words: str) -> tuple[str, ...]:
    return tuple(part for part in fold(words).split("*") if part)


def in_parts(text: str, separator: str) -> str:
    """A text in the form in which :func:`_bounded` finds parts of it: separators around each, and around them its
    ends.
    """
    return f"^{separator}{text}{separator}$"


def _bounded(value: str, separator: str, is_quoted: bool, *, is_path: bool) -> tuple[str, ...]:
    """Whole parts from the first on, so that ``layers.7`` finds all below it and not ``layers.70``; ``*`` stands for
    anything. All parts if quoted, or if not a path: ``*x4096`` is the last dimension.
    """
    if is_quoted:
        return (fold(in_parts(value, separator)),)
    first, *rest = fold(value).split("*")
    pieces = [first and f"^{separator}{first}", *rest]
    pieces[-1] = pieces[-1] and pieces[-1] + separator + ("" if is_path else "$")
    return tuple(piece for piece in pieces if piece)


def _place(words: str) -> tuple[tuple[str, ...], int] | None:
    found = _PLACE.fullmatch(words)
    return (_parts(found[1]), int(found[2])) if found else None


def _is_whole_range(value: str) -> bool:
    return all(not end or _WHOLE.fullmatch(end) for end in value.split("..", 1)) and value != ".."


def _choice(kind: str, value: str, bad: _ValueErrors) -> Choice:
    wanted = value.lower()
    if kind == "category":
        names = tuple(name for name in CATEGORIES if wanted in name)
        if not names:
            raise bad("category", known=", ".join(CATEGORIES))
        return Choice(names)
    if kind == "source":
        if wanted not in CATEGORY_SOURCES:
            raise bad("source", known=", ".join(CATEGORY_SOURCES))
        return Choice((wanted,))
    if kind == "origin":
        if wanted == PREEXISTING:
            return Choice(("freed", "ghost"))
        if wanted not in ORIGINS:
            raise bad("origin", known=", ".join((*ORIGINS, PREEXISTING)))
        return Choice((wanted,))
    if wanted in POOLS:
        return Choice((wanted,))
    pair = re.fullmatch(r"\(? *([0-9]{1,20}) *, *([0-9]{1,20}) *\)?", value)
    if not pair:
        raise bad("pool", known=", ".join(POOLS))
    return Choice((f"({int(pair[1])}, {int(pair[2])})",))


def _range(field: str, kind: str, op: str, value: str, bad: _ValueErrors) -> Range:
    dots = value.find("..")
    if dots < 0:
        number, unit = _number(field, kind, value, 0, bad)
        lowest = {">": math.floor(number) + 1, "<": None, "<=": None}.get(op, math.ceil(number))
        highest = {"<": math.ceil(number) - 1, ">": None, ">=": None}.get(op, math.floor(number))
        return Range(_limited(lowest), _limited(highest), unit)
    if op not in (":", "="):
        raise bad("range_only", field=field)
    first, last = value[:dots], value[dots + 2 :]
    if not first and not last:
        raise bad("open_range")
    low, low_unit = _number(field, kind, first, 0, bad) if first else (None, "")
    high, high_unit = _number(field, kind, last, dots + 2, bad) if last else (None, "")
    if low is not None and high is not None:
        if low_unit != high_unit:
            raise bad("mixed_range")
        if low > high:
            raise bad("empty_range", first=first, last=last)
    return Range(
        None if low is None else _limited(math.ceil(low)),
        None if high is None else _limited(math.floor(high)),
        low_unit or high_unit,
    )


def _limited(number: int | None) -> int | None:
    return None if number is None else max(-_LIMIT, min(_LIMIT, number))


def _number(field: str, kind: str, text: str, begin: int, bad: _ValueErrors) -> tuple[float, str]:
    """A number and its unit: "events" or "us" for lifetimes, otherwise "". Exact to 64 bits for 64-bit fields."""
    if kind == "size":
        size = parse_size(text)
        if size is not None:
            return size, ""
        raise bad("size", text, begin)
    if kind in ("time", "lifetime"):
        found = _TIME.fullmatch(text)
        if found and (found[2] or kind == "time" or "." not in found[1]):
            is_events = kind == "lifetime" and not found[2]
            unit = ("events" if is_events else "us") if kind == "lifetime" else ""
            return scaled(found[1], TIME_UNITS_US[found[2]]), unit
        raise bad(kind, text, begin, field=field)
    if kind == "address":
        found = _ADDRESS.fullmatch(text)
        number = int(found[1], 16) if found and found[1] else int(found[2]) if found else 2**64
        if number < 2**64:
            return number, ""
        raise bad("address", text, begin)
    found = _WHOLE.fullmatch(text)
    if found:
        whole = int(found[1] + re.sub("[,_]", "", found[2]))
        return (whole if kind == "stream" else float(whole)), ""
    raise bad(kind if kind in ("moment", "device") else "whole", text, begin, field=field, known=", ".join(MOMENTS))
