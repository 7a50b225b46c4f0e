"""Out-of-memory errors: which failures are one, and the request, the free memory and the pass of each."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.contracts.finding import Confidence, Evidence, Link
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.attention_scores import MATH_KERNEL
from snapreport.findings.basis import basis_of, block_doubts
from snapreport.findings.cut_off_pass import cut_off
from snapreport.findings.fragmentation import expandable_setting, pinning_stacks
from snapreport.findings.live import (
    MOST,
    by_category,
    by_stack,
    live_at,
    names_of,
)
from snapreport.findings.longer_step import longer_step
from snapreport.findings.memory_needed import memory_needed
from snapreport.findings.model import Finding, FindingKind
from snapreport.findings.oom_sentences import OomEvidence, oom_basis, oom_detail, oom_title, outside_at
from snapreport.findings.shortage import (
    Shortage,
    Verdict,
    is_full,
    segment_of,
    shortage,
    verdict,
)
from snapreport.number_format import plural
from snapreport.sentence import bytes_part, device_part, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_TRACED
from snapreport.timeline.phases import BACKWARD, FORWARD, OPTIMIZER_STEP, PHASES, stack_phases

NEAR_EVENTS, NEAR_US = 1000, 1_000_000
"""Failures no further apart than this, in events and in microseconds, are one: a program that tries again."""

_ADAM_STATES = 2
"""Of Adam, for each parameter; others have one or none."""
_ADAPTERS = r"(?i)/peft/|lora"


class MoreOomsEvidence(Evidence):
    """The failures beyond the first few."""

    events: list[int]


def oom_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """One for each failure, those at nearly the same moment as one; the first ``MOST`` and a word on how many more."""
    groups = retries(timeline)
    found = [_finding(snapshot, timeline, group) for group in groups[:MOST]]
    if len(groups) > MOST:
        name = device_part(timeline.kind, timeline.device)
        more = sentence("{name} ran out of memory another {}", plural(len(groups) - MOST, "time"), name=name)
        evidence = MoreOomsEvidence([group[0] for group in groups[MOST:]])
        event = groups[MOST][0]
        link = Link(view="events", at=event)
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


def _finding(snapshot: Snapshot, timeline: DeviceTimeline, group: list[int]) -> Finding:
    event = group[0]
    s, state = shortage(timeline, event)
    why = verdict(s)
    names = names_of(snapshot)
    live = live_at(timeline.allocations, event)
    pins = pinning_stacks(timeline, state, names) if why in ("fragmentation", "mixed") else []
    stack = int(timeline.events["stack"][event])
    context = AdviceContext(snapshot, timeline, [])
    cut = cut_off(context, event)
    outside = outside_at(timeline, event, s)
    available = s.allocated + (s.device_free or 0) + s.free_memory.usable + s.free_memory.locked
    evidence = OomEvidence(
        verdict=why,
        events=group,
        requested=[int(timeline.events["size"][e]) for e in group],
        requested_bytes=s.requested,
        device_free_bytes=s.device_free,
        new_segment_bytes=s.segment_size,
        reserved_bytes=s.reserved,
        allocated_bytes=s.allocated,
        unused_bytes=s.unused,
        rounding_bytes=s.rounding,
        usable_free_bytes=s.free_memory.usable,
        other_stream_bytes=s.free_memory.other_stream,
        other_pool_bytes=s.free_memory.other_pool,
        other_size_bytes=s.free_memory.other_size,
        free_segment_bytes=s.free_segments,
        pending_free_bytes=s.pending,
        largest_usable_free_bytes=s.free_memory.largest_usable,
        largest_free_bytes=s.free_memory.largest,
        expandable_segments=expandable_setting(timeline),
        stack=stack,
        function=names.function(stack),
        line=names.line(stack),
        in_math_kernel=bool(context.functions(MATH_KERNEL)[stack]),
        segment_bytes=segment_of(s.requested),
        device_full=is_full(s),
        categories=by_category(live),
        stacks=by_stack(live, names),
        pinning_stacks=pins,
        phase=PHASES[int(stack_phases(snapshot.recording).innermost[stack])],
        layer=cut.layer,
        layers=cut.layers,
        missing_bytes=max(0, cut.needed - available),
        outside_bytes=outside and outside[0],
        device_bytes=outside and outside[1],
        other_processes_bytes=outside and outside[2],
    )
    needed = memory_needed(timeline) if event == timeline.oom_events[0] else None
    return Finding(
        kind="oom",
        device=timeline.device,
        severity="error",
        title=oom_title(timeline, s, why),
        detail=oom_detail(
            s, why, evidence, names, longer_step(timeline, event, "this"), _first_step_bytes(snapshot, timeline, event)
        )
        + _state_to_come(context, event)
        + ([needed.sentence] if needed is not None else []),
        bytes=s.requested,
        event=event,
        stack=stack or None,
        evidence=evidence,
        basis=oom_basis(timeline, event, s),
        confidence=_confidence(timeline, event, s, why),
        link=Link(view="timeline" if why in ("demand", "limit") else "segments", at=event, query=f"live:{event}"),
    )


def _first_step_bytes(snapshot: Snapshot, timeline: DeviceTimeline, event: int) -> int:
    """Bytes of optimizer state at ``event``, where the program's first optimizer step runs there; else 0."""
    live = live_at(timeline.allocations, event).filter(pl.col("category") == "optimizer state")
    phase = stack_phases(snapshot.recording).innermost[timeline.events["stack"].to_numpy()[: event + 1]]
    if phase[event] != OPTIMIZER_STEP or not len(live) or timeline.recording_gaps:
        return 0
    computed = np.flatnonzero(np.isin(phase, (FORWARD, BACKWARD)))
    begins = computed[-1] if len(computed) else event
    earlier = int(live["alloc_event"].to_numpy().min()) < begins or bool((phase[:begins] == OPTIMIZER_STEP).any())
    return 0 if earlier else int(live["size"].sum())


def _state_to_come(context: AdviceContext, event: int) -> list[str]:
    """What an optimizer adds to a pass that memory runs out in before the first optimizer step: a smaller pass may fit,
    and its step fail. Nothing is said where older memory than the trace may be state.
    """
    timeline = context.recorded
    live = live_at(timeline.allocations, event)
    weights = int(live.filter(pl.col("category") == "parameter")["size"].sum())
    older = int(live.filter((pl.col("category") != "parameter") & ~IS_TRACED)["size"].sum())
    phase = stack_phases(context.recording).innermost[timeline.events["stack"].to_numpy()[: event + 1]]
    is_later = (phase == OPTIMIZER_STEP).any() or context.category("optimizer state").any()
    if not context.trains or is_later or timeline.recording_gaps or older >= weights:
        return []
    # Adapters leave most weights as they are.
    if not context.is_much(_ADAM_STATES * weights) or context.occurs(context.frames(_ADAPTERS)):
        return []
    text = "No optimizer step has run: Adam's state, two numbers for each weight that is trained, takes up to {} more."
    return [sentence(text, bytes_part(_ADAM_STATES * weights))]


def _confidence(timeline: DeviceTimeline, event: int, s: Shortage, why: Verdict) -> Confidence:
    if why in ("limit", "unclear"):
        return "estimate"
    adds_up = s.allocated + s.rounding + s.free_memory.usable + s.free_memory.locked == s.reserved
    exact = s.device_free is not None and not timeline.reconciliation_bytes and adds_up
    return "measured" if exact and not block_doubts(timeline, event) else "inferred"


OOM = FindingKind("oom", "Out of memory", (OomEvidence, MoreOomsEvidence), oom_findings)
