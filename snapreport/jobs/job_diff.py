"""Two jobs compared: ranks paired by number, and what changed in which group."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct

from snapreport.contracts.job import GroupDiff, JobDiffDocument, PlaceChange, RankBytes, RankDiff, WorstRank
from snapreport.errors import SnapshotError
from snapreport.jobs import outliers
from snapreport.jobs.place_changes import growth, place_name
from snapreport.jobs.rank_text import rank_ranges, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import outlier_sentence
from snapreport.number_format import arrow_text, bytes_text, plural, upper_first
from snapreport.sentence import sentence

MOST_PLACES, MOST_APART, MOST_SENTENCES = 6, 3, 3
MIN_SHARE = 0.005
"""Share of the earlier peak; a smaller change counts as none."""


class RankChange(Struct, frozen=True):
    """before, after: peak bytes. places: as in ``GroupChange``, of this rank."""

    rank: int
    before: int
    after: int
    places: list[tuple[str, int]]


class GroupChange(Struct, frozen=True):
    """A group of the later job. ranks: its ranks that both jobs have. before, after: median peak bytes; change: the
    median of their changes. places: (function and file, median change in bytes), largest first; without lines, since
    edits move them. apart: ranks that changed otherwise than the group, most first.
    """

    ranks: list[int]
    before: int
    after: int
    change: int
    places: list[tuple[str, int]]
    apart: list[RankChange]

    @property
    def is_unchanged(self) -> bool:
        """Whether too little changed in most of its ranks to be reported."""
        return abs(self.change) < MIN_SHARE * max(self.before, 1) and not self.places


class JobDiff(Struct, frozen=True):
    """worst: (rank, bytes) of each job. changes: (rank, bytes before, bytes after) of each rank in both jobs.
    outlier_sentences: what the new outliers hold more than their groups.
    """

    worst_before: tuple[int, int]
    worst_after: tuple[int, int]
    changes: list[tuple[int, int, int]]
    groups: list[GroupChange]
    only_before: list[int]
    only_after: list[int]
    new_outliers: list[int]
    gone_outliers: list[int]
    outlier_sentences: list[str]


def diff_jobs(before: Job, after: Job) -> JobDiff:
    """Compare two jobs. Raises :class:`SnapshotError` if they have no rank in common."""
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
                RankChange(ranks[i], int(was[i]), int(now[i]), row_changes(before, pairs[i][0], after, pairs[i][1]))
                for i in np.argsort(-apart, kind="stable")[:MOST_APART]
                if is_apart[i] and len(ranks) > 1
            ]
            places = _places(before, after, pairs)
            groups.append(GroupChange(ranks, int(np.median(was)), int(np.median(now)), change, places, found))
    return JobDiff(
        _worst(before),
        _worst(after),
        [(rank, int(before.peaks[old[rank]]), int(after.peaks[new[rank]])) for rank in common],
        groups,
        sorted(set(old) - set(new)),
        sorted(set(new) - set(old)),
        sorted(are - were),
        sorted(were - are),
        [outlier_sentence(after, one).text for one in after.outliers if int(after.ranks[one.row]) not in were],
    )


def job_diff_document(diff: JobDiff) -> JobDiffDocument:
    """The document of ``snapreport diff --json`` for two jobs."""
    return JobDiffDocument(
        worst_before=WorstRank(*diff.worst_before),
        worst_after=WorstRank(*diff.worst_after),
        ranks=[RankBytes(*change) for change in diff.changes],
        groups=[
            GroupDiff(
                ranks=group.ranks,
                before_bytes=group.before,
                after_bytes=group.after,
                change_bytes=group.change,
                places=_place_changes(group.places),
                apart=[RankDiff(one.rank, one.before, one.after, _place_changes(one.places)) for one in group.apart],
            )
            for group in diff.groups
        ],
        only_before=diff.only_before,
        only_after=diff.only_after,
        new_outliers=diff.new_outliers,
        gone_outliers=diff.gone_outliers,
        outlier_sentences=diff.outlier_sentences,
    )


def _place_changes(places: list[tuple[str, int]]) -> list[PlaceChange]:
    return [PlaceChange(name, change) for name, change in places]


def job_diff_headline(diff: JobDiff) -> list[str]:
    """The answer: the highest peak, new and former outliers, ranks of only one job, and what was compared."""
    (rank_was, was), (rank_now, now) = diff.worst_before, diff.worst_after
    who = f"rank {rank_now}" if rank_was == rank_now else f"rank {rank_was} before, rank {rank_now} after"
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
    lines.append(f"{plural(len(diff.changes), 'rank')} compared: {rank_ranges([rank for rank, *_ in diff.changes])}.")
    return lines


def job_diff_text(diff: JobDiff) -> str:
    """What changed, one line each, the highest peak first."""
    worst, *rest = job_diff_headline(diff)
    lines = [worst]
    for group in diff.groups:
        name = upper_first(ranks_text(group.ranks))
        if group.is_unchanged:
            most = " on most ranks" if group.apart else ""
            lines.append(f"{name}: no change{most}, {bytes_text(group.before)}.")
        else:
            median = ", median" if len(group.ranks) > 1 else ""
            lines.append(f"{name}{median}: {arrow_text(group.before, group.after)}.")
            lines += _place_lines(group.places, "  ")
        for one in group.apart:
            lines.append(f"  Rank {one.rank}: {arrow_text(one.before, one.after)}.")
            lines += _place_lines(one.places, "    ")
    return "\n".join([*lines, *rest])


def _place_lines(places: list[tuple[str, int]], indent: str) -> list[str]:
    return [f"{indent}{'+' if change > 0 else ''}{bytes_text(change)}  {where}" for where, change in places]


def _worst(job: Job) -> tuple[int, int]:
    row = int(np.argmax(job.peaks))
    return int(job.ranks[row]), int(job.peaks[row])


def row_changes(before: Job, before_row: int, after: Job, after_row: int) -> list[tuple[str, int]]:
    """What changed from one row to another: (function and file, bytes), largest first."""
    return _places(before, after, [(before_row, after_row)])


def _places(before: Job, after: Job, pairs: list[tuple[int, int]]) -> list[tuple[str, int]]:
    """The largest median changes of the bytes by function and file. ``pairs``: rows before and after."""
    changes: defaultdict[str, list[int]] = defaultdict(list)
    for one, two in pairs:
        for place, change in growth(before.rows[one].packed.read(), after.rows[two].packed.read()):
            changes[place_name(place)].append(change)
    least = MIN_SHARE * float(np.median([before.peaks[one] for one, _ in pairs]))
    medians = {name: int(np.median([*of, *[0] * (len(pairs) - len(of))])) for name, of in changes.items()}
    large = [(name, change) for name, change in medians.items() if abs(change) > least]
    return sorted(large, key=lambda item: (-abs(item[1]), item[0]))[:MOST_PLACES]
