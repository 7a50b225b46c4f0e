"""What the peak would be without some allocations: the allocated curve, replayed with their bytes taken out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from snapreport.contracts.finding import Row
from snapreport.findings.selection import select
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.curves import allocated_curve

PARTS = 4096
"""Fractions are whole multiples of 1 / ``PARTS``, so that a size times a fraction is exact below 2**41 bytes."""
_DENSE_SHARE = 1 / 16  # of the positions: more changes than this are quicker added to the whole curve than sorted
_MAX_POSITIONS = 1 << 16
CLOSE_TO_PEAK = 0.9
"""A saving under this share of the bytes removed at the old peak means that a second maximum is close."""


class SavingRow(Row):
    """The replayed peak without ``fraction`` of what ``query`` selects. ``is_lower_bound``: the program ran out of
    memory, and needs so much at least. ``failed_events``: ``oom`` events whose requests change, too; every request that
    failed counts as allocated at its event. ``low_bytes``, ``high_bytes``: the range of the peak, where the remedy
    cannot be replayed exactly.
    """

    query: str
    fraction: float
    peak_bytes: int
    peak_event: int
    saves_bytes: int
    is_lower_bound: bool
    failed_events: list[int]
    low_bytes: int | UnsetType = UNSET
    high_bytes: int | UnsetType = UNSET


class Saving(Struct, frozen=True):
    """A change to some allocations, and the peak after it.

    mask: Bool per allocation, those that change. at_peak_bytes: bytes taken out at the old peak. row: the query selects
    exactly these; of each one's bytes the fraction goes, whole bytes, rounded down per allocation.
    """

    mask: np.ndarray
    at_peak_bytes: int
    row: SavingRow

    @property
    def change(self) -> tuple[np.ndarray, float]:
        return self.mask, self.row.fraction


def live_mask(timeline: DeviceTimeline, position: int) -> np.ndarray:
    """Bool per allocation: alive at ``position``."""
    born, freed = (timeline.allocations[name].to_numpy() for name in ("alloc_event", "free_event"))
    alive: np.ndarray = (born <= position) & ((freed < 0) | (freed > position))
    return alive


def whole_parts(fraction: float) -> float:
    """``fraction``, rounded down to a multiple of 1 / ``PARTS``."""
    return int(fraction * PARTS) / PARTS


def replay(
    timeline: DeviceTimeline,
    recorded: DeviceTimeline,
    mask: np.ndarray,
    fraction: float = 1.0,
    functions: Sequence[str] = (),
    *,
    is_lower_bound: bool = False,
) -> Saving:
    """The peak with ``fraction`` of the bytes of each allocation in ``mask`` taken out. ``functions``: see
    ``selection.query_of``. timeline: ``recorded`` with the requests that failed; the query is about ``recorded``.
    """
    fraction, count = whole_parts(fraction), len(recorded.allocations)
    query, chosen = select(recorded, mask[:count], functions)
    mask = np.append(chosen, mask[count:])
    rows = np.flatnonzero(mask)
    bytes_out = np.floor(timeline.allocations["size"].to_numpy()[rows] * fraction).astype(np.int64)
    peak, event, at_peak = peak_without(timeline, rows, bytes_out)
    failed = timeline.allocations["alloc_event"].to_numpy()[rows[rows >= count]]
    saves = timeline.peak_bytes - peak
    return Saving(mask, at_peak, SavingRow(query, fraction, peak, event, saves, is_lower_bound, failed.tolist()))


def together(timeline: DeviceTimeline, changes: Sequence[tuple[np.ndarray, float]]) -> tuple[int, int]:
    """(peak_bytes, peak_event) after several changes, each a Bool per allocation and the fraction of their bytes that
    goes. An allocation in more than one loses the largest fraction, once.
    """
    size = timeline.allocations["size"].to_numpy()
    bytes_out = np.zeros(len(size), np.int64)
    for mask, fraction in changes:
        here = np.where(mask, np.floor(size * fraction), 0).astype(np.int64)
        bytes_out = np.maximum(bytes_out, here)
    rows = np.flatnonzero(bytes_out)
    return peak_without(timeline, rows, bytes_out[rows])[:2]


def share_of_lives(timeline: DeviceTimeline, rows: np.ndarray, starts: np.ndarray) -> tuple[float, int, int]:
    """(share, highest allocated, its first position) where each of ``rows`` goes at its event of ``starts`` (Int64)
    instead of later. share: see :func:`share_with_cost`.
    """
    freed = timeline.allocations["free_event"].to_numpy()[rows]
    end = np.where(freed < 0, len(timeline.events), freed)
    return share_of_spans(timeline, rows, np.minimum(starts, end), end)


def share_of_spans(
    timeline: DeviceTimeline, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[float, int, int]:
    """The same where each of ``rows`` is absent from its event of ``starts`` up to that of ``ends`` (both Int64)."""
    size = timeline.allocations["size"].to_numpy()[rows]
    gone = bytes_of_spans(timeline, starts, ends, size)
    left = timeline.allocated - gone
    event = int(np.argmax(left)) - 1
    return share_with_cost(timeline, rows, 0.0, -gone), int(left[event + 1]), event


def bytes_of_spans(
    timeline: DeviceTimeline, starts: np.ndarray, ends: np.ndarray, size: np.ndarray | int
) -> np.ndarray:
    """Int64 per place in a curve: ``size`` bytes each, from one event of ``starts`` up to one of ``ends``."""
    step = np.zeros(len(timeline.allocated) + 1, np.int64)
    np.add.at(step, starts + 1, size)
    np.subtract.at(step, ends + 1, size)
    return np.cumsum(step, out=step)[:-1]


def share_with_cost(timeline: DeviceTimeline, rows: np.ndarray, fraction: float, cost: np.ndarray | int) -> float:
    """The largest share of the bytes of ``rows``, over their whole lives, that leaves as much where they are alive as
    ``fraction`` of them taken out and ``cost`` added; 0.0 where that saves nothing.

    cost: Int64 bytes per place in a curve (position + 1), or the same everywhere. A saving is told by a query and a
    fraction, whatever the change is.
    """
    alive = bytes_over_time(timeline, rows)
    # Part by part: the temporaries of a million places at once would be most of what these findings take.
    parts = [slice(start, start + _MAX_POSITIONS) for start in range(0, len(alive), _MAX_POSITIONS)]

    def left(part: slice) -> int:
        changed = timeline.allocated[part] - (alive[part] * fraction).astype(np.int64)
        changed += cost if isinstance(cost, int) else cost[part]
        return int(changed.max(where=alive[part] > 0, initial=0))

    most = max(map(left, parts))

    def share(part: slice) -> float:
        here = alive[part] > 0
        return float(((timeline.allocated[part][here] - most) / alive[part][here]).max(initial=0.0))

    return min(1.0, max(map(share, parts)))


def bytes_over_time(timeline: DeviceTimeline, rows: np.ndarray) -> np.ndarray:
    """Int64 per place in a curve (position + 1): bytes of the allocations ``rows``."""
    born, freed, size = (timeline.allocations[name].to_numpy()[rows] for name in ("alloc_event", "free_event", "size"))
    return allocated_curve(born, freed, size, len(timeline.events))


def peak_without(timeline: DeviceTimeline, rows: np.ndarray, bytes_out: np.ndarray) -> tuple[int, int, int]:
    """(highest allocated, its first position, bytes taken out at the old peak) without ``bytes_out`` of each of
    ``rows``.

    Only as many stretches of the curve are compared as the chosen allocations have beginnings and ends.
    """
    table = timeline.allocations
    born, freed = (table[name].to_numpy()[rows].astype(np.int64) for name in ("alloc_event", "free_event"))
    return peak_without_spans(timeline, born, freed, bytes_out)


def peak_without_spans(
    timeline: DeviceTimeline, born: np.ndarray, freed: np.ndarray, bytes_out: np.ndarray
) -> tuple[int, int, int]:
    """The same with bytes taken out from one event each (``born``) up to another (``freed``, -1: to the end)."""
    ends = freed >= 0
    if len(born) > _DENSE_SHARE * len(timeline.allocated):
        gone = bytes_of_spans(timeline, born, np.where(ends, freed, len(timeline.events)), bytes_out)
        at_peak, left = int(gone[timeline.peak_event + 1]), timeline.allocated - gone
        at = int(np.argmax(left))
        return int(left[at]), at - 1, at_peak
    # Index s of a curve is position s - 1. An allocation counts from its alloc_event up to the event before its free.
    changes = np.concatenate((born + 1, freed[ends] + 1, np.zeros(1, np.int64)))
    starts, which = np.unique(changes, return_inverse=True)
    change = np.zeros(len(starts), np.int64)
    np.add.at(change, which[:-1], np.concatenate((bytes_out, -bytes_out[ends])))
    out = np.cumsum(change)
    highest = np.maximum.reduceat(timeline.allocated, starts) - out
    stretch = int(np.argmax(highest))
    stop = starts[stretch + 1] if stretch + 1 < len(starts) else len(timeline.allocated)
    at = int(starts[stretch] + np.argmax(timeline.allocated[starts[stretch] : stop]))
    at_peak = int(out[np.searchsorted(starts, timeline.peak_event + 1, "right") - 1])
    return int(highest[stretch]), at - 1, at_peak
