"""A snapshot as text for a terminal: the headline, findings, numbers, the largest stacks, settings, the recording."""

from __future__ import annotations

from typing import Any

from snapreport import terminal
from snapreport.contracts import plain
from snapreport.findings.diagnosis import diagnosis
from snapreport.findings.model import Finding
from snapreport.findings.peak import composition
from snapreport.findings.remedy_place import remedy_sentence
from snapreport.findings.run import findings
from snapreport.number_format import bytes_text, device_name, upper_first
from snapreport.report.about_recording import assurances, doubts
from snapreport.report.finding_cards import rank
from snapreport.report.module_lines import module_cells, modules_title
from snapreport.report.stack_lines import stack_lines
from snapreport.report.step_lines import device_steps
from snapreport.report.summary import file_line, shown_notes, shown_settings
from snapreport.report.time_lines import time_lines
from snapreport.sentence import joined
from snapreport.snapshot import Snapshot
from snapreport.terminal import wrapped
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.recording_gaps import has_history, lost_peaks
from snapreport.timeline.time_costs import run_costs

_ADVICE = 3
"""Suggestions shown with their reasons, the largest saving first; the others show only the title."""
_LABELS = {"reconciliation_bytes": "mismatch with final state"}
_OF_TRACE = "trace_peak_allocated_bytes"
_LEFT_OUT = ("device", "kind", "top_stacks_at_peak", "modules", "modules_source", _OF_TRACE)
# Absent from a profiler trace.
_OF_ALLOCATOR = (
    "max_memory_allocated_bytes", "segments", "trace_overflowed", "reconciliation_bytes", "start_reserved_bytes",
    "end_reserved_bytes", "peak_reserved_bytes", "oom_events",
)  # fmt: skip


def stats_text(snapshot: Snapshot) -> str:
    """Everything that ``snapreport stats`` prints for one snapshot."""
    recording, found = snapshot.recording, findings(snapshot)
    lines = [file_line(recording)]
    devices = [
        t for t in map(snapshot.timeline, snapshot.devices) if len(t.events) or len(t.allocations) or t.reserved.any()
    ]
    if not devices:
        return terminal.lines([*lines, "No events and no memory were recorded."])
    for timeline in devices:
        lines += ["", *_findings(found, timeline)]
    left_out = (*_LEFT_OUT, *_OF_ALLOCATOR) if recording.is_profiled else _LEFT_OUT
    lines += ["", *_numbers([plain(timeline.counted_stats) for timeline in devices], left_out)]
    for timeline in devices:
        lines += _steps(snapshot, timeline)
        lines += _stacks(snapshot, timeline)
        lines += _modules(timeline)
    if not recording.is_profiled:
        settings = shown_settings(recording.settings)
        lines += ["", "Allocator settings that are not the default"]
        lines += [f"  {key} = {value}" for key, value in settings] or ["  none recorded"]
    for timeline in devices:
        lines += ["", f"About this recording ({device_name(timeline.kind, timeline.device)})"]
        lines += [part for line in (*doubts(timeline), *assurances(timeline)) for part in wrapped(line, "  - ", "    ")]
    lines += [part for note in shown_notes(recording.notes) for part in wrapped(upper_first(note), "  - ", "    ")]
    if costs := run_costs([snapshot.timeline(device) for device in snapshot.devices]):
        lines += ["", *time_lines(costs)]
    return terminal.lines(lines)


def _findings(found: list[Finding], timeline: DeviceTimeline) -> list[str]:
    """The diagnosis; then errors, the peak, warnings, advice, and memory that is new at the end."""
    here = sorted((f for f in found if f.device == timeline.device), key=rank)
    here.sort(key=lambda f: (f.severity != "error", f.kind != "peak"))
    brief = [id(f) for f in here if f.kind == "advice"][_ADVICE:]
    lines = wrapped(joined(each.text for each in diagnosis(found, timeline.device)))
    lines += [""] if lines else []
    for finding in here:
        mark = {"error": "ERROR  ", "warning": "WARNING  "}.get(finding.severity, "")
        lines += wrapped(f"{mark}{finding.title}  [{finding.confidence}]", "", "    ")
        sentences = [composition(finding.evidence)] if finding.kind == "peak" else []
        if id(finding) not in brief:
            lines += wrapped(" ".join([*sentences, *finding.detail, remedy_sentence(finding)]), "    ", "    ")
    return lines


def _numbers(devices: list[dict[str, Any]], left_out: tuple[str, ...]) -> list[str]:
    """A table with a column per device."""
    keys = [key for key in devices[0] if key not in left_out]
    rows = [["", *(device_name(d["kind"], d["device"]) for d in devices)]]
    rows += [
        [_LABELS.get(key, key.removesuffix("_bytes").replace("_", " ")), *(_cell(key, d[key]) for d in devices)]
        for key in keys
    ]
    if any(_OF_TRACE in d for d in devices):
        rows.append(["peak of the trace", *(bytes_text(d.get(_OF_TRACE, d["peak_allocated_bytes"])) for d in devices)])
    return terminal.aligned(rows)


def _stacks(snapshot: Snapshot, timeline: DeviceTimeline) -> list[str]:
    lines = stack_lines(snapshot, timeline)
    if not lines:
        return []
    when = "at the peak" if has_history(timeline) else "in the final state"
    when = "at the peak of the trace" if lost_peaks(timeline) else when
    title = f"Largest stacks {when} of {device_name(timeline.kind, timeline.device)}"
    return ["", title] + [
        f"{line.size:>10}  {line.share:>5}  {line.count:>7,}×  {line.frames}{f' +{line.hidden}' if line.hidden else ''}"
        for line in lines
    ]


def _steps(snapshot: Snapshot, timeline: DeviceTimeline) -> list[str]:
    text = device_steps(snapshot, timeline)
    return ["", *wrapped(f"Steps of {device_name(timeline.kind, timeline.device)}: {text}", "", "  ")] if text else []


def _modules(timeline: DeviceTimeline) -> list[str]:
    stats = timeline.stats
    if not (title := modules_title(stats, f" of {device_name(timeline.kind, timeline.device)}")):
        return []
    return ["", title, *terminal.aligned(module_cells(stats.modules or [], timeline.peak_bytes))]


def _cell(key: str, value: Any) -> str:
    if key == "reconciliation_bytes":
        return "none" if value == 0 else bytes_text(value)
    if key.endswith("_bytes"):
        return bytes_text(value)
    if key == "trace_overflowed":
        return {True: "yes", False: "no", None: "not recorded"}[value]
    if isinstance(value, list):
        return ", ".join(f"{v:,}" for v in value[:5]) + (" …" if len(value) > 5 else "") if value else "none"
    return f"{value:,}"
