"""The heat map's matrices: rank by step, and rank by time, of allocated, reserved and unused memory."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.jobs.digest_model import METRICS, DigestCurve
from snapreport.jobs.reduce import Job
from snapreport.jobs.rows import Row

MOST_COLUMNS, MOST_CELLS = 512, 1 << 18
LEVELS, MOST_LEVEL = 1023, 65_534
"""A quantisation level is 0.1% of where colours end, finer than a colour can show; a few ranks may be far above, up to
what a u16 holds. Peaks elsewhere are exact."""
CLIP_ABOVE, CLIP_AT, CLIP_SHARE = 2, 1.25, 0.9
"""As in static/src/job/statistics.ts: colours end at 1.25 times the 90th percentile of the ranks if the highest is
above twice that."""


class HeatAxis(Struct, frozen=True, eq=False):
    """One x axis. key: "step", "time" or "event"; first, last: Int64, the range of each column: step numbers, µs since
    the job's first event, or thousandths of each rank's own trace. note: a caveat. cells: UInt16 by metric, ranks by
    columns: 0 for no data, otherwise 1 + the level.
    """

    key: str
    label: str
    unit: str
    note: str
    first: np.ndarray
    last: np.ndarray
    cells: dict[str, np.ndarray]


class Heat(Struct, frozen=True, eq=False):
    """scale: bytes per level. origin_us: µs since the epoch of time 0, None without times. axes: at least one."""

    scale: int
    origin_us: int | None
    axes: list[HeatAxis]


def heat_of(job: Job) -> Heat:
    """The matrices of a job, read from its digests one after the other."""
    highest = np.maximum([digest.highest_reserved for digest in job.digests], job.peaks)
    scale = max(-(-clipped_end(highest) // (LEVELS - 1)), -(-int(highest.max(initial=1)) // MOST_LEVEL))
    columns = max(1, min(MOST_COLUMNS, MOST_CELLS // len(job.rows)))
    axes = [_step_axis(job, columns), *_time_axis(job, columns)]
    found = [axis for axis in axes if len(axis.first)]
    if not found:
        found = [_event_axis(columns, len(job.rows))]
    for row, entry in enumerate(job.rows):
        curves = entry.packed.curves()
        for axis in found:
            if placed := _placed(axis, curves, job, entry):
                _fill(axis, row, *placed, scale)
    return Heat(scale, job.start_us if job.clock.comparable else None, found)


def clipped_end(values: np.ndarray) -> int:
    """Where a scale over one value for each rank ends: at the greatest, or before it if otherwise a few extreme ranks
    would make all others look alike.
    """
    known = np.sort(values[values > 0])
    most = int(known[-1]) if len(known) else 0
    if len(known) < 3:
        return most
    usual = int(known[int(CLIP_SHARE * (len(known) - 1))])
    return int(CLIP_AT * usual) if most > CLIP_ABOVE * usual else most


def _step_axis(job: Job, columns: int) -> HeatAxis:
    known, rows = [row.packed.steps for row in job.rows if row.packed.steps], len(job.rows)
    if not known:
        return _axis("step", "step", "step", "", np.zeros(0, np.int64), np.zeros(0, np.int64), rows)
    low, high = min(b[0] for b in known), max(b[1] for b in known)
    first, last = _columns(low, high, columns)
    missing = rows - len(known)
    note = f"{missing} of {rows} ranks recorded no steps." if missing else ""
    return _axis("step", "step", "step", note, first, last, rows)


def _time_axis(job: Job, columns: int) -> list[HeatAxis]:
    known = [row.packed.time for row in job.rows if row.packed.time]
    if not known:
        return []
    if job.clock.comparable:
        length = max(b[1] for b in known) - min(b[0] for b in known)
        note = job.clock.sentence
    else:
        length = max(b[1] - b[0] for b in known)
        note = f"Each rank's time begins with its own first event. {job.clock.sentence}"
    first, last = _columns(0, length, columns)
    return [_axis("time", "time", "us", note, first, last, len(job.rows))]


def _event_axis(columns: int, rows: int) -> HeatAxis:
    first, last = _columns(0, 999, columns)
    return _axis("event", "share of the trace", "share", "Neither steps nor times were recorded.", first, last, rows)


def _axis(key: str, label: str, unit: str, note: str, first: np.ndarray, last: np.ndarray, rows: int) -> HeatAxis:
    return HeatAxis(key, label, unit, note, first, last, {m: np.zeros((rows, len(first)), np.uint16) for m in METRICS})


def _columns(low: int, high: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(first, last) of at most ``most`` columns of integers from ``low`` to ``high``, equally wide except the last."""
    width = -(-(high - low + 1) // most)
    first = np.arange(low, high + 1, width, dtype=np.int64)
    return first, np.minimum(first + width - 1, high)


def _placed(
    axis: HeatAxis, curves: dict[str, DigestCurve], job: Job, row: Row
) -> tuple[DigestCurve, np.ndarray, np.ndarray] | None:
    """A row's curve with the ranges of its columns on the job's axis; None where it has none."""
    curve = curves.get(axis.key)
    if curve is None or not len(curve.first):
        return None
    if axis.key == "time":
        origin = job.start_us if job.clock.comparable else row.first_us
        assert origin is not None
        return curve, curve.first - origin, curve.last - origin
    if axis.key == "event":
        count = int(curve.last[-1]) - int(curve.first[0]) + 1
        begin = (curve.first - curve.first[0]) * 1000 // count
        end = (curve.last - curve.first[0] + 1) * 1000 // count - 1
        return curve, begin, np.maximum(end, begin)
    return curve, curve.first, curve.last


def _fill(axis: HeatAxis, row: int, curve: DigestCurve, first: np.ndarray, last: np.ndarray, scale: int) -> None:
    """Each column takes the maximum of the curve's columns that overlap it."""
    begin = np.searchsorted(last, axis.first, "left")
    end = np.searchsorted(first, axis.last, "right")
    has = end > begin
    pairs = np.column_stack((begin[has], end[has])).ravel()
    for metric, cells in axis.cells.items():
        values = np.append(curve.values[metric], 0)
        # reduceat takes [begin, end) and the gap between two intervals; intervals may overlap.
        highest = np.maximum.reduceat(values, pairs)[::2]
        cells[row, has] = 1 + np.minimum(-(-highest // scale), MOST_LEVEL)
