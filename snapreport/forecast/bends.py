"""Where the peak's growth changes between two values: another moment becomes the peak."""

from __future__ import annotations

from msgspec import Struct

from snapreport.forecast.prediction import DeviceFit, PeakMoment

LEAST_CHANGE = 0.02
"""By which the bytes of one more unit must differ for a bend."""
MOST_MOMENTS = 40
"""Values whose peak is looked at: one costs a sum over the trace, 30 ms for a million events."""


class PeakBend(Struct, frozen=True):
    """From ``value`` on one more unit adds ``after`` bytes to the peak allocated, below it ``before``.

    event_before, event_after: the moments of the peak, of the recording ``own`` (an index).
    """

    value: int
    before: int
    after: int
    event_before: int
    event_after: int
    own: int


def peak_bends(fit: DeviceFit, least: float, most: float) -> list[PeakBend]:
    """Those from ``least`` to ``most``, ascending; found by bisection, so that a bend and one back may be missed.

    Not where another recording becomes the nearest one: which kernels are taken between two is not known.
    """
    moments: dict[int, PeakMoment] = {}

    def moment(value: int) -> PeakMoment:
        if value not in moments:
            moments[value] = fit.peak_moment(value)
        return moments[value]

    found: list[PeakBend] = []

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
            found.append(PeakBend(high, before, after, first.event, last.event, first.own))

    search(max(1, round(least)), round(most))
    return found
