"""The line of the program that several stacks were called from: of a graph that leaks, the call that made it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from snapreport.findings.live import place_of_frame
from snapreport.findings.loop_lines import MODULE_CALL
from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import stacks_with
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.own_code import own_code

_MOST_CALLS = 0.9
"""Of a trace's allocations with a stack trace: a line that calls more of them is the program's loop or start."""
_MOST_BYTES = 0.8
"""Of the stacks' bytes: a graph that leaks keeps its input, too, which was allocated elsewhere."""


def common_caller(timeline: DeviceTimeline, stacks: Mapping[int, int]) -> str:
    """``total_loss train.py:66``: outside of modules, the innermost frame of the program's code that most bytes share.

    stacks: bytes of each stack. "" where they share none, or only one that the trace's other allocations share as well.
    """
    recording = timeline.recording
    own = own_code(recording)
    frames = {stack: set(recording.stack(stack)) for stack in stacks}
    enough = _MOST_BYTES * sum(stacks.values())
    top = recording.stack(max(stacks, key=lambda stack: stacks[stack]))
    in_module = recording.frames["name"].gather(top).str.contains(MODULE_CALL).to_numpy()
    outside = int(np.flatnonzero(in_module).max(initial=-1)) + 1
    for frame in top[outside:]:
        if own[frame] and sum(size for stack, size in stacks.items() if frame in frames[stack]) >= enough:
            break
    else:
        return ""
    traced = timeline.allocations["stack"].to_numpy()[timeline.allocations["alloc_event"].to_numpy() >= 0]
    return "" if calls_most(recording, frame, traced[traced > 0]) else place_of_frame(recording, frame)


def calls_most(recording: Recording, frame: int, stacks: np.ndarray) -> bool:
    """Whether a frame is in nearly all of ``stacks``, one for each allocation: that of the program's loop or start."""
    calls = stacks_with(recording, np.arange(len(recording.frames)) == frame)
    return bool(calls[stacks].sum() > _MOST_CALLS * len(stacks))
