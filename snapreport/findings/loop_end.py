"""The end of a loop's work: what a program does after its last repetition is no part of it.

Most programs end by freeing everything: a function returns, the model goes, ``empty_cache`` is called. The trace goes
on until then, and what it frees says nothing about growth.
"""

from __future__ import annotations

import numpy as np

from snapreport.reading.recording import ACTIONS
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import ALLOC, action_codes
from snapreport.timeline.phases import OPTIMIZER_STEP, stack_phases
from snapreport.timeline.threads import beside_passes

_FEW_REPETITIONS = 6
"""In a loop of at most so many, a stack belongs to the loop if it allocates in one earlier repetition, else in two."""


def end_of_loop(timeline: DeviceTimeline, bounds: np.ndarray) -> int:
    """The place in a curve after the last event of a loop: the last allocation of a stack that has allocated in earlier
    repetitions, and the frees right after it that earlier repetitions have as well. An optimizer's step belongs to the
    loop also if it is the first that updates; a thread beside it does not. ``bounds``: see ``Repetitions``.
    """
    stack = timeline.events["stack"].to_numpy().astype(np.int64)
    action = action_codes(timeline.events)
    key = stack * len(ACTIONS) + action
    begin, last = (max(0, int(bounds[at]) - 1) for at in (0, -2))
    inside = key[begin:last]
    number = np.repeat(np.arange(len(bounds) - 2, dtype=np.int32), np.diff(np.maximum(bounds[:-1], 1)))
    # The first and the last repetition of each key: of several writes to one place, the last remains.
    first, latest = np.full((2, int(key.max(initial=0)) + 1), -1, np.int32)
    first[inside[::-1]], latest[inside] = number[::-1], number
    often = first < latest if len(bounds) > _FEW_REPETITIONS else latest >= 0
    recurs = often[key] | (stack_phases(timeline.recording).innermost == OPTIMIZER_STEP)[stack]
    mine = ~beside_passes(timeline.recording)[stack[last:]]
    births = np.flatnonzero(recurs[last:] & (action[last:] == ALLOC) & mine)
    end = last + int(births.max(initial=0))
    others = np.flatnonzero(~recurs[end + 1 :])
    return end + 2 + int(others.min(initial=len(key) - end - 1))
