"""Evaluations at a batch of their own, which may stay as it is where the batch of training grows."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.program_stacks import ProgramStacks
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.phases import BACKWARD, FORWARD

_FOLLOW = 0.9
"""Share of the bytes of such passes that are as many times as large as what the same lines make in training."""
_MOST_STEPS = 0.5
"""Share of the steps that have such passes: a teacher runs in each."""


def of_another_batch(timeline: DeviceTimeline) -> np.ndarray:
    """Bool per allocation: made from the begin of a forward pass that no backward pass follows to that of the next
    pass, where such passes make tensors of one ratio to those that the same lines make in passes of training.
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
    rows = pl.DataFrame({"line": stacks.innermost()[stack[order]], "size": size[order]})
    made = rows.filter(forward & ~evaluates).unique()
    evaluated = rows.filter(forward & evaluates).join(made, on="line", how="semi")
    if len(evaluated):
        largest = evaluated.sort("size", "line").tail(1)
        ratio = made.join(largest, on="line", how="semi")["size"].to_numpy().max() / largest["size"][0]
        steps = timeline.steps["first_event"].to_numpy()
        ran = np.unique(np.searchsorted(steps, born[order[forward & evaluates]], "right"))
        if len(ran) <= _MOST_STEPS * len(steps) and ratio != 1:
            found[order[evaluates]] = _share(evaluated, made, ratio) >= _FOLLOW
    return found


def _share(evaluated: pl.DataFrame, made: pl.DataFrame, ratio: float) -> float:
    """Of the bytes, those of which a line in training makes so many times as much. Both: ``line``, ``size``."""
    wanted = evaluated.with_columns((pl.col("size") * ratio).round().cast(pl.Int64))
    follow = wanted.join(made, on=("line", "size"), how="semi")
    return int(follow["size"].sum()) / max(1, int(wanted["size"].sum()))
