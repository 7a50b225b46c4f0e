"""The largest stacks at the peak, one line each: the naming frame, and the program's lines that called it."""

from __future__ import annotations

from msgspec import Struct

from snapreport.findings.live import names_of
from snapreport.number_format import bytes_text, share_text
from snapreport.report.source_links import CALLED_BY
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.own_code import frame_line, own_code, stack_names

CALLERS = 2
"""Lines of the program shown after the one that names a stack; the page has the whole stack trace."""
NO_STACK = "no stack trace"


class StackLine(Struct, frozen=True):
    """One of the largest stacks at the peak. ``frames``: the naming frame, then the program's lines that called it;
    ``hidden``: frames that are not shown.
    """

    size: str
    share: str
    count: int
    frames: str
    hidden: int


def stack_lines(snapshot: Snapshot, timeline: DeviceTimeline) -> list[StackLine]:
    """The ten largest stacks at the peak, as text."""
    names = names_of(snapshot)
    recording = snapshot.recording
    is_own = own_code(recording)
    lines = []
    for row in timeline.top_stacks:
        stack = row["stack"]
        frames = recording.stack(stack)
        place = int(stack_names(recording).place[stack])
        callers = [i for i in frames[place + 1 :] if is_own[i]][:CALLERS]
        launcher = int(stack_names(recording).launcher[stack])
        texts = [names.line(stack), *(frame_line(recording, i) for i in callers if i != launcher)]
        hidden = len(frames) - len(texts) - (launcher >= 0) if frames else 0
        text = CALLED_BY.join(texts) if frames else NO_STACK
        size = bytes_text(row["bytes"])
        lines.append(StackLine(size, share_text(row["bytes"], timeline.peak_bytes), row["count"], text, hidden))
    return lines
