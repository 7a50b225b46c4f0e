"""Columns of whole numbers: sorting, sets and the greatest, quicker or stricter than numpy's and polars' own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl


def stable_order(*columns: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Rows that sort the first of ``columns``, where that is equal the next; where all are, rows keep their order.

    numpy sorts 16 bits by their digits. Addresses and sizes are multiples of a block size within some GiB, and stacks
    are few: one or two times that take 5 and 8 ms for 300,000, where sorting them indirectly takes 25.
    """
    order: npt.NDArray[np.int64] | None = None
    for values in columns[::-1] if len(columns[0]) else ():
        for digit in _digits(values):
            places = np.argsort(digit if order is None else digit[order], kind="stable")
            order = places if order is None else order[places]
    return np.arange(len(columns[0])) if order is None else order


def _digits(values: npt.NDArray[np.integer]) -> Iterator[npt.NDArray[np.uint16]]:
    """The digits of 16 bits by which values differ, the lowest first: of their distances from the least, in units that
    divide all of them. None where all are equal.
    """
    low, high = values.min(), values.max()
    if int(high) - int(low) < 1 << 16:
        if low < high:
            yield np.subtract(values, low, dtype=np.uint16, casting="unsafe")
        return
    kind = np.uint32 if values.dtype.itemsize <= 4 else np.uint64
    offset = values.astype(kind, copy=False) - low.astype(kind)
    used = int(np.bitwise_or.reduce(offset))
    unit = (used & -used).bit_length() - 1
    offset >>= kind(unit)
    for shift in range(0, (used >> unit).bit_length(), 16):
        yield (offset >> kind(shift)).astype(np.uint16)


def is_among(numbers: np.ndarray, chosen: np.ndarray | Sequence[int]) -> npt.NDArray[np.bool_]:
    """Bool per number: whether it is one of ``chosen``. None is negative, and all are as small as codes of categories:
    a table answers in a tenth of the time that ``np.isin`` takes on 300,000 codes (0.3 instead of 3.2 ms).
    """
    wanted = np.asarray(chosen, np.intp)
    table = np.zeros(1 + max(_greatest(numbers), _greatest(wanted)), bool)
    table[wanted] = True
    found: npt.NDArray[np.bool_] = table[numbers]
    return found


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Each number once, ascending, of the same type. None is negative."""
    table = np.zeros(1 + _greatest(numbers), bool)
    table[numbers] = True
    return np.flatnonzero(table).astype(numbers.dtype)


def sums_of_codes(codes: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct codes, their Int64 sums of ``size`` and counts: the greatest sum first, then the lowest code.

    Of a few thousand rows, in a tenth of the time that polars takes to group and sort them.
    """
    count = np.bincount(codes)
    sums = np.zeros(len(count), np.int64)
    np.add.at(sums, codes, size)
    found = np.flatnonzero(count)
    found = found[np.lexsort((found, -sums[found]))]
    return found, sums[found], count[found]


def following(events: np.ndarray, positions: np.ndarray | int, never: int) -> np.ndarray:
    """Of ascending ``events`` the first after each of ``positions``; ``never`` where there is none."""
    return np.asarray(np.append(events, never)[np.searchsorted(events, positions, "right")])


def _greatest(numbers: np.ndarray) -> int:
    return int(numbers.max()) if len(numbers) else 0


def interned(strings: pl.Series) -> tuple[list[str], npt.NDArray[np.uint32]]:
    """Distinct strings by first appearance, and the number of each row's; of strings without nulls."""
    texts = strings.unique(maintain_order=True)
    return texts.to_list(), strings.cast(pl.Enum(texts)).to_physical().cast(pl.UInt32).to_numpy()
