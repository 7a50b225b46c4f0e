"""Downsampled curves of a rank: the maximum within each of at most 512 columns, so that no peak is lost."""

from __future__ import annotations

import numpy as np

from snapreport.jobs.digest_model import METRICS, DigestCurve
from snapreport.timeline.annotations import clock_of
from snapreport.timeline.build import DeviceTimeline

POINTS = 512


def step_curve(timeline: DeviceTimeline, points: int = POINTS) -> DigestCurve:
    """By step: one column per step, or per equal number of consecutive steps if there are more than ``points``."""
    steps = timeline.steps
    number, begin, end = (steps[name].to_numpy().astype(np.int64) for name in ("step", "first_event", "last_event"))
    inside = end >= begin
    number, begin, end = number[inside], begin[inside], end[inside]
    each = max(1, -(-len(number) // points))
    starts = np.arange(0, len(number), each)
    ends = np.minimum(starts + each, len(number)) - 1
    return _highest(timeline, number[starts], number[ends], begin[starts] + 1, end[ends] + 2)


def event_curve(timeline: DeviceTimeline, points: int = POINTS) -> DigestCurve:
    """By event: columns of equal width. Position -1, the state before the first event, is in the first column."""
    edges = _edges(len(timeline.allocated), points)
    return _highest(timeline, edges[:-1] - 1, edges[1:] - 2, edges[:-1], edges[1:])


def time_curve(timeline: DeviceTimeline, points: int = POINTS) -> DigestCurve:
    """By time: columns of equal length between the first and the last event; empty if no times were recorded. A column
    without an event has the value after the last event before it.
    """
    clock = clock_of(timeline.events)
    if clock is None:
        nothing = np.zeros(0, np.int64)
        return DigestCurve(nothing, nothing, dict.fromkeys(METRICS, nothing))
    first, last = int(clock[0]), int(clock[-1])
    columns = min(points, last - first + 1)
    edges = first + (np.arange(columns + 1) * (last - first + 1)) // columns
    at = np.searchsorted(clock, edges, "left")
    # Index s of the curves is the state after event s - 1: a column begins with the state before its first event.
    return _highest(timeline, edges[:-1], edges[1:] - 1, at[:-1], at[1:] + 1)


def _edges(count: int, points: int) -> np.ndarray:
    columns = min(points, count)
    return (np.arange(columns + 1) * count) // columns


def _highest(
    timeline: DeviceTimeline, first: np.ndarray, last: np.ndarray, begin: np.ndarray, end: np.ndarray
) -> DigestCurve:
    """The curves' maxima in [begin, end) of each column; the intervals ascend and may share an end."""
    values = {
        "allocated": timeline.allocated,
        "reserved": timeline.reserved,
        "unused": timeline.reserved - timeline.allocated,
    }
    # maximum.reduceat takes pairs: [begin, end), and the gap between two columns, which is dropped.
    pairs = np.column_stack((begin, end)).ravel()

    def reduced(curve: np.ndarray) -> np.ndarray:
        padded = np.append(curve, curve[-1])
        return np.maximum(np.maximum.reduceat(padded, pairs)[::2], 0)

    return DigestCurve(first, last, {metric: reduced(curve) for metric, curve in values.items()})
