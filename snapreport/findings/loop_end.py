"""The end of a loop's work: what a program does after its last repetition is no part of it.

Most programs end by freeing everything: a function returns, the model goes, ``empty_cache`` is called. The trace goes
on until then, and what it frees says nothing about growth.
"""

from __future__ import annotations

import numpy as np

from snapreport.integers import stable_order
from snapreport.reading.recording import ACTIONS
from snapreport.timeline.build import DeviceTimeline

_MIN_RECURRENCES, _FEW_REPETITIONS = 2, 6
"""Earlier repetitions in which a stack of the loop allocates; 1 where fewer than ``_FEW_REPETITIONS`` are."""
_ALLOC = ACTIONS.index("alloc")


def end_of_loop(timeline: DeviceTimeline, bounds: np.ndarray) -> int:
    """The place in a curve after the last event of a loop: the last allocation of a stack that has allocated in earlier
    repetitions, and the frees right after it that earlier repetitions have as well. ``bounds``: see ``Repetitions``.
    """
    stack = timeline.events["stack"].to_numpy().astype(np.int64)
    action = timeline.events["action"].to_physical().to_numpy().astype(np.int64)
    key = stack * len(ACTIONS) + action
    begin, last = (max(0, int(bounds[at]) - 1) for at in (0, -2))
    inside = key[begin:last]
    order = stable_order(inside)
    of_key, number = inside[order], (np.searchsorted(bounds, np.arange(begin + 1, last + 1), "right") - 1)[order]
    is_first = (np.diff(of_key, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0)
    often = np.bincount(of_key[is_first], minlength=int(key.max(initial=0)) + 1) >= (
        _MIN_RECURRENCES if len(bounds) > _FEW_REPETITIONS else 1
    )
    recurs = often[key]
    births = np.flatnonzero(recurs[last:] & (action[last:] == _ALLOC))
    end = last + (int(births[-1]) if len(births) else 0)
    others = np.flatnonzero(~recurs[end + 1 :])
    return end + 2 + (int(others[0]) if len(others) else len(key) - end - 1)
