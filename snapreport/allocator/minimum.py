"""The minimum memory on which a trace still runs, and what that costs in retries."""

from __future__ import annotations

from msgspec import Struct

from snapreport.allocator.placement import Ascending
from snapreport.allocator.settings import AllocatorSettings
from snapreport.allocator.whatif import FRESH, Change, WhatIf
from snapreport.allocator_facts import REPLAYS

STEP = REPLAYS["minimum_step"]
AROUND = REPLAYS["steps_around_minimum"]


class Minimum(Struct, frozen=True):
    """memory: bytes, None where the trace does not even run on unlimited memory. retries: at that size. monotone:
    whether the steps around the result agree with it: all below fail, all above run. unlimited: bytes that it reserves
    where nothing limits it.
    """

    settings: AllocatorSettings
    memory: int | None
    retries: int
    monotone: bool
    unlimited: int


def minimum_memory(
    whatif: WhatIf,
    settings: AllocatorSettings,
    change: Change | None = None,
    around: int = AROUND,
) -> Minimum:
    """Searches the minimum memory by bisection and tries ``around`` steps on either side.

    The start is fresh: on another card the program would run from its beginning. Requests that failed in the recording
    have to succeed.
    """
    free = whatif.replay(settings, change, memory=Ascending(None), start=FRESH)
    if free.failure is not None:
        return Minimum(settings, None, 0, True, free.peak_reserved)
    high = -(-free.peak_reserved // STEP)
    low = whatif.peak_allocated(change or Change()) // STEP - 1
    tried = {high: fits(whatif, settings, high * STEP, change)}

    def runs(at: int) -> bool:
        if at not in tried:
            tried[at] = fits(whatif, settings, at * STEP, change)
        return tried[at] is not None

    while high - low > 1:
        middle = (high + low) // 2
        low, high = (low, middle) if runs(middle) else (middle, high)
    monotone = True
    at = high - 1
    while at > 0 and at >= high - around:
        if runs(at):
            monotone, high = False, at
        at -= 1
    for above in range(high + 1, high + around + 1):
        monotone = runs(above) and monotone
    return Minimum(settings, high * STEP, tried[high] or 0, monotone, free.peak_reserved)


def fits(whatif: WhatIf, settings: AllocatorSettings, memory: int, change: Change | None = None) -> int | None:
    """Retries of the trace on ``memory`` bytes for the allocator, None where it runs out of memory."""
    done = whatif.replay(settings, change, memory=Ascending(memory), start=FRESH)
    return done.retries if done.failure is None else None
