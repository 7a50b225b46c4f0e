"""What memory costs in time, by a profiler trace, as lines of text."""

from __future__ import annotations

import statistics

from msgspec import Struct

from snapreport.contracts.stats import StepTime, TimeCost, TimeCosts
from snapreport.number_format import bytes_text, count_text, duration_text, plural, share_text
from snapreport.terminal import aligned, visible

LONG = 1.2
"""Times the median of all steps that a step takes to be called long."""
FEWEST_STEPS = 3
LEAST_SHIFT_US = 10
"""A smaller one of the clocks is not said."""
_UNITS = {
    "recomputation": "segment", "cudaMalloc": "call", "empty_cache": "call", "retry": "call", "cudaFree": "call",
    "copies to the host": "copy", "copies to the device": "copy", "torch.save": "call",
}  # fmt: skip
COST_NAMES = {
    "recomputation": "recomputation of checkpoints", "empty_cache": "empty_cache()", "retry": "retries",
    "torch.save": "writing a checkpoint",
}  # fmt: skip


class TimeTable(Struct, frozen=True):
    """What memory costs in time: a title, rows of cells with their heading first, and sentences below."""

    title: str
    rows: list[list[str]]
    sentences: list[str]


def time_lines(costs: TimeCosts) -> list[str]:
    """The table as lines of text."""
    table = time_table(costs)
    return [table.title, *aligned(table.rows), *table.sentences]


def time_table(costs: TimeCosts) -> TimeTable:
    """A title, how well both clocks agree, a table of causes, and what the longest step had more of."""
    title = f"Time in {visible(costs.trace)}: {duration_text(costs.duration_us)}; {_clocks(costs)}"
    has_device = any(one.device_us is not None for one in costs.costs)
    rows = [["", "", "host", "of the trace", *(["device"] if has_device else [])]]
    rows += [
        [
            COST_NAMES.get(one.cause, one.cause),
            _counted(one),
            duration_text(one.host_us),
            share_text(one.host_us, costs.duration_us),
            *([duration_text(one.device_us or 0)] if has_device else []),
        ]
        for one in costs.costs
    ]
    sentences = _longest(costs.steps)
    if not costs.has_calls:
        sentences.append("It has no calls of CUDA, no kernels and no copies: ProfilerActivity.CUDA was not recorded.")
    if not costs.costs:
        nothing = "Nothing in it was caused by memory: no allocation, copy or recomputation."
        sentences.append(nothing if costs.has_calls else "Nothing in it is computed again for a checkpoint.")
    return TimeTable(title, rows if costs.costs else [], sentences)


def _clocks(costs: TimeCosts) -> str:
    """How well the times of both fit."""
    if not costs.clock_error_us:
        return "it has no memory events of the snapshot, so the clocks were not compared"
    median, largest = costs.clock_error_us
    shift = costs.clock_shift_us
    moved = f", moved by {duration_text(abs(shift))}" if abs(shift) >= LEAST_SHIFT_US else ""
    return (
        f"its clock is the snapshot's{moved}, within {max(median, largest):.1f} µs by "
        f"{plural(costs.matched, 'allocation')}"
    )


def _counted(cost: TimeCost) -> str:
    unit = _UNITS[cost.cause]
    counted = plural(cost.count, unit) if unit != "copy" or cost.count == 1 else f"{count_text(cost.count)} copies"
    return f"{counted}, {bytes_text(cost.bytes)}" if cost.bytes else counted


def _longest(steps: list[StepTime]) -> list[str]:
    """A sentence about the longest step, where it is longer than most."""
    if len(steps) < FEWEST_STEPS:
        return []
    longest, median = max(steps, key=lambda one: one.duration_us), statistics.median(one.duration_us for one in steps)
    if longest.duration_us < LONG * median:
        return []
    usual = {
        cause: statistics.median(sum(one.host_us for one in step.costs if one.cause == cause) for step in steps)
        for cause in _UNITS
    }
    more = sorted(((one.host_us - usual[one.cause], one.cause) for one in longest.costs), reverse=True)
    parts = [
        f"{duration_text(int(extra))} more in {COST_NAMES.get(cause, cause)}"
        for extra, cause in more
        if extra >= 0.1 * (longest.duration_us - median)
    ]
    why = f": {', '.join(parts)}" if parts else "; no cause of memory explains a tenth of that"
    times = f"{longest.duration_us / median:.1f} times the median of {duration_text(int(median))}"
    return [f"The longest step, {visible(longest.name)}, took {duration_text(longest.duration_us)}, {times}{why}."]
