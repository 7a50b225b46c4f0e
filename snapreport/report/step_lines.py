"""What the training steps of a device have in common, and which differs, in a sentence."""

from __future__ import annotations

import numpy as np

from snapreport.contracts.stats import StepMemory
from snapreport.number_format import bytes_text, duration_text, plural

ALIKE = 0.001
"""Peaks that differ by less than this share of the largest are the same."""
NOTICED = 512
"""Bytes, the allocator's smallest block: less is the sizes of a few numbers."""
GREW = 0.01
"""Of the largest peak: what fewer than half of the steps add is named from here on."""
SLOW = 1.5
"""A step that takes so many times the median is named."""


def steps_text(steps: list[StepMemory]) -> str:
    """How their peaks differ, how much each leaves, how long they take; "" for fewer than two steps."""
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
        middle, longest = int(np.median(durations)), int(np.argmax(durations))
        parts.append(f"{duration_text(middle)} each (median)")
        if durations[longest] > SLOW * middle:
            parts.append(f"{steps[longest].name} took {duration_text(durations[longest])}")
    return f"{plural(len(steps), 'step')}: {'; '.join(parts)}."


def _peaks(steps: list[StepMemory]) -> str:
    peaks = np.array([step.peak_allocated_bytes for step in steps])
    low, high = int(peaks.min()), int(peaks.max())
    if high - low <= ALIKE * high or bytes_text(low) == bytes_text(high):
        return f"peak {bytes_text(high)} in each"
    spread = f"±{100 * (high - low) / (high + low):.2g}%"
    highest = steps[int(peaks.argmax())].name
    return f"peaks {bytes_text(low)} to {bytes_text(high)} ({spread}), highest in {highest}"
