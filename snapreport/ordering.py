"""Sorting that numbers allow and ``argsort`` does not know of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def stable_order(values: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Rows that sort ``values``; equal values keep their order.

    Addresses and sizes are multiples of a block size within some GiB, so a value and its row mostly fit one int64:
    sorting those takes a quarter of the time of sorting indirectly.
    """
    if not len(values):
        return np.zeros(0, np.int64)
    offset = values.astype(np.uint64, copy=False) - values.min().astype(np.uint64)
    used = int(np.bitwise_or.reduce(offset))
    unit = (used & -used).bit_length() - 1 if used else 0
    row_bits = len(values).bit_length()
    if (used >> unit).bit_length() + row_bits > 63:
        return np.argsort(values, kind="stable")
    keys = ((offset >> np.uint64(unit)) << np.uint64(row_bits)).view(np.int64) | np.arange(len(values))
    keys.sort()
    rows: npt.NDArray[np.int64] = keys & ((1 << row_bits) - 1)
    return rows
