"""The sentences of a job's report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from snapreport.findings.live import category_text
from snapreport.jobs.cause_text import cause_sentence
from snapreport.jobs.groups import Group
from snapreport.jobs.outliers import Outlier
from snapreport.jobs.rank_text import JobSentence, place, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.number_format import upper_first
from snapreport.sentence import bytes_part, joined, listed, rank_part, sentence


def outlier_sentence(job: Job, outlier: Outlier, *, names_world: bool = True) -> JobSentence:
    """``Rank 37 of 64 holds 6.10 GiB more than the others in moe/dispatch.py:88.``, then the cause where it is known;
    ``names_world``: with "of 64".
    """
    rank, group = rank_part(job.ranks[outlier.row], "Rank {}"), job.groups[outlier.group]
    others = "the others"
    if len(group.rows) < len(job.rows):
        others = sentence("its group ({})", ranks_text(job.ranks[group.rows].tolist()))
    amount = sentence("{} more than {others}", bytes_part(outlier.bytes_above), others=others)
    stack = outlier.stacks[0][0] if outlier.stacks else None
    where = ""
    if outlier.stacks:
        rows = outlier.stacks
        names = list(dict.fromkeys(place(job.stacks[row[0]]) for row in rows))
        if len(names) == 1:
            where = sentence(" in {}", names[0])
        elif sum(row[1] for row in rows if place(job.stacks[row[0]]) == names[0]) >= 0.8 * outlier.bytes_above:
            where = sentence(", most of it in {}", names[0])
        elif len(names) <= 3:
            where = sentence(", in {}", listed(names))
        else:
            where = sentence(", most in {}", listed(names[:2]))
    text = sentence(
        "{rank}{} holds {amount}{where}.",
        f" of {job.world}" if names_world else "",
        rank=rank,
        amount=amount,
        where=where,
    )
    cause = job.causes.get(outlier.row)
    if cause is not None:
        text = joined([text, cause_sentence(cause, job.stacks)])
    return JobSentence(text, [outlier.row], stack)


def group_name(job: Job, group: Group) -> str:
    """``Ranks 0–6``."""
    return upper_first(ranks_text(job.ranks[group.rows].tolist()))


def group_memory(job: Job, group: Group) -> str:
    """The memory of a group's ranks at their peaks, in one line: categories of the median rank, and the slope."""
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for row in group.rows:
        for name, size in job.rows[row].digest.categories:
            sizes[name].append(size)
    medians = {
        name: int(np.median([*values, *[0] * (len(group.rows) - len(values))])) for name, values in sizes.items()
    }
    top = sorted(medians.items(), key=lambda item: (-item[1], item[0]))[:3]
    text = listed([sentence("{} {}", category_text(name), bytes_part(size)) for name, size in top if size])
    if group.slope is not None:
        change = sentence(
            "{} {} from rank to rank", bytes_part(abs(int(group.slope))), "more" if group.slope > 0 else "less"
        )
        return sentence("{text}; {change}", text=text, change=change) if text else change
    return text


def on_ranks(job: Job, rows: Sequence[int]) -> str:
    """``on 61 of 64 ranks``, ``on rank 5``."""
    if len(rows) == 1:
        return sentence("on {}", rank_part(job.ranks[rows[0]]))
    if len(rows) == len(job.rows):
        return sentence("on all {} ranks", len(rows))
    return sentence("on {} of {} ranks", len(rows), len(job.rows))
