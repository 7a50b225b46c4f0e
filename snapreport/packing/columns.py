"""One integer column to bytes: a transform (none, delta, second delta, dictionary) and a layout (varints, byte planes).

Which pair is smallest after brotli depends on the data: training loops repeat themselves, so that raw indices can beat
deltas; addresses repeat from a small set, so that a dictionary beats both. The encoder therefore tries them on a sample
and keeps the best. The format is read by ``static/src/data/columns.ts`` and by the decoder in the tests.
"""

from __future__ import annotations

import json

import brotli
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from snapreport.integers import stable_order

# Columns of up to this many values are tried in all codings as they are. Longer ones repeat themselves and are judged
# by SAMPLE values of their middle: trying a million values costs seconds, and gains 1 % of the file.
WHOLE_UP_TO, SAMPLE = 1 << 15, 1 << 13
# A dictionary of more distinct values than this share of the column has not paid for itself on any real snapshot.
DICTIONARY_SHARE = 0.5
_PART = 1 << 15  # values written at a time

Ints = npt.NDArray[np.int64]


class Column(Struct, frozen=True):
    """A named column to be packed.

    ``dtype`` says what the page makes of it: ``u8 u16 u32 i32`` or ``f64`` (whole numbers below 2**53), or ``json``
    with any JSON value in ``values``.
    """

    name: str
    values: object
    dtype: str


class Encoded(Struct, frozen=True):
    """The header entry ``[name, dtype, count, transform, layout, nbytes]`` of a column, and its bytes."""

    name: str
    dtype: str
    count: int
    transform: str
    layout: str
    data: bytes

    @property
    def entry(self) -> list[object]:
        return [self.name, self.dtype, self.count, self.transform, self.layout, len(self.data)]


def zigzag(values: Ints) -> npt.NDArray[np.uint64]:
    """Map signed to unsigned so that small magnitudes stay small: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varints(values: npt.NDArray[np.uint64]) -> bytes:
    """LEB128: seven bits a byte, lowest first, the high bit says that more follow."""
    # In parts that fit into the processor's cache, and whose temporary arrays take the same memory again.
    return b"".join(_varints(values[at : at + _PART]) for at in range(0, len(values), _PART))


def _varints(values: npt.NDArray[np.uint64]) -> bytes:
    width = (int(values.max()).bit_length() + 6) // 7
    if width <= 1:
        return values.astype(np.uint8).tobytes()
    digits = np.empty((len(values), width), np.uint8)
    is_written = np.ones((len(values), width), bool)
    for place in range(width):
        rest = values >> np.uint64(7 * place)
        digits[:, place] = rest & np.uint64(0x7F)
        if place:
            is_written[:, place] = rest > 0
    digits[:, :-1] |= is_written[:, 1:].view(np.uint8) << 7
    return digits[is_written].tobytes()


def varints_of_zero(count: int) -> bytes:
    """The bytes of a constant column of ``count`` zeros."""
    return b"\0" if count else b""


def planes(values: npt.NDArray[np.uint64]) -> tuple[str, bytes]:
    """Byte planes: all lowest bytes, then all second bytes, and so on; as many as the greatest value needs."""
    width = max(1, (int(values.max()).bit_length() + 7) // 8)
    of_value = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(-1, 8)
    return f"p{width}", b"".join(of_value[:, byte].tobytes() for byte in range(width))


def _transformed(values: Ints, transform: str) -> npt.NDArray[np.uint64]:
    if transform == "n":
        return values.view(np.uint64)
    if transform == "nz":
        return zigzag(values)
    delta = _differences(values)
    return zigzag(delta if transform == "dz" else _differences(delta))


def _differences(values: Ints) -> Ints:
    """Each value less the one before it, the first less 0. :func:`numpy.diff` takes ten times as long for a few."""
    differences = values.copy()
    differences[1:] -= values[:-1]
    return differences


def _laid_out(values: npt.NDArray[np.uint64], layout: str) -> tuple[str, bytes]:
    return ("v", varints(values)) if layout == "v" else planes(values)


def _sample(values: Ints) -> Ints:
    """The part of a column by which its coding is chosen: all of a short one, the middle of a longer one."""
    if len(values) <= WHOLE_UP_TO:
        return values
    begin = (len(values) - SAMPLE) // 2
    return values[begin : begin + SAMPLE]


def _best_plain(values: Ints, sample: Ints) -> tuple[str, str, int]:
    """The (transform, layout) in which ``sample`` is smallest after a quick brotli, and that size in bytes.

    ``values`` is the whole column, which the transform has to suit.
    """
    low, high = int(values.min()), int(values.max())
    plain = "nz" if low < 0 else "n"
    best: tuple[str, str, int] | None = None
    # The page computes in doubles: second differences of numbers near 2**53 would pass what they hold exactly.
    near_limit = max(abs(low), abs(high)) >= 1 << 51
    for transform in (plain,) if near_limit else (plain, "dz", "Dz"):
        numbers = _transformed(sample, transform)
        # Numbers of seven bits are the same bytes in both.
        for layout in ("v", "p") if numbers.max() > 0x7F else ("v",):
            size = len(brotli.compress(_laid_out(numbers, layout)[1], quality=3))
            if best is None or size < best[2]:
                best = (transform, layout, size)
    assert best is not None
    return best


def encode_column(column: Column) -> list[Encoded]:
    """Encode one column: a single entry, or three where a dictionary is smaller (the column, its values, its indices).

    Integer values must lie in [-2**62, 2**62); ``f64`` ones below 2**53 for the page to hold them exactly.
    """
    if column.dtype == "json":
        text = json.dumps(column.values, ensure_ascii=True, separators=(",", ":")).encode("ascii")
        return [Encoded(column.name, "json", 1, "n", "raw", text)]
    values = np.asarray(column.values, dtype=np.int64)
    count = len(values)
    if count == 0:
        return [Encoded(column.name, column.dtype, 0, "n", "v", b"")]
    if values.min() == values.max():
        transform = "nz" if values[0] < 0 else "n"
        return [Encoded(column.name, column.dtype, count, transform, "c", varints(_transformed(values[:1], transform)))]
    sample = _sample(values)
    transform, layout, plain_size = _best_plain(values, sample)
    dictionary = _dictionary(column, values, sample, plain_size)
    if dictionary is not None:
        return dictionary
    layout, data = _laid_out(_transformed(values, transform), layout)
    return [Encoded(column.name, column.dtype, count, transform, layout, data)]


def _dictionary(column: Column, values: Ints, sample: Ints, plain_size: int) -> list[Encoded] | None:
    """The dictionary form, where it is smaller than ``plain_size`` on the sample; else None."""
    sample_distinct, sample_indices = _numbered(sample)
    if len(sample_distinct) > DICTIONARY_SHARE * len(sample):
        return None
    if len(sample) < len(values):
        # Numbering all of a long column is worth it only where numbering the sample was.
        if _index_form(sample_distinct, sample_indices, sample_indices)[2] >= plain_size:
            return None
        distinct, indices = _numbered(values)
    else:
        distinct, indices = sample_distinct, sample_indices
    index_form = _index_form(distinct, indices, _sample(indices))
    if index_form[2] + 24 >= plain_size:
        return None
    value_form = _best_plain(distinct, _sample(distinct))
    # The dictionary's own values weigh on the whole column, not on the sample: scale them down to compare.
    share = len(sample) / len(values)
    if value_form[2] * share + index_form[2] + 24 >= plain_size:
        return None
    parts = [Encoded(column.name, column.dtype, len(values), "n", "u", b"")]
    for suffix, numbers, dtype, form in (
        ("#v", distinct, column.dtype, value_form),
        ("#i", indices, "u32", index_form),
    ):
        layout, data = _laid_out(_transformed(numbers, form[0]), form[1])
        parts.append(Encoded(column.name + suffix, dtype, len(numbers), form[0], layout, data))
    return parts


def _index_form(distinct: Ints, indices: Ints, sample: Ints) -> tuple[str, str, int]:
    return _best_plain(indices, sample) if len(distinct) > 1 else ("n", "v", 0)


def _numbered(values: Ints) -> tuple[Ints, Ints]:
    """(distinct values by first appearance, the index of each value among them).

    Indices by first appearance grow slowly and repeat with the training step.
    """
    low, high = int(values.min()), int(values.max())
    if high - low < len(values):  # a table of all numbers between them takes a fifth of the time of sorting
        offset = values - low
        first = np.full(high - low + 1, len(values))
        # Of several writes to one place, the last remains: backwards, that of the first appearance.
        for end in range(len(values), 0, -_PART):
            begin = max(0, end - _PART)
            first[offset[begin:end][::-1]] = np.arange(end - 1, begin - 1, -1)
        codes = np.flatnonzero(first < len(values))
        codes = codes[np.argsort(first[codes])]
        rank = np.empty(len(first), np.int64)
        rank[codes] = np.arange(len(codes))
        return codes + low, rank[offset]
    order = stable_order(values)
    ordered = values[order]
    begins = np.ones(len(values), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    first = order[begins]  # equal values stay in order, so this is where each appears first
    appearance = np.argsort(first)
    rank = np.empty(len(first), dtype=np.int64)
    rank[appearance] = np.arange(len(first))
    indices = np.empty(len(values), dtype=np.int64)
    indices[order] = rank[np.cumsum(begins) - 1]
    return values[first[appearance]], indices
