"""A snapshot in Markdown, for a ticket: findings, numbers, and the largest stacks at the peak."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from snapreport.findings.diagnosis import diagnosis
from snapreport.findings.model import Finding
from snapreport.findings.peak import composition
from snapreport.findings.remedy_place import remedy_sentence
from snapreport.findings.run import findings
from snapreport.number_format import bytes_text, count_text, device_name, plural
from snapreport.report.about_recording import assurances, doubts
from snapreport.report.attribution import NO_NAMES, breakdown_text, breakdowns, has_names
from snapreport.report.finding_cards import rank
from snapreport.report.markdown import code_cell, escape, place, prose
from snapreport.report.module_lines import module_cells, modules_title
from snapreport.report.source_links import REPOSITORY_LINKS, SourceLinks
from snapreport.report.stack_lines import stack_lines
from snapreport.report.step_lines import device_steps
from snapreport.sentence import joined
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

_BARS = "▁▂▃▄▅▆▇█"
_CHART = 60
_STACKS = 5
_ADVICE = 3
_PARTS = 3


def ticket_markdown(snapshot: Snapshot, links: SourceLinks = REPOSITORY_LINKS) -> str:
    """One section per device with data. ``links``: addresses of lines."""
    lines = [f"## Memory of {code_cell(snapshot.recording.name)}", ""]
    found = findings(snapshot)
    addresses = links.of(snapshot.recording)
    devices = [
        t for t in map(snapshot.timeline, snapshot.devices) if len(t.events) or len(t.allocations) or t.reserved.any()
    ]
    if not devices:
        return "\n".join([*lines, "No events and no memory were recorded.", ""])
    lines += [
        "| Device | Peak allocated | max_memory_allocated() | Peak reserved "
        "| At the end | Events | Allocations | OOMs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_numbers(t, found) for t in devices]
    for timeline in devices:
        name = device_name(timeline.kind, timeline.device)
        said = prose(joined(each.text for each in diagnosis(found, timeline.device)), addresses)
        lines += ["", f"### {name}", "", *([said, ""] if said else [])]
        lines += [f"`{_chart(timeline.allocated)}` allocated over the events", ""]
        here = sorted((f for f in found if f.device == timeline.device), key=rank)
        lines += _finding_lines(here, addresses)
        lines += [line for f in here if f.kind == "peak" for line in _peak_lines(f, addresses)]
        if said := device_steps(snapshot, timeline):
            lines += [escape(said), ""]
        lines += _stack_lines(snapshot, timeline, addresses)
        lines += _module_lines(timeline)
        lines += ["", "About this recording:", ""]
        lines += [f"- {prose(line)}" for line in (*doubts(timeline), *assurances(timeline))]
    return "\n".join([*lines, ""])


def _numbers(timeline: DeviceTimeline, found: list[Finding]) -> str:
    peak = next((f for f in found if f.kind == "peak" and f.device == timeline.device), None)
    counted = peak.evidence["max_memory_allocated_bytes"] if peak else None
    is_profiled, stats = timeline.recording.is_profiled, timeline.counted_stats
    cells = [
        device_name(timeline.kind, timeline.device),
        bytes_text(stats.peak_allocated_bytes),
        "–" if counted is None else bytes_text(counted),
        bytes_text(stats.peak_reserved_bytes) if timeline.reserved.any() or not is_profiled else "–",
        bytes_text(int(timeline.allocated[-1])),
        count_text(len(timeline.events)),
        count_text(len(timeline.allocations)),
        str(len(timeline.oom_events)),
    ]
    return f"| {' | '.join(cells)} |"


def _finding_lines(found: list[Finding], links: Mapping[str, str]) -> list[str]:
    """A list of all findings; suggestions after the first few are folded."""
    lines: list[str] = []
    folded: list[str] = []
    advice = 0
    for finding in found:
        advice += finding.kind == "advice"
        mark = {"error": "❌ ", "warning": "⚠️ "}.get(finding.severity, "")
        sentences = [composition(finding.evidence)] if finding.kind == "peak" else []
        remedy = remedy_sentence(finding)
        detail = prose(joined([*sentences, *finding.detail, *([remedy] if remedy else [])]), links)
        certainty = finding.confidence
        is_folded = finding.kind == "advice" and advice > _ADVICE
        line = f"- {mark}**{prose(finding.title, links)}** ({certainty}){f'. {detail}' if detail else ''}"
        (folded if is_folded else lines).append(line)
    if folded:
        summary = f"<details><summary>{plural(len(folded), 'more suggestion')}</summary>"
        lines += ["", summary, "", *folded, "", "</details>"]
    return [*lines, ""]


def _peak_lines(peak: Finding, links: Mapping[str, str]) -> list[str]:
    """The composition of the peak, a line per breakdown."""
    breakdown, lines = breakdown_text(peak), []
    note = "" if has_names(peak) else f" {escape(NO_NAMES)}"
    for part in breakdowns(peak):
        names = [escape(what) if part.key == "category" else place(what, links) for _, _, what in part.rows]
        shown = list(zip(part.rows, names, strict=True))[:_PARTS]
        largest = ", ".join(f"{size} ({share}) {name}" for (size, share, _), name in shown)
        more = ", …" if len(part.rows) > _PARTS else "."
        lines.append(f"- {part.title}: {largest}{more}{note if part.key == 'module' else ''}")
    lines += [f"- {prose(breakdown, links)}"] if breakdown else []
    return ["At the peak:", "", *lines, ""] if lines else []


def _stack_lines(snapshot: Snapshot, timeline: DeviceTimeline, links: Mapping[str, str]) -> list[str]:
    if not timeline.top_stacks:
        return []
    lines = ["| At the peak | Share | Allocations | From |", "|---|---|---|---|"]
    return lines + [
        f"| {line.size} | {line.share} | {count_text(line.count)} | {place(line.frames, links)} |"
        for line in stack_lines(snapshot, timeline)[:_STACKS]
    ]


def _chart(allocated: np.ndarray) -> str:
    """The curve as a line of bars: the maximum of each interval."""
    edges = np.unique(np.linspace(0, len(allocated), min(_CHART, len(allocated)) + 1).astype(np.int64))
    most = np.maximum.reduceat(allocated, edges[:-1])
    top = max(1, int(most.max()))
    return "".join(_BARS[min(len(_BARS) - 1, int(value * len(_BARS) // (top + 1)))] for value in most.tolist())


def _module_lines(timeline: DeviceTimeline) -> list[str]:
    """The tree of modules, folded away."""
    stats = timeline.stats
    if not (title := modules_title(stats)):
        return []
    head, *rows = module_cells(stats.modules or [], timeline.peak_bytes)
    lines = ["", f"<details><summary>{title}</summary>", "", f"| Module | {' | '.join(head[1:])} |"]
    lines.append(f"|---|{'---:|' * (len(head) - 1)}")
    lines += [
        f"| {'&nbsp;' * (len(name) - len(name.lstrip()))}{code_cell(name.lstrip())} | {' | '.join(cells)} |"
        for name, *cells in rows
    ]
    return [*lines, "", "</details>"]
