"""Churn: segments that are released to the device and allocated again, and the time that this stalls the program.

cudaFree waits for the whole device, and cudaMalloc is slow; a caching allocator that has warmed up calls neither.
Segments of the first repetition, or before anything is ever released, are warm-up. What is released before an
out-of-memory error, or for the capture of a CUDA graph, is explained by that.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.contracts.finding import Evidence, Link, Row
from snapreport.findings.basis import basis_of
from snapreport.findings.live import names_of
from snapreport.findings.model import Finding, FindingKind
from snapreport.findings.repetition import repetitions
from snapreport.number_format import count_text, duration_text, plural, share_text
from snapreport.reading.recording import ACTIONS
from snapreport.reading.stack_marks import stacks_with
from snapreport.sentence import bytes_part, device_part, event_part, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_TRACED, action_codes

ALLOCATES = ("segment_alloc", "segment_map")
RELEASES = ("segment_free", "segment_unmap")
_MIN_ROUNDS = 3
"""Times that something is released and allocated again: a cache that was emptied once and filled anew does not
churn.
"""
_OOM_EVENTS = 8
"""An allocation that fails releases everything cached first: the error is recorded this close after."""
_RECOVERY_EVENTS = 1000
"""After an error: releases by a program that caught it."""
_WARM_SHARE = 0.1
"""Of the trace, where nothing repeats."""


class Churn(Struct, frozen=True):
    """Segment operations after warm-up. ``again``: events of segments allocated again; ``freed``: of those released.

    ``stall_us``: µs that the releases took at most, see :func:`_stall`; None without times.
    ``retries``: runs of releases after which a request that found the device full tried again.
    ``emptied``: events of ``freed`` that ``empty_cache()`` released.
    """

    warm_event: int
    again: np.ndarray
    freed: np.ndarray
    again_bytes: int
    stall_us: int | None
    retries: int
    emptied: np.ndarray


def churn(timeline: DeviceTimeline) -> Churn | None:
    """The device's churn; None where segments are not released and allocated again, again and again, after warm-up."""
    other = timeline.events[timeline.other_events].with_columns(event=pl.Series(timeline.other_events))
    action = pl.col("action")
    freed = other.filter(action.is_in(RELEASES))
    if not len(freed):
        return None
    warm = _warm_event(timeline)
    first_free = int(freed["event"][0])
    made = other.filter(action.is_in(ALLOCATES) & (pl.col("event") > max(warm, first_free)))
    freed = freed.filter(pl.col("event") >= warm)
    # A segment up to the highest reserved so far is allocated again; one beyond it is growth.
    at = made["event"].to_numpy().astype(np.int64)
    highest = np.maximum.accumulate(timeline.reserved)
    again = made.filter(pl.Series(timeline.reserved[at + 1] <= highest[at], dtype=pl.Boolean))
    events, frees = again["event"].to_numpy().astype(np.int64), freed["event"].to_numpy().astype(np.int64)
    before = np.searchsorted(frees, events) - 1
    # A release that an error or a capture explains is no churn, and nor is what is allocated again after it.
    explained = np.append(_explained(timeline, frees), False)
    counts = ~explained[before]
    again, events, before = again.filter(pl.Series(counts)), events[counts], before[counts]
    if len(np.unique(before)) < _MIN_ROUNDS:
        return None
    frees = frees[~explained[:-1]]
    emptied = _stacks_through(timeline, "name", r"(?i)empty_?cache")[frees]
    return Churn(
        warm,
        events,
        frees,
        int(again["size"].sum()),
        _stall(timeline, frees),
        _retries(timeline, frees[~emptied]),
        frees[emptied],
    )


def _stacks_through(timeline: DeviceTimeline, column: str, pattern: str) -> np.ndarray:
    """Bool per event: whether a frame of its stack matches."""
    recording = timeline.recording
    matches = recording.frames[column].str.contains(pattern).to_numpy()
    return np.asarray(stacks_with(recording, matches)[timeline.events["stack"].to_numpy()])


def _explained(timeline: DeviceTimeline, frees: np.ndarray) -> np.ndarray:
    """Bool per event of ``frees``: part of a run of releases that ends in an out-of-memory error, or of a graph
    capture.
    """
    explained = _stacks_through(timeline, "filename", r"torch[/\\\\]cuda[/\\\\]graphs\.py$")[frees]
    for oom in timeline.oom_events:
        # Before it the allocator released what it could; after it the program clears up, and tries something smaller.
        low, high = np.searchsorted(frees, [oom - _OOM_EVENTS, oom + _RECOVERY_EVENTS])
        explained[_run_start(frees, int(low)) : high] = True
    return np.asarray(explained)


def _run_start(frees: np.ndarray, place: int) -> int:
    """The first place of the run of directly following events that ``place`` is in."""
    while 0 < place < len(frees) and frees[place] - frees[place - 1] == 1:
        place -= 1
    return place


def _runs(frees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(first, last) places in ``frees`` of every run of events that follow each other directly."""
    breaks = np.flatnonzero(np.diff(frees) > 1)
    return np.append(0, breaks + 1)[: len(frees)], np.append(breaks, len(frees) - 1)[: len(frees)]


def _retries(timeline: DeviceTimeline, frees: np.ndarray) -> int:
    """Runs of releases directly followed by a segment that would not have fitted beside them.

    More than was ever reserved may not fit the device. Below that, releases are the program's own decision.
    """
    first, last = _runs(frees)
    following = frees[last] + 1
    inside = following < len(timeline.events)
    rows = timeline.events[following[inside]]
    grows = np.isin(rows["action"].to_physical().to_numpy(), [ACTIONS.index(name) for name in ALLOCATES])
    needed = timeline.reserved[frees[first][inside]] + rows["size"].to_numpy()
    return int((grows & (needed > timeline.reserved.max())).sum())


class ChurnRow(Row):
    """A stack for which segments were allocated again: ``bytes`` in ``count`` segments."""

    stack: int
    bytes: int
    count: int


class ChurnEvidence(Evidence):
    """Segments that were freed and allocated again after ``warm_event``. ``stall_us``: an upper bound of the time
    that the releases took, None without times.
    """

    segments_again: int
    segments_freed: int
    bytes_again: int
    stall_us: int | None
    retries: int
    emptied: int
    emptied_in: str | None
    warm_event: int
    stacks: list[ChurnRow]


def churn_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """One for a device that churns."""
    found = churn(timeline)
    if found is None:
        return []
    count = len(found.again)
    stacks = _reallocated_by_stack(timeline, found.again)
    names = names_of(snapshot)
    emptier = _most_frequent(timeline.events["stack"].to_numpy()[found.emptied])
    details = _causes(found, names.place(emptier) if emptier is not None else "")
    if found.stall_us is not None:
        times = timeline.events["time_us"].to_numpy()
        span = int(times.max() - times.min())
        details.append(
            sentence(
                "Releasing them took at most {}, {} of the trace.",
                duration_text(found.stall_us),
                share_text(found.stall_us, max(1, span)),
            )
        )
    places = {str(place): place for place in map(names.place, stacks["stack"].to_list())}
    named = pl.Series("place", [str(names.place(stack)) for stack in stacks["stack"]], dtype=pl.String)
    sums = stacks.with_columns(named).group_by("place").agg(pl.col("bytes", "count").sum())
    for row in sums.sort(["bytes", "place"], descending=[True, False]).head(3).rows(named=True):
        details.append(
            sentence(
                "{} ({}) were for {}.", bytes_part(row["bytes"]), plural(row["count"], "segment"), places[row["place"]]
            )
        )
    name = device_part(timeline.kind, timeline.device)
    return [
        Finding(
            kind="churn",
            device=timeline.device,
            severity="warning",
            title=sentence(
                "{name} released {} ({}) and allocated them again after warm-up",
                plural(count, "segment"),
                bytes_part(found.again_bytes),
                name=name,
            ),
            detail=details,
            bytes=found.again_bytes,
            event=int(found.again[0]),
            stack=emptier if emptier is not None else int(stacks["stack"][0]) if len(stacks) else None,
            evidence=ChurnEvidence(
                segments_again=count,
                segments_freed=len(found.freed),
                bytes_again=found.again_bytes,
                stall_us=found.stall_us,
                retries=found.retries,
                emptied=len(found.emptied),
                emptied_in=names.place(emptier) if emptier is not None else None,
                warm_event=found.warm_event,
                stacks=[ChurnRow(**row) for row in stacks.head(5).rows(named=True)],
            ),
            basis=basis_of(timeline),
            confidence="measured",
            link=Link(view="reserved", x=[int(found.again[0]) - 1, int(found.again[-1]) + 1]),
        )
    ]


def _causes(found: Churn, emptier: str) -> list[str]:
    """Who released the segments, as far as the record says."""
    lines: list[str] = []
    if len(found.emptied):
        where = sentence(", called in {emptier}", emptier=emptier)
        every = "All" if len(found.emptied) == len(found.freed) else sentence("{} of", count_text(len(found.emptied)))
        lines.append(
            sentence(
                "{every} {} after {} came from `empty_cache()`{where}.",
                plural(len(found.freed), "release"),
                event_part(found.warm_event),
                every=every,
                where=where,
            )
        )
    if found.retries:
        lines.append(
            sentence(
                "{} found the device full: PyTorch released its cached segments and tried again.",
                plural(found.retries, "request"),
            )
        )
    return lines


def _most_frequent(stacks: np.ndarray) -> int | None:
    if not len(stacks):
        return None
    numbers, counts = np.unique(stacks, return_counts=True)
    return int(numbers[np.argmax(counts)])


def _warm_event(timeline: DeviceTimeline) -> int:
    """The event at which warm-up is over: the end of the first repetition, else a tenth of the trace."""
    slices = repetitions(timeline)
    return int(slices.bounds[1]) - 1 if slices else int(len(timeline.events) * _WARM_SHARE)


def _stall(timeline: DeviceTimeline, frees: np.ndarray) -> int | None:
    """µs between each release and the entry on that side of it where PyTorch releases: it calls cudaFree after it has
    recorded a segment_free, and records a segment_unmap when that is done (c10/cuda/CUDACachingAllocator.cpp, 2.9).

    What passes before a segment_alloc is mostly the program's own: in a loop with 26 `empty_cache()`, 11.7 s of 11.9.
    """
    times = timeline.events["time_us"]
    if times.null_count():
        return None
    clock = times.to_numpy().astype(np.int64)
    after = action_codes(timeline.events)[frees] == ACTIONS.index("segment_free")
    begins = np.where(after, frees, frees - 1)
    ends = np.minimum(begins + 1, len(clock) - 1)
    return int(np.maximum(0, clock[ends] - clock[begins]).sum())


def _reallocated_by_stack(timeline: DeviceTimeline, events: np.ndarray) -> pl.DataFrame:
    """``stack``, ``bytes``, ``count`` of the stacks for which segments were allocated again, most bytes first.

    A segment is made for the allocation that follows it; its own stack is the same where it is recorded.
    """
    rows = timeline.events[events].select("stack", "size")
    following = timeline.allocations.filter(IS_TRACED).select("alloc_event", "stack")
    at = np.searchsorted(following["alloc_event"].to_numpy(), events)
    after = np.append(following["stack"].to_numpy(), 0)[at]
    own = rows["stack"].to_numpy()
    return (
        rows.with_columns(stack=pl.Series(np.where(own > 0, own, after)))
        .group_by("stack")
        .agg(bytes=pl.col("size").sum(), count=pl.len())
        .sort(["bytes", "stack"], descending=[True, False])
    )


CHURN = FindingKind("churn", "Churn", (ChurnEvidence,), churn_findings)
