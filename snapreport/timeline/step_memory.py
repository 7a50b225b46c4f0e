"""The memory of each training step: its peak, what it leaves, how long it took."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.contracts.stats import StepMemory
from snapreport.timeline.interface import Timeline


def step_memory(timeline: Timeline) -> list[StepMemory]:
    """An entry for each step of a device that has an event, in order."""
    steps: list[StepMemory] = []
    end_before: int | None = None
    own = _own_times(timeline)
    times, is_known = own.fill_null(strategy="forward").fill_null(0).to_numpy(), own.is_not_null().to_numpy()
    firsts = timeline.steps["first_event"].to_list()

    def time(event: int) -> int | None:
        return int(times[event]) if is_known[event] else None

    for number, row in enumerate(timeline.steps.iter_rows(named=True)):
        first, last = row["first_event"], row["last_event"]
        after = timeline.allocated[first + 1 : last + 2]
        if not len(after):
            continue
        end = int(after[-1])
        begin_us, end_us = time(first), time(min(last, len(times) - 1))
        duration = None if begin_us is None or end_us is None else max(0, end_us - begin_us)
        following = time(firsts[number + 1]) if number + 1 < len(firsts) else None
        gaps = np.diff(times[first : last + 1]) if duration is not None else np.zeros(0)
        steps.append(
            StepMemory(
                step=row["step"],
                name=row["name"],
                first_event=first,
                last_event=last,
                peak_allocated_bytes=int(np.max(after)),
                growth_bytes=None if end_before is None else end - end_before,
                duration_us=duration,
                longest_gap_us=max(0, int(gaps.max())) if len(gaps) else None,
                gap_event=first + int(gaps.argmax()) if len(gaps) else None,
                until_next_us=None if following is None or end_us is None else max(0, following - end_us),
            )
        )
        end_before = end
    return steps


def _own_times(timeline: Timeline) -> pl.Series:
    """Int64 µs of each event on a clock that stands still while the program waits for our recorder."""
    times, recorder = timeline.events["time_us"], timeline.recording.recorder
    if recorder is None or recorder.writing.is_empty():
        return times
    begin, end = (recorder.writing[name].to_numpy() for name in ("begin_us", "end_us"))
    waited = np.cumsum(end - begin)
    lost = np.interp(
        times.fill_null(strategy="forward").fill_null(0).to_numpy(),
        np.stack([begin, end], 1).ravel(),
        np.stack([waited - (end - begin), waited], 1).ravel(),
    )
    return times - pl.Series(lost.astype(np.int64))
