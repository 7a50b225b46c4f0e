"""The sentences of a job's report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from snapreport.findings.live import category_text
from snapreport.jobs.cause_text import cause_sentence
from snapreport.jobs.differences import differences
from snapreport.jobs.digest_model import DigestFinding, DigestStack
from snapreport.jobs.groups import Group
from snapreport.jobs.outliers import Outlier
from snapreport.jobs.rank_text import JobSentence, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.jobs.rows import FindingKey, finding_key
from snapreport.jobs.states import state_sentences
from snapreport.number_format import count_text, plural, share_text, upper_first
from snapreport.sentence import bytes_part, code_part, joined, listed, place_part, rank_part, sentence

MIN_IMBALANCE = 0.03
"""Share of the worst rank's peak below which peaks count as even."""


@dataclass(frozen=True)
class Imbalance:
    """worst: the row with the largest peak, ``worst_bytes``; median of all. share: how far the median is below the
    worst peak, as a share of it. unused: bytes that the other ranks together could use until they are as high.
    """

    worst: int
    worst_bytes: int
    median_bytes: int
    share: float
    unused: int
    sentence: str


@dataclass(frozen=True)
class MergedFinding:
    """A finding with the rows that have it. row: where it is largest, which title and detail are about; None if it is
    equally large on all.
    """

    finding: DigestFinding
    rows: list[int]
    row: int | None


def place(stack: DigestStack) -> str:
    """Where a stack allocates: ``moe/dispatch.py:88``; its name if it has no file."""
    if stack.file and stack.line:
        return place_part(f"{stack.file}:{stack.line}", stack.file, stack.line)
    return code_part(stack.name) if stack.file or stack.function else "allocations without a stack trace"


def imbalance_of(job: Job) -> Imbalance:
    """How uneven the ranks' peaks are, and the cost: a job needs as much memory as its worst rank."""
    peaks = job.peaks
    worst = int(np.argmax(peaks))
    # Ranks that recorded nothing, such as those without a device, have no known headroom.
    peaks = peaks[peaks > 0] if peaks.any() else peaks
    high, median = int(peaks[worst]), int(np.median(peaks))
    share, unused = (high - median) / max(high, 1), int((high - peaks).sum())
    name = rank_part(job.ranks[worst], "Rank {}")
    if len(peaks) < 2 or share < MIN_IMBALANCE:
        low = int(peaks.min())
        within = sentence("within {} of", share_text(high - low, high)) if low < high else "at"
        all_ranks = "Both" if len(peaks) == 2 else sentence("All {}", len(peaks))
        text: str = sentence(
            "{all_ranks} ranks peak {within} {}.", bytes_part(high), all_ranks=all_ranks, within=within
        )
        if not high:
            text = "No rank recorded an allocation."
        elif len(peaks) < 2:
            text = sentence("{name} peaks at {} allocated.", bytes_part(high), name=name)
        elif (high - int(peaks.min())) / max(high, 1) >= MIN_IMBALANCE:
            text = sentence(
                "{name} has the highest peak, {}; the median rank peaks at {}.",
                bytes_part(high),
                bytes_part(median),
                name=name,
            )
        return Imbalance(worst, high, median, share, unused, text)
    text = sentence(
        "{name} determines the memory that the job needs: it peaks at {}, the median rank at {}. The other ranks "
        "leave {} of headroom unused, {} each on average.",
        bytes_part(high),
        bytes_part(median),
        bytes_part(unused),
        bytes_part(unused // max(len(peaks) - 1, 1)),
        name=name,
    )
    return Imbalance(worst, high, median, share, unused, text)


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
        f" of {_world(job)}" if names_world else "",
        rank=rank,
        amount=amount,
        where=where,
    )
    cause = job.causes.get(outlier.row)
    if cause is not None:
        text = joined([text, cause_sentence(cause, job.stacks)])
    return JobSentence(text, [outlier.row], stack)


def headline(job: Job) -> list[JobSentence]:
    """The answer first: ranks that ran out of memory, ranks that differ and where, the cost, and what is missing."""
    found: list[JobSentence] = state_sentences(job) + differences(job)
    before = len(found)
    first = job.ooms[0] if job.ooms else None
    described: set[int] = set()
    if first is not None:
        found.append(_oom_sentence(job))
        own = next((outlier for outlier in job.outliers if outlier.row == first.row), None)
        if own is not None and found[before].rows == [first.row]:
            described.add(own.row)
            found.append(outlier_sentence(job, own, names_world=False))
    rest = [outlier for outlier in job.outliers if outlier.row not in described]
    found += [outlier_sentence(job, outlier) for outlier in rest[:3]]
    if len(rest) > 3:
        rows = [outlier.row for outlier in rest[3:]]
        ranks = upper_first(ranks_text(sorted(job.ranks[rows].tolist())))
        hold = "holds more than its group" if len(rows) == 1 else "hold more than their groups"
        found.append(JobSentence(sentence("{ranks} also {hold}.", ranks=ranks, hold=hold), rows))
    groups = [group for group in job.groups if job.peaks[group.rows].any()]
    if len(groups) > 1:
        found.append(_groups_sentence(job, groups))
    cost = imbalance_of(job)
    found.append(JobSentence(cost.sentence, [cost.worst]))
    return found + _of_files(job)


def notes(job: Job) -> list[JobSentence]:
    """What the headline says about the ranks' software, and about the files: missing, unreadable, left out."""
    return differences(job) + _of_files(job)


def _of_files(job: Job) -> list[JobSentence]:
    found: list[JobSentence] = []
    idle = [row for row, peak in enumerate(job.peaks.tolist()) if not peak]
    if 0 < len(idle) < len(job.rows):
        ranks = upper_first(ranks_text(job.ranks[idle].tolist()))
        found.append(JobSentence(sentence("{ranks} recorded no allocations.", ranks=ranks), idle))
    worlds = sorted({digest.world_size for digest in job.digests if digest.world_size})
    if len(worlds) > 1:
        sizes = listed([count_text(size) for size in worlds])
        found.append(
            JobSentence(
                sentence(
                    "The recordings name different world sizes, {sizes}: they may be of different jobs.", sizes=sizes
                ),
                [],
            )
        )
    failed = {one.rank for one in job.failed}
    if missing := [rank for rank in job.missing if rank not in failed]:
        found.append(JobSentence(sentence("No file was found for {}.", ranks_text(missing)), []))
    if job.failed:
        names = listed([failed.path.replace("\\", "/").rpartition("/")[2] for failed in job.failed[:3]])
        more = sentence(" and {} more", count_text(len(job.failed) - 3)) if len(job.failed) > 3 else ""
        found.append(
            JobSentence(
                sentence(
                    "{} could not be read: {names}{more}.", plural(len(job.failed), "file"), names=names, more=more
                ),
                [],
            )
        )
    found += _restarts(job)
    if job.left_out:
        older, undecided = len(job.left_out) - job.undecided - sum(map(len, job.restarts.values())), job.undecided
        if older:
            are = "is" if older == 1 else "are"
            found.append(
                JobSentence(sentence("{} of these ranks {are} left out.", plural(older, "older snapshot"), are=are), [])
            )
        if undecided:
            verb = "has" if undecided == 1 else "have"
            text = sentence("{} {verb} the rank and step of another and", plural(undecided, "more file"), verb=verb)
            found.append(
                JobSentence(
                    sentence(
                        "{text} {} left out; --rank-pattern tells ranks apart.",
                        "is" if undecided == 1 else "are",
                        text=text,
                    ),
                    [],
                )
            )
    return found


def _restarts(job: Job) -> list[JobSentence]:
    """Which attempt of a restarted run this is, and what the others left."""
    if job.run is None or not (job.restarts or job.restart):
        return []
    found = [
        f"This is restart {job.restart} of the run." if job.restart else "This is the run before its first restart."
    ]
    for attempt, files in sorted(job.restarts.items()):
        name = f"Restart {attempt}" if attempt else "The attempt before it" if job.restart == 1 else "The first attempt"
        failed = [rank for rank, is_oom in files if is_oom]
        oom = f", where {ranks_text(failed)} ran out of memory," if failed else ""
        found.append(f"{name}{oom} is left out; --run {job.run.id}:{attempt} shows it.")
    return [JobSentence(" ".join(found), [])]


def _oom_sentence(job: Job) -> JobSentence:
    first = job.ooms[0]
    step = sentence(" at step {}", count_text(first.oom.step)) if first.oom.step is not None else ""
    then = sentence("first,{step}", step=step) if step else "first"
    tried = sentence(" A {} request failed.", bytes_part(first.oom.tried)) if first.oom.tried else ""
    name, others = sentence("{} of {}", rank_part(job.ranks[first.row], "Rank {}"), str(_world(job))), len(job.ooms) - 1
    if not others:
        return JobSentence(
            sentence("{name} ran out of memory{step}.{tried}", name=name, step=step, tried=tried), [first.row]
        )
    rest = plural(others, "other rank")
    if job.clock.is_comparable and first.oom.us is not None:
        return JobSentence(
            sentence(
                "{name} ran out of memory {then}.{tried} {rest} followed.", name=name, then=then, tried=tried, rest=rest
            ),
            [first.row],
        )
    rows = [oom.row for oom in job.ooms]
    steps = [oom.oom.step for oom in job.ooms]
    if None not in steps and steps[0] != steps[1]:
        return JobSentence(
            sentence(
                "{name} ran out of memory {then}.{tried} {rest} failed at later steps.",
                name=name,
                then=then,
                tried=tried,
                rest=rest,
            ),
            rows,
        )
    which = upper_first(ranks_text(sorted(job.ranks[rows].tolist())))
    unknown = sentence("Which failed first is unknown. {}", job.clock.sentence)
    same = step if len(set(steps)) == 1 else ""
    return JobSentence(
        sentence("{which} ran out of memory{same}. {unknown}", which=which, same=same, unknown=unknown), rows
    )


def _groups_sentence(job: Job, groups: Sequence[Group]) -> JobSentence:
    parts = [
        sentence(
            "{} ({})", bytes_part(int(np.median(job.peaks[group.rows]))), ranks_text(job.ranks[group.rows].tolist())
        )
        for group in groups[:6]
    ]
    more = [sentence("{} more", len(groups) - 6)] if len(groups) > 6 else []
    text = sentence(
        "The ranks form {} groups by what they allocate, with median peaks of {}.", len(groups), listed([*parts, *more])
    )
    return JobSentence(text, [])


def group_name(job: Job, group: Group) -> str:
    """``Ranks 0–6``."""
    return upper_first(ranks_text(job.ranks[group.rows].tolist()))


def holds(job: Job, group: Group) -> str:
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


def merged_findings(job: Job) -> list[MergedFinding]:
    """Findings of all ranks, each once with its ranks, worst first."""
    order = ("error", "warning", "info")
    rows_of: dict[FindingKey, set[int]] = {}
    sizes: dict[FindingKey, set[int]] = {}
    largest: dict[FindingKey, tuple[tuple[int, int, int], int]] = {}
    for row, entry in enumerate(job.rows):
        for key, severity, size in entry.packed.findings:
            rows_of.setdefault(key, set()).add(row)
            sizes.setdefault(key, set()).add(size)
            weight = (-order.index(severity), size, -row)
            if key not in largest or weight > largest[key][0]:
                largest[key] = weight, row
    # Read texts again only for the few ranks where a finding is largest.
    digests = {row: job.rows[row].packed.read() for row in sorted({row for _, row in largest.values()})}
    merged = [
        MergedFinding(
            next(
                finding
                for finding in digests[row].findings
                if finding_key(finding.kind, finding.rule, finding.stack) == key
                and (-order.index(finding.severity), finding.bytes, -row) == weight
            ),
            sorted(rows_of[key]),
            row if len(sizes[key]) > 1 else None,
        )
        for key, (weight, row) in largest.items()
    ]
    return sorted(
        merged, key=lambda m: (order.index(m.finding.severity), -m.finding.bytes * len(m.rows), m.finding.title)
    )


def where_found(job: Job, merged: MergedFinding) -> str:
    """``on 63 of 64 ranks; the numbers are those of rank 57``."""
    where = on_ranks(job, merged.rows)
    if merged.row is None or len(merged.rows) == 1:
        return where
    return sentence("{where}; the numbers are those of {}", rank_part(job.ranks[merged.row]), where=where)


def on_ranks(job: Job, rows: Sequence[int]) -> str:
    """``on 61 of 64 ranks``, ``on rank 5``."""
    if len(rows) == 1:
        return sentence("on {}", rank_part(job.ranks[rows[0]]))
    if len(rows) == len(job.rows):
        return sentence("on all {} ranks", len(rows))
    return sentence("on {} of {} ranks", len(rows), len(job.rows))


def _world(job: Job) -> int:
    return job.world_size or max(len(job.rows), int(job.ranks.max()) + 1)


def share_of(part: int, whole: int) -> str:
    """A share as text for sentences."""
    return share_text(part, whole)
