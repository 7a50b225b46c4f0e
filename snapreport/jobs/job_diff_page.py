"""The comparison of two jobs as one small page without scripts."""

from __future__ import annotations

from msgspec import Struct

from snapreport.contracts.job import GroupDiff, JobDiffDocument, RankBytes
from snapreport.jobs.job_diff import job_diff_headline
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


def job_diff_page(diff: JobDiffDocument, title: str) -> bytes:
    """The page as UTF-8; the same comparison gives the same bytes."""
    changes = sorted(diff.ranks, key=lambda one: -abs(one.after_bytes - one.before_bytes))
    largest = max([1, *(abs(one.after_bytes - one.before_bytes) for one in changes)])
    hidden = len(changes) - MOST_ROWS
    page = DiffPage(
        title,
        job_diff_headline(diff),
        [_group(group) for group in diff.groups],
        [_rank(one, largest) for one in changes[:MOST_ROWS]],
        f"{count_text(hidden)} more ranks with smaller changes." if hidden > 0 else "",
    )
    return render_plain("job_diff.html.j2", page)


def _group(group: GroupDiff) -> DiffGroup:
    places = [("", one) for one in group.places]
    places += [(f"rank {of.rank}: ", one) for of in group.apart for one in of.places]
    return DiffGroup(
        upper_first(ranks_text(group.ranks)),
        bytes_text(group.before_bytes),
        bytes_text(group.after_bytes),
        _signed(group.change_bytes),
        [(f"{rank}{_signed(one.change_bytes)}", one.name) for rank, one in places],
    )


def _rank(one: RankBytes, largest: int) -> DiffRank:
    change = one.after_bytes - one.before_bytes
    before, after, share = bytes_text(one.before_bytes), bytes_text(one.after_bytes), 100 * abs(change) / largest
    return DiffRank(one.rank, before, after, _signed(change), change < 0, round(share))


def _signed(size: int) -> str:
    return f"{'+' if size > 0 else ''}{bytes_text(size)}" if size else "0"
