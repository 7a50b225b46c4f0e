"""How each allocation's size follows from the number that differs between recordings: constant, linear, quadratic."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

UNKNOWN, ADOPTED, CONSTANT, LINEAR, QUADRATIC, AT_MOST_QUADRATIC = range(6)
"""Where a law comes from. UNKNOWN: only one recording has the allocation. ADOPTED: so it is, and others of exactly its
size have a law, which it is given: tensors of one size mostly have one shape. AT_MOST_QUADRATIC: or linear, of one
recording alone."""
ROUNDING = 512.0
"""Bytes by which a size may miss a line: kernels round up what they ask for, to 32 numbers or 512 bytes."""
MANY = 32
"""From this value on, two sizes of something else hardly are whole numbers of bytes times the value and its square."""
SHIFT = 2
"""By how much a part of a sequence may be shorter than it: ``logits[:, :-1]`` and the like."""


class SizeLaws(Struct, frozen=True):
    """Bytes of each allocation as ``a + b * value + c * value**2``.

    coefficients: Float64, (allocations, 3): a, b, c. kind: Int8. is_proven: Boolean; the sizes are constant, or exactly
    proportional to the value, its square, or it less 1 or :data:`SHIFT`, or whole numbers of bytes times both, or a
    third recording has the size that two others foretell.
    """

    coefficients: np.ndarray
    kind: np.ndarray
    is_proven: np.ndarray

    def sizes(self, value: float) -> np.ndarray:
        """Int64 bytes by allocation, not below 0."""
        a, b, c = self.coefficients.T
        sizes: np.ndarray = np.maximum(np.rint(a + value * (b + value * c)), 0).astype(np.int64)
        return sizes

    def growth(self, value: float) -> np.ndarray:
        """Float64 bytes by allocation that the next unit adds."""
        _, b, c = self.coefficients.T
        added: np.ndarray = b + c * (2 * value + 1)
        return added


def size_laws(values: np.ndarray, sizes: np.ndarray, own: int) -> SizeLaws:
    """The laws of allocations whose sizes are known at some values.

    values: Float64, ascending. sizes: Int64, (values, allocations), -1 where a recording lacks the allocation. own: the
    index of the recording that the allocations are from, which has all of them.

    Of more than three sizes that of ``own`` and the two with the nearest values decide. Three on one line, but for
    rounding, are linear, others quadratic, unless a part of that would shrink: then the nearest two decide. Two are a
    product of the value's square if they are exactly so far apart, and linear otherwise; a line that would be below 0
    at 0 is the sum of a linear and a quadratic part, as products of a width and a width and a number are, unless it is
    0 at 1 or :data:`SHIFT`.
    """
    count = sizes.shape[1]
    laws = SizeLaws(np.zeros((count, 3)), np.zeros(count, np.int8), np.zeros(count, bool))
    laws.coefficients[:, 0] = sizes[own]
    # The recording itself comes first, missing ones last.
    distance = np.abs(np.log(values / values[own]))
    order = np.argsort(np.where(sizes >= 0, distance[:, None], np.inf), axis=0, kind="stable")[:3]
    known = (sizes >= 0).sum(axis=0)
    x, y = values[order], np.take_along_axis(sizes, order, axis=0).astype(np.float64)
    two, three = np.flatnonzero(known == 2), np.flatnonzero(known >= 3)
    if len(two):
        _from_two(laws, two, x[:2, two], y[:2, two])
    if len(three):
        _from_three(laws, three, x[:, three], y[:, three])
    _adopt_laws(laws, sizes[own])
    return laws


def _from_two(laws: SizeLaws, rows: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    (x0, x1), (y0, y1) = x, y
    slope = (y1 - y0) / (x1 - x0)
    start = y0 - slope * x0
    square = y0 * x1 * x1 == y1 * x0 * x0
    shifted = (start < 0) & (-start <= SHIFT * slope) & (start % np.maximum(slope, 1) == 0)
    both = (start < 0) & ~square & ~shifted
    # The size per unit grows by c: of b * x and c * x * x.
    c = np.where(both, (y1 / x1 - y0 / x0) / (x1 - x0), np.where(square, y0 / (x0 * x0), 0.0))
    b = np.where(both, y0 / x0 - c * x0, np.where(square, 0.0, slope))
    _set_laws(laws, rows, np.stack([np.where(both | square, 0.0, start), b, c], axis=1))
    # Of all samples with all and with a few more, as in-batch negatives and mined ones: whole bytes of both.
    whole = both & (x0 >= MANY) & (b % 1 == 0) & (c % 1 == 0)
    laws.is_proven[rows] = square | shifted | whole | (y0 == y1) | (y0 * x1 == y1 * x0)


def _from_three(laws: SizeLaws, rows: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    (x0, x1, x2), (y0, y1, y2) = x, y
    slope = (y1 - y0) / (x1 - x0)
    # Small squares are near a line, too.
    square = (y0 * x1 * x1 == y1 * x0 * x0) & (y0 * x2 * x2 == y2 * x0 * x0)
    line = ~square & (np.abs(y0 + slope * (x2 - x0) - y2) <= ROUNDING)
    c = np.where(line, 0.0, ((y2 - y0) / (x2 - x0) - slope) / (x2 - x1))
    b = np.where(line, slope, slope - c * (x0 + x1))
    a = y0 - x0 * (b + c * x0)
    _set_laws(laws, rows, np.stack([a, b, c], axis=1))
    # A parabola meets any three points. Pure squares, and sums of a linear part and a square, have no constant part.
    laws.is_proven[rows] = line | ((np.abs(a) <= ROUNDING) & (b >= -1) & (c > 0))
    # No tensor has a part that shrinks: another kernel chose one of the sizes, and the nearest two say more.
    bent = ~line & ((a < -ROUNDING) | (b < -1) | (c < 0))
    _from_two(laws, rows[bent], x[:2, bent], y[:2, bent])
    laws.is_proven[rows[bent]] = False


def _set_laws(laws: SizeLaws, rows: np.ndarray, coefficients: np.ndarray) -> None:
    laws.coefficients[rows] = coefficients
    _, b, c = coefficients.T
    laws.kind[rows] = np.where(c != 0, QUADRATIC, np.where(b != 0, LINEAR, CONSTANT))


def _adopt_laws(laws: SizeLaws, own: np.ndarray) -> None:
    """Gives those of unknown growth the law that most others of their size have."""
    unknown = np.flatnonzero(laws.kind == UNKNOWN)
    known = np.flatnonzero(laws.kind > ADOPTED)
    if not len(unknown) or not len(known):
        return
    rows, first, count = np.unique(
        np.column_stack([own[known], laws.coefficients[known]]), axis=0, return_index=True, return_counts=True
    )
    best = np.lexsort((count, rows[:, 0]))
    sizes, last = np.unique(rows[best, 0][::-1], return_index=True)  # the last of each size: the most frequent
    law = known[first[best[::-1][last]]]
    at = np.minimum(np.searchsorted(sizes, own[unknown]), len(sizes) - 1)
    found = sizes[at] == own[unknown]
    laws.coefficients[unknown[found]] = laws.coefficients[law[at[found]]]
    laws.kind[unknown[found]] = ADOPTED
