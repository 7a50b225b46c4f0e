"""What the training steps of a device have in common, and which differs, in a sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from snapreport.contracts.stats import StepMemory
from snapreport.findings.live import names_of
from snapreport.number_format import bytes_text, count_text, duration_text, plural
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.step_memory import step_memory

ALIKE = 0.001
"""Peaks that differ by less than this share of the largest are the same."""
NOTICED = 512
"""Bytes, the allocator's smallest block: less is the sizes of a few numbers."""
GREW = 0.01
"""Of the largest peak: what fewer than half of the steps add is named from here on."""
SLOW = 1.5
"""A step that takes so many times the median is named."""
LEAST_US = 100
"""Steps whose events are closer together, such as one allocation each, say nothing about how long a step takes."""
GAP = 0.5
"""Of what it takes longer: a gap between two events that explains so much is named."""


def device_steps(snapshot: Snapshot, timeline: DeviceTimeline) -> str:
    """:func:`steps_text` of a device."""
    stacks = timeline.events["stack"]

    def place(event: int) -> str:
        return names_of(snapshot).place(int(stacks[event])) if stacks[event] else ""

    return steps_text(step_memory(timeline), place)


def steps_text(steps: list[StepMemory], place: Callable[[int], str] = lambda _: "") -> str:
    """How their peaks differ, how much each leaves, how long they take; "" for fewer than two steps. ``place``: line of
    an event's stack trace, "" without one.
    """
    if len(steps) < 2:
        return ""
    parts = [_peaks(steps)]
    growths = [step.growth_bytes for step in steps if step.growth_bytes is not None]
    if len(growths) > 2:
        # The last step often frees all, and the second begins with the optimizer's state of the first.
        inner = growths[1:-1] if len(growths) > 3 else growths[:-1] if growths[-1] < 0 else growths
        growth, total = int(np.median(inner)), sum(inner)
        if abs(growth) >= NOTICED:
            sign = "+" if growth > 0 else "−"
            parts.append(f"{sign}{bytes_text(abs(growth))} from step to step (median)")
        elif total > GREW * max(step.peak_allocated_bytes for step in steps):
            parts.append(f"+{bytes_text(total)} in some of them")
        else:
            parts.append("no growth")
    durations = [step.duration_us for step in steps if step.duration_us is not None]
    if len(durations) == len(steps):
        middle = int(np.median(durations))
        if middle >= LEAST_US:
            parts.append(f"{duration_text(middle)} each (median)")
        # The first step, which loads kernels, is nearly always the longest.
        longest = 1 + int(np.argmax(durations[1:]))
        for number in (0, longest):
            if durations[number] > max(SLOW * middle, middle + LEAST_US):
                why = _gap(steps[number], durations[number] - middle, place)
                parts.append(f"{steps[number].name} took {duration_text(durations[number])}{why}")
        waits = [step.until_next_us or 0 for step in steps[1:]]
        if waits and max(waits) - np.median(waits) > max((SLOW - 1) * middle, LEAST_US):
            before = 1 + int(np.argmax(waits))
            line = place(steps[before].last_event)
            after = f"after event {count_text(steps[before].last_event)}{f' in {line}' if line else ''}"
            pair = f"{steps[before].name} and {steps[before + 1].name}"
            parts.append(f"{duration_text(max(waits))} without an event between {pair}, {after}")
    return f"{plural(len(steps), 'step')}: {'; '.join(parts)}."


def _gap(step: StepMemory, more: int, place: Callable[[int], str]) -> str:
    """The gap that explains why a step takes so many µs ``more`` than others."""
    gap, event = step.longest_gap_us or 0, step.gap_event
    if event is None or gap < GAP * more:
        return ""
    line = place(event)
    return (
        f", {duration_text(gap)} of it without an event after event {count_text(event)}{f' in {line}' if line else ''}"
    )


def _peaks(steps: list[StepMemory]) -> str:
    peaks = np.array([step.peak_allocated_bytes for step in steps])
    low, high = int(peaks.min()), int(peaks.max())
    if high - low <= ALIKE * high or bytes_text(low) == bytes_text(high):
        return f"peak {bytes_text(high)} in each"
    spread = f"±{100 * (high - low) / (high + low):.2g}%"
    highest = steps[int(peaks.argmax())].name
    return f"peaks {bytes_text(low)} to {bytes_text(high)} ({spread}), highest in {highest}"
