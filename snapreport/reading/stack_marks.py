"""Which stacks have a marked frame, and where its innermost one is.

The marked entries are searched for the ends of the stacks, not each entry for its stack: with stacks of 1,100 frames
there are a thousand times fewer of them.
"""

from __future__ import annotations

import numpy as np


def stacks_with(offsets: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Bool per stack: whether one of its frames is marked. ``marked``: Bool per entry of ``stack_frames``."""
    found: np.ndarray = np.diff(np.searchsorted(np.flatnonzero(marked), offsets)) > 0
    return found


def innermost_marked(offsets: np.ndarray, marked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number, Int64 entry of ``stack_frames`` of its innermost marked frame) of each stack that has one, ascending.
    ``marked``: Bool per entry.
    """
    at = np.flatnonzero(marked)
    bounds = np.searchsorted(at, offsets)
    stack = np.flatnonzero(np.diff(bounds))
    return stack, at[bounds[stack]]
