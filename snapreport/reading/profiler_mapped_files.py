"""The profiler's totals where a program maps files, as the shared memory by which a DataLoader's workers send batches.

aten/src/ATen/MapAllocator.cpp reports each mapping with a total of its own: 0 bytes allocated and its size, or 0, as
reserved (PyTorch 2.13). The totals of the other events leave mappings out.
"""

from __future__ import annotations

import numpy as np


def with_mapped_files(
    address: np.ndarray, size: np.ndarray, allocated: np.ndarray, reserved: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(allocated, reserved) of the CPU after each event, Int64 bytes, with mappings included in what is allocated.

    size: Int64 bytes, negative for a free. allocated, reserved: the profiler's totals, -1 where it has none.
    """
    mapped, older = _mappings(address, size, allocated)
    if not mapped.any():
        return allocated, reserved
    own = np.flatnonzero(~mapped)
    if not len(own):
        return older + np.cumsum(size), np.zeros_like(reserved)
    last = np.searchsorted(own, np.arange(len(size)), side="right") - 1
    before = allocated[own[0]] - size[own[0]]
    total = np.where(last >= 0, allocated[own[np.maximum(last, 0)]], before)
    return total + older + np.cumsum(np.where(mapped, size, 0)), reserved[own[np.maximum(last, 0)]]


def _mappings(address: np.ndarray, size: np.ndarray, allocated: np.ndarray) -> tuple[np.ndarray, int]:
    """(Boolean by event: whether it is of a mapping; bytes mapped before the trace that it unmaps).

    A total of 0 after an allocation shows a mapping, and so does the free of its address. A free of older memory is of
    a mapping where the total drops to 0 by more than its size.
    """
    no_total = allocated == 0
    mapped = no_total & (size > 0)
    order = np.lexsort((np.arange(len(size)), address))
    previous = np.full(len(size), -1)
    previous[order[1:]] = np.where(address[order[1:]] == address[order[:-1]], order[:-1], -1)
    is_older = (previous < 0) | (size[previous] < 0)
    frees = no_total & (size < 0)
    mapped |= frees & ~is_older & mapped[previous]
    known = np.maximum.accumulate(np.where(no_total, -1, np.arange(len(size))))
    drops = (known >= 0) & (allocated[np.maximum(known, 0)] != -size)
    unmapped = frees & is_older & drops
    return mapped | unmapped, -int(size[unmapped].sum())
