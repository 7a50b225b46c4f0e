"""Where a check's result goes: text, JSON, Markdown, JUnit XML, a code quality report, annotations."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from snapreport.commands.inputs import report_unlinked
from snapreport.output_file import cannot_write, check_output, write_file
from snapreport.terminal import echo, lines

if TYPE_CHECKING:
    from snapreport.contracts.check import Check
    from snapreport.report.source_links import SourceLinks
    from snapreport.snapshot import Snapshot


class Outputs(Struct, frozen=True):
    """Where the result goes: paths, "-" for standard output, and what is printed."""

    summary_md: str | None
    junit: str | None
    code_quality: str | None
    as_json: bool
    annotations: bool

    @property
    def files(self) -> list[str]:
        return [path for path in (self.summary_md, self.junit, self.code_quality) if path]

    def refuse_impossible(self, read: Sequence[str], force: bool) -> None:
        """Refuse, before the work, outputs that cannot be written or would overwrite a snapshot or each other."""
        if [*self.files, *["-"] * self.as_json].count("-") > 1:
            raise click.UsageError("standard output can be written once only")
        places = [os.path.abspath(path) for path in self.files]
        same = (path for path, place in zip(self.files, places, strict=True) if places.count(place) > 1)
        if twice := next(same, None):
            raise click.UsageError(f"two outputs are the same file: {twice}")
        for path in self.files:
            check_output(path, read, "the result", force=force or _is_job_summary(path))

    def write(self, checks: Sequence[Check], snapshots: Sequence[Snapshot], links: SourceLinks, chart: bool) -> None:
        """Write files first: a reader that closes the pipe must not prevent the job's summary."""
        from snapreport.contracts import json_text
        from snapreport.report import gate_output, review_output

        if self.summary_md:
            charts = review_output.memory_charts(snapshots) if chart else ""
            linked = links.of_all([s.recording for s in snapshots])
            _write(self.summary_md, gate_output.check_markdown(checks, linked, charts))
            if links.template:
                report_unlinked(links, snapshots)
        if self.junit:
            _write(self.junit, gate_output.check_junit(checks))
        if self.code_quality:
            _write(self.code_quality, review_output.code_quality(checks, snapshots, Path.cwd()))
        if "-" not in self.files:
            document = gate_output.check_document(checks)
            text = json_text(document) if self.as_json else gate_output.check_text(checks)
            echo(text)
        if self.annotations:
            echo(lines(review_output.workflow_commands(checks, snapshots, Path.cwd())))


def _is_job_summary(path: str) -> bool:
    """Whether ``path`` is the page that GitHub shows of a step, to which every command of the step adds."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    return bool(page) and os.path.realpath(path) == os.path.realpath(str(page))


def _write(path: str, text: str) -> None:
    content = text.encode("utf-8", "backslashreplace")
    if path == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    try:
        before = Path(path).read_bytes() if _is_job_summary(path) and Path(path).is_file() else b""
    except OSError as error:
        raise cannot_write(path, "the result", error) from None
    write_file(path, before + content, "the result")
