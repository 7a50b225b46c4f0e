"""Allocations of a trace that are still live at its end: the leaks among them, then all of them as a plain fact.

Allocations that outlive a trace are no leak by themselves: parameters and optimizer state of a run that was recorded
from its start, caches, and what a step in progress needs are live at its end, too. Only growth step by step says more,
see ``leaks.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from snapreport.contracts.finding import Evidence, Link
from snapreport.findings.allocation_growth import loop_memory, min_growth_bytes
from snapreport.findings.basis import basis_of
from snapreport.findings.leaks import TOO_FEW_STEPS, LeakVerdict, leak_findings, leak_verdict
from snapreport.findings.live import (
    CategoryRow,
    PlaceRow,
    StackRow,
    by_category,
    by_place,
    by_stack,
    category_text,
    names_of,
)
from snapreport.findings.model import Finding, FindingKind
from snapreport.findings.reference_cycles import cycle_findings
from snapreport.findings.repetition import Repetitions, growth_repetitions
from snapreport.number_format import plural, share_text
from snapreport.sentence import bytes_part, listed, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_FREED, IS_TRACED
from snapreport.timeline.phases import BACKWARD, FORWARD, OPTIMIZER_STEP, PHASES, ZERO_GRAD
from snapreport.timeline.recording_gaps import recording_end, recording_start

_MAX_LISTED = 3
_WHOLE_SHARE = 0.95
"""Of the bytes: a category with so many of them stands for all."""
_COMPUTING = (FORWARD, BACKWARD, OPTIMIZER_STEP, ZERO_GRAD)
"""Phases of programs that have steps."""


class LiveAtEndEvidence(Evidence):
    """Allocations of the trace that it did not free; ``older``: those from before it."""

    start_bytes: int
    end_bytes: int
    new_bytes: int
    new_count: int
    first_half_bytes: int
    older_bytes: int
    older_count: int
    leak_bytes: int
    steps: int | None
    categories: list[CategoryRow]
    stacks: list[StackRow]
    places: list[PlaceRow]


def end_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    """The leaks of one device, greatest first, hints of reference cycles, and what is new at the end."""
    leaks, verdict, repetitions = leaks_of(snapshot, timeline)
    return leaks + _new_at_end(snapshot, timeline, repetitions, leaks, verdict)


def leaks_of(snapshot: Snapshot, timeline: DeviceTimeline) -> tuple[list[Finding], LeakVerdict, Repetitions | None]:
    """The leaks and reference cycles of one device, and what the recording can say about leaks."""
    repetitions = growth_repetitions(timeline)
    names = names_of(snapshot)
    loop = loop_memory(timeline, repetitions) if repetitions and repetitions.is_loop else None
    leaks = leak_findings(loop, names)
    leaking = {row["stack"] for leak in leaks for row in leak.evidence["stacks"]}
    cycles = cycle_findings(timeline, names, repetitions, leaking)
    return leaks + cycles, leak_verdict(timeline, names, repetitions, loop, leaks), repetitions


def _new_at_end(
    snapshot: Snapshot,
    timeline: DeviceTimeline,
    repetitions: Repetitions | None,
    leaks: Sequence[Finding],
    verdict: LeakVerdict,
) -> list[Finding]:
    """None where less is new than the smallest leak."""
    live = timeline.allocations.filter(~IS_FREED)
    new = live.filter(IS_TRACED)
    size, older = int(new["size"].sum()), int(live["size"].sum())
    older -= size
    if size < min_growth_bytes(timeline):
        return []
    names = names_of(snapshot)
    last = len(timeline.events) - 1
    growing = [leak for leak in leaks if leak.severity != "info"]
    stacks = by_stack(new, names)
    evidence = LiveAtEndEvidence(
        start_bytes=int(timeline.allocated[0]),
        end_bytes=int(timeline.allocated[-1]),
        new_bytes=size,
        new_count=len(new),
        first_half_bytes=int(new["size"].filter(new["alloc_event"] < len(timeline.events) // 2).sum()),
        older_bytes=older,
        older_count=len(live) - len(new),
        leak_bytes=sum(leak.bytes - int(leak.evidence["freed_bytes"]) for leak in growing),
        steps=repetitions.count if repetitions else None,
        categories=by_category(new),
        stacks=stacks,
        places=by_place(new, names),
    )
    return [
        Finding(
            kind="live_at_end",
            device=timeline.device,
            severity="info",
            title=_title(timeline, evidence),
            detail=[*_growth(timeline, evidence, verdict), _largest(evidence), _age_text(timeline, evidence)],
            bytes=size,
            event=last,
            stack=stacks[0]["stack"],
            evidence=evidence,
            basis=basis_of(timeline),
            confidence="inferred" if timeline.reconciliation_bytes else "measured",
            link=Link(view="flame", at=last, query="origin:traced live:end"),
        )
    ]


def _title(timeline: DeviceTimeline, evidence: LiveAtEndEvidence) -> str:
    size, categories = evidence["new_bytes"], evidence["categories"]
    first = categories[0]
    since = "from this step" if len(timeline.steps) == 1 else "from this trace"
    text = sentence("{since} were still allocated {end}", since=since, end=recording_end(timeline))
    if first["bytes"] >= _WHOLE_SHARE * size:
        if first["category"] == "unknown":
            return sentence("{} {text}", bytes_part(size), text=text)
        name = category_text(first["category"])
        return sentence("{} of {name} {text}", bytes_part(size), name=name, text=text)
    shares = [
        sentence("{} {}", share_text(row["bytes"], size), category_text(row["category"]))
        for row in categories[:_MAX_LISTED]
        if row["bytes"] >= 0.01 * size
    ]
    return sentence("{} {text}: {}", bytes_part(size), listed(shares), text=text)


def _growth(timeline: DeviceTimeline, evidence: LiveAtEndEvidence, verdict: LeakVerdict) -> list[str]:
    """What is known of growth; nothing where the program has only built or loaded something."""
    if evidence["leak_bytes"]:
        return [sentence("{} of it leaked.", bytes_part(evidence["leak_bytes"]))]
    if verdict.status == "leak":
        return []  # all of it was freed after the loop
    computes = {*timeline.activity.events, *timeline.activity.outer} & {PHASES[phase] for phase in _COMPUTING}
    return [verdict.reason] if computes or verdict.reason != TOO_FEW_STEPS else []


def _largest(evidence: LiveAtEndEvidence) -> str:
    top = [
        sentence("{} ({} in {})", row["place"], bytes_part(row["bytes"]), plural(row["count"], "allocation"))
        for row in evidence["places"][:_MAX_LISTED]
    ]
    return sentence("Largest: {}.", listed(top))


def _age_text(timeline: DeviceTimeline, evidence: LiveAtEndEvidence) -> str:
    early, older, size = evidence["first_half_bytes"], evidence["older_bytes"], evidence["new_bytes"]
    part = (
        "All of it was" if early == size else "None of it was" if not early else sentence("{} were", bytes_part(early))
    )
    text = sentence("{part} allocated in the first half of the trace.", part=part)
    if not older:
        return text
    return sentence(
        "{text} Another {} were allocated {start}.", bytes_part(older), text=text, start=recording_start(timeline)
    )


LIVE_AT_END = FindingKind("live_at_end", "New at the end", (LiveAtEndEvidence,), end_findings, of_profile=True, rank=2)
"""And leaks: what grows is not merely new."""
