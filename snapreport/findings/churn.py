"""Churn: segments that are given back to the device and asked for again, and the time that this stalls the program.

cudaFree waits for the whole device, and cudaMalloc is slow; a caching allocator that has warmed up calls neither. What
is asked for in the first repetition, or before anything is ever given back, is warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from snapreport.findings.basis import basis_of
from snapreport.findings.model import Finding
from snapreport.findings.repetition import repetitions
from snapreport.number_format import bytes_text, count_text, plural, share_text
from snapreport.timeline.build import DeviceTimeline, Snapshot
from snapreport.timeline.own_code import own_functions
from snapreport.timeline.rounding import SMALL_SIZE

GIVEN = ("segment_alloc", "segment_map")
TAKEN = ("segment_free", "segment_unmap")
_FEWEST = 4
"""Segments asked for again; fewer are an accident."""
_ROUNDS = 3
"""Times that something is given back and asked for again: a cache that was emptied once and filled anew does not
churn.
"""
_RETRY_EVENTS = 64
"""An allocation that finds no room frees what is cached and asks again at once: then the free is this close before."""
_WARM_SHARE = 0.1
"""Of the trace, where nothing repeats."""


@dataclass(frozen=True)
class Churn:
    """Segment operations after warm-up. ``again``: events of segments asked for again; ``freed``: of those given back.

    ``stall_us``: µs between such an event and the one recorded before it, an upper bound of what the call took; None
    without times. ``retries``: of the segments in ``again``, those asked for right after cached ones were given back.
    """

    warm_event: int
    again: np.ndarray
    freed: np.ndarray
    again_bytes: int
    stall_us: int | None
    retries: int


def churn(timeline: DeviceTimeline) -> Churn | None:
    """The device's churn; None where segments are not given back and asked for again, again and again, after
    warm-up.
    """
    other = timeline.events[timeline.other_events].with_columns(event=pl.Series(timeline.other_events))
    action = pl.col("action").cast(pl.String)
    freed = other.filter(action.is_in(TAKEN))
    if not len(freed):
        return None
    warm = _warm_event(timeline)
    first_free = int(freed["event"][0])
    given = other.filter(action.is_in(GIVEN) & (pl.col("event") > max(warm, first_free)))
    freed = freed.filter(pl.col("event") >= warm)
    # What stays below the most that was ever reserved before is asked for again; what goes beyond it is growth.
    at = given["event"].to_numpy().astype(np.int64)
    highest = np.maximum.accumulate(timeline.reserved)
    again = given.filter(pl.Series(timeline.reserved[at + 1] <= highest[at], dtype=pl.Boolean))
    if len(again) < _FEWEST:
        return None
    events, frees = again["event"].to_numpy().astype(np.int64), freed["event"].to_numpy().astype(np.int64)
    before = np.searchsorted(frees, events) - 1
    if len(np.unique(before)) < _ROUNDS:
        return None
    retries = int(((before >= 0) & (events - frees[np.maximum(before, 0)] <= _RETRY_EVENTS)).sum())
    return Churn(
        warm, events, frees, int(again["size"].sum()), _stall(timeline, np.concatenate((events, frees))), retries
    )


def churn_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    found = churn(timeline)
    if found is None:
        return []
    rounds = len(found.again)
    stacks = _who(timeline, found.again)
    names = own_functions(snapshot.recording)
    top = stacks.row(0, named=True) if len(stacks) else None
    giver = _giver(snapshot, timeline, found.freed)
    details = [
        f"{plural(len(found.freed), 'segment')} given back and {count_text(rounds)} asked for again after event "
        f"{count_text(found.warm_event)}.",
    ]
    if giver is not None:
        details.append(f"They are given back by empty_cache(), called in {names[giver]}.")
    if found.retries:
        details.append(
            f"{plural(found.retries, 'request')} came within {_RETRY_EVENTS} events after cached segments were given "
            "back, as retries do."
        )
    if found.stall_us is not None:
        clock = timeline.events["time_us"].to_numpy()  # complete where stalls are known
        span = int(clock.max() - clock.min())
        details.append(
            f"At most {found.stall_us / 1e3:,.1f} ms passed in these calls, "
            f"{share_text(found.stall_us, max(1, span))} of the trace (the time since the event before each)."
        )
    else:
        details.append("The trace has no times, so that the stalls cannot be told.")
    functions = (
        stacks.with_columns(name=names.gather(stacks["stack"])).group_by("name").agg(pl.col("bytes", "count").sum())
    )
    details += [
        f"{bytes_text(row['bytes'])} of it ({plural(row['count'], 'segment')}) for "
        f"{row['name'] or 'allocations without frames'}."
        for row in functions.sort(["bytes", "name"], descending=[True, False]).head(3).rows(named=True)
    ]
    same = _same_size(timeline, top["stack"], found.warm_event) if top else None
    if top and same:
        details.append(
            f"{names[top['stack']] or 'One stack'} allocates and frees {bytes_text(same['size'])} "
            f"{count_text(same['count'])} times after warm-up: one buffer, kept, would do."
        )
    return [
        Finding(
            kind="churn",
            device=timeline.device,
            severity="warning",
            title=f"{bytes_text(found.again_bytes)} of segments were given back to the device and asked for again, "
            f"{count_text(rounds)} times after warm-up",
            detail=details,
            bytes=found.again_bytes,
            event=int(found.again[0]),
            stack=giver if giver is not None else top["stack"] if top else None,
            evidence={
                "segments_again": rounds,
                "segments_freed": len(found.freed),
                "bytes_again": found.again_bytes,
                "stall_us": found.stall_us,
                "retries": found.retries,
                "warm_event": found.warm_event,
                "stacks": stacks.head(5).rows(named=True),
            },
            basis=basis_of(timeline),
            confidence="sure",
            link={"view": "reserved", "x": [int(found.again[0]) - 1, int(found.again[-1]) + 1]},
        )
    ]


def _giver(snapshot: Snapshot, timeline: DeviceTimeline, freed: np.ndarray) -> int | None:
    """The stack that gives most segments back by emptying the cache; None where none does, or no stack tells."""
    recording = snapshot.recording
    empties = np.flatnonzero(recording.frames["name"].str.contains(r"(?i)empty_?cache").to_numpy())
    stacks = timeline.events["stack"].gather(freed).to_numpy()
    offsets = recording.stack_offsets
    for stack in _by_count(stacks):
        if np.isin(recording.stack_frames[offsets[stack] : offsets[stack + 1]], empties).any():
            return stack
    return None


def _by_count(stacks: np.ndarray) -> list[int]:
    numbers, counts = np.unique(stacks, return_counts=True)
    by_count: list[int] = numbers[np.argsort(-counts, kind="stable")].tolist()
    return by_count


def _warm_event(timeline: DeviceTimeline) -> int:
    """The event at which warm-up is over: the end of the first repetition, else a tenth of the trace."""
    slices = repetitions(timeline)
    return int(slices.bounds[1]) - 1 if slices else int(len(timeline.events) * _WARM_SHARE)


def _stall(timeline: DeviceTimeline, events: np.ndarray) -> int | None:
    times = timeline.events["time_us"]
    events = events[events > 0]
    if times.null_count():
        return None
    clock = times.to_numpy().astype(np.int64)
    return int(np.maximum(0, clock[events] - clock[events - 1]).sum())


def _who(timeline: DeviceTimeline, events: np.ndarray) -> pl.DataFrame:
    """``stack``, ``bytes``, ``count`` of those for whom segments were asked for again, most bytes first.

    A segment is made for the allocation that follows it; its own stack is the same where it is recorded.
    """
    rows = timeline.events[events].select("stack", "size")
    following = timeline.allocations.filter(pl.col("alloc_event") >= 0).select("alloc_event", "stack")
    at = np.searchsorted(following["alloc_event"].to_numpy(), events)
    inside = at < len(following)
    after = np.where(
        inside, following["stack"].to_numpy()[np.minimum(at, len(following) - 1)] if len(following) else 0, 0
    )
    own = rows["stack"].to_numpy()
    return (
        rows.with_columns(stack=pl.Series(np.where(own > 0, own, after)))
        .group_by("stack")
        .agg(bytes=pl.col("size").sum(), count=pl.len())
        .sort(["bytes", "stack"], descending=[True, False])
    )


def _same_size(timeline: DeviceTimeline, stack: int, warm: int) -> dict[str, int] | None:
    """The size that a stack allocates and frees again and again after warm-up, that with most bytes: ``size``,
    ``count``.

    None where it is less than ``_FEWEST`` times, or so small that it shares a segment with others.
    """
    large = (pl.col("size") > SMALL_SIZE) & (pl.col("alloc_event") >= warm) & (pl.col("free_event") >= 0)
    rows = (
        timeline.allocations.filter((pl.col("stack") == stack) & large)
        .group_by("size")
        .agg(count=pl.len())
        .filter(pl.col("count") >= _FEWEST)
        .sort([pl.col("count") * pl.col("size"), "size"], descending=True)
    )
    return rows.row(0, named=True) if len(rows) else None
