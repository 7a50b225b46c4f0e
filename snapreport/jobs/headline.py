"""The headline of a job: what its ranks do not have in common, failures, outliers, the cost, and its files."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from snapreport.findings.advice_context import MIN_BYTES, MIN_SHARE
from snapreport.jobs.imbalance import imbalance_of
from snapreport.jobs.rank_findings import merged_findings
from snapreport.jobs.rank_text import JobSentence, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import on_ranks, outlier_sentence
from snapreport.jobs.states import state_sentences
from snapreport.number_format import count_text, plural, upper_first
from snapreport.sentence import bytes_part, device_part, listed, rank_part, sentence

_SHOWN_OUTLIERS, _SHOWN_GROUPS, _SHOWN_VALUES, _SHOWN_FILES = 3, 6, 4, 3


def headline(job: Job) -> list[JobSentence]:
    """The answer first: ranks that ran out of memory, ranks that differ and where, the cost, and what is missing."""
    failures = _failures(job)
    described = {row for said in failures[1:] for row in said.rows}
    cost = imbalance_of(job)
    return [
        *state_sentences(job),
        *_leaks(job, failed=bool(job.ooms)),
        *failures,
        *_outliers(job, described),
        *_elsewhere(job),
        *differences(job),
        *_groups(job),
        JobSentence(cost.sentence, [cost.worst_row]),
        *_files(job),
    ]


def _leaks(job: Job, *, failed: bool) -> list[JobSentence]:
    """What leaks on fewer than half of the ranks: those that share it leak by what all of them run. Outliers by a leak
    are described below, and where memory ran out that comes first.
    """
    outliers = {outlier.row for outlier in job.outliers}
    found = []
    for merged in merged_findings(job):
        is_leak = merged.finding.kind == "leak" and merged.finding.severity != "info"
        if not is_leak or 2 * len(merged.rows) >= len(job.rows) or set(merged.rows) <= outliers or failed:
            continue
        found.append(
            JobSentence(sentence("{}: {}.", upper_first(on_ranks(job, merged.rows)), merged.finding.title), merged.rows)
        )
    return found[:1]


def notes(job: Job) -> list[JobSentence]:
    """What the headline says about the ranks' software, and about the files: missing, unreadable, left out."""
    return differences(job) + _files(job)


def differences(job: Job) -> list[JobSentence]:
    """What the ranks do not have in common besides memory: versions, devices, commits, settings. A sentence for each;
    ranks that do not state a value are not compared.
    """
    kinds: dict[str, list[str]] = {
        "PyTorch": [digest.software.torch for digest in job.digests],
        "CUDA or ROCm": [digest.software.cuda for digest in job.digests],
        "their device": [digest.software.device for digest in job.digests],
        "the program's commit": [digest.software.commit for digest in job.digests],
    }
    for key in sorted({key for digest in job.digests for key in digest.settings}):
        kinds[sentence("the setting {key}", key=key)] = [digest.settings.get(key, "") for digest in job.digests]
    found = []
    for name, values in kinds.items():
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, value in enumerate(values):
            if value:
                rows[value].append(row)
        if len(rows) > 1:
            found.append(_difference(job, name, rows))
    return found


def _difference(job: Job, name: str, rows: dict[str, list[int]]) -> JobSentence:
    """``rows``: of each value."""
    groups = sorted(rows.items(), key=lambda item: -len(item[1]))
    parts = [
        sentence("{value} ({})", ranks_text(job.ranks[of].tolist()), value=value)
        for value, of in groups[:_SHOWN_VALUES]
    ]
    rare = sorted(row for _, of in groups[1:] for row in of)
    named = listed([*parts, *_rest_text(len(groups) - _SHOWN_VALUES)])
    return JobSentence(sentence("The ranks differ in {name}: {}.", named, name=name), rare)


def _rest_text(count: int) -> list[str]:
    return [sentence("{} more", count_text(count))] if count > 0 else []


def _failures(job: Job) -> list[JobSentence]:
    """The ranks that ran out of memory; where one did first and is an outlier, why it has more."""
    if not job.ooms:
        return []
    said = _out_of_memory(job)
    own = [outlier for outlier in job.outliers if said.rows == [outlier.row]]
    return [said, *(outlier_sentence(job, outlier, names_world=False) for outlier in own)]


def _out_of_memory(job: Job) -> JobSentence:
    first = job.ooms[0]
    step = sentence(" at step {}", count_text(first.oom.step)) if first.oom.step is not None else ""
    then = sentence("first,{step}", step=step) if step else "first"
    tried = sentence(" A {} request failed.", bytes_part(first.oom.tried)) if first.oom.tried else ""
    name, others = sentence("{} of {}", rank_part(job.ranks[first.row], "Rank {}"), str(job.world)), len(job.ooms) - 1
    if not others:
        text = sentence("{name} ran out of memory{step}.{tried}", name=name, step=step, tried=tried)
        return JobSentence(text, [first.row])
    rest = plural(others, "other rank")
    began = sentence("{name} ran out of memory {then}.{tried} {rest}", name=name, then=then, tried=tried, rest=rest)
    if job.clock.comparable and first.oom.us is not None:
        return JobSentence(sentence("{began} followed.", began=began), [first.row])
    rows = [oom.row for oom in job.ooms]
    steps = [oom.oom.step for oom in job.ooms]
    if None not in steps and steps[0] != steps[1]:
        return JobSentence(sentence("{began} failed at later steps.", began=began), rows)
    which = upper_first(ranks_text(sorted(job.ranks[rows].tolist())))
    same = step if len(set(steps)) == 1 else ""
    said = "{which} ran out of memory{same}. Which failed first is unknown. {}"
    return JobSentence(sentence(said, job.clock.sentence, which=which, same=same), rows)


def _outliers(job: Job, described: set[int]) -> list[JobSentence]:
    rest = [outlier for outlier in job.outliers if outlier.row not in described]
    found = [outlier_sentence(job, outlier) for outlier in rest[:_SHOWN_OUTLIERS]]
    if rows := [outlier.row for outlier in rest[_SHOWN_OUTLIERS:]]:
        ranks = upper_first(ranks_text(sorted(job.ranks[rows].tolist())))
        hold = "holds more than its group" if len(rows) == 1 else "hold more than their groups"
        found.append(JobSentence(sentence("{ranks} also {hold}.", ranks=ranks, hold=hold), rows))
    return found


def _elsewhere(job: Job) -> list[JobSentence]:
    """Ranks that allocated on the device of another rank of their host, too, as ``torch.load()`` does with tensors that
    rank 0 saved. Where several ranks work on one device, they may be of hosts that were not recorded.
    """
    works: defaultdict[tuple[str, int | None], list[int]] = defaultdict(list)
    for row, digest in enumerate(job.digests):
        works[digest.host, digest.device].append(row)
    rows: defaultdict[int, list[int]] = defaultdict(list)
    most: defaultdict[int, int] = defaultdict(int)
    for row, digest in enumerate(job.digests):
        for other in digest.devices:
            owners = works.get((digest.host, other.device), [])
            is_much = other.peak_allocated >= max(MIN_BYTES, MIN_SHARE * digest.peak_allocated)
            if other.kind == "cuda" and len(owners) == 1 and owners[0] != row and is_much:
                rows[owners[0]].append(row)
                most[owners[0]] = max(most[owners[0]], other.peak_allocated)
    text = (
        "{ranks} also allocated {up_to}{} on {device}, where {} works: `torch.load(map_location=...)` and "
        "`torch.cuda.set_device()` choose the device."
    )
    return [
        JobSentence(
            sentence(
                text,
                bytes_part(most[owner]),
                rank_part(job.ranks[owner]),
                ranks=upper_first(ranks_text(job.ranks[others].tolist())),
                up_to="up to " if len(others) > 1 else "",
                device=device_part("cuda", job.digests[owner].device or 0),
            ),
            others,
        )
        for owner, others in rows.items()
    ]


def _groups(job: Job) -> list[JobSentence]:
    groups = [group for group in job.groups if job.peaks[group.rows].any()]
    if len(groups) < 2:
        return []
    parts = [
        sentence(
            "{} ({})", bytes_part(int(np.median(job.peaks[group.rows]))), ranks_text(job.ranks[group.rows].tolist())
        )
        for group in groups[:_SHOWN_GROUPS]
    ]
    text = "The ranks form {} groups by what they allocate, with median peaks of {}."
    return [JobSentence(sentence(text, len(groups), listed([*parts, *_rest_text(len(groups) - _SHOWN_GROUPS)])), [])]


def _files(job: Job) -> list[JobSentence]:
    """What a reader has to know about the files that the ranks come from."""
    found: list[JobSentence] = []
    idle = [row for row, peak in enumerate(job.peaks.tolist()) if not peak]
    if 0 < len(idle) < len(job.rows):
        ranks = upper_first(ranks_text(job.ranks[idle].tolist()))
        found.append(JobSentence(sentence("{ranks} recorded no allocations.", ranks=ranks), idle))
    lines = []
    worlds = sorted({digest.world_size for digest in job.digests if digest.world_size})
    if len(worlds) > 1:
        sizes = listed([count_text(size) for size in worlds])
        text = "The recordings name different world sizes, {sizes}: they may be of different jobs."
        lines.append(sentence(text, sizes=sizes))
    failed = {one.rank for one in job.failed}
    if missing := [rank for rank in job.missing if rank not in failed]:
        lines.append(sentence("No file was found for {}.", ranks_text(missing)))
    if job.failed:
        names = [one.path.replace("\\", "/").rpartition("/")[2] for one in job.failed[:_SHOWN_FILES]]
        shown = listed([*names, *_rest_text(len(job.failed) - _SHOWN_FILES)])
        lines.append(sentence("{} could not be read: {shown}.", plural(len(job.failed), "file"), shown=shown))
    return found + [JobSentence(text, []) for text in lines + _restarts(job) + _left_out(job)]


def _restarts(job: Job) -> list[str]:
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
    return [" ".join(found)]


def _left_out(job: Job) -> list[str]:
    found: list[str] = []
    undecided = job.undecided
    if older := len(job.left_out) - undecided - sum(map(len, job.restarts.values())):
        are = "is" if older == 1 else "are"
        found.append(sentence("{} of these ranks {are} left out.", plural(older, "older snapshot"), are=are))
    if undecided:
        has, is_ = ("has", "is") if undecided == 1 else ("have", "are")
        text = "{} {has} the rank and step of another and {is_} left out; --rank-pattern tells ranks apart."
        found.append(sentence(text, plural(undecided, "more file"), has=has, is_=is_))
    return found
