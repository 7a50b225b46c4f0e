"""Memory that is reserved and cannot be used: free ranges beside blocks in use, when the allocator had to reserve
more.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.contracts.finding import Evidence, Link, Row
from snapreport.findings.basis import basis_of, block_doubts
from snapreport.findings.free_memory_reachability import Request, reachable_free_memory, usable_segments
from snapreport.findings.live import MOST, NO_STACK_TRACE, Names, names_of
from snapreport.findings.model import Finding, FindingKind
from snapreport.number_format import plural
from snapreport.reading.recording import ACTIONS
from snapreport.sentence import bytes_part, bytes_with_article, device_part, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.fragmentation import live_ids, parts_at, unused_segment_bytes
from snapreport.timeline.lifetimes import action_codes
from snapreport.timeline.state import State, state_at

MIN_SHARE = 0.25
"""Free ranges that the request could have used, were they one, are a warning from this share of the highest
reserved.
"""
MIN_BYTES = 64 << 20
IDLE_SHARE = 0.33
"""Reserved beyond the highest allocated, worth a finding from this share on."""
_MAX_MOMENTS = 40
"""Moments examined, those with most unused memory first: 485 recordings have up to 88, and 40 find the same in all."""
_MAX_TRIED = 8
"""Moments examined block by block, those with most bytes in inactive splits first."""


class PinningRow(Row):
    """``allocated_bytes`` of one stack are all that is in use of ``segments`` with ``free_bytes`` free."""

    stack: int
    segments: int
    free_bytes: int
    allocated_bytes: int
    function: str


class SegmentRow(Row):
    address: int
    size: int
    used: int
    free: int
    largest_free: int
    blocks: int


class FragmentationEvidence(Evidence):
    """A request for ``requested_bytes`` reserved more although ``usable_free_bytes`` were cached, the largest free
    block of ``largest_free_bytes``. ``joined_bytes``: the largest there would be if segments stood side by side.
    """

    event: int
    requested_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    rounding_bytes: int
    inactive_split_bytes: int
    free_segment_bytes: int
    usable_free_bytes: int
    largest_free_bytes: int
    segments: list[SegmentRow]
    pinning_stacks: list[PinningRow]
    expandable_segments: bool | None
    joined_bytes: int


class OversizedEvidence(Evidence):
    """More was reserved than was ever allocated."""

    event: int
    reserved_bytes: int
    peak_bytes: int
    rounding_bytes: int
    inactive_split_bytes: int
    free_segment_bytes: int
    expandable_segments: bool | None


def fragmentation_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """A warning where much free memory was unusable when more was reserved; else a note on a cache far above the
    need.
    """
    if timeline.kind == "host" or not len(timeline.events) or not len(timeline.allocations):
        return []
    worst = worst_growth(timeline)
    if worst is not None:
        return [_fragmented(snapshot, timeline, *worst)]
    return _oversized(timeline)


def growths(timeline: DeviceTimeline) -> np.ndarray:
    """Events that took memory from the device and made more reserved than ever before."""
    reserved = timeline.reserved
    return np.flatnonzero(reserved[1:] > np.maximum.accumulate(reserved)[:-1])


def worst_growth(timeline: DeviceTimeline) -> tuple[State, Request, int] | None:
    """(state before it, the request, free bytes that it could have used were they contiguous) of the worst growth;
    None: none is bad.
    """
    events = growths(timeline)
    least = max(MIN_BYTES, MIN_SHARE * int(timeline.reserved.max()))
    # No more can be in inactive splits than was reserved and not allocated, which the curves give at once. Index =
    # event: the position before it.
    unused = (timeline.reserved - timeline.allocated)[events]
    events, unused = events[unused >= least], unused[unused >= least]
    most = np.sort(np.argsort(-unused, kind="stable")[:_MAX_MOMENTS])
    events, unused = events[most], unused[most]
    # Nor than the rest without unused segments, which needs no blocks to be computed.
    rest = unused - np.array([unused_segment_bytes(timeline, int(event) - 1) for event in events], np.int64)
    events, rest = events[rest >= least], rest[rest >= least]
    if not len(events):
        return None
    rounding = timeline.blocks.size - timeline.allocations["size"].to_numpy()
    split = rest - np.array([rounding[live_ids(timeline, int(event) - 1)].sum() for event in events], np.int64)
    for at in np.argsort(-split, kind="stable")[:_MAX_TRIED]:
        if split[at] < least:
            break
        event = int(events[at])
        state = state_at(timeline, event - 1)
        request = request_behind(timeline, event)
        usable = reachable_free_memory(state, request, occupied_only=True).usable
        if usable >= max(least, request.size):
            return state, request, usable
    return None


def request_behind(timeline: DeviceTimeline, event: int) -> Request:
    """The request that the allocator reserved memory for at ``event``: the next recorded allocation or failure, else
    the memory itself. Its ``event`` stays that of the reservation.
    """
    source = timeline.events.row(served_at(timeline, event), named=True)
    return Request(event, source["size"], source["stream"], source["pool"])


def served_at(timeline: DeviceTimeline, event: int) -> int:
    """The event of the allocation or failure that memory was reserved for at ``event``; else ``event`` itself."""
    action = action_codes(timeline.events[event : event + 64])
    after = np.flatnonzero((action == ACTIONS.index("alloc")) | (action == ACTIONS.index("oom")))
    return event + int(after[0]) if len(after) else event


def _fragmented(snapshot: Snapshot, timeline: DeviceTimeline, state: State, request: Request, usable: int) -> Finding:
    position = state.position
    parts = parts_at(timeline, position)
    reserved = int(timeline.reserved[position + 1])
    free_memory = reachable_free_memory(state, request, occupied_only=True)
    names = names_of(snapshot)
    pins = pinning_stacks(timeline, state, names)
    expandable = expandable_setting(timeline)
    name = device_part(timeline.kind, timeline.device)
    joined = joined_bytes(state, request)
    evidence = FragmentationEvidence(
        event=request.event,
        requested_bytes=request.size,
        reserved_bytes=reserved,
        allocated_bytes=int(timeline.allocated[position + 1]),
        rounding_bytes=parts.rounding,
        inactive_split_bytes=parts.inactive_split,
        free_segment_bytes=parts.unused_segments,
        usable_free_bytes=usable,
        largest_free_bytes=free_memory.largest_usable,
        segments=emptiest_segments(state),
        pinning_stacks=pins,
        expandable_segments=expandable,
        joined_bytes=joined,
    )
    detail: list[str] = []
    if pins:
        top = pins[0]
        detail.append(
            sentence(
                "{} alone {occupy} {}: {} allocated, {} free.",
                names.subject(top["stack"]),
                plural(top["segments"], "segment"),
                bytes_part(top["allocated_bytes"]),
                bytes_part(top["free_bytes"]),
                occupy="occupy" if names.place(top["stack"]) == NO_STACK_TRACE else "occupies",
            )
        )
    detail.append(_remedy(expandable, joined, request))
    return Finding(
        kind="fragmentation",
        device=timeline.device,
        severity="warning",
        title=sentence(
            "Fragmentation on {name}: {} request reserved more memory although {} were cached, because the largest"
            " free block was {}",
            bytes_with_article(request.size),
            bytes_part(usable),
            bytes_part(free_memory.largest_usable),
            name=name,
        ),
        detail=detail,
        bytes=usable,
        event=position,
        stack=pins[0]["stack"] if pins else None,
        evidence=evidence,
        basis=basis_of(timeline) + block_doubts(timeline, position),
        confidence="inferred" if block_doubts(timeline, position) or timeline.reconciliation_bytes else "measured",
        link=Link(view="segments", at=position),
    )


def joined_bytes(state: State, request: Request) -> int:
    """The largest free range that ``request`` could use if its segments stood side by side, in order of address.

    Expandable segments join free ranges at the ends of neighbours. A block in use between two ranges still parts them.
    """
    rows = np.flatnonzero(usable_segments(state, request))
    blocks = state.blocks.filter(pl.col("segment").is_in(rows.tolist()))
    free = (blocks["allocation"] < 0).to_numpy()
    size = np.where(free, blocks["size"].to_numpy(), 0)
    runs = np.cumsum(~free)
    return int(np.bincount(runs, size).max(initial=0))


def _remedy(expandable: bool | None, joined: int, request: Request) -> str:
    if expandable:
        return "Expandable segments were on: the free ranges are inside them, between blocks in use."
    if joined < request.size:
        return sentence(
            "Joined segments would not serve this request: live blocks lie between their free ranges, and the largest "
            "would be {}.",
            bytes_part(joined),
        )
    return sentence("Expandable segments would join them: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.")


def _oversized(timeline: DeviceTimeline) -> list[Finding]:
    """More was reserved than was ever allocated, at a moment that the trace covers.

    A maximum at the start of the trace may have been in use before it. A segment that the allocator has just made is
    empty until the allocation that it is for: what is unused is counted after that.
    """
    most, peak = int(timeline.reserved.max()), timeline.peak_bytes
    idle = most - peak
    if idle < max(MIN_BYTES, IDLE_SHARE * most) or timeline.recording_gaps or timeline.reserved[0] >= most:
        return []
    first = int(np.argmax(timeline.reserved)) - 1
    at = served_at(timeline, first)
    if timeline.reserved[at + 1] < most:
        return []
    parts = parts_at(timeline, at)
    name = device_part(timeline.kind, timeline.device)
    free, split = parts.unused_segments, parts.inactive_split
    return [
        Finding(
            kind="fragmentation",
            device=timeline.device,
            severity="info",
            title=sentence(
                "Reserved memory on {name} reached {}; allocated never exceeded {}",
                bytes_part(most),
                bytes_part(peak),
                name=name,
            ),
            detail=[
                sentence(
                    "When most was reserved, {} were in unused segments{parts}.",
                    bytes_part(free),
                    parts=sentence(" and {} in free parts of others", bytes_part(split)) if split else "",
                ),
                *_out_of_reach(timeline, at, first, idle),
            ],
            bytes=idle,
            event=at,
            evidence=OversizedEvidence(
                event=at,
                reserved_bytes=most,
                peak_bytes=peak,
                rounding_bytes=parts.rounding,
                inactive_split_bytes=split,
                free_segment_bytes=free,
                expandable_segments=expandable_setting(timeline),
            ),
            basis=basis_of(timeline) + block_doubts(timeline, at),
            confidence="inferred" if timeline.reconciliation_bytes or timeline.reserved[0] else "measured",
            link=Link(view="reserved", at=at),
        )
    ]


def _out_of_reach(timeline: DeviceTimeline, at: int, first: int, idle: int) -> list[str]:
    """Why what was cached after event ``at`` did not serve the request that most was reserved for at ``first``."""
    state = state_at(timeline, at)
    request = request_behind(timeline, first)
    free = reachable_free_memory(state, request)
    lines: list[str] = []
    if free.other_stream >= IDLE_SHARE * idle:
        streams = state.segments.filter((pl.col("free") > 0) & (pl.col("stream") != request.stream))["stream"]
        lines.append(
            sentence(
                "{} of it belong to {}: a stream cannot use what another one has cached.",
                bytes_part(free.other_stream),
                plural(streams.n_unique(), "other stream"),
            )
        )
    if free.other_pool >= IDLE_SHARE * idle:
        lines.append(
            sentence(
                "{} of it are in other pools: a private pool, as a CUDA graph has, keeps its segments until it is "
                "deleted.",
                bytes_part(free.other_pool),
            )
        )
    elif parts_at(timeline, at).unused_segments >= IDLE_SHARE * idle:
        lines.append(
            "PyTorch releases unused segments before it fails, but other processes cannot use them until then."
        )
    return lines


def pinning_stacks(timeline: DeviceTimeline, state: State, names: Names) -> list[PinningRow]:
    """Stacks whose blocks alone keep segments from being wholly free, most free bytes first."""
    used = state.blocks.filter((pl.col("allocation") >= 0) & (pl.col("segment") >= 0))
    stacks = timeline.allocations["stack"].gather(used["allocation"])
    single = (
        used.with_columns(stack=stacks)
        .group_by("segment")
        .agg(pl.col("stack").first(), several=pl.col("stack").n_unique() > 1, held=pl.col("size").sum())
        .filter(~pl.col("several"))
    )
    single = single.with_columns(free=state.segments["free"].gather(single["segment"])).filter(pl.col("free") > 0)
    grouped = single.group_by("stack").agg(
        segments=pl.len().cast(pl.Int64), free_bytes=pl.col("free").sum(), allocated_bytes=pl.col("held").sum()
    )
    top = grouped.sort(["free_bytes", "stack"], descending=[True, False]).head(MOST)
    return [PinningRow(**row, function=names.function(row["stack"])) for row in top.rows(named=True)]


def emptiest_segments(state: State) -> list[SegmentRow]:
    """The segments in use that have most bytes free."""
    fragmented = state.segments.filter((pl.col("blocks") > 0) & (pl.col("free") > 0)).sort(
        ["free", "address"], descending=[True, False]
    )
    top = fragmented.head(MOST).select("address", "size", "used", "free", "largest_free", "blocks")
    return [SegmentRow(**row) for row in top.rows(named=True)]


def expandable_setting(timeline: DeviceTimeline) -> bool | None:
    """Whether expandable segments were on: as recorded, else as segments show; None where neither does."""
    setting = timeline.recording.settings.get("expandable_segments")
    if isinstance(setting, bool):
        return setting
    return True if timeline.segment_history["expandable"].any() else None


FRAGMENTATION = FindingKind(
    "fragmentation", "Fragmentation", (FragmentationEvidence, OversizedEvidence), fragmentation_findings
)
