"""A snapshot in Markdown, for a ticket: numbers, findings, top stacks."""

from __future__ import annotations

import numpy as np

from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.number_format import bytes_text, count_text, device_name, share_text
from snapreport.report.attribution import NO_NAMES, breakdowns, in_words
from snapreport.report.finding_cards import rank
from snapreport.report.markdown import code_cell, escape
from snapreport.timeline.build import DeviceTimeline, Snapshot
from snapreport.timeline.own_code import own_functions

_BARS = "▁▂▃▄▅▆▇█"
_CHART = 60
_STACKS = 5
_ADVICE = 3
_PARTS = 3


def ticket_markdown(snapshot: Snapshot) -> str:
    """One section per device with data."""
    lines = [f"## Memory of {code_cell(snapshot.recording.name)}", ""]
    found = findings(snapshot)
    devices = [
        t for t in map(snapshot.timeline, snapshot.devices) if len(t.events) or len(t.allocations) or t.reserved.any()
    ]
    if not devices:
        return "\n".join([*lines, "No events and no memory were recorded.", ""])
    lines += [
        "| Device | Peak allocated | Peak reserved | At the end | Events | Allocations | OOMs |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {device_name(t.kind, t.device)} | {bytes_text(t.peak_bytes)} | {bytes_text(int(t.reserved.max()))} | "
        f"{bytes_text(int(t.allocated[-1]))} | {count_text(len(t.events))} | {count_text(len(t.allocations))} | "
        f"{len(t.oom_events)} |"
        for t in devices
    ]
    for timeline in devices:
        lines += [
            "",
            f"### {device_name(timeline.kind, timeline.device)}",
            "",
            f"`{_chart(timeline.allocated)}` allocated over the events",
            "",
        ]
        here = sorted((f for f in found if f.device == timeline.device), key=rank)
        lines += _finding_lines(here)
        lines += [line for f in here if f.kind == "peak" for line in _peak_lines(f)]
        lines += _stack_lines(snapshot, timeline)
    return "\n".join([*lines, ""])


def _finding_lines(found: list[Finding]) -> list[str]:
    lines, advice = [], 0
    for finding in found:
        advice += finding.kind == "advice"
        if finding.kind == "advice" and advice > _ADVICE:
            continue
        mark = {"error": "❌ ", "warning": "⚠️ "}.get(finding.severity, "")
        detail = escape(" ".join(finding.detail))
        lines.append(f"- {mark}**{escape(finding.title)}**{f'  {detail}' if detail else ''}")
    return [*lines, ""]


def _peak_lines(peak: Finding) -> list[str]:
    """What the peak is made of, a line for each way to part it."""
    words, lines = in_words(peak), []
    for part in breakdowns(peak):
        word = escape if part.key == "category" else code_cell
        told = ", ".join(f"{size} ({share}) {word(what)}" for size, share, what in part.rows[:_PARTS])
        more = ", …" if len(part.rows) > _PARTS else "."
        lines.append(f"- {part.title}: {told}{more}{f' {NO_NAMES}' if part.key == 'module' else ''}")
    lines += [f"- {escape(words)}"] if words else []
    return ["At the peak:", "", *lines, ""] if lines else []


def _stack_lines(snapshot: Snapshot, timeline: DeviceTimeline) -> list[str]:
    if not timeline.top_stacks:
        return []
    names = own_functions(snapshot.recording)
    lines = ["| At the peak | Share | Allocations | From |", "|---|---|---|---|"]
    return lines + [
        f"| {bytes_text(row['bytes'])} | {share_text(row['bytes'], timeline.peak_bytes)} | {count_text(row['count'])} "
        f"| {code_cell(names[row['stack']] or 'no frames')} |"
        for row in timeline.top_stacks[:_STACKS]
    ]


def _chart(allocated: np.ndarray) -> str:
    """The curve as a line of bars: the most of each stretch."""
    edges = np.unique(np.linspace(0, len(allocated), min(_CHART, len(allocated)) + 1).astype(np.int64))
    most = np.maximum.reduceat(allocated, edges[:-1])
    top = max(1, int(most.max()))
    return "".join(_BARS[min(len(_BARS) - 1, int(value * len(_BARS) // (top + 1)))] for value in most.tolist())
