"""The content of the static summary, as plain values: the template only places them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct, field

from snapreport.findings.basis import basis_of
from snapreport.findings.diagnosis import diagnosis
from snapreport.findings.live import names_of
from snapreport.findings.model import SEVERITIES, Finding
from snapreport.findings.opening import opening
from snapreport.findings.peak import composition
from snapreport.findings.run import findings
from snapreport.number_format import bytes_text, count_text, device_name
from snapreport.reading.recording import Recording
from snapreport.report.about_recording import assurances, doubts
from snapreport.report.attribution import NO_NAMES, Breakdown, breakdown_text, breakdowns, has_names
from snapreport.report.finding_cards import FindingCard, finding_cards, link_of
from snapreport.report.page_remedies import PageGrowth, PageRemedy, page_growth, page_remedies
from snapreport.report.preview_svg import preview_svg
from snapreport.report.recorder_facts import Fact, recorder_facts
from snapreport.report.sentence_html import Links
from snapreport.report.source_links import REPOSITORY_LINKS, SourceLinks
from snapreport.report.stack_lines import StackLine, stack_lines
from snapreport.report.step_lines import device_steps
from snapreport.report.time_lines import TimeTable, time_table
from snapreport.report.verdict import Chip, chips
from snapreport.sentence import sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.time_costs import run_costs

if TYPE_CHECKING:
    from snapreport.report.comparison import DiffTable

HEADLINE_FINDINGS = 2
"""Number of errors and warnings at the top of the page; the summary has all."""


class Card(Struct, frozen=True):
    """One device with data. ``cells`` follow the table's heading in the template; ``peak``: the composition of its peak
    in sentences, and ``parts`` in tables; ``steps``: what its steps have in common; ``doubts``, ``assurances``: the
    limits and strengths of its recording; ``preview``: empty if nothing changes; ``links``: of its sentences.
    """

    name: str
    cells: list[str]
    doubts: list[str]
    assurances: list[str]
    preview: Markup
    stacks: list[StackLine]
    peak: list[str]
    parts: list[Breakdown]
    steps: str
    links: Links


class HeadlineSentence(Struct, frozen=True):
    """A sentence of the headline. ``link``: the page's hash that shows its subject, or ""; ``sources``: addresses of
    lines by their name.
    """

    text: str
    link: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)


class Summary(Struct):
    """Everything the static part of the page shows. ``job``: the tables of a job's report (``job.html.j2``), which
    precede those of the ranks shown in full. ``job_link``: in the report of one rank, the relative address of its job's
    report. ``refresh_seconds``: after which a page that is written anew loads itself again, 0 for never. ``chips``:
    the verdict, worst first. ``remedies``: those that the page replays together; ``growth``: with the batch; ``time``:
    what memory costs in time, of the files with a profiler's trace.
    """

    title: str
    headline: list[list[HeadlineSentence]]
    files: list[str]
    chips: list[Chip] = field(default_factory=list)
    remedies: list[PageRemedy] = field(default_factory=list)
    growth: list[PageGrowth] = field(default_factory=list)
    diff: list[DiffTable] = field(default_factory=list)
    findings: list[FindingCard] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    empty_devices: list[str] = field(default_factory=list)
    settings: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    recorder: list[Fact] = field(default_factory=list)
    time: list[TimeTable] = field(default_factory=list)
    module_note: str = ""
    job: object | None = None
    job_link: str = ""
    refresh_seconds: int = 0

    @property
    def shown_headline(self) -> list[list[HeadlineSentence]]:
        """The paragraphs of the headline that say more than the chips below them."""
        told = {text for chip in self.chips for text in chip.told}
        return [lines for lines in self.headline if not all(line.text in told for line in lines)]

    @property
    def headline_text(self) -> list[str]:
        """The paragraphs of the headline without their links."""
        return [" ".join(sentence.text for sentence in paragraph) for paragraph in self.headline]


def summarise(snapshots: Sequence[Snapshot], title: str, links: SourceLinks = REPOSITORY_LINKS) -> Summary:
    """Build the summary of a report over ``snapshots``. ``links``: addresses of lines."""
    summary = Summary(title, [], [])
    start = opening(snapshots)
    said: list[HeadlineSentence] = []
    peak_lines: list[HeadlineSentence] = []
    first = stacks = 0
    for number, snapshot in enumerate(snapshots):
        recording = snapshot.recording
        summary.files.append(file_line(recording))
        summary.settings += shown_settings(recording.settings)
        summary.notes += shown_notes(recording.notes)
        if costs := run_costs([snapshot.timeline(device) for device in snapshot.devices]):
            summary.time.append(time_table(costs))
        if recording.recorder is not None:
            file_name = [Fact("Snapshot", recording.name)] if len(snapshots) > 1 else []
            summary.recorder += [*file_name, *recorder_facts(recording.recorder)]
        found = findings(snapshot)
        if not all(has_names(one) for one in found if one.kind == "peak"):
            summary.module_note = NO_NAMES
        addresses = links.of(recording)
        # The page numbers devices and stacks through all files.
        index = {device: first + place for place, device in enumerate(snapshot.devices)}
        first += len(index)
        traced = [d for d in snapshot.devices if len(snapshot.events(d))]
        # The basis of findings is stated once, in each device's "About this recording".
        common = {line for d in traced for line in basis_of(snapshot.timeline(d))}
        file = recording.name if len(snapshots) > 1 else ""
        names = {d: _device_name(snapshot.timeline(d), None) for d in traced} if len(traced) > 1 else {}
        summary.findings += finding_cards(
            [f for f in found if f.kind != "peak"], index, common, names, file, stacks, addresses
        )
        statements = _statements(found, start.device, file) if start and start.snapshot == number else []
        summary.remedies += page_remedies(snapshot, found, index, stacks, Links(addresses))
        summary.growth += page_growth(snapshot, found, index, stacks)
        place_of = names_of(snapshot).place
        summary.chips += chips(found, index, stacks, Links(addresses), statements, place_of, file, names)
        base, stacks = stacks, stacks + len(recording.stack_offsets) - 1
        for device in snapshot.devices:
            timeline = snapshot.timeline(device)
            name = _device_name(timeline, snapshot if len(snapshots) > 1 else None)
            if not len(timeline.events) and not len(timeline.allocations) and not timeline.reserved.any():
                summary.empty_devices.append(name)
                continue
            peak = next((f for f in found if f.kind == "peak" and f.device == device), None)
            summary.cards.append(_card(snapshot, timeline, name, peak, Links(addresses, index[device], index, base)))
            if peak and start and (start.snapshot, start.device) == (number, device):
                link = _peak_link(timeline, index[device], base)
                peak_lines = [HeadlineSentence(line, link, addresses) for line in _headline(peak, file)]
                for text, finding in statements:
                    about = link if finding is peak else link_of(finding, index[device], base)
                    said.append(HeadlineSentence(text, about, addresses))
    summary.findings.sort(key=lambda card: (SEVERITIES.index(card.severity), card.rank))
    summary.chips.sort(key=lambda chip: SEVERITIES.index(chip.severity))
    # First the diagnosis and other failures, then the peak, then other problems.
    known = {line.link for line in said}
    wrong = [card for card in summary.findings if card.severity != "info"][:HEADLINE_FINDINGS]
    wrong = [card for card in wrong if card.link not in known]
    errors = [
        HeadlineSentence(line, card.link, card.links.sources)
        for card in wrong
        if card.severity == "error"
        for line in (sentence("{}.", card.full_title), *card.detail[:1])
    ]
    others = [
        HeadlineSentence(sentence("{}.", card.full_title), card.link, card.links.sources)
        for card in wrong
        if card.severity != "error"
    ]
    peak_lines = peak_lines or [HeadlineSentence("No allocations were recorded in this snapshot.")]
    summary.headline += [lines for lines in (said + errors, peak_lines, others) if lines]
    return summary


def shown_name(recording: Recording) -> str:
    """The file's name, and whether only a part of its trace is shown."""
    return f"{recording.name}, a part of its trace" if "part" in recording.notes else recording.name


def file_line(recording: Recording) -> str:
    """:func:`shown_name` and the file's size."""
    return f"{shown_name(recording)} ({bytes_text(recording.file_bytes)})"


UNLIMITED = (1 << 63) - 1
"""The value that PyTorch records for ``max_entries`` if the program set no limit."""


def shown_settings(settings: Mapping[str, object]) -> list[tuple[str, str]]:
    """The allocator settings that differ from their defaults, as texts; the file has all of them."""
    return [(key, _setting(value)) for key, value in settings.items() if _is_set(key, value)]


def _is_set(key: str, value: object) -> bool:
    if key == "pinned_num_register_threads" and value == 1:
        return False
    if isinstance(value, dict):
        return any(value.values())
    return value not in ("", False, 0, None, -1, UNLIMITED)


def _setting(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {inner}" for key, inner in value.items() if inner)
    return str(value)


def shown_notes(notes: Mapping[str, object]) -> list[str]:
    """The notes from reading the file, one line each."""
    lines = []
    for key, value in notes.items():
        text = ", ".join(f"{name} ({count})" for name, count in value.items()) if isinstance(value, dict) else value
        if value:
            lines.append(f"{key.replace('_', ' ')}: {text}")
    return lines


def _device_name(timeline: DeviceTimeline, snapshot: Snapshot | None) -> str:
    name = device_name(timeline.kind, timeline.device)
    return f"{snapshot.recording.name} {name}" if snapshot else name


def _card(snapshot: Snapshot, timeline: DeviceTimeline, name: str, peak: Finding | None, links: Links) -> Card:
    allocated, reserved, stats = timeline.allocated, timeline.reserved, timeline.counted_stats
    counted = peak.evidence["max_memory_allocated_bytes"] if peak else None
    knows_reserved = bool(reserved.any()) or not snapshot.recording.is_profiled
    cells = [
        bytes_text(stats.peak_allocated_bytes),
        "–" if counted is None else bytes_text(counted),
        bytes_text(stats.peak_reserved_bytes) if knows_reserved else "–",
        _from_to(int(allocated[0]), int(allocated[-1])),
        _from_to(int(reserved[0]), int(reserved[-1])) if knows_reserved else "–",
        count_text(len(timeline.events)),
        count_text(len(timeline.allocations)),
        count_text(len(timeline.oom_events)),
    ]
    preview = Markup()
    if len(timeline.events) > 1:
        preview = preview_svg(
            allocated, reserved, timeline.peak_event + 1, [event + 1 for event in timeline.oom_events]
        )
    lines = [sentence("{}.", peak.title), composition(peak.evidence), *peak.detail] if peak else []
    lines += [line for line in (breakdown_text(peak) if peak else "",) if line]
    return Card(
        name,
        cells,
        doubts(timeline),
        assurances(timeline),
        preview,
        stack_lines(snapshot, timeline),
        lines,
        breakdowns(peak) if peak else [],
        device_steps(snapshot, timeline),
        links,
    )


def _from_to(start: int, end: int) -> str:
    return bytes_text(end) if start == end else f"{bytes_text(start)} → {bytes_text(end)}"


def _peak_link(timeline: DeviceTimeline, index: int, stack_base: int) -> str:
    """Link to the timeline at the peak, with its largest stack open."""
    link = f"#view=timeline&device={index}&at={timeline.peak_event}"
    stack = next((row["stack"] for row in timeline.top_stacks if row["stack"]), 0)
    return f"{link}&stack={stack + stack_base}" if stack else link


def _statements(found: Sequence[Finding], device: int, file: str) -> list[tuple[str, Finding]]:
    """The sentences of a device's diagnosis, the first with the file's name if a report has several."""
    statements = [(statement.text, statement.finding) for statement in diagnosis(found, device)]
    if file and statements:
        text, finding = statements[0]
        statements[0] = sentence("{file}: {}", text, file=file), finding
    return statements


def _headline(peak: Finding, file: str) -> list[str]:
    """The peak in two sentences: its size and its composition."""
    title = sentence("{file}: {}.", peak.title, file=file) if file else sentence("{}.", peak.title)
    return [title, composition(peak.evidence)]
