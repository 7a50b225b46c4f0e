"""What memory costs in time, by a ``torch.profiler`` trace of the same run: allocations, copies, recomputation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import UNSET, Struct

from snapreport.contracts.stats import StepTime, TimeCause, TimeCost, TimeCosts
from snapreport.errors import SnapshotError
from snapreport.reading.activity_trace import COPY, KERNEL, OPERATOR, RUNTIME, SAVE, ActivityTrace
from snapreport.reading.clock_alignment import Alignment
from snapreport.timeline.annotations import clock_of
from snapreport.timeline.interface import Timeline

# The engine runs each node of the graph within an operator of this name. A forward operator within it, one that makes
# a node itself, is what a checkpoint runs again.
_NODE = "autograd::engine::evaluate_function"
_CALLS: dict[TimeCause, str] = {
    "cudaMalloc": r"^(cudaMalloc(Async|FromPoolAsync)?|cuMem(Create|Map|SetAccess|AddressReserve))(_v\d+)?$",
    "cudaFree": r"^(cudaFree(Async)?|cuMem(Unmap|Release|AddressFree))(_v\d+)?$",
}
FREE_DISTANCE = 100_000
"""Nanoseconds between a call of cudaFree and the event of its segment."""
_COPIES: dict[TimeCause, str] = {"copies to the host": "DtoH", "copies to the device": "HtoD"}


def run_costs(timelines: Sequence[Timeline]) -> TimeCosts | None:
    """What memory costs in time, by the trace of the same run; None without one. ``timelines``: of all devices."""
    if not timelines or (profile := timelines[0].recording.profile) is None:
        return None
    return profile.remember("costs", lambda trace: time_costs(timelines, trace, profile.alignment))


def run_causes(timelines: Sequence[Timeline]) -> pl.DataFrame | None:
    """``cause`` String, ``begin``, ``end`` Int64 ns of all that :func:`run_costs` sums."""
    if not run_costs(timelines) or (profile := timelines[0].recording.profile) is None:
        return None
    return profile.remember("causes", lambda trace: _by_reason(_causes(trace.intervals), timelines))


def time_costs(timelines: Sequence[Timeline], trace: ActivityTrace, alignment: Alignment) -> TimeCosts:
    """Raises :class:`SnapshotError` for the trace of another run, whose times and those of the events do not meet."""
    clocks = [clock for one in timelines if len(one.events) and (clock := clock_of(one.events)) is not None]
    intervals = trace.intervals
    if not clocks or not len(intervals):
        raise SnapshotError(f"{trace.name}: nothing to join: no times in {'the trace' if clocks else 'the snapshot'}")
    begin, end = intervals["begin"].to_numpy().min(), intervals["end"].to_numpy().max()
    first, last = min(clock[0] for clock in clocks), max(clock[-1] for clock in clocks)
    if begin // 1000 > last or end // 1000 < first:
        raise SnapshotError(f"{trace.name}: a trace of another time than the snapshot's: not of the same run")
    causes = _by_reason(_causes(intervals), timelines)
    return TimeCosts(
        trace=trace.name,
        matched=alignment.matched,
        clock_error_us=list(alignment.error_us) if alignment.error_us else None,
        clock_shift_us=alignment.shift_ns // 1000,
        duration_us=int(end - begin) // 1000,
        has_calls=bool((intervals["kind"] == RUNTIME).any()),
        costs=_sums(causes),
        steps=_steps(timelines, causes, int(begin), int(end)),
    )


def _causes(intervals: pl.DataFrame) -> pl.DataFrame:
    """``cause``, ``begin``, ``end`` (ns) of what the host does for it, ``device`` Int64 ns, null without a device,
    ``bytes`` of copies.
    """
    device = intervals.filter(pl.col("kind").is_in([KERNEL, COPY])).with_columns(device=pl.col("end") - pl.col("begin"))
    has_device = bool(len(device))
    calls = intervals.filter(pl.col("kind") == RUNTIME)
    zero = pl.lit(0 if has_device else None, pl.Int64)
    found = [
        calls.filter(pl.col("name").str.contains(names)).select(
            pl.lit(cause).alias("cause"), "begin", "end", device=zero
        )
        for cause, names in _CALLS.items()
    ]
    started = calls.filter(pl.col("correlation") >= 0).unique("correlation", keep="first")
    for cause, name in _COPIES.items():
        copies = device.filter((pl.col("kind") == COPY) & pl.col("name").str.contains(name))
        joined = copies.select("correlation", "device", "bytes").join(
            started.drop("bytes"), "correlation", maintain_order="left"
        )
        found.append(joined.select(pl.lit(cause).alias("cause"), "begin", "end", "device", "bytes"))
    saves = _outermost(intervals.filter(pl.col("kind") == SAVE))
    found.append(saves.select(pl.lit("torch.save").alias("cause"), "begin", "end", device=zero))
    found.append(_recomputed(intervals, started, device if has_device else None))
    return pl.concat(found, how="diagonal")


def _outermost(intervals: pl.DataFrame) -> pl.DataFrame:
    """The intervals of each thread that lie in no other of it."""
    ordered = intervals.sort("thread", "begin")
    before = ordered.select(pl.col("end").cum_max().shift(1).over("thread")).to_series()
    return ordered.filter(before.is_null() | (ordered["begin"] >= before))


def _by_reason(causes: pl.DataFrame, timelines: Sequence[Timeline]) -> pl.DataFrame:
    """``causes`` with the calls of cudaFree told apart by the stack trace of the segment that is given back then."""
    freed = pl.concat([_segments_freed(one) for one in timelines]).drop_nulls("time").sort("time")
    calls = causes.filter(pl.col("cause") == "cudaFree").sort("begin")
    if calls.is_empty() or freed.is_empty():
        return causes
    # The event is recorded right before the call or right after it: a call may take longer than the next one is away.
    for moment in ("begin", "end"):
        calls = calls.sort(moment).join_asof(freed, left_on=moment, right_on="time", strategy="nearest")
        is_near = (pl.col("time") - pl.col(moment)).abs() <= FREE_DISTANCE
        calls = calls.with_columns(cause=pl.when(is_near).then("reason").otherwise("cause")).select(causes.columns)
    return pl.concat([causes.filter(pl.col("cause") != "cudaFree"), calls])


def _segments_freed(timeline: Timeline) -> pl.DataFrame:
    """``time`` ns, ``reason`` of each segment that is given back to the driver."""
    recording = timeline.recording
    events = timeline.events.filter(pl.col("action").is_in(["segment_free", "segment_unmap"]))
    stack = events["stack"].to_numpy()
    names = recording.frames["name"].to_list()
    empties = {row for row, name in enumerate(names) if name == "empty_cache"}
    by_request = "cudaFree" if recording.settings.get("garbage_collection_threshold") else "retry"
    reason = {
        number: "empty_cache" if empties.intersection(recording.stack(number)) else by_request
        for number in np.unique(stack).tolist()
        if number
    }
    # Where frees have stack traces, only a thread of autograd has none, and that does not call empty_cache().
    if (timeline.events.filter(pl.col("action") == "free_requested")["stack"] > 0).any():
        reason[0] = by_request
    return pl.DataFrame(
        {"time": events["time_us"] * 1000, "reason": [reason.get(number, "cudaFree") for number in stack.tolist()]},
        {"time": pl.Int64, "reason": pl.String},
    )


def _recomputed(intervals: pl.DataFrame, started: pl.DataFrame, device: pl.DataFrame | None) -> pl.DataFrame:
    """The recomputations of checkpoints: in each outermost node of a backward pass, from the first forward operator to
    the last.
    """
    operators = intervals.filter(pl.col("kind") == OPERATOR).sort("thread", "begin")
    nodes = _outermost(operators.filter(pl.col("name").str.starts_with(_NODE))).with_row_index("node")
    around = nodes.select("thread", "begin", "node", until="end").sort("begin")
    inside = (
        operators.filter("is_forward").sort("begin").join_asof(around, on="begin", by="thread", check_sortedness=False)
    )
    inside = inside.filter(pl.col("end") <= pl.col("until"))
    spans = inside.group_by("node", maintain_order=True).agg(
        pl.col("thread").first(), pl.col("begin").min(), pl.col("end").max()
    )
    spans = spans.with_columns(cause=pl.lit("recomputation"))
    if device is None:
        return spans.select("cause", "begin", "end", device=pl.lit(None, pl.Int64))
    kernels = device.select("correlation", "device").join(
        started.select("correlation", "thread", "begin"), "correlation"
    )
    ranges = spans.select("thread", "begin", "node", until="end").sort("begin")
    own = (
        kernels.sort("begin")
        .join_asof(ranges, on="begin", by="thread", check_sortedness=False)
        .filter(pl.col("begin") <= pl.col("until"))
    )
    sums = own.group_by("node").agg(pl.col("device").sum())
    joined = spans.join(sums, "node", "left", maintain_order="left")
    return joined.select("cause", "begin", "end", pl.col("device").fill_null(0))


def _sums(causes: pl.DataFrame) -> list[TimeCost]:
    """Of all causes that occur, most time of the host first. Calls that run at the same time in two threads count
    twice.
    """
    host, device = pl.col("end") - pl.col("begin"), pl.col("device")
    rows = causes.group_by("cause").agg(
        count=pl.len(),
        host=host.sum() // 1000,
        device=pl.when(device.is_not_null().any()).then(device.sum() // 1000),
        bytes=pl.col("bytes").sum(),
    )
    rows = rows.sort("host", "cause", descending=[True, False])
    return [
        TimeCost(cause, count, host, device, bytes=size or UNSET)
        for cause, count, host, device, size in rows.iter_rows()
    ]


MOST_UNSEEN = 0.01
"""Of a step that counts as covered. A profiler that a step starts begins within it, before the first forward pass."""


class ProfiledStep(Struct, frozen=True):
    """A step that the trace covers. begin, end: ns."""

    step: int
    name: str
    begin: int
    end: int

    def is_within(self, begin: int, end: int) -> bool:
        """Whether all but :data:`MOST_UNSEEN` of it lies between two moments."""
        unseen = max(begin - self.begin, 0) + max(self.end - end, 0)
        return unseen <= MOST_UNSEEN * (self.end - self.begin)


def profiled_steps(timeline: Timeline) -> list[ProfiledStep]:
    """The steps that the trace of the same run covers, in order; none without a trace."""
    profile = timeline.recording.profile
    if profile is None or profile.activities is None or profile.problem or not len(profile.activities.intervals):
        return []
    intervals = profile.activities.intervals
    begin, end = intervals["begin"].to_numpy().min(), intervals["end"].to_numpy().max()
    return [one for one in _all_steps(timeline) if one.is_within(begin, end)]


def _all_steps(timeline: Timeline) -> list[ProfiledStep]:
    clock = clock_of(timeline.events) if len(timeline.events) else None
    if clock is None:
        return []
    steps = timeline.steps.sort("first_event")
    starts = clock[steps["first_event"].to_numpy()] * 1000
    ends = np.append(starts[1:], clock[steps["last_event"].to_numpy()[-1:]] * 1000)
    rows = zip(steps["step"].to_list(), steps["name"].to_list(), starts.tolist(), ends.tolist(), strict=True)
    return [ProfiledStep(*row) for row in rows]


def _steps(timelines: Sequence[Timeline], causes: pl.DataFrame, begin: int, end: int) -> list[StepTime]:
    found = []
    for one in _all_steps(max(timelines, key=lambda each: len(each.steps))):
        if one.is_within(begin, end):
            own = causes.filter(pl.col("begin").is_between(one.begin, one.end, closed="left"))
            found.append(StepTime(one.step, one.name, (one.end - one.begin) // 1000, _sums(own)))
    return found
