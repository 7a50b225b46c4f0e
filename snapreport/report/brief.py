"""A snapshot in a few lines: for a log, a chat, or a program that reads with care for its context."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec import UNSET
from msgspec.structs import replace

from snapreport import terminal
from snapreport.contracts import json_text
from snapreport.contracts.brief import (
    BriefDevice,
    BriefFile,
    BriefFinding,
    BriefSaving,
    BriefStack,
)
from snapreport.contracts.finding import Finding
from snapreport.findings.live import names_of
from snapreport.findings.run import findings
from snapreport.number_format import arrow_text, bytes_text, device_name, plural
from snapreport.report.activity_text import activity_text
from snapreport.report.finding_cards import rank
from snapreport.report.summary import summarise
from snapreport.snapshot import Snapshot
from snapreport.terminal import wrapped
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import is_live_at
from snapreport.timeline.own_code import frame_line, own_code, stack_names
from snapreport.timeline.step_memory import step_memory

MOST_BYTES = 8_000
"""Of the JSON of one snapshot."""
MOST_TEXT = 2_000
_FINDINGS, _STACKS, _STEPS, _DEVICES = 10, 10, 12, 8
_CALLERS = 2
_LONG = 240  # characters of a sentence; paths and generated names can be any length


def brief(snapshot: Snapshot) -> BriefFile:
    """At most :data:`MOST_BYTES` of JSON: what matters least is left out, and counted."""
    summary = summarise([snapshot], snapshot.recording.path)
    every = findings(snapshot)
    timelines = [t for t in map(snapshot.timeline, snapshot.devices) if len(t.events) or len(t.allocations)]
    timelines.sort(key=lambda t: (not t.oom_events, -t.peak_bytes))
    devices = [_device(snapshot, timeline, every) for timeline in timelines]
    document = BriefFile(
        snapshot.recording.path, [_short(line, 2 * _LONG) for line in summary.headline_text], devices[:_DEVICES], {}
    )
    left_out = {
        "devices": len(devices) - len(document.devices),
        "findings": sum(sum(f.device == d.device for f in every) - len(d.findings) for d in document.devices),
    }
    if len(json_text(document, indent=None)) > MOST_BYTES - 100:
        for device in document.devices:
            device.findings = [replace(finding, detail=_short(finding.detail)) for finding in device.findings]
    while len(json_text(document, indent=None)) > MOST_BYTES - 100 and (what := _drop(document)):
        left_out[what] = left_out.get(what, 0) + 1
    document.left_out = {what: count for what, count in left_out.items() if count}
    return document


def _drop(document: BriefFile) -> str:
    """Leaves out one thing, of the last device that has enough of them: stacks, steps, the last findings, whole
    devices. The device that failed, or has the highest peak, comes first and keeps most.
    """
    for what, keep in (("stacks", 5), ("steps", 4), ("findings", 5), ("stacks", 1), ("steps", 0), ("findings", 2)):
        for device in reversed(document.devices):
            if len(getattr(device, what)) > keep:
                getattr(device, what).pop(0 if what == "steps" else -1)
                return what
    if len(document.devices) > 1:
        document.devices.pop()
        return "devices"
    return ""


def _device(snapshot: Snapshot, timeline: DeviceTimeline, every: Sequence[Finding]) -> BriefDevice:
    stats = timeline.counted_stats
    gaps = timeline.recording_gaps
    here = sorted((f for f in every if f.device == timeline.device and f.kind != "peak"), key=rank)
    here.sort(key=lambda f: ("error", "warning", "info").index(f.severity))
    return BriefDevice(
        device=stats.device,
        kind=stats.kind,
        activity=activity_text(timeline.activity),
        is_lower_bound=bool(gaps),
        missing=_short(gaps[0].sentence) if gaps else "",
        events=stats.events,
        allocations=stats.allocations,
        start_allocated_bytes=stats.start_allocated_bytes,
        peak_allocated_bytes=stats.peak_allocated_bytes,
        peak_reserved_bytes=stats.peak_reserved_bytes,
        end_allocated_bytes=stats.end_allocated_bytes,
        peak_event=stats.peak_event,
        oom_events=stats.oom_events[:5],
        categories=_categories(timeline),
        steps=step_memory(timeline)[-_STEPS:],
        findings=[_finding(finding) for finding in here[:_FINDINGS]],
        stacks=_stacks(snapshot, timeline),
        trace_peak_allocated_bytes=stats.trace_peak_allocated_bytes,
    )


def _categories(timeline: DeviceTimeline) -> dict[str, int]:
    """Bytes at the peak, most first."""
    live = timeline.allocations.filter(is_live_at(timeline.peak_event))
    sums = live.group_by(pl.col("category").cast(pl.String)).agg(pl.col("size").sum())
    return dict(sums.sort("size", "category", descending=True).iter_rows())


def _finding(finding: Finding) -> BriefFinding:
    evidence = finding.evidence
    saving = evidence.get("saving")
    return BriefFinding(
        kind=finding.kind,
        severity=finding.severity,
        rule=evidence.get("rule"),
        title=_short(finding.title),
        detail=_short(" ".join(finding.detail), 3 * _LONG),
        where=evidence.get("where"),
        line=evidence.get("line") if finding.kind == "advice" else None,
        remedy=evidence.get("term"),
        effort=evidence.get("effort"),
        saving=BriefSaving(saving["peak_bytes"], saving["saves_bytes"], bool(saving.get("is_lower_bound")))
        if saving
        else None,
        confidence=finding.confidence,
        event=finding.event,
        stack=finding.stack,
    )


def _stacks(snapshot: Snapshot, timeline: DeviceTimeline) -> list[BriefStack]:
    recording = snapshot.recording
    names, is_own, place = names_of(snapshot), own_code(recording), stack_names(recording).place
    found = []
    for row in timeline.top_stacks[:_STACKS]:
        stack = row["stack"]
        frames = recording.stack(stack)
        callers = [frame for frame in frames[int(place[stack]) + 1 :] if is_own[frame]][:_CALLERS]
        lines = [names.line(stack), *(frame_line(recording, frame) for frame in callers)]
        found.append(BriefStack(stack, row["bytes"], row["count"], [_short(str(line)) for line in lines]))
    return found


def _short(text: str, most: int = _LONG) -> str:
    """Cut behind a word, if one ends in the last third of what may be said."""
    if len(text) <= most:
        return text
    return f"{text[: max(text.rfind(' ', 2 * most // 3, most - 1), 0) or most - 1]}…"


def brief_text(snapshot: Snapshot) -> str:
    """The same for people, in at most :data:`MOST_TEXT` characters: the headline, then what to do, then what holds."""
    document = brief(snapshot)
    lines = [snapshot.recording.name, *(part for line in document.headline for part in wrapped(line))]
    said = " ".join(document.headline)
    several = len(document.devices) > 1
    for device in document.devices[:1]:
        lines += wrapped(device.activity)
    for device in document.devices:
        name = f"{device_name(device.kind, device.device)}: " if several else ""
        for finding in [finding for finding in device.findings if finding.title not in said][:5]:
            lines += wrapped(f"- {name}{_line(finding, device)}", further="  ")
        if device.stacks:
            first = device.stacks[0]
            when = "at the peak" if device.events else "in the final state"
            when += " of the trace" if device.trace_peak_allocated_bytes is not UNSET else ""
            held = f"{name}largest {when}: {bytes_text(first.bytes)} by {first.lines[0]}"
            lines += wrapped(f"- {held}", further="  ")
        if device.missing:
            lines += wrapped(f"- {name}{device.missing}", further="  ")
    text = [lines[0]]
    for number, line in enumerate(lines[1:], 1):
        if sum(map(len, text)) + len(text) + len(line) > MOST_TEXT - 60:
            text.append(f"… and {plural(len(lines) - number, 'more line')}; `snapreport stats` has them")
            break
        text.append(line)
    return terminal.lines(text)


def _line(finding: BriefFinding, device: BriefDevice) -> str:
    parts = [finding.title]
    if finding.saving and "→" not in finding.title:
        before = finding.saving.peak_bytes + finding.saving.saves_bytes
        parts.append(f"peak {arrow_text(before, finding.saving.peak_bytes)}")
    if finding.where:
        parts.append(finding.where.rpartition("/")[2])
    if finding.effort:
        parts.append(finding.effort)
    return f"{', '.join(parts)} [{finding.confidence}]"
