"""The comparison of two jobs as one small page without scripts."""

from __future__ import annotations

from msgspec import Struct

from snapreport.jobs.job_diff import GroupChange, JobDiff, job_diff_headline
from snapreport.jobs.rank_text import ranks_text
from snapreport.number_format import bytes_text, count_text, upper_first
from snapreport.report.page import render_plain

MOST_ROWS = 256


class DiffGroup(Struct, frozen=True):
    """A row of the table of groups, as text; places: (change, function and file), of single ranks with their number."""

    name: str
    before: str
    after: str
    change: str
    places: list[tuple[str, str]]


class DiffRank(Struct, frozen=True):
    """A row of the table of ranks, as text. share: percentage of the largest change of any rank."""

    rank: int
    before: str
    after: str
    change: str
    is_less: bool
    share: int


class DiffPage(Struct, frozen=True):
    """What the template shows. ranks: the largest changes first."""

    title: str
    headline: list[str]
    groups: list[DiffGroup]
    ranks: list[DiffRank]
    more: str


def job_diff_page(diff: JobDiff, title: str) -> bytes:
    """The page as UTF-8; the same comparison gives the same bytes."""
    changes = sorted(diff.changes, key=lambda change: (-abs(change[2] - change[1]), change[0]))
    largest = max([1, *(abs(after - before) for _, before, after in changes)])
    hidden = len(changes) - MOST_ROWS
    page = DiffPage(
        title,
        job_diff_headline(diff),
        [_group(group) for group in diff.groups],
        [_rank(*change, largest) for change in changes[:MOST_ROWS]],
        f"{count_text(hidden)} more ranks with smaller changes." if hidden > 0 else "",
    )
    return render_plain("job_diff.html.j2", page)


def _group(group: GroupChange) -> DiffGroup:
    return DiffGroup(
        upper_first(ranks_text(group.ranks)),
        bytes_text(group.before),
        bytes_text(group.after),
        _signed(group.change),
        [
            *((_signed(change), place) for place, change in group.places),
            *((f"rank {one.rank}: {_signed(change)}", place) for one in group.apart for place, change in one.places),
        ],
    )


def _rank(rank: int, before: int, after: int, largest: int) -> DiffRank:
    change = after - before
    return DiffRank(
        rank, bytes_text(before), bytes_text(after), _signed(change), change < 0, round(100 * abs(change) / largest)
    )


def _signed(size: int) -> str:
    return f"{'+' if size > 0 else ''}{bytes_text(size)}" if size else "0"
