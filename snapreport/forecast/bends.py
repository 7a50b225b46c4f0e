"""Where the peak's growth changes between two values: another moment becomes the peak."""

from __future__ import annotations

import polars as pl

from snapreport.contracts.fit import Bend
from snapreport.forecast.prediction import DeviceFit, PeakMoment
from snapreport.timeline.operators import stack_labels

LEAST_CHANGE = 0.02
"""By which the bytes of one more unit must differ for a bend."""
MOST_MOMENTS = 40
"""Values whose peak is looked at: one costs a sum over the trace, 30 ms for a million events."""


def peak_bends(fit: DeviceFit, least: float, most: float) -> list[Bend]:
    """Those from ``least`` to ``most``, ascending; found by bisection, so that a bend and one back may be missed.

    Not where another recording becomes the nearest one: which kernels are taken between two is not known.
    """
    moments: dict[int, PeakMoment] = {}

    def moment(value: int) -> PeakMoment:
        if value not in moments:
            moments[value] = fit.peak_moment(value)
        return moments[value]

    found: list[Bend] = []

    def search(low: int, high: int) -> None:
        first, last = moment(low), moment(high)
        if first == last or high <= low or len(moments) > MOST_MOMENTS:
            return
        if high - low > 1:
            middle = (low + high) // 2
            search(low, middle)
            search(middle, high)
            return
        before, after = fit.growth_at(first, high), fit.growth_at(last, high)
        if first.own == last.own and abs(after - before) > LEAST_CHANGE * max(abs(before), abs(after)):
            found.append(Bend(float(high), before, after, _line(fit, first), _line(fit, last)))

    search(max(1, round(least)), round(most))
    return found


def _line(fit: DeviceFit, moment: PeakMoment) -> str | None:
    """The line of the allocation that reaches a peak."""
    timeline = fit.whatifs[moment.own].timeline
    found = timeline.allocations.filter(pl.col("alloc_event") == moment.event)
    return (stack_labels(timeline.recording)[found["stack"][0]] or None) if len(found) else None
