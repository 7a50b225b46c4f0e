"""The findings of all ranks, each once."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from snapreport.findings.model import SEVERITIES
from snapreport.jobs.digest_model import DigestFinding
from snapreport.jobs.reduce import Job
from snapreport.jobs.rows import FindingKey, finding_key
from snapreport.jobs.sentences import on_ranks
from snapreport.number_format import device_name
from snapreport.sentence import bytes_part, rank_part, sentence

MUCH_MORE = 1.1
"""Times the bytes that a finding is shown with: the rank with the most is named from there on."""


class MergedFinding(Struct, frozen=True):
    """A finding with the rows that have it. row: the one whose title and detail it has; None if it is equally large on
    all and its title names no device of one rank. most: the row where it is largest and its bytes there, None unless
    that is much more.
    """

    finding: DigestFinding
    rows: list[int]
    row: int | None
    most: tuple[int, int] | None


def merged_findings(job: Job) -> list[MergedFinding]:
    """Findings of all ranks, worst first. What most ranks have has the numbers of a typical one, what a few ranks have
    those of the rank that has most.
    """
    found: defaultdict[FindingKey, list[tuple[int, int, int]]] = defaultdict(list)
    for row, entry in enumerate(job.rows):
        for key, severity, size in entry.packed.findings:
            found[key].append((SEVERITIES.index(severity), -size, row))
    merged = []
    for key, places in found.items():
        rows = sorted({row for _, _, row in places})
        worst = sorted(place for place in places if place[0] == min(places)[0])
        level, size, row = worst[(len(worst) - 1) // 2 if 2 * len(rows) > len(job.rows) else 0]
        most_size, most_row = worst[0][1:]
        finding = next(
            one
            for one in job.rows[row].packed.read().findings
            if finding_key(one.kind, one.rule, one.stack) == key
            and (one.severity, one.bytes) == (SEVERITIES[level], -size)
        )
        digest = job.digests[row]
        differs = len({size for _, size, _ in places}) > 1
        if digest.device is not None and device_name(digest.kind, digest.device) in finding.title:
            differs |= len({job.digests[other].device for other in rows}) > 1
        is_more = -most_size > MUCH_MORE * -size
        merged.append(
            MergedFinding(finding, rows, row if differs else None, (most_row, -most_size) if is_more else None)
        )
    return sorted(
        merged, key=lambda m: (SEVERITIES.index(m.finding.severity), -m.finding.bytes * len(m.rows), m.finding.title)
    )


def where_found(job: Job, merged: MergedFinding) -> str:
    """``on 63 of 64 ranks, most on rank 37: 4.20 GiB``."""
    where = on_ranks(job, merged.rows)
    if merged.most is None:
        return where
    row, size = merged.most
    return sentence("{where}, most on {}: {}", rank_part(job.ranks[row]), bytes_part(size), where=where)
