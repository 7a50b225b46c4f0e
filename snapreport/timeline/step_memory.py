"""The memory of each training step: its peak, what it leaves, how long it took."""

from __future__ import annotations

import numpy as np

from snapreport.contracts.stats import StepMemory
from snapreport.timeline.interface import Timeline


def step_memory(timeline: Timeline) -> list[StepMemory]:
    """An entry for each step of a device that has an event, in order."""
    steps: list[StepMemory] = []
    end_before: int | None = None
    times = timeline.events["time_us"]
    for row in timeline.steps.iter_rows(named=True):
        first, last = row["first_event"], row["last_event"]
        after = timeline.allocated[first + 1 : last + 2]
        if not len(after):
            continue
        end = int(after[-1])
        begin_us, end_us = times[first], times[min(last, len(times) - 1)]
        steps.append(
            StepMemory(
                step=row["step"],
                name=row["name"],
                first_event=first,
                last_event=last,
                peak_allocated_bytes=int(np.max(after)),
                growth_bytes=None if end_before is None else end - end_before,
                duration_us=None if begin_us is None or end_us is None else max(0, end_us - begin_us),
            )
        )
        end_before = end
    return steps
