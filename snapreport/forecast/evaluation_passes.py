"""Evaluations at a batch of their own, which may stay as it is where the batch of training grows."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.program_stacks import ProgramStacks
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.phases import BACKWARD, FORWARD

_MOST_STEPS = 0.5
"""Share of the steps that have such passes: a teacher runs in each."""


def of_another_batch(timeline: DeviceTimeline) -> np.ndarray:
    """Bool per allocation: made from the begin of a forward pass that no backward pass follows to that of the next
    pass, where the largest tensor of such passes is of a size that its line makes in no pass of training.
    """
    stacks = ProgramStacks(timeline.recording)
    stack, size, born, freed = (
        timeline.allocations[name].to_numpy() for name in ("stack", "size", "alloc_event", "free_event")
    )
    is_forward = stacks.phases.runs(FORWARD) & ~stacks.phases.runs(BACKWARD)
    of_backward = stacks.phases.runs(BACKWARD) | stacks.without_python
    order = np.argsort(born, kind="stable")
    order = order[born[order] >= 0]
    forward = is_forward[stack[order]]
    # A number for each pass, and for what comes between it and the next one.
    passes = np.cumsum(forward & ~np.append(False, forward[:-1]))
    is_saved = forward & (freed[order] >= 0) & of_backward[timeline.events["stack"].to_numpy()[freed[order]]]
    trains = np.zeros(int(passes.max(initial=0)) + 1, bool)
    trains[passes[is_saved]] = True
    found = np.zeros(len(size), bool)
    evaluates = ~trains[passes] & (passes > 0)
    if timeline.oom_events or not (forward & evaluates).any():
        return found
    rows = pl.DataFrame({"line": stacks.innermost()[stack[order]], "size": size[order]})
    made = rows.filter(forward & ~evaluates).unique()
    evaluated = rows.filter(forward & evaluates).join(made, on="line", how="semi").sort("size", "line")
    if len(evaluated):
        largest = evaluated.tail(1)
        is_alike = len(largest.join(made, on=("line", "size"), how="semi")) > 0  # as where the trace ends within a pass
        steps = timeline.steps["first_event"].to_numpy()
        ran = np.unique(np.searchsorted(steps, born[order[forward & evaluates]], "right"))
        found[order[evaluates]] = not is_alike and len(ran) <= _MOST_STEPS * len(steps)
    return found
