"""Lines of the program's own loops: stacks outside of any module call that allocate at regular intervals."""

from __future__ import annotations

import numpy as np

from snapreport.integers import stable_order
from snapreport.memoize import memoize
from snapreport.reading.noise import PYTHON, recorded_flags
from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import stacks_with
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.threads import beside_passes

MODULE_CALL = r"^(_call_impl|_wrapped_call_impl|_slow_forward|forward|_apply|_conv_forward)$"
_MAX_CANDIDATES = 8
"""Loops tried at most, the one with the fewest iterations first."""
_MIN_COVERED = 0.5
"""The share of a trace's allocations that a loop reaches over at least."""
_MIN_REGULAR = 0.75
"""The share of the intervals between two iterations that are within a factor of two of the median."""


@memoize
def outside_modules(recording: Recording) -> np.ndarray:
    """Bool per stack: it has Python frames, none of which is a module's call or ``forward``."""
    in_module = recording.frames["name"].str.contains(MODULE_CALL).to_numpy()
    python = recorded_flags(recording) & PYTHON != 0
    return np.asarray(stacks_with(recording, python) & ~stacks_with(recording, in_module))


def loop_anchors(timeline: DeviceTimeline, fewest: int) -> list[np.ndarray]:
    """Int64 events of the allocations of stacks that may mark a loop's iterations, fewest iterations first.

    ``fewest``: allocations of such a stack at least. Of several stacks with as many the first is taken: they are lines
    of one loop.
    """
    table = timeline.allocations
    birth, stack = table["alloc_event"].to_numpy().astype(np.int64), table["stack"].to_numpy()
    mine = (birth >= 0) & ~beside_passes(timeline.recording)[stack]
    birth, stack = birth[mine], stack[mine]
    counts = np.bincount(stack)
    outside = outside_modules(timeline.recording)[: len(counts)]
    heads = _heads(stack, counts)
    runs = np.bincount(stack[heads], minlength=len(counts))
    ends = np.cumsum(runs)
    found: dict[int, np.ndarray] = {}
    for number in np.flatnonzero(outside & (runs >= fewest)).tolist():
        at = heads[ends[number] - runs[number] : ends[number]]
        if len(at) not in found and _is_regular(at, len(birth)):
            found[len(at)] = birth[at]
            if len(found) >= _MAX_CANDIDATES:
                break
    return [found[count] for count in sorted(found)]


def _heads(stack: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The births, stack by stack, that begin a run of allocations of one line: it may allocate several times in each
    iteration. stack: of each birth. counts: births of each stack.
    """
    at = stable_order(stack)
    begins, has_any = np.cumsum(counts) - counts, counts > 0
    mean = np.zeros(len(counts))
    mean[has_any] = (len(stack) - at[begins[has_any]]) / counts[has_any]
    is_head = np.diff(at, prepend=-1) >= mean[stack[at]] / 2
    is_head[begins[has_any]] = True
    return np.asarray(at[is_head])


def _is_regular(at: np.ndarray, births: int) -> bool:
    """``at``: of all ``births``, the numbers of those of one stack."""
    gaps = np.diff(np.append(at, births))
    median = float(np.median(gaps))
    if at[-1] + median - at[0] < _MIN_COVERED * births:
        return False
    return float(np.mean((gaps >= median / 2) & (gaps <= 2 * median))) >= _MIN_REGULAR
