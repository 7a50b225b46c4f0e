"""What a check says beside a pull request: annotations at lines of the program, and a chart that Markdown draws."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from msgspec import Struct

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


class _Annotation(Struct, frozen=True):
    """``place``: file and line, named relative to the checkout where the file is in it; None: nowhere."""

    is_error: bool
    title: str
    text: str
    place: tuple[str, int] | None


def _annotations(checks: Sequence[Check], snapshots: Sequence[Snapshot], checkout: Path) -> Iterator[_Annotation]:
    """An error for each check that did not pass, at the line that it names or that holds most at the peak, and the best
    advice.
    """
    by_name = {snapshot.recording.name: snapshot for snapshot in snapshots}
    for check in checks:
        if check.passed:
            continue
        snapshot = by_name.get(check.file)
        place = _named_place(check) or (_largest_place(snapshot, check.device) if snapshot else None)
        text = check.unknown or "\n".join([check.message, *check.evidence])
        yield _Annotation(True, f"memory: {check.rule}", text, _in_checkout(place, checkout))
    for snapshot in snapshots:
        advice = [f for f in findings(snapshot) if f.kind == "advice" and f.evidence.get("where")]
        for finding in sorted(advice, key=rank)[:MOST_NOTICES]:
            file, _, line = str(finding.evidence["where"]).rpartition(":")
            text = "\n".join([finding.title, *filter(None, [finding.evidence.get("line")])])
            place = (file, int(line)) if line.isdecimal() else None
            yield _Annotation(False, "memory", text, _in_checkout(place, checkout))


def workflow_commands(checks: Sequence[Check], snapshots: Sequence[Snapshot], checkout: Path) -> list[str]:
    """GitHub's workflow commands, ``::error file=train.py,line=12,title=…::…``."""
    commands = []
    for one in _annotations(checks, snapshots, checkout):
        place = {"file": one.place[0], "line": str(one.place[1])} if one.place else {}
        named = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in {**place, "title": one.title}.items())
        commands.append(f"::{'error' if one.is_error else 'notice'} {named}::{_escaped(one.text)}")
    return commands


def code_quality(checks: Sequence[Check], snapshots: Sequence[Snapshot], checkout: Path) -> str:
    """GitLab's code quality report, which a merge request shows at the lines that it names
    (https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format). It has no entries without a line.
    """
    entries = []
    for one in _annotations(checks, snapshots, checkout):
        if one.place:
            file, line = one.place
            text = visible(f"{one.title}: {' '.join(one.text.split(chr(10)))}")
            # What says so in the next commit, too, has the same: no numbers.
            said = f"{one.title}\n{file}\n{re.sub('[0-9.]+', '', one.text)}"
            entries.append(
                {
                    "description": text,
                    "check_name": "snapreport",
                    "fingerprint": hashlib.sha256(said.encode("utf-8", "replace")).hexdigest(),
                    "severity": "major" if one.is_error else "info",
                    "location": {"path": visible(file), "lines": {"begin": max(line, 1)}},
                }
            )
    return json.dumps(entries, indent=1) + "\n"


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


def _in_checkout(place: tuple[str, int] | None, checkout: Path) -> tuple[str, int] | None:
    """The longest end of a recorded path that is a file of the checkout: recordings come from other machines, too."""
    if place is None:
        return None
    parts = PurePosixPath(place[0].replace("\\", "/")).parts
    for first in range(len(parts)):
        end = PurePosixPath(*parts[first:])
        if not end.is_absolute() and ".." not in end.parts and (checkout / end).is_file():
            return str(end), place[1]
    return place


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
