"""Bytes allocated and reserved at every position of a trace."""

from __future__ import annotations

import numpy as np

from snapreport.errors import SnapshotError
from snapreport.reading.fields import MAX_SIZE
from snapreport.reading.recording import ACTIONS

_ADDS = [ACTIONS.index(a) for a in ("segment_alloc", "segment_map")]
_SEGMENT_RELEASES = [ACTIONS.index(a) for a in ("segment_free", "segment_unmap")]

_SIGN = np.zeros(len(ACTIONS) + 1, np.int64)  # the last is for unknown actions
_SIGN[_ADDS], _SIGN[_SEGMENT_RELEASES] = 1, -1


def allocated_curve(alloc_event: np.ndarray, free_event: np.ndarray, size: np.ndarray, events: int) -> np.ndarray:
    """Int64 bytes, ``events + 1`` values: index s is the state after event s - 1, index 0 the state before the first.

    Raises :class:`SnapshotError` if sizes add up to more than a report can show exactly (2**53 bytes).
    """
    before = alloc_event < 0
    if float(size.sum(dtype=np.float64)) >= 2.0**62:
        raise SnapshotError(f"allocations add up to {size.sum(dtype=np.float64):.3g} bytes, more than any memory")
    step = np.zeros(events + 1, np.int64)
    step[0] = size[before].sum()
    # An event begins at most one lifetime and ends at most one, so plain assignment suffices.
    step[alloc_event[~before] + 1] = size[~before]
    ends = free_event >= 0
    step[free_event[ends] + 1] -= size[ends]
    curve = np.cumsum(step, out=step)  # another array's pages would take longer than the sum
    if int(curve.max()) > MAX_SIZE:
        raise SnapshotError(f"allocations add up to {int(curve.max())} bytes at once, more than any memory")
    return curve


def reserved_curve(action: np.ndarray, size: np.ndarray, final: int) -> np.ndarray:
    """Int64 bytes, ``len(action) + 1`` values, replayed backwards from the ``final`` bytes of all segments.

    May be negative if the final segments and the trace contradict each other.
    """
    if float(size.sum(dtype=np.float64)) + final >= 2.0**62:
        raise SnapshotError(f"sizes add up to {size.sum(dtype=np.float64):.3g} bytes, more than any memory")
    rows = np.flatnonzero(_SIGN[np.minimum(action, len(ACTIONS))])  # one event in thousands
    curve = np.zeros(len(action) + 1, np.int64)
    curve[rows + 1] = _SIGN[action[rows]] * size[rows]
    np.cumsum(curve, out=curve)
    curve += final - curve[-1]
    return curve
