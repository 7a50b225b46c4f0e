"""Which stacks have a marked frame, and where its innermost one is.

A recursion repeats its frames: of stacks with hundreds of frames, each distinct one is searched where it is innermost.
The marked ones are searched for the ends of the stacks, not each frame for its stack: most are not marked.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.memoize import memoize
from snapreport.reading.recording import Recording

_DEEP = 200
"""Repetitions are left out of stacks with so many frames on average: finding them takes as long as three searches."""
_AT_ONCE = 1 << 20  # places of a table of stacks and frames: 8 MB


class InnermostFrames(Struct, frozen=True):
    """The frames of a recording's stacks, of repeated ones at least the innermost.

    ``frames``: rows of a recording's frames, innermost first; those of stack s begin at ``offsets[s]``. ``entries``:
    the entry of ``stack_frames`` of each, None where each entry is one.
    """

    offsets: np.ndarray
    frames: np.ndarray
    entries: np.ndarray | None = None

    def entry(self, at: np.ndarray) -> np.ndarray:
        """The entries of ``stack_frames`` of some of ``frames``."""
        return at if self.entries is None else self.entries[at]

    def marked(self, marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(stack, place in ``frames``) of each frame that is marked, both Int64, ascending. ``marks``: Bool per row of
        a recording's frames.
        """
        at = np.flatnonzero(marks[self.frames])
        return np.searchsorted(self.offsets, at, "right") - 1, at


@memoize
def innermost_frames(recording: Recording) -> InnermostFrames:
    """See :class:`InnermostFrames`."""
    offsets, flat, count = recording.stack_offsets, recording.stack_frames, len(recording.frames)
    if len(flat) < _DEEP * len(offsets):
        return InnermostFrames(offsets, flat)
    # Some stacks at a time, with a place in a table for each frame of each, where the innermost entry is written last.
    table, parts = np.zeros(max(_AT_ONCE, count), np.int64), []
    step = len(table) // count
    for low in range(0, len(offsets) - 1, step):
        bounds = offsets[low : low + step + 1]
        entry = np.arange(bounds[0], bounds[-1])
        place = np.repeat(np.arange(len(bounds) - 1) * count, np.diff(bounds)) + flat[bounds[0] : bounds[-1]]
        table[place[::-1]] = entry[::-1]
        parts.append(entry[table[place] == entry])
    entries = np.concatenate(parts)
    return InnermostFrames(np.searchsorted(entries, offsets), flat[entries], entries)


def stacks_with(recording: Recording, marks: np.ndarray) -> np.ndarray:
    """Bool per stack: whether one of its frames is marked. ``marks``: Bool per row of the recording's frames."""
    found = innermost_frames(recording)
    has_marked: np.ndarray = np.diff(np.searchsorted(np.flatnonzero(marks[found.frames]), found.offsets)) > 0
    return has_marked


def innermost_places(recording: Recording, marks: np.ndarray) -> np.ndarray:
    """Int64 per stack: the position of its innermost marked frame, -1 without one. ``marks``: as above."""
    found, offsets = innermost_frames(recording), recording.stack_offsets
    stack, at = innermost_marked(found.offsets, marks[found.frames])
    place = np.full(len(offsets) - 1, -1, np.int64)
    place[stack] = found.entry(at) - offsets[stack]
    return place


def frames_at(recording: Recording, place: np.ndarray) -> np.ndarray:
    """Int64 row of ``frames`` at each stack's ``place``, -1 if that is -1."""
    rows = np.full(len(place), -1, np.int64)
    known = place >= 0
    rows[known] = recording.stack_frames[recording.stack_offsets[:-1][known] + place[known]]
    return rows


def innermost_marked(offsets: np.ndarray, marked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number, Int64 entry of its first marked one) of each stack that has one, ascending. ``marked``: Bool per entry,
    those of stack s from ``offsets[s]`` on.
    """
    at = np.flatnonzero(marked)
    bounds = np.searchsorted(at, offsets)
    stack = np.flatnonzero(np.diff(bounds))
    return stack, at[bounds[stack]]
