"""What a check says beside a pull request: annotations at lines of the program, and a chart that Markdown draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from snapreport.contracts.check import Check
from snapreport.findings.run import findings
from snapreport.number_format import device_name
from snapreport.report.finding_cards import rank
from snapreport.sentence import parts_of
from snapreport.snapshot import Snapshot
from snapreport.terminal import visible
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.own_code import own_code, own_frames

MOST_NOTICES = 3
_POINTS = 60  # of a line of the chart, each the highest of its events
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def workflow_commands(checks: Sequence[Check], snapshots: Sequence[Snapshot], checkout: Path) -> list[str]:
    """GitHub's workflow commands: an error for each check that did not pass, at the line that it names or that holds
    most at the peak, and notices for the best advice. Files are named relative to ``checkout`` where they are in it.
    """
    commands = []
    by_name = {snapshot.recording.name: snapshot for snapshot in snapshots}
    for check in checks:
        if check.passed:
            continue
        snapshot = by_name.get(check.file)
        place = _named_place(check) or (_largest_place(snapshot, check.device) if snapshot else None)
        text = check.unknown or "\n".join([check.message, *check.evidence])
        commands.append(_command("error", f"memory: {check.rule}", text, place, checkout))
    for snapshot in snapshots:
        advice = [f for f in findings(snapshot) if f.kind == "advice" and f.evidence.get("where")]
        for finding in sorted(advice, key=rank)[:MOST_NOTICES]:
            file, _, line = str(finding.evidence["where"]).rpartition(":")
            text = "\n".join([finding.title, *filter(None, [finding.evidence.get("line")])])
            place = (file, int(line)) if line.isdecimal() else None
            commands.append(_command("notice", "memory", text, place, checkout))
    return commands


def _named_place(check: Check) -> tuple[str, int] | None:
    parts = (part for text in (check.message, *check.evidence) for part in parts_of(text))
    return next(((part.file, part.line) for part in parts if part.file and part.line), None)


def _largest_place(snapshot: Snapshot, device: str) -> tuple[str, int] | None:
    """The program's own line that holds most at the peak."""
    recording = snapshot.recording
    frame_of, is_own = own_frames(recording), own_code(recording)
    for number in snapshot.devices:
        timeline = snapshot.timeline(number)
        if device_name(timeline.kind, number) != device:
            continue
        for stack in timeline.stacks_at_peak.sort("bytes", descending=True)["stack"]:
            frame = int(frame_of[stack])
            if stack and is_own[frame]:
                file, line = recording.frames.select("filename", "line").row(frame)
                return file, int(line or 0)
    return None


def _command(kind: str, title: str, text: str, place: tuple[str, int] | None, checkout: Path) -> str:
    properties = {"file": _in_checkout(place[0], checkout), "line": str(place[1])} if place else {}
    named = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in {**properties, "title": title}.items())
    return f"::{kind} {named}::{_escaped(text)}"


def _in_checkout(file: str, checkout: Path) -> str:
    """The longest end of a recorded path that is a file of the checkout: recordings come from other machines, too."""
    parts = PurePosixPath(file.replace("\\", "/")).parts
    for first in range(len(parts)):
        end = PurePosixPath(*parts[first:])
        if not end.is_absolute() and ".." not in end.parts and (checkout / end).is_file():
            return str(end)
    return file


def _escaped(text: str, more: str = "") -> str:
    """As GitHub's toolkit escapes: no line break of a recording begins a command of its own."""
    lines = "\n".join(map(visible, text.split("\n")))
    for character in "%\r\n" + more:
        lines = lines.replace(character, f"%{ord(character):02X}")
    return lines


def memory_charts(snapshots: Sequence[Snapshot]) -> str:
    """Allocated and reserved memory over the events as Mermaid charts, which GitHub and GitLab draw in comments."""
    timelines = [snapshot.timeline(device) for snapshot in snapshots for device in snapshot.devices]
    drawn = [timeline for timeline in timelines if len(timeline.events) > 1 and timeline.peak_bytes]
    return "\n".join(line for timeline in drawn for line in _chart(timeline))


def _chart(timeline: DeviceTimeline) -> Iterator[str]:
    unit, size = next((each for each in _UNITS if timeline.peak_bytes >= each[1]), _UNITS[-1])
    name = device_name(timeline.kind, timeline.device)
    top = max(int(timeline.reserved.max()), timeline.peak_bytes) / size
    yield from ("```mermaid", "xychart-beta", f'  title "{name}: reserved and allocated, {unit}"')
    yield from (f"  x-axis event 0 --> {len(timeline.events)}", f'  y-axis "{unit}" 0 --> {top:.4g}')
    for curve in (timeline.reserved, timeline.allocated):
        starts = np.unique(np.linspace(0, len(curve), _POINTS, endpoint=False, dtype=np.int64))
        yield f"  line [{', '.join(f'{value / size:.4g}' for value in np.maximum.reduceat(curve, starts))}]"
    yield "```"
