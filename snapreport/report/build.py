"""Builds and writes a report: the only path from snapshots to an HTML file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from snapreport import progress
from snapreport.errors import SnapshotError
from snapreport.number_format import size_text
from snapreport.output_file import write_file
from snapreport.process_memory import trim
from snapreport.report.leave_out import PARTS, LeftOut, Part, worth_leaving_out
from snapreport.report.page import render_page
from snapreport.report.payload import Payload, Sections, build_sections
from snapreport.report.source_lines import source_lines
from snapreport.report.source_links import REPOSITORY_LINKS, SourceLinks
from snapreport.report.summary import HeadlineSentence, Summary, shown_name, summarise
from snapreport.snapshot import Snapshot

if TYPE_CHECKING:
    from snapreport.findings.diff import SnapshotDiff
    from snapreport.findings.snapshot_series import SnapshotSeries
    from snapreport.report.comparison import Comparison


class Whole(Struct, frozen=True):
    """The job that the snapshots of a report belong to. summary: extends the snapshots' summary. add: adds the job's
    columns to theirs.
    """

    summary: Callable[[Summary], Summary]
    add: Callable[[Sections], None] = lambda _: None


def build_report(
    snapshots: Sequence[Snapshot],
    *,
    title: str | None = None,
    max_size: int | None = None,
    source: Sequence[str | os.PathLike[str]] = (),
    links: SourceLinks = REPOSITORY_LINKS,
) -> bytes:
    """The report over ``snapshots`` as one HTML document. The same input and version give the same bytes.

    ``max_size``: maximum bytes; optional parts are omitted to fit (see ``leave_out.py``). Raises :class:`SnapshotError`
    if that is not enough. ``source``: folders whose files are quoted around the lines that frames name (see
    ``source_lines.py``). ``links``: addresses of the program's own lines, by default in the repository that the
    recorder noted (see ``source_links.py``).
    """
    return fit_document(snapshots, title, max_size, source, links=links)[0]


def write_report(
    snapshots: Sequence[Snapshot] | Snapshot,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    max_size: int | None = None,
    source: Sequence[str | os.PathLike[str]] = (),
    links: SourceLinks = REPOSITORY_LINKS,
) -> int:
    """Write a report and return its size in bytes.

    ``path``: the HTML file, or ``-`` for standard output. The file is replaced atomically: an older report stays until
    the new one is complete. ``max_size``, ``source``, ``links``: as for :func:`build_report`.

    Raises :class:`SnapshotError` if the output cannot be written or does not fit into ``max_size``.
    """
    snapshots = [snapshots] if isinstance(snapshots, Snapshot) else snapshots
    document = build_report(snapshots, title=title, max_size=max_size, source=source, links=links)
    write_document(path, document)
    return len(document)


def write_diff(
    results: Sequence[SnapshotDiff],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    series: SnapshotSeries | None = None,
    links: SourceLinks = REPOSITORY_LINKS,
) -> int:
    """Write a report that compares snapshots, and return its size in bytes.

    ``results``: of ``findings.diff.diff``; the last one is shown. ``series``: all snapshots, if there are more than
    two; by default those of ``results`` in their order. ``path``, ``links`` and errors: as for :func:`write_report`.
    """
    from snapreport.findings.comparable import paired_devices
    from snapreport.findings.snapshot_series import follow
    from snapreport.report.comparison import Comparison

    if series is None and len(results) > 1:
        snapshots = [results[0].before, *(result.after for result in results)]
        series = follow(snapshots, "given", paired_devices(snapshots))
    comparison = Comparison(results[-1], series)
    document, _ = fit_document(comparison.snapshots, title or comparison.title, None, (), comparison, links)
    write_document(path, document)
    return len(document)


def fit_document(
    snapshots: Sequence[Snapshot],
    title: str | None,
    max_size: int | None,
    source: Sequence[str | os.PathLike[str]] = (),
    comparison: Comparison | None = None,
    links: SourceLinks = REPOSITORY_LINKS,
    whole: Whole | None = None,
) -> tuple[bytes, LeftOut]:
    """The document, and what was omitted to fit ``max_size``; otherwise as :func:`build_report`."""
    title = title or ", ".join(shown_name(snapshot.recording) for snapshot in snapshots)
    quoted = source_lines([snapshot.recording.frames for snapshot in snapshots], source)

    def sections_of_all() -> Sections:
        sections = build_sections(snapshots, title, quoted, comparison, links)
        if whole:
            whole.add(sections)
        return sections

    summary, sections, payload = _side_by_side(snapshots, lambda: summarise(snapshots, title, links), sections_of_all)
    if whole:
        summary = whole.summary(summary)
    if comparison:
        after = comparison.result.after.recording
        sources = links.of(after)
        headline = [[HeadlineSentence(text, sources=sources)] for text in comparison.headline]
        # Of the later one: what to do about it now.
        first = sum(len(snapshot.devices) for snapshot in snapshots[:-1])
        chips = [chip for chip in summary.chips if chip.device >= first]
        summary = replace(
            summary, headline=headline, chips=chips, diff=[replace(table, links=sources) for table in comparison.tables]
        )

    def described(left_out: LeftOut) -> Summary:
        sentences = [quoted.sentence if left_out.has_section("source") else "", left_out.sentence]
        return replace(summary, notes=[*summary.notes, *filter(None, sentences)])

    left_out = LeftOut()
    document = render_page(described(left_out), payload)
    full = smallest = len(document)
    if max_size is None:
        return document, left_out
    parts = [part for part in PARTS if worth_leaving_out(part, sections.columns)]

    def without(left: Sequence[Part]) -> tuple[bytes, LeftOut]:
        left_out = LeftOut(tuple(left), max_size, full)
        return render_page(described(left_out), sections.payload(left_out)), left_out

    while len(document) > max_size:
        if len(left_out.parts) == len(parts):
            what = "and that without all that can be left out" if parts else "and there is nothing to leave out"
            raise SnapshotError(
                f"the report takes {size_text(smallest)}, {what}: more than the {size_text(max_size)} allowed"
            )
        document, left_out = without(parts[: len(left_out.parts) + 1])
        smallest = min(smallest, len(document))
    # Restore what fits after the last step, the most important first.
    for part in reversed(left_out.parts[:-1]):
        candidate = without([other for other in left_out.parts if other is not part])
        if len(candidate[0]) <= max_size:
            document, left_out = candidate
    return document, left_out


def _side_by_side(
    snapshots: Sequence[Snapshot], summarise: Callable[[], Summary], lay_out: Callable[[], Sections]
) -> tuple[Summary, Sections, Payload]:
    """Builds the columns, then the summary and the packed blobs in parallel; packing needs little memory.

    Laying out in parallel with the summary would save 0.1 s on 920,183 events and two cores, and take 20 MB more.
    """
    devices = [(snapshot, device) for snapshot in snapshots for device in snapshot.devices]
    with progress.stage("timeline", len(devices), "devices") as bar:
        for snapshot, device in devices:
            snapshot.timeline(device)
            trim()
            bar.advance(1)
    sections = lay_out()
    trim()
    with ThreadPoolExecutor(1, thread_name_prefix="snapreport-payload") as side:
        pending = side.submit(sections.payload, LeftOut())
        return summarise(), sections, pending.result()


def write_document(path: str | os.PathLike[str], document: bytes) -> None:
    """Write a document atomically: see :func:`write_report`."""
    if os.fspath(path) == "-":
        sys.stdout.buffer.write(document)
        sys.stdout.buffer.flush()
    else:
        write_file(path, document)
