"""What a remedy costs in time, by a profiler's trace of the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.graphs import born_in
from snapreport.findings.repeated_layers import Layers
from snapreport.number_format import duration_text, share_text
from snapreport.reading.activity_trace import COPY, KERNEL, OPERATOR, RUNTIME
from snapreport.sentence import sentence
from snapreport.timeline.annotations import clock_of
from snapreport.timeline.time_costs import ProfiledStep, profiled_steps

BUSY = 0.8
"""Of a step. A device that waits for the host for the rest waits longer with more kernels to start."""


class StepCost(Struct, frozen=True):
    """Microseconds that a remedy adds to the median profiled step of ``step_us``; of a device that is busy for less
    than :data:`BUSY` of it, at least that.
    """

    cost_us: int
    step_us: int
    device_busy_share: float | None

    @property
    def evidence(self) -> dict[str, Any]:
        busy = {} if self.device_busy_share is None else {"device_busy_share": round(self.device_busy_share, 3)}
        return {"cost_us": self.cost_us, "step_us": self.step_us, **busy}

    @property
    def sentence(self) -> str:
        cost, step = duration_text(self.cost_us), duration_text(self.step_us)
        if self.device_busy_share is None or self.device_busy_share >= BUSY:
            return sentence(
                "It costs about {cost} of {step} a step by the profiler's trace: the forward pass of these layers runs "
                "again (estimate).",
                cost=cost,
                step=step,
            )
        return sentence(
            "It costs at least {cost} of {step} a step by the profiler's trace: the kernels of these layers' forward "
            "pass run again. The device is busy for {busy} of the step, so that the time to start them counts, too.",
            cost=cost,
            step=step,
            busy=share_text(round(1000 * self.device_busy_share), 1000),
        )


def computed_again(context: AdviceContext, layers: Layers) -> StepCost | None:
    """The operators of each layer up to its last tensor that goes, which a checkpoint runs a second time; None without
    a trace that covers a step. Of a device, the time of the kernels that they start: how long the host takes to start
    them says little.
    """
    profile, timeline = context.timeline.recording.profile, context.timeline
    steps = profiled_steps(timeline)
    clock = clock_of(timeline.events)
    if profile is None or profile.activities is None or clock is None or not steps:
        return None
    intervals = profile.activities.intervals
    is_device = timeline.kind != "cpu"
    kernels = called_kernels(intervals, timeline.device)
    if is_device and kernels.is_empty():
        return None
    operators = intervals.filter(pl.col("kind") == OPERATOR)
    begin, end = (operators[name].to_numpy() for name in ("begin", "end"))

    def around(since: int, until: int) -> tuple[int, int]:
        """Begin of the first and end of the last operator that runs between two moments, in ns."""
        runs = (begin <= until) & (end >= since)
        return int(begin[runs].min(initial=since)), int(end[runs].max(initial=until))

    def spent(since: int, until: int) -> int:
        own = kernels.filter(pl.col("called").is_between(since, until))
        return int((own["end"] - own["begin"]).sum()) if is_device else max(until - since, 0)

    time = clock * 1000
    windows = _windows(context, layers)
    body, head = np.zeros(len(windows), np.int64), np.full(len(windows), np.nan)
    for number, (before, first, last) in enumerate(windows):
        # A region of compiled code may hold several layers.
        since, until = around(time[first], time[last])
        since = max(since, time[windows[number - 1][2]] if number else 0)
        until = min(until, time[windows[number + 1][1]] if number + 1 < len(windows) else time[-1])
        body[number] = spent(since, until)
        if before >= 0:
            head[number] = spent(around(time[before], time[before])[1], since)
    # What a layer runs before its first tensor that stays, such as a convolution before a ReLU in place. Between two
    # families of layers there is more, and before the first there is no telling.
    usual = np.nanmedian(head) if len(head) and not np.isnan(head).all() else 0
    each, begun = body + np.fmin(head, usual), time[windows[:, 1]]
    costs = [int(each[(begun >= step.begin) & (begun < step.end)].sum()) for step in steps]
    covered = [(cost, step) for cost, step in zip(costs, steps, strict=True) if cost]
    if not covered:
        return None
    lengths = [(max(step.end - step.begin, busy_time(kernels, step)), cost, step) for cost, step in covered]
    length, cost, step = sorted(lengths, key=lambda one: one[0])[(len(lengths) - 1) // 2]
    return StepCost(cost // 1000, length // 1000, busy_time(kernels, step) / length if is_device else None)


def _windows(context: AdviceContext, layers: Layers) -> np.ndarray:
    """Int64 rows of three events, in order: the last allocation of the layer before in a forward pass (-1: none), its
    first, and the last that a checkpoint does without, where it stops.
    """
    born = context.born[layers.rows]
    # Where a layer's lines are told apart in its middle, the last of a step and the first of the next are one.
    run = born_in(context)[layers.rows]
    table = pl.DataFrame({"layer": layers.starts, "run": run, "born": born, "goes": layers.ends > layers.starts})
    last = pl.when("goes").then("born").max()
    events = table.group_by("layer", "run").agg(first=pl.col("born").min(), last=last, end=pl.col("born").max())
    events = events.sort("first").with_columns(before=pl.col("end").shift(1).over("run").fill_null(-1))
    return events.drop_nulls().select("before", "first", "last").to_numpy()


def busy_time(kernels: pl.DataFrame, step: ProfiledStep) -> int:
    """Nanoseconds in which a kernel or a copy runs that the step calls; some run at the same time. Longer than the step
    where the host runs ahead of the device.
    """
    called = kernels.filter(pl.col("called").is_between(step.begin, step.end, closed="left")).sort("begin")
    begin, end = called["begin"].to_numpy(), called["end"].to_numpy()
    before = np.maximum.accumulate(np.append(step.begin, end))[:-1]
    return int(np.maximum(end - np.maximum(begin, before), 0).sum())


def called_kernels(intervals: pl.DataFrame, device: int) -> pl.DataFrame:
    """``begin``, ``end`` of kernels and copies on a device, and when they were ``called`` (ns)."""
    started = intervals.filter(pl.col("kind").is_in([KERNEL, COPY]) & (pl.col("correlation") >= 0))
    started = started.filter(pl.col("device") == device).select("correlation", "begin", "end")
    calls = intervals.filter((pl.col("kind") == RUNTIME) & (pl.col("correlation") >= 0)).unique("correlation")
    return started.join(calls.select("correlation", called="begin"), "correlation")
