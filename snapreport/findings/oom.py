"""Running out of memory: what was asked for, what was free, and why that did not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from snapreport.findings.basis import basis_of
from snapreport.findings.fragmentation import block_doubts, expandable_setting, pinning_stacks
from snapreport.findings.live import MOST, by_category, by_stack, live_at, names_of, told
from snapreport.findings.model import Confidence, Finding
from snapreport.findings.reach import DEFAULT_POOL, SMALL_SEGMENT, Reach, Request, reach_of
from snapreport.number_format import bytes_text, count_text, device_name, plural, share_text
from snapreport.timeline.build import DeviceTimeline, Snapshot
from snapreport.timeline.fragmentation import parts_at
from snapreport.timeline.rounding import SMALL_SIZE
from snapreport.timeline.state import PENDING, STATES, State, state_at

Verdict = Literal["demand", "fragmentation", "pool-locked", "mixed", "limit", "unclear"]
LARGE_SEGMENT = 20 << 20
_OWN_SEGMENT = 10 << 20
"""Requests from this size on have a segment to themselves."""
NEAR_EVENTS, NEAR_US = 1000, 1_000_000
"""Failures no further apart than this, in events and in microseconds, are one: a program that tries again."""


@dataclass(frozen=True)
class Shortage:
    """The bytes around one failure.

    asked: as the allocator rounded it. device_free: None where it was not recorded. unused: reserved, less allocated:
    rounding and the holes of ``reach``. pending: of blocks whose free waits for another stream (they count as
    allocated). piece: what the allocator would have had to take from the device for it, see :func:`piece_of`; None:
    just as much.
    """

    asked: int
    device_free: int | None
    reserved: int
    allocated: int
    rounding: int
    pending: int
    wholly_free: int
    reach: Reach
    piece: int | None = None

    @property
    def unused(self) -> int:
        return self.reserved - self.allocated


def oom_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """One for each failure, those at nearly the same moment as one; the first ``MOST`` and a word on how many more."""
    groups = retries(timeline)
    found = [_finding(snapshot, timeline, group) for group in groups[:MOST]]
    if len(groups) > MOST:
        name = device_name(timeline.kind, timeline.device)
        more = f"{name} ran out of memory another {plural(len(groups) - MOST, 'time')}, which are not told one by one"
        evidence = {"events": [group[0] for group in groups[MOST:]]}
        event = groups[MOST][0]
        link = {"view": "events", "at": event}
        rest = Finding(
            "oom", timeline.device, "error", more, event=event, evidence=evidence, basis=basis_of(timeline), link=link
        )
        found.append(rest)
    return found


def retries(timeline: DeviceTimeline) -> list[list[int]]:
    """The ``oom`` events, those near each other together."""
    groups: list[list[int]] = []
    times = timeline.events["time_us"]
    for event in timeline.oom_events:
        if groups:
            last = groups[-1][-1]
            now, then = times[event], times[last]
            if event - last <= NEAR_EVENTS and (now is None or then is None or now - then <= NEAR_US):
                groups[-1].append(event)
                continue
        groups.append([event])
    return groups


def shortage(timeline: DeviceTimeline, event: int) -> tuple[Shortage, State]:
    """What was there when the allocator gave up at ``event``, and the state itself."""
    row = timeline.events.row(event, named=True)
    state = state_at(timeline, event)
    segments = state.segments
    free = row["device_free"]
    found = Shortage(
        asked=row["size"],
        device_free=free if free is None or free >= 0 else None,
        reserved=int(timeline.reserved[event + 1]),
        allocated=int(timeline.allocated[event + 1]),
        rounding=parts_at(timeline, event).rounding,
        pending=int(state.blocks.filter(state.blocks["state"] == STATES[PENDING])["size"].sum()),
        wholly_free=int(segments.filter(segments["blocks"] == 0)["free"].sum()),
        reach=reach_of(state, Request(event, row["size"], row["stream"], row["pool"])),
        piece=piece_of(row["size"], expandable=expandable_setting(timeline) is True),
    )
    return found, state


def piece_of(asked: int, *, expandable: bool) -> int:
    """The bytes that the allocator takes from the device at once for a request that no hole holds.

    Small requests share segments of 2 MiB and middling ones segments of 20 MiB; what is greater has one of its own, in
    whole 2 MiB. Expandable segments grow by pages of the same sizes.
    """
    if asked <= SMALL_SIZE:
        return SMALL_SEGMENT
    if expandable or asked < _OWN_SEGMENT:
        return -(-asked // LARGE_SEGMENT) * LARGE_SEGMENT
    return -(-asked // SMALL_SEGMENT) * SMALL_SEGMENT


def verdict(s: Shortage) -> Verdict:
    """What would have had to be otherwise for the request to fit, the least first.

    limit: the device had enough, and in pieces as the allocator takes them. unclear: there was a hole that is large
    enough. fragmentation: what is free would do if it were in one piece. pool-locked: so would what other pools and
    streams hold free. mixed: only all of that together, or with what waits to be freed. demand: not even that.
    """
    device = s.device_free or 0
    if device >= max(s.asked, s.piece or 0):
        return "limit"
    if s.reach.largest_own >= s.asked:
        return "unclear"
    if s.reach.own + device >= s.asked:
        return "fragmentation"
    if s.reach.locked + device >= s.asked:
        return "pool-locked"
    if s.reach.own + s.reach.locked + s.pending + device >= s.asked:
        return "mixed"
    return "demand"


def _finding(snapshot: Snapshot, timeline: DeviceTimeline, group: list[int]) -> Finding:
    event = group[0]
    s, state = shortage(timeline, event)
    why = verdict(s)
    names = names_of(snapshot)
    live = live_at(timeline.allocations, event)
    pins = pinning_stacks(timeline, state, names) if why in ("fragmentation", "mixed") else []
    stack = int(timeline.events["stack"][event])
    evidence: dict[str, Any] = {
        "verdict": why,
        "events": group,
        "asked": [int(timeline.events["size"][e]) for e in group],
        "asked_bytes": s.asked,
        "device_free_bytes": s.device_free,
        "device_piece_bytes": s.piece,
        "reserved_bytes": s.reserved,
        "allocated_bytes": s.allocated,
        "unused_bytes": s.unused,
        "rounding_bytes": s.rounding,
        "own_hole_bytes": s.reach.own,
        "other_stream_bytes": s.reach.other_stream,
        "other_pool_bytes": s.reach.other_pool,
        "other_size_bytes": s.reach.other_size,
        "wholly_free_bytes": s.wholly_free,
        "pending_free_bytes": s.pending,
        "largest_own_hole_bytes": s.reach.largest_own,
        "largest_hole_bytes": s.reach.largest,
        "expandable_segments": expandable_setting(timeline),
        "stack": stack,
        "function": names.function(stack),
        "categories": by_category(live),
        "stacks": by_stack(live, names),
        "pinning_stacks": pins,
    }
    return Finding(
        kind="oom",
        device=timeline.device,
        severity="error",
        title=_title(timeline, event, s, why),
        detail=_detail(s, evidence),
        bytes=s.asked,
        event=event,
        stack=stack or None,
        evidence=evidence,
        basis=_basis(timeline, event, s),
        confidence=_confidence(timeline, event, s, why),
        link={"view": "timeline" if why in ("demand", "limit") else "segments", "at": event, "query": f"live:{event}"},
    )


def _title(timeline: DeviceTimeline, event: int, s: Shortage, why: Verdict) -> str:
    name = device_name(timeline.kind, timeline.device)
    text = f"{name} ran out of memory at event {count_text(event)}: asked for {bytes_text(s.asked)}"
    device = "" if s.device_free is None else f", {bytes_text(s.device_free)} free on the device"
    free = s.reach.own + s.reach.locked
    if why == "fragmentation":
        text += f"; {bytes_text(s.reach.own)} were reserved and free{device}"
        return f"{text}, but the largest hole was {bytes_text(s.reach.largest_own)}: fragmentation"
    if why == "pool-locked":
        return (
            f"{text}; {bytes_text(s.reach.locked)} were reserved and free{device}, but in pools that this request "
            "may not use"
        )
    if why == "mixed":
        return (
            f"{text}; {bytes_text(free)} were reserved and free{device}, but in pieces and in pools that it may not use"
        )
    if why == "limit":
        text += f" although {bytes_text(s.device_free or 0)} were free on the device"
        return f"{text}: a limit of the process, or the driver refused"
    if why == "unclear":
        text += f" although a hole of {bytes_text(s.reach.largest_own)} was reserved and free"
        return f"{text}: the record does not say why it was not used"
    short = s.asked - (s.device_free or 0) - free - s.pending
    text += f"{device}, {bytes_text(s.allocated)} allocated and {bytes_text(free)} reserved and free"
    return f"{text}: {bytes_text(short)} more than there was in any form"


def _detail(s: Shortage, evidence: dict[str, Any]) -> list[str]:
    lines = []
    parts = [
        f"{bytes_text(value)} {words}"
        for value, words in (
            (s.reach.own, f"in holes that the request could use, the largest {bytes_text(s.reach.largest_own)}"),
            (s.reach.other_stream, "held for other streams"),
            (s.reach.other_pool, "in private pools"),
            (s.reach.other_size, "in the pool for requests of the other size"),
            (s.rounding, "of rounding inside blocks"),
        )
        if value > 0
    ]
    if parts:
        lines.append(f"{bytes_text(s.unused)} were reserved but not allocated: {told(parts)}.")
    if s.device_free is not None and s.asked <= s.device_free < (s.piece or 0):
        lines.append(
            f"The allocator takes memory from the device in pieces, for this request {bytes_text(s.piece or 0)}: "
            f"more than the {bytes_text(s.device_free)} that were free there."
        )
    if s.pending:
        lines.append(f"{bytes_text(s.pending)} waited for another stream to be free.")
    top = evidence["stacks"][0] if evidence["stacks"] else None
    if top:
        categories = [
            f"{share_text(row['bytes'], s.allocated)} {row['category']}" for row in evidence["categories"][:3]
        ]
        lines.append(f"Live then: {told(categories)}; most by {top['function']}, {bytes_text(top['bytes'])}.")
    if evidence["stack"]:
        lines.append(f"The request came from {evidence['function']}.")
    if evidence["pinning_stacks"]:
        pin = evidence["pinning_stacks"][0]
        where = f"{plural(pin['segments'], 'segment')} kept by {pin['function']} alone"
        lines.append(f"{bytes_text(pin['free_bytes'])} of the holes are in {where}.")
        if evidence["expandable_segments"] is not True:
            lines.append("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins what is free across segments.")
    if len(evidence["events"]) > 1:
        least, most = bytes_text(min(evidence["asked"])), bytes_text(max(evidence["asked"]))
        sizes = least if least == most else f"{least} to {most}"
        lines.append(f"It failed {len(evidence['events'])} times at nearly the same moment, for {sizes}.")
    return lines


def _basis(timeline: DeviceTimeline, event: int, s: Shortage) -> list[str]:
    lines = basis_of(timeline) + block_doubts(timeline, event)
    if s.device_free is None:
        lines.append("How much was free on the device was not recorded; it is counted as nothing.")
    lines.append("What other processes held on the device is not recorded.")
    if timeline.events["pool"][event] is None:
        lines.append(f"The pool of the request was not recorded; it is taken for the default one {DEFAULT_POOL}.")
    return lines


def _confidence(timeline: DeviceTimeline, event: int, s: Shortage, why: Verdict) -> Confidence:
    if why in ("limit", "unclear"):
        return "guess"
    adds_up = s.allocated + s.rounding + s.reach.own + s.reach.locked == s.reserved
    exact = s.device_free is not None and not timeline.reconciliation_bytes and adds_up
    return "sure" if exact and not block_doubts(timeline, event) else "likely"
