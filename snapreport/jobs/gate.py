"""Rules for the ranks of a job: limits for the worst rank, and for how much the ranks may differ."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from snapreport import progress
from snapreport.contracts.check import Check
from snapreport.errors import SnapshotError
from snapreport.findings.gate import EVIDENCE_ROWS, Subject, check, growth_check, limit_check
from snapreport.findings.gate_rules import FAILING_KINDS, GrowthRule, Rules
from snapreport.jobs.job_diff import place_changes
from snapreport.jobs.rank_names import is_digest
from snapreport.jobs.rank_text import place, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import on_ranks, outlier_sentence
from snapreport.number_format import device_name, plural, share_text
from snapreport.sentence import bytes_part, code_part, rank_part, sentence
from snapreport.snapshot import load


def check_job(job: Job, rules: Rules, max_imbalance: float | None = None, baseline: Job | None = None) -> list[Check]:
    """Check every rule on a job. ``max_imbalance``: how far the highest peak may be above the median of all ranks, as a
    share of the median. ``baseline``: the job whose worst rank ``rules.growths`` compare with.

    A job with missing or unreadable ranks passes no rule: the worst rank may be one of them. Raises
    :class:`SnapshotError` if growth is limited and there is no baseline.
    """
    checks = [limit_check(_worst(job, what)[1], rule, what, limit) for rule, what, limit in rules.limits]
    if rules.fits is not None:
        checks.append(_fits(job, rules.fits))
    for rule in rules.growths:
        if baseline is None:
            raise SnapshotError(f"{rule.name} needs a baseline")
        checks.append(_growth(job, baseline, rule))
    if max_imbalance is not None:
        checks.append(_imbalance(job, max_imbalance))
    return checks + [_findings(job, kind) for kind in rules.fail_on]


def _worst(job: Job, what: str) -> tuple[int, Subject]:
    """The row that has most, "allocated" or "reserved", and what limits are tried on."""
    peaks = [d.highest_reserved if what == "reserved" else d.highest_allocated for d in job.digests]
    row = int(np.argmax(peaks))
    incomplete = [row for row, d in enumerate(job.digests) if d.counted_allocated is None and d.gaps]
    return row, _subject(job, row, peaks[row], _unknown(job, incomplete))


def _subject(job: Job, row: int, peak: int, unknown: str) -> Subject:
    digest = job.digests[row]
    device = "none" if digest.device is None else device_name(digest.kind, digest.device)
    return Subject(rank_part(job.ranks[row]), job.rows[row].path, device, peak, unknown, lambda: _largest(job, row))


def _fits(job: Job, memory: int) -> Check:
    """Whether every rank runs with ``memory`` bytes for the allocator. Ranks that reserved no more do; the others are
    replayed, highest peak first, up to the first that runs out of memory.
    """
    reserved = [digest.highest_reserved for digest in job.digests]
    above = sorted((row for row, size in enumerate(reserved) if size > memory), key=lambda row: -job.peaks[row])
    unknown: Check | None = None
    needed = 0
    with progress.stage("replaying", len(above), "ranks") as bar:
        for row in above:
            result = _fits_alone(job, row, memory)
            bar.advance(1)
            if result.status == "failed":
                return result
            needed = max(needed, result.value)
            unknown = unknown or (result if result.unknown else None)
    if unknown:
        return unknown
    row = above[0] if above else int(np.argmax(reserved))
    how = sentence("{} that reserved more replayed", plural(len(above), "rank")) if above else "no rank reserved more"
    text = sentence("all {} ranks run on {} for the allocator; {how}", len(job.rows), bytes_part(memory), how=how)
    return _result(job, row, "fits", True, text, needed or reserved[row], memory, [])


def _fits_alone(job: Job, row: int, memory: int) -> Check:
    entry, limit = job.rows[row], Rules(fits=memory)
    try:
        snapshot = load(entry.path)
    except SnapshotError as error:
        # A digest has the bytes that were reserved, not those that a replay would reserve.
        why = "only its digest is here, and a replay needs the snapshot" if is_digest(entry.path) else str(error)
        text = sentence(
            "{}: {} reserved at most, not replayed", rank_part(entry.rank), bytes_part(entry.digest.highest_reserved)
        )
        result = _result(job, row, "fits", False, text, entry.digest.highest_reserved, memory, [])
        return replace(result, unknown=sentence("{}: {why}", rank_part(entry.rank), why=why))
    own = device_name(entry.digest.kind, entry.digest.device or 0)
    found = next((result for result in check(snapshot, limit) if result.device == own), None)
    if found is None:
        text = sentence("{}: no replay on {own}", rank_part(entry.rank), own=own)
        return replace(
            _result(job, row, "fits", False, text, 0, memory, []), unknown=sentence("{own} cannot be replayed", own=own)
        )
    text = sentence("{}{}", rank_part(entry.rank), found.message.removeprefix(own))
    passed = _result(job, row, "fits", found.passed, text, found.value, memory, [])
    return replace(passed, unknown=found.unknown or passed.unknown)


def _growth(job: Job, baseline: Job, rule: GrowthRule) -> Check:
    """The highest peak of any rank compared with the baseline's highest."""
    (row, subject), (before_row, before) = _worst(job, rule.what), _worst(baseline, rule.what)

    def grown() -> list[str]:
        # Compare with the same rank if the baseline has it.
        same = np.flatnonzero(baseline.ranks == job.ranks[row])
        changes = place_changes(baseline, job, [(int(same[0]) if len(same) else before_row, row)])
        largest = [one for one in changes if one.change_bytes > 0][:EVIDENCE_ROWS]
        return [sentence("{} more in {}", bytes_part(one.change_bytes), code_part(one.name)) for one in largest]

    # A baseline that lacks its worst rank gives a lower limit: whatever passes would also pass with that rank.
    return growth_check(subject, before, rule, grown)


def _imbalance(job: Job, share: float) -> Check:
    row, median = int(np.argmax(job.peaks)), int(np.median(job.peaks))
    value, limit = int(job.peaks[row]), int(median * (1 + share))
    above = share_text(value - median, max(median, 1))
    allowed = sentence("above the median of {} ranks; {}% is allowed", len(job.rows), f"{100 * share:g}")
    text = sentence(
        "{}: peak allocated {}, {above} {allowed}",
        rank_part(job.ranks[row]),
        bytes_part(value),
        above=above,
        allowed=allowed,
    )
    passed = value <= limit
    return _result(job, row, "max-imbalance", passed, text, value, limit, [] if passed else _excess(job, row))


def _excess(job: Job, row: int) -> list[str]:
    """Why a row has the highest peak: the stacks that make it an outlier, else how it differs from a rank with the
    median peak.
    """
    own = next((outlier for outlier in job.outliers if outlier.row == row), None)
    if own is not None:
        return [outlier_sentence(job, own).text]
    median = int(np.argsort(job.peaks, kind="stable")[(len(job.peaks) - 1) // 2])
    grown = [one for one in place_changes(job, job, [(median, row)]) if one.change_bytes > 0][:EVIDENCE_ROWS]
    other = rank_part(job.ranks[median])
    return [
        sentence("{} more in {} than on {}", bytes_part(one.change_bytes), code_part(one.name), other) for one in grown
    ]


def _findings(job: Job, kind: str) -> Check:
    assert kind in FAILING_KINDS
    found = sorted({
        row
        for row, entry in enumerate(job.rows)
        for key, severity, _ in entry.packed.findings
        if key[0] == kind and severity != "info"
    })  # fmt: skip
    rows = sorted({*found} | ({first.row for first in job.ooms} if kind == "oom" else set()))
    text: str = (
        sentence("{kind} {}", on_ranks(job, rows), kind=kind)
        if rows
        else sentence("no {kind} found on {} ranks", len(job.rows), kind=kind)
    )
    evidence: list[str] = [
        sentence("{}: {}", rank_part(job.ranks[row]), finding.title)
        for row in found[:EVIDENCE_ROWS]
        for finding in job.rows[row].packed.read().findings
        if finding.kind == kind and finding.severity != "info"
    ]
    del evidence[EVIDENCE_ROWS:]
    result = _result(job, rows[0] if rows else 0, f"fail-on {kind}", not rows, text, len(rows), 0, evidence)
    if rows:
        return result
    result = replace(result, file=_folder(job) or result.file)
    short = [row for row, digest in enumerate(job.digests) if digest.leak_unknown] if kind == "leak" else []
    if not short or result.unknown:
        return result
    reason = sentence("{reason} ({})", on_ranks(job, short), reason=job.digests[short[0]].leak_unknown)
    return replace(result, message=reason, unknown=reason)


def _result(
    job: Job, row: int, rule: str, passed: bool, message: str, value: int, limit: int, evidence: list[str]
) -> Check:
    subject = _subject(job, row, value, _unknown(job) if passed else "")
    return Check(rule, subject.file, subject.device, passed, message, value, limit, evidence, subject.unknown)


def _folder(job: Job) -> str:
    """The folder that all files of a job share; "" if there is none."""
    names = [row.path.replace("\\", "/") for row in job.rows]
    shared = posixpath.commonprefix([posixpath.dirname(name).split("/") for name in names])
    return "/".join(shared)


def _unknown(job: Job, incomplete: Sequence[int] | None = None) -> str:
    """Why the recordings cannot show that a rule holds; "" if they can. ``incomplete``: rows whose trace does not show
    it, by default all of incomplete traces.
    """
    if job.missing:
        return sentence("No file of {} could be read.", ranks_text(job.missing))
    if incomplete is None:
        incomplete = [row for row, digest in enumerate(job.digests) if digest.gaps]
    if incomplete:
        return sentence("{} ({})", job.digests[incomplete[0]].gaps[0], on_ranks(job, incomplete))
    return ""


def _largest(job: Job, row: int) -> list[str]:
    sizes: Counter[str] = Counter()
    for stack in job.rows[row].packed.read().stacks:
        sizes[place(stack)] += stack.bytes
    whole = int(job.peaks[row])
    return [
        sentence(
            "{} ({} of the allocated peak) in {name}", bytes_part(size), share_text(size, whole), name=code_part(name)
        )
        for name, size in sizes.most_common(EVIDENCE_ROWS)
    ]
