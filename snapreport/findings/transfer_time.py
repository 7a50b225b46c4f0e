"""How long the copies of an optimizer on the CPU take, and what churn takes, by a profiler's trace of the run."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.contracts.stats import TimeCause
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.remedy_time import busy_time, called_kernels
from snapreport.findings.saving import bytes_over_time
from snapreport.number_format import duration_text
from snapreport.reading.activity_trace import COPY
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import OPTIMIZER_STEP
from snapreport.timeline.time_costs import profiled_steps, run_costs

LARGE = 1 << 20
"""Bytes of a copy whose rate counts: starting one takes some 10 µs, in which a bus of 12 GB/s moves 120 KB."""


class TransferCost(Struct, frozen=True):
    """Copies of gradients to the host and of as many bytes of parameters back, once for each optimizer step.

    to_host, to_device: bytes per second of the trace's own copies; None where it has none that way, and then
    ``cost_us`` is the other way alone.
    """

    cost_us: int
    step_us: int
    moved_bytes: int
    to_host: int | None
    to_device: int | None

    @property
    def evidence(self) -> dict[str, Any]:
        rates = {"to_host_bytes_per_s": self.to_host, "to_device_bytes_per_s": self.to_device}
        known = {name: rate for name, rate in rates.items() if rate is not None}
        return {"cost_us": self.cost_us, "step_us": self.step_us, "moved_bytes": self.moved_bytes, **known}

    @property
    def sentences(self) -> list[str]:
        rates = [sentence("{}/s", bytes_part(rate)) for rate in (self.to_host, self.to_device) if rate is not None]
        way = "to the device" if self.to_host is None else "to the host"
        return [
            sentence(
                "Each optimizer step then copies {} of gradients to the host, and parameters of that size back.",
                bytes_part(self.moved_bytes),
            ),
            sentence(
                "{which} take about {cost} of {step} a step, at {rates} as other copies in the profiler's trace "
                "(estimate).",
                which="These copies" if len(rates) == 2 else f"The copies {way} alone",
                cost=duration_text(self.cost_us),
                step=duration_text(self.step_us),
                rates=sentence("{} and {}", *rates) if len(rates) == 2 else rates[0],
            ),
            "What the CPU computes comes on top; copies during the backward pass cost less.",
        ]


def moved_each_step(context: AdviceContext) -> TransferCost | None:
    """None without a trace that covers a step, without large copies in it, and without gradients."""
    timeline = context.timeline
    profile, steps = timeline.recording.profile, profiled_steps(timeline)
    if profile is None or profile.activities is None or not steps:
        return None
    intervals = profile.activities.intervals
    to_host, to_device = (_rate(intervals, timeline.device, way) for way in ("DtoH", "HtoD"))
    moved = _gradients(context)
    if not moved or (to_host is None and to_device is None):
        return None
    cost = sum(moved / rate for rate in (to_host, to_device) if rate is not None)
    kernels = called_kernels(intervals, timeline.device)
    lengths = [max(step.end - step.begin, busy_time(kernels, step)) for step in steps]
    return TransferCost(int(cost * 1e6), int(statistics.median(lengths)) // 1000, moved, to_host, to_device)


def _rate(intervals: pl.DataFrame, device: int, way: str) -> int | None:
    """Bytes per second of the large copies of a device. Of pinned memory, which optimizers on the CPU use, where
    the trace has such copies: those of pageable memory are several times slower.
    """
    copies = intervals.filter((pl.col("kind") == COPY) & pl.col("name").str.contains(way, literal=True))
    copies = copies.filter((pl.col("bytes") >= LARGE) & pl.col("device").is_in([device, -1]))
    pinned = copies.filter(pl.col("name").str.contains("Pinned", literal=True))
    used = pinned if len(pinned) else copies
    duration, size = int((used["end"] - used["begin"]).sum()), int(used["bytes"].sum())
    return 10**9 * size // duration if duration else None


def _gradients(context: AdviceContext) -> int:
    """Bytes of the gradients that an optimizer step finds; the most there ever are where it allocates nothing."""
    held = bytes_over_time(context.timeline, np.flatnonzero(context.category("gradient")))[1:]
    steps = context.phases.runs(OPTIMIZER_STEP)[context.timeline.events["stack"].to_numpy()]
    return int((held[steps] if steps.any() else held).max(initial=0))


def churn_time(context: AdviceContext, cause: TimeCause) -> tuple[int, int] | None:
    """µs that the host spends in ``cause`` and cudaMalloc in the median profiled step, and the length of that
    step; None without a trace that has ``cause`` in most of its steps.
    """
    costs = run_costs(context.recorded.of_file)
    steps = costs.steps if costs else []
    spent = [{one.cause: one.host_us for one in step.costs} for step in steps]
    if not steps or not statistics.median(one.get(cause, 0) for one in spent):
        return None
    taken = statistics.median(one.get(cause, 0) + one.get("cudaMalloc", 0) for one in spent)
    return int(taken), int(statistics.median(step.duration_us for step in steps))
