"""One integer column to bytes: a transform (none, delta, second delta, dictionary) and a layout (varints, byte planes).

Which pair is smallest after brotli depends on the data: training loops repeat themselves, so that raw indices can beat
deltas; addresses repeat from a small set, so that a dictionary beats both. The encoder therefore tries them on a sample
and keeps the best. The format is read by ``static/src/data/columns.ts`` and by the decoder in the tests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import brotli
import numpy as np
import numpy.typing as npt

# Columns longer than this are judged by their first values only: trying all eight codings on a million values
# costs seconds, and the choice has not been seen to change beyond this length.
SAMPLE = 1 << 15
# A dictionary of more distinct values than this share of the column has not paid for itself on any real snapshot.
DICTIONARY_SHARE = 0.5

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """A named column to be packed.

    ``dtype`` says what the page makes of it: ``u8 u16 u32 i32`` or ``f64`` (whole numbers below 2**53), or ``json``
    with any JSON value in ``values``.
    """

    name: str
    values: object
    dtype: str


@dataclass(frozen=True)
class Encoded:
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
    if not len(values):
        return b""
    lengths = np.ones(len(values), dtype=np.int64)
    rest = values >> np.uint64(7)
    while rest.any():
        lengths += rest > 0
        rest = rest >> np.uint64(7)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    out = np.zeros(int(ends[-1]), dtype=np.uint8)
    for byte in range(int(lengths.max())):
        has = lengths > byte
        chunk = (values[has] >> np.uint64(7 * byte)) & np.uint64(0x7F)
        more = np.where(lengths[has] > byte + 1, np.uint64(0x80), np.uint64(0))
        out[starts[has] + byte] = chunk | more
    return out.tobytes()


def planes(values: npt.NDArray[np.uint64]) -> tuple[str, bytes]:
    """Byte planes: all lowest bytes, then all second bytes, and so on; as many as the greatest value needs."""
    width = max(1, (int(values.max()).bit_length() + 7) // 8)
    bytes_ = values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    return f"p{width}", np.ascontiguousarray(bytes_.T).tobytes()


def _transformed(values: Ints, transform: str) -> npt.NDArray[np.uint64]:
    if transform == "n":
        return values.astype(np.uint64)
    if transform == "nz":
        return zigzag(values)
    delta = np.diff(values, prepend=0)
    if transform == "dz":
        return zigzag(delta)
    return zigzag(np.diff(delta, prepend=0))


def _laid_out(values: npt.NDArray[np.uint64], layout: str) -> tuple[str, bytes]:
    return ("v", varints(values)) if layout == "v" else planes(values)


def _best_plain(values: Ints) -> tuple[str, str, int]:
    """The (transform, layout) whose sample is smallest after a quick brotli, and that size in bytes."""
    sample = values[:SAMPLE]
    plain = "nz" if sample.min() < 0 or values.min() < 0 else "n"
    best: tuple[str, str, int] | None = None
    # The page computes in doubles: second differences of numbers near 2**53 would pass what they hold exactly.
    near_limit = max(abs(int(values.min())), abs(int(values.max()))) >= 1 << 51
    for transform in (plain,) if near_limit else (plain, "dz", "Dz"):
        numbers = _transformed(sample, transform)
        for layout in ("v", "p"):
            size = len(brotli.compress(_laid_out(numbers, layout)[1], quality=5))
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
    if (values == values[0]).all():
        transform = "nz" if values[0] < 0 else "n"
        return [Encoded(column.name, column.dtype, count, transform, "c", varints(_transformed(values[:1], transform)))]
    transform, layout, plain_size = _best_plain(values)
    dictionary = _dictionary(column, values, plain_size)
    if dictionary is not None:
        return dictionary
    layout, data = _laid_out(_transformed(values, transform), layout)
    return [Encoded(column.name, column.dtype, count, transform, layout, data)]


def _dictionary(column: Column, values: Ints, plain_size: int) -> list[Encoded] | None:
    """The dictionary form, where it is smaller than ``plain_size`` on the sample; else None."""
    sample_distinct = len(np.unique(values[:SAMPLE]))
    if sample_distinct > DICTIONARY_SHARE * min(len(values), SAMPLE):
        return None
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    # Numbered by first appearance: indices then grow slowly and repeat with the training step.
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    indices = rank[inverse]
    distinct = distinct[order]
    value_form, index_form = _best_plain(distinct), _best_plain(indices) if len(distinct) > 1 else ("n", "v", 0)
    # The dictionary's own values weigh on the whole column, not on the sample: scale them down to compare.
    share = min(1.0, SAMPLE / len(values))
    if value_form[2] * share + index_form[2] + 24 >= plain_size:
        return None
    parts = [Encoded(column.name, column.dtype, len(values), "n", "u", b"")]
    for suffix, numbers, dtype, form in (("#v", distinct, column.dtype, value_form), ("#i", indices, "u32", index_form)):
        layout, data = _laid_out(_transformed(numbers, form[0]), form[1])
        parts.append(Encoded(column.name + suffix, dtype, len(numbers), form[0], layout, data))
    return parts
