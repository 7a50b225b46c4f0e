"""The part of a job's report that needs no scripts: headline, groups, outliers, the highest ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from snapreport.jobs.document import Detail, shown_sources
from snapreport.jobs.headline import headline
from snapreport.jobs.heat_picture import HeatPicture
from snapreport.jobs.rank_findings import MergedFinding, merged_findings, where_found
from snapreport.jobs.rank_text import JobSentence, place, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import (
    group_memory,
    group_name,
    outlier_sentence,
)
from snapreport.number_format import bytes_text, count_text, device_name, plural, upper_first
from snapreport.report.summary import HeadlineSentence, Summary
from snapreport.sentence import rank_part, sentence

MOST_ROWS, MOST_FINDINGS = 64, 12


class JobTables(Struct, frozen=True):
    """Text for the template. ranks: rank, host, device, peak allocated, peak reserved, events, OOMs, trust; groups:
    name, ranks, median, range, memory by category; outliers: a sentence and rows of (bytes above, stack); findings:
    severity, where, title; failed: file and error. picture: the heat map, None if it is empty. in_full: heading of what
    follows, the ranks shown in full.
    """

    ranks: list[list[str]]
    more_ranks: str
    groups: list[list[str]]
    outliers: list[tuple[str, list[tuple[str, str]]]]
    findings: list[tuple[str, str, str]]
    failed: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)
    picture: HeatPicture | None = None
    in_full: str = ""


def job_summary(
    job: Job, summary: Summary, details: Sequence[Detail] = (), picture: HeatPicture | None = None, note: str = ""
) -> Summary:
    """The static summary: the job's tables, followed by ``summary`` of the ranks shown in full, ``details``.

    ``note``: a sentence below the tables.
    """
    files = [f"{plural(len(job.rows), 'snapshot')} ({bytes_text(sum(d.file_bytes for d in job.digests))})"]
    ranks = ranks_text(sorted(int(job.ranks[detail.row]) for detail in details)) if details else ""
    tables = replace(job_tables(job, note), picture=picture, in_full=f"{upper_first(ranks)} in full" if ranks else "")
    shown = {row[0] for row in tables.ranks}

    def anchor(sentence: JobSentence) -> str:
        ranks = [str(job.ranks[row]) for row in sentence.rows[:1]]
        return f"#rank-{ranks[0]}" if ranks and ranks[0] in shown else ""

    paragraphs = [[HeadlineSentence(sentence.text, anchor(sentence))] for sentence in headline(job)]
    return replace(summary, headline=paragraphs, files=files, job=tables)


def job_tables(job: Job, note: str = "") -> JobTables:
    """The tables of a job; ranks with the highest peaks first, at most 64."""
    outliers = {outlier.row for outlier in job.outliers}
    order = sorted(range(len(job.rows)), key=lambda row: (row not in outliers, -int(job.peaks[row])))
    hidden = len(order[MOST_ROWS:])
    shown_as = shown_sources(job)
    return JobTables(
        ranks=[_rank(job, row) for row in order[:MOST_ROWS]],
        more_ranks=f"{count_text(hidden)} more ranks with lower peaks." if hidden else "",
        groups=[
            [
                group_name(job, group),
                str(len(group.rows)),
                bytes_text(int(np.median(job.peaks[group.rows]))),
                f"{bytes_text(int(job.peaks[group.rows].min()))} to {bytes_text(int(job.peaks[group.rows].max()))}",
                group_memory(job, group),
            ]
            for group in job.groups[:MOST_ROWS]
        ],
        outliers=[
            (
                outlier_sentence(job, outlier).text,
                # A single stack is in the sentence.
                [(f"+{bytes_text(above)}", place(job.stacks[stack])) for stack, above, _, _ in outlier.stacks]
                if len(outlier.stacks) > 1
                else [],
            )
            for outlier in job.outliers
        ],
        findings=[
            (merged.finding.severity, _place_text(job, merged), merged.finding.title)
            for merged in merged_findings(job)[:MOST_FINDINGS]
        ],
        failed=[
            (shown_as[failed.path], failed.error.replace(failed.path, shown_as[failed.path]))
            for failed in job.failed[:MOST_ROWS]
        ],
        notes=[job.clock.sentence, *filter(None, [note])],
    )


def _rank(job: Job, row: int) -> list[str]:
    digest = job.rows[row].digest
    device = "none" if digest.device is None else device_name(digest.kind, digest.device)
    return [
        str(job.ranks[row]),
        digest.host,
        device,
        bytes_text(digest.highest_allocated),
        bytes_text(digest.highest_reserved),
        count_text(digest.events),
        count_text(len(digest.ooms)) if digest.ooms else "",
        " ".join(digest.gaps[:1]),
    ]


def _place_text(job: Job, merged: MergedFinding) -> str:
    where = where_found(job, merged)
    if merged.row is None or len(merged.rows) == 1:
        return where
    return sentence("{where}; the numbers are those of {}", rank_part(job.ranks[merged.row]), where=where)
