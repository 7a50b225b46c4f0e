"""The end of a loop's work: what a program does after its last repetition is no part of it.

Most programs end by freeing everything: a function returns, the model goes, ``empty_cache`` is called. The trace goes
on until then, and what it frees says nothing about growth.
"""

from __future__ import annotations

import numpy as np

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
    number = np.searchsorted(bounds, np.arange(1, len(key) + 1), "right") - 1
    last = len(bounds) - 2
    inside = (number >= 0) & (number < last)
    pairs = np.unique(key[inside] * last + number[inside])
    often = np.bincount(pairs // last) >= (_MIN_RECURRENCES if len(bounds) > _FEW_REPETITIONS else 1)
    recurs = np.isin(key, np.flatnonzero(often))
    births = np.flatnonzero(recurs & (action == _ALLOC) & (number >= last))
    end = max(int(births[-1]) if len(births) else 0, int(bounds[-2]) - 1)
    others = np.flatnonzero(~recurs[end + 1 :])
    return end + 2 + (int(others[0]) if len(others) else len(key) - end - 1)
