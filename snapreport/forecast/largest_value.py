"""The largest whole value of the number that runs in so much memory."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from snapreport.forecast.convolution_workspaces import FACTORS
from snapreport.forecast.prediction import ROOM, DeviceFit

AROUND = 8
"""Values below the result that must run, too: with a retry, or in other segments, a larger one may run where a smaller
one fails."""
MOST = 64
"""Times the largest recorded value: nothing is foretold beyond."""


class Largest(Struct, frozen=True):
    """value: the largest one that runs and below which none was found that fails; 0 where not even 1 runs. is_limit:
    the search ended there, and larger ones may run. retries: of the replay at it.
    """

    memory: int
    value: int
    is_limit: bool
    retries: int | None


def largest_range(fit: DeviceFit, found: Largest) -> tuple[int, int]:
    """(least, most) of the largest value; 0 where not even 1 runs. Of several recordings the least is what they answer
    for, see :attr:`DeviceFit.near_limit`: beyond, other kernels may need more. With workspaces of convolutions both are
    searched for.
    """
    if not fit.is_estimate and not fit.workspace_bytes:
        return min(found.value, int(fit.near_limit)), found.value
    room = ROOM if fit.is_estimate else 0.0
    fewest, most = FACTORS
    low = largest_value(fit, int(found.memory / (1 + room)), workspaces=most)
    high = largest_value(fit, int(found.memory / (1 - room)), least=True, workspaces=fewest)
    return min(low.value, found.value), max(low.value, high.value, found.value)


def largest_value(fit: DeviceFit, memory: int, *, least: bool = False, workspaces: float = 1.0) -> Largest:
    """Searches by bisection on ``memory`` bytes for the allocator, then downwards until :data:`AROUND` values below the
    result run. ``least``, ``workspaces``: see :meth:`DeviceFit.retries`.
    """
    tried: dict[int, int | None] = {}

    def runs(value: int) -> bool:
        if value not in tried:
            tried[value] = fit.retries(value, memory, least=least, workspaces=workspaces)
        return tried[value] is not None

    limit = int(fit.values[-1] * MOST)
    # What is allocated cannot exceed the memory: a bound that needs no replay of the allocator.
    top = _last(limit, lambda value: fit.peak_allocated(value, least=least, workspaces=workspaces) <= memory)
    if top == limit and runs(top):
        return Largest(memory, top, True, tried[top])
    found = tried_down_to = _last(top, runs)
    while not fit.is_estimate and tried_down_to > max(1, found - AROUND):
        tried_down_to -= 1
        if not runs(tried_down_to):
            found = tried_down_to - 1
    return Largest(memory, found, False, tried.get(found) if found else None)


def _last(most: int, holds: Callable[[int], bool]) -> int:
    """The largest of 1 to ``most`` up to which a condition holds, 0 for none; by bisection."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
