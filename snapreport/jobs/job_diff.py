"""Two jobs compared: ranks paired by number, and what changed in which group."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from snapreport.contracts.job import GroupDiff, JobDiffDocument, PlaceChange, RankBytes, RankDiff, WorstRank
from snapreport.errors import SnapshotError
from snapreport.jobs import outliers
from snapreport.jobs.place_changes import growth, place_name
from snapreport.jobs.rank_text import rank_ranges, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import outlier_sentence
from snapreport.number_format import arrow_text, bytes_text, plural, upper_first
from snapreport.report.diff_text import signed
from snapreport.sentence import sentence

MOST_PLACES, MOST_APART, MOST_SENTENCES = 6, 3, 3
MIN_SHARE = 0.005
"""Share of the earlier peak; a smaller change counts as none."""


def is_unchanged(group: GroupDiff) -> bool:
    """Whether too little changed in most of a group's ranks to be reported."""
    return abs(group.change_bytes) < MIN_SHARE * max(group.before_bytes, 1) and not group.places


def diff_jobs(before: Job, after: Job) -> JobDiffDocument:
    """Compare two jobs; this is also the document of ``snapreport diff --json``. Raises :class:`SnapshotError` if they
    have no rank in common.
    """
    old = {row.rank: number for number, row in enumerate(before.rows)}
    common = [row.rank for row in after.rows if row.rank in old]
    if not common:
        raise SnapshotError("the two jobs have no rank in common")
    new = {row.rank: number for number, row in enumerate(after.rows)}
    were, are = ({int(job.ranks[outlier.row]) for outlier in job.outliers} for job in (before, after))
    groups = []
    for group in after.groups:
        ranks = [int(rank) for rank in after.ranks[group.rows] if int(rank) in old]
        if ranks:
            pairs = [(old[rank], new[rank]) for rank in ranks]
            was, now = before.peaks[[a for a, _ in pairs]], after.peaks[[b for _, b in pairs]]
            change = int(np.median(now - was))
            apart = np.abs(now - was - change)
            is_apart = apart > np.maximum(outliers.MIN_SHARE * was, outliers.MIN_BYTES)
            found = [
                RankDiff(ranks[i], int(was[i]), int(now[i]), place_changes(before, after, [pairs[i]]))
                for i in np.argsort(-apart, kind="stable")[:MOST_APART]
                if is_apart[i] and len(ranks) > 1
            ]
            places = place_changes(before, after, pairs)
            groups.append(GroupDiff(ranks, int(np.median(was)), int(np.median(now)), change, places, found))
    return JobDiffDocument(
        _worst(before),
        _worst(after),
        [RankBytes(rank, int(before.peaks[old[rank]]), int(after.peaks[new[rank]])) for rank in common],
        groups,
        sorted(set(old) - set(new)),
        sorted(set(new) - set(old)),
        sorted(are - were),
        sorted(were - are),
        [outlier_sentence(after, one).text for one in after.outliers if int(after.ranks[one.row]) not in were],
    )


def job_diff_headline(diff: JobDiffDocument) -> list[str]:
    """The answer: the highest peak, new and former outliers, ranks of only one job, and what was compared."""
    before, after = diff.worst_before, diff.worst_after
    was, now = before.peak_allocated_bytes, after.peak_allocated_bytes
    who = f"rank {after.rank}" if before.rank == after.rank else f"rank {before.rank} before, rank {after.rank} after"
    same = bytes_text(was) == bytes_text(now)
    lines = [f"Highest peak: {f'{bytes_text(now)}, as before' if same else arrow_text(was, now)} ({who})."]
    lines += [sentence("New outlier: {}", outlier) for outlier in diff.outlier_sentences[:MOST_SENTENCES]]
    if len(diff.outlier_sentences) > MOST_SENTENCES:
        lines.append(f"New outliers in all: {ranks_text(diff.new_outliers)}.")
    for ranks, words in (
        (diff.gone_outliers, "No longer an outlier" if len(diff.gone_outliers) == 1 else "No longer outliers"),
        (diff.only_before, "Only in the first job"),
        (diff.only_after, "Only in the second job"),
    ):
        if ranks:
            lines.append(f"{words}: {ranks_text(ranks)}.")
    lines.append(f"{plural(len(diff.ranks), 'rank')} compared: {rank_ranges([one.rank for one in diff.ranks])}.")
    return lines


def job_diff_text(diff: JobDiffDocument) -> str:
    """What changed, one line each, the highest peak first."""
    worst, *rest = job_diff_headline(diff)
    lines = [worst]
    for group in diff.groups:
        name = upper_first(ranks_text(group.ranks))
        if is_unchanged(group):
            most = " on most ranks" if group.apart else ""
            lines.append(f"{name}: no change{most}, {bytes_text(group.before_bytes)}.")
        else:
            median = ", median" if len(group.ranks) > 1 else ""
            lines.append(f"{name}{median}: {arrow_text(group.before_bytes, group.after_bytes)}.")
            lines += _place_lines(group.places, "  ")
        for one in group.apart:
            lines.append(f"  Rank {one.rank}: {arrow_text(one.before_bytes, one.after_bytes)}.")
            lines += _place_lines(one.places, "    ")
    return "\n".join([*lines, *rest])


def _place_lines(places: list[PlaceChange], indent: str) -> list[str]:
    return [f"{indent}{signed(one.change_bytes)}  {one.name}" for one in places]


def _worst(job: Job) -> WorstRank:
    row = int(np.argmax(job.peaks))
    return WorstRank(int(job.ranks[row]), int(job.peaks[row]))


def place_changes(before: Job, after: Job, pairs: list[tuple[int, int]]) -> list[PlaceChange]:
    """The largest median changes of the bytes by function and file. ``pairs``: rows before and after."""
    changes: defaultdict[str, list[int]] = defaultdict(list)
    for one, two in pairs:
        for place, change in growth(before.rows[one].packed.read(), after.rows[two].packed.read()):
            changes[place_name(place)].append(change)
    least = MIN_SHARE * float(np.median([before.peaks[one] for one, _ in pairs]))
    medians = {name: int(np.median([*of, *[0] * (len(pairs) - len(of))])) for name, of in changes.items()}
    large = [PlaceChange(name, change) for name, change in medians.items() if abs(change) > least]
    return sorted(large, key=lambda one: (-abs(one.change_bytes), one.name))[:MOST_PLACES]
