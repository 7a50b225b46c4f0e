"""Checks of single values and whole columns, with errors that give the place of the bad value.

A pickle can hold anything anywhere, so nothing here hashes, compares or prints a value before its exact type is known:
values nested 100,000 deep would crash the process.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np

from snapreport.errors import SnapshotError, one_line

Key = TypeVar("Key", bound=Hashable)
Where = Callable[[int], str]  # row → its place in the snapshot, e.g. "device_traces[0][17]"

MAX_SIZE = 2**53 - 1  # bytes; larger numbers are not exact in a browser, and no machine has them
INT64 = (-(2**63), 2**63 - 1)
UINT64 = (0, 2**64 - 1)
SIZE = (0, MAX_SIZE)
NoneType = type(None)


def shown(value: Any) -> str:
    """A value in an error message: short, and safe for values of any depth."""
    if type(value) in (bool, int, float, NoneType):
        try:
            return repr(value)[:40]
        except ValueError:  # an int with more digits than Python agrees to print
            return "a number of thousands of digits"
    if type(value) is str:
        return one_line(repr(value[:40]))
    return f"a {type(value).__name__}"


class Characters:
    """Limits the characters that all rows of text columns hold together. ``most``: as few as the pickle's size allows.

    A text is stored once in a pickle and can be referred to by every row, but each row of a column has a copy.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, value: str, where: str) -> str:
        """``value``; raises :class:`SnapshotError` if it is too much."""
        self._left -= len(value)
        if self._left < 0:
            raise SnapshotError(f"{where}: texts that recur until they need more memory than any program records")
        return value


def bad(where: str, key: str, value: Any, wanted: str) -> SnapshotError:
    return SnapshotError(f"{where}: {key!r} is {shown(value)}, not {wanted}")


def wanted_int(bounds: tuple[int, int]) -> str:
    return {SIZE: "a size in bytes", UINT64: "an address of 64 bits"}.get(bounds, "a whole number of 64 bits")


def integer(value: Any, where: str, key: str, bounds: tuple[int, int]) -> int:
    """``value`` if it is an int (no bool) within ``bounds``."""
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise bad(where, key, value, wanted_int(bounds))
    return value


def text(value: Any, where: str, key: str) -> str:
    """``value`` if it is a str, escaped to valid UTF-8."""
    if type(value) is not str:
        raise bad(where, key, value, "a text")
    return clean(value)


def clean(value: str) -> str:
    """Escapes lone surrogates, which no UTF-8 column can hold."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def clean_all(values: list[str]) -> list[str]:
    """The same for each of many: most are ASCII."""
    return values if all(map(str.isascii, values)) else list(map(clean, values))


def int_column(
    values: list[Any], where: Where, key: str, bounds: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray | None]:
    """(values, null mask or None): int64 or uint64 by ``bounds``; None counts as null and gives 0."""
    dtype = np.uint64 if bounds is UINT64 else np.int64
    quick = _plain_ints(values, bounds)
    if quick is not None:
        return quick, None
    types = set(map(type, values))
    nulls = None
    if NoneType in types:
        nulls = np.fromiter((v is None for v in values), bool, len(values))
        if types == {NoneType}:
            return np.zeros(len(values), dtype), nulls
        filled: list[Any] = [0 if v is None else v for v in values]
        types.discard(NoneType)
    else:
        filled = values
    if types == {int}:
        try:
            column = np.fromiter(filled, dtype, len(filled))
        except OverflowError:
            pass
        else:
            if bounds is not SIZE or not len(column) or (column.min() >= 0 and column.max() <= MAX_SIZE):
                return column, nulls
    for i, v in enumerate(filled):
        integer(v, where(i), key, bounds)
    raise AssertionError(key)


def all_same(values: list[Any]) -> bool:
    """Whether all of ``values`` equal the first, whose type must be safe to compare."""
    first = values[0]
    # Counting compares them all, so check a few first.
    some = values[-1], values[len(values) // 2], values[len(values) // 3]
    return all(type(value) is type(first) and value == first for value in some) and values.count(first) == len(values)


def _plain_ints(values: list[Any], bounds: tuple[int, int]) -> np.ndarray | None:
    """The column if it is valid, without checking each value's type; None if the types must be checked.

    ``array`` accepts only ints and booleans, and booleans are ruled out if all numbers are greater than 1.
    """
    if not values:
        return None
    first = values[0]
    if type(first) is int and bounds[0] <= first <= bounds[1] and all_same(values):
        return np.full(len(values), first, np.uint64 if bounds is UINT64 else np.int64)
    try:
        column = np.frombuffer(
            array("Q" if bounds is UINT64 else "q", values), np.uint64 if bounds is UINT64 else np.int64
        )
    except (TypeError, OverflowError):
        return None
    sound = column.min() > 1 and (bounds is not SIZE or column.max() <= MAX_SIZE)
    return column if sound else None


def numbering(known: Iterable[Key] = ()) -> defaultdict[Key, int]:
    """A dict that numbers its keys in the order in which they are first looked up, ``known`` before all others."""
    numbers: defaultdict[Key, int] = defaultdict(count().__next__)
    for key in known:
        numbers[key]
    return numbers


def text_codes(values: list[Any], where: Where, key: str, codes: defaultdict[str, int]) -> np.ndarray:
    """Int32 codes of a column of texts by ``codes`` (:func:`numbering`); None gives -1."""
    first = values[0]
    if (first is None or type(first) is str) and all_same(values):  # most such columns are empty: "N/A", ""
        return np.full(len(values), -1 if first is None else codes[first], np.int32)
    # Types first: hashing a tuple that holds itself twice, forty times over, would never end.
    types = set(map(type, values))
    if types == {str}:
        return np.fromiter(map(codes.__getitem__, values), np.int32, len(values))
    if not types <= {str, NoneType}:
        row, value = next((row, value) for row, value in enumerate(values) if type(value) not in (str, NoneType))
        raise bad(where(row), key, value, "a text")
    return np.fromiter((-1 if value is None else codes[value] for value in values), np.int32, len(values))


def is_pool(value: Any) -> bool:
    """Whether ``value`` is a pair of ints, which is always cheap to hash and compare."""
    return type(value) is tuple and len(value) == 2 and type(value[0]) is int and type(value[1]) is int


def are_pools(values: list[Any]) -> bool:
    """Whether :func:`is_pool` holds for all."""
    return (
        set(map(type, values)) == {tuple}
        and set(map(len, values)) == {2}
        and set(map(type, chain.from_iterable(values))) == {int}
    )


def pool_name(value: Any, where: str, key: str) -> str | None:
    """A pool id, a pair of numbers in a tuple or list, as the text "(0, 1)"."""
    if value is None:
        return None
    if type(value) in (tuple, list) and len(value) == 2 and all(type(v) is int for v in value):
        return f"({integer(value[0], where, key, UINT64)}, {integer(value[1], where, key, UINT64)})"
    raise bad(where, key, value, "a pair of numbers")


def plain(value: Any, budget: list[int] | None = None, depth: int = 6) -> Any:
    """A copy of a settings value with only texts, numbers, lists and dicts, limited in depth and number of items.

    Bounded, because a small pickle can hold a value that contains itself, or that expands a billion times.
    """
    budget = [2000] if budget is None else budget
    budget[0] -= 1
    if type(value) is str:
        # A long text counts as many items: it can be referenced in two thousand places.
        budget[0] -= len(value[:10_000]) // 100
        return clean(value[:10_000])
    if type(value) is float and not math.isfinite(value):
        return str(value)  # JSON cannot represent it
    if value is None or type(value) in (bool, float) or (type(value) is int and -(2**63) <= value < 2**64):
        return value
    if depth and budget[0] > 0 and type(value) is dict:
        made = {}
        for key, item in value.items():
            if type(key) is str and budget[0] > 0:
                budget[0] -= len(key[:10_000]) // 100
                made[clean(key[:10_000])] = plain(item, budget, depth - 1)
        return made
    if depth and budget[0] > 0 and type(value) in (list, tuple):
        return [plain(v, budget, depth - 1) for v in value if budget[0] > 0]
    return f"<{type(value).__name__}>"


def whole_numbers(value: Any, most: int) -> np.ndarray | None:
    """Int64 of a list of at most ``most`` whole numbers; None if it is anything else."""
    if type(value) is not list or len(value) > most or any(type(one) is not int for one in value):
        return None
    try:
        return np.array(value, np.int64)
    except OverflowError:
        return None
