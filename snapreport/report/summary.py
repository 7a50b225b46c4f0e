"""What the static summary says, as plain values: the template only places them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from snapreport.findings.basis import basis_of
from snapreport.findings.model import SEVERITIES, Finding
from snapreport.findings.run import findings
from snapreport.number_format import bytes_text, count_text, device_name, plural, share_text
from snapreport.reading.noise import NOISE, PYTHON, recorded_flags
from snapreport.report.activity_text import activity_text
from snapreport.report.attribution import Breakdown, breakdowns, in_words
from snapreport.report.comparison import DiffTable
from snapreport.report.finding_cards import FindingCard, finding_cards
from snapreport.report.preview_svg import preview_svg
from snapreport.report.recorder_facts import Fact, device_use, recorder_facts
from snapreport.report.span_columns import broken_sentence
from snapreport.timeline.build import DeviceTimeline, Snapshot
from snapreport.timeline.own_code import LIBRARY
from snapreport.timeline.recording_gaps import has_history

# Frames shown for a stack; the whole stack is one click away in the page.
FRAMES_SHOWN = 3
_LIBRARY = re.compile(LIBRARY)
# Of what is wrong, told at the top of the page; all of it stands in the summary.
HEADLINE_FINDINGS = 2


@dataclass(frozen=True)
class StackLine:
    """One of the stacks that hold most at the peak.

    ``frames``: innermost first, each "function file.py:12", ← before its caller; ``told``: the innermost of the
    program's own code; ``hidden``: frames not shown.
    """

    size: str
    share: str
    count: int
    frames: str
    told: str
    hidden: int


@dataclass(frozen=True)
class Card:
    """One device with data. ``cells`` follow the table's heading in the template; ``peak``: what its peak is made of,
    in sentences, and ``parts`` in tables; ``preview``: empty where nothing moves.
    """

    name: str
    cells: list[str]
    doubts: list[str]
    unknown: list[str]
    trust: list[str]
    preview: Markup
    stacks: list[StackLine]
    peak: list[str]
    parts: list[Breakdown]


@dataclass
class Summary:
    """Everything the static part of the page shows."""

    title: str
    headline: list[str]
    files: list[str]
    diff: list[DiffTable] = field(default_factory=list)
    findings: list[FindingCard] = field(default_factory=list)
    rests: list[str] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    empty_devices: list[str] = field(default_factory=list)
    settings: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    recorder: list[Fact] = field(default_factory=list)


def summarise(snapshots: Sequence[Snapshot], title: str) -> Summary:
    """Build the summary of a report over ``snapshots``."""
    summary = Summary(title, [], [])
    worst: tuple[int, str] | None = None
    first = stacks = 0
    for snapshot in snapshots:
        recording = snapshot.recording
        summary.files.append(f"{recording.name} ({bytes_text(recording.file_bytes)})")
        summary.settings += [
            (key, str(value)) for key, value in recording.settings.items() if _worth_telling(key, value)
        ]
        summary.notes += _notes(recording.notes)
        if recording.recorder is not None:
            file_name = [Fact("Snapshot", recording.name)] if len(snapshots) > 1 else []
            summary.recorder += [*file_name, *recorder_facts(recording.recorder)]
        flags = recorded_flags(recording)
        frames = recording.frames.select("name", "filename", "line").rows()
        found = findings(snapshot)
        # The page numbers devices and stacks through all files.
        index = {device: first + place for place, device in enumerate(snapshot.devices)}
        first += len(index)
        # What all findings of a device rest on is said once, above them.
        traced = [d for d in snapshot.devices if len(snapshot.events(d))]
        several = len(snapshots) > 1 or len(traced) > 1
        common = {d: basis_of(snapshot.timeline(d)) for d in dict.fromkeys(f.device for f in found if f.kind != "peak")}
        for device, lines in common.items():
            name = _device_name(snapshot.timeline(device), snapshot if len(snapshots) > 1 else None)
            summary.rests.append(f"{name}: {' '.join(lines)}" if several else " ".join(lines))
        told = [line for lines in common.values() for line in lines]
        file = recording.name if len(snapshots) > 1 else ""
        names = {d: _device_name(snapshot.timeline(d), None) for d in traced} if len(traced) > 1 else {}
        summary.findings += finding_cards([f for f in found if f.kind != "peak"], index, told, names, file, stacks)
        stacks += len(recording.stack_offsets) - 1
        for device in snapshot.devices:
            timeline = snapshot.timeline(device)
            name = _device_name(timeline, snapshot if len(snapshots) > 1 else None)
            if not len(timeline.events) and not len(timeline.allocations) and not timeline.reserved.any():
                summary.empty_devices.append(name)
                continue
            found_peak = next((f for f in found if f.kind == "peak" and f.device == device), None)
            card = _card(snapshot, timeline, name, frames, flags, found_peak)
            summary.cards.append(card)
            if worst is None or timeline.peak_bytes > worst[0]:
                worst = (timeline.peak_bytes, _headline(timeline, card))
    summary.findings.sort(key=lambda card: (SEVERITIES.index(card.severity), card.rank))
    # Why it ran out first, then how much it was, then what else is wrong.
    wrong = [f"{card.title}." for card in summary.findings if card.severity != "info"][:HEADLINE_FINDINGS]
    errors = sum(card.severity == "error" for card in summary.findings[:HEADLINE_FINDINGS])
    peak = worst[1] if worst else "No allocations and no events were recorded in this snapshot."
    summary.headline += [*wrong[:errors], peak, *wrong[errors:]]
    return summary


def _worth_telling(key: str, value: object) -> bool:
    """Settings at their default say nothing: only what was switched on or set is listed; the file keeps them all."""
    if key == "pinned_num_register_threads" and value == 1:
        return False
    if isinstance(value, dict):
        return any(value.values())
    return value not in ("", False, 0, None, -1)


def _notes(notes: dict[str, object]) -> list[str]:
    lines = []
    for key, value in notes.items():
        told = (
            ", ".join(f"{name} ({count})" for name, count in value.items()) if isinstance(value, dict) else str(value)
        )
        if value:
            lines.append(f"{key.replace('_', ' ')}: {told}")
    return lines


def _device_name(timeline: DeviceTimeline, snapshot: Snapshot | None) -> str:
    name = device_name(timeline.kind, timeline.device)
    return f"{snapshot.recording.name} {name}" if snapshot else name


def _card(
    snapshot: Snapshot,
    timeline: DeviceTimeline,
    name: str,
    frames: list[tuple[str, str, int]],
    flags: np.ndarray,
    peak: Finding | None,
) -> Card:
    allocated, reserved = timeline.allocated, timeline.reserved
    doubts, unknown, trust = _trust(timeline)
    cells = [
        bytes_text(timeline.peak_bytes),
        bytes_text(int(reserved.max())),
        _from_to(int(allocated[0]), int(allocated[-1])),
        _from_to(int(reserved[0]), int(reserved[-1])),
        count_text(len(timeline.events)),
        count_text(len(timeline.allocations)),
        count_text(len(timeline.oom_events)),
    ]
    stacks = [
        _stack_line(snapshot, row["stack"], row["bytes"], row["count"], timeline.peak_bytes, frames, flags)
        for row in timeline.top_stacks
    ]
    preview = Markup()
    if len(timeline.events) > 1:
        preview = preview_svg(
            allocated, reserved, timeline.peak_event + 1, [event + 1 for event in timeline.oom_events]
        )
    # Without a moving peak it is the final state, and the headline has said it.
    told = [f"{peak.title}.", *peak.detail] if peak and timeline.peak_event >= 0 else []
    told += [line for line in (in_words(peak) if peak else "",) if line]
    return Card(name, cells, doubts, unknown, trust, preview, stacks, told, breakdowns(peak) if peak else [])


def _from_to(start: int, end: int) -> str:
    return bytes_text(end) if start == end else f"{bytes_text(start)} → {bytes_text(end)}"


def _stack_line(
    snapshot: Snapshot,
    stack: int,
    size: int,
    count: int,
    peak: int,
    frames: list[tuple[str, str, int]],
    flags: np.ndarray,
) -> StackLine:
    offsets = snapshot.recording.stack_offsets
    ids = snapshot.recording.stack_frames[offsets[stack] : offsets[stack + 1]].tolist()
    telling = _telling(ids, flags)
    shown = _shown(telling, frames)
    words = [_frame(*frames[telling[at]]) for at in shown]
    # A gap in the chain of callers is shown as one.
    text = "".join(
        word if not place else (" ← " if shown[place] == shown[place - 1] + 1 else " ← … ") + word
        for place, word in enumerate(words)
    )
    own = next((word for at, word in zip(shown, words, strict=True) if not _LIBRARY.search(frames[telling[at]][1])), "")
    return StackLine(
        bytes_text(size), share_text(size, peak), count, text, own or "".join(words[:1]), len(ids) - len(shown)
    )


def _telling(ids: list[int], flags: np.ndarray) -> list[int]:
    """The frames worth reading: Python's, which are the reader's own words; else C++ ones; else whatever there is."""
    telling = [i for i in ids if not flags[i] & NOISE]
    return [i for i in telling if flags[i] & PYTHON] or telling or ids


def _shown(telling: list[int], frames: list[tuple[str, str, int]]) -> list[int]:
    """Which of them stand in the table: the innermost, and the innermost ones of the program's own code."""
    own = [at for at, i in enumerate(telling) if not _LIBRARY.search(frames[i][1].replace("\\", "/"))]
    chosen = list(dict.fromkeys([0, *own[: FRAMES_SHOWN - 1], *range(FRAMES_SHOWN)]))[:FRAMES_SHOWN]
    return sorted(at for at in chosen if at < len(telling))


def _frame(name: str, filename: str, line: int) -> str:
    place = filename.replace("\\", "/").rsplit("/", 1)[-1]
    name = name if len(name) <= 120 else f"{name[:119]}…"
    return f"{name} {place}:{line}" if line > 0 else name


def _headline(timeline: DeviceTimeline, card: Card) -> str:
    where = "before the first event" if timeline.peak_event < 0 else f"at event {count_text(timeline.peak_event)}"
    peaked = f"peaked at {card.cells[0]} allocated {where}"
    what = peaked if has_history(timeline) else f"held {card.cells[0]} when the snapshot was taken"
    text = f"{card.name} {what}, with {bytes_text(int(timeline.reserved[timeline.peak_event + 1]))} reserved."
    named = next((line for line in card.stacks if line.told), None)
    if named:
        # What a C++ function takes is longer than its name, and tells less.
        told = named.told.replace("(anonymous namespace)::", "").partition("(")[0] if "::" in named.told else named.told
        text += f" {named.share} of it came from {told}."
    return text


def _trust(timeline: DeviceTimeline) -> tuple[list[str], list[str], list[str]]:
    """(doubts, what is not known, assurances): how far the record can be trusted."""
    doubts, unknown, trust = [], [], []
    if timeline.overflowed:
        doubts.append("The trace overflowed: its oldest events are lost.")
    elif timeline.overflowed is False:
        trust.append("The trace did not overflow.")
    elif has_history(timeline):
        unknown.append("Whether the trace overflowed was not recorded.")
    difference = timeline.reconciliation_bytes
    if difference:
        more = "more" if difference > 0 else "less"
        doubts.append(
            f"The replay ends with {bytes_text(abs(difference))} {more} than the final blocks hold: totals may be off "
            "by that."
        )
    else:
        trust.append("The replay reconciles with the final blocks to the byte.")
    if not has_history(timeline):
        doubts.append("Recorded without history: only the final state is known.")
    else:
        before = int((timeline.allocations["alloc_event"] < 0).sum())
        if before:
            trust.append(
                f"{plural(before, 'allocation')} of {bytes_text(int(timeline.allocated[0]))} from before the trace."
            )
    what = activity_text(timeline.activity)
    if what:
        trust.insert(0, what)
    use = device_use(timeline.recording.recorder, timeline)
    if use:
        trust.append(use)
    broken = broken_sentence(timeline.annotated.broken)
    if broken:
        unknown.append(broken)
    if timeline.peak_bytes and timeline.peak_stackless_bytes:
        share = share_text(timeline.peak_stackless_bytes, timeline.peak_bytes)
        (doubts if timeline.peak_stackless_bytes * 10 > timeline.peak_bytes else trust).append(
            f"{share} of the peak has no frames."
        )
    return doubts, unknown, trust
