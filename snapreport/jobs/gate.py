"""Rules for the ranks of a job: limits hold for the worst rank, and the ranks may differ so much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snapreport.errors import SnapshotError
from snapreport.findings.gate import FAILING_KINDS, Check, Rules
from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import on_ranks, outlier_sentence, place, ranks_text
from snapreport.number_format import bytes_text, device_name, share_text

EVIDENCE_ROWS = 5


def check_job(job: Job, rules: Rules, max_imbalance: float | None = None) -> list[Check]:
    """Try every rule on a job. ``max_imbalance``: how far the highest peak may lie above the median of all ranks, as a
    share of the median.

    A job with ranks that are missing or could not be read passes no rule: the worst rank may be one of them. Raises
    :class:`SnapshotError` for rules that digests cannot decide.
    """
    if rules.fits is not None or rules.max_growth is not None:
        raise SnapshotError("--fits and --max-growth need snapshots one by one, not a job; leave out --max-imbalance")
    checks = []
    if rules.max_peak is not None:
        checks.append(_at_most(job, "max-peak", "allocated", job.peaks.tolist(), rules.max_peak))
    if rules.max_reserved is not None:
        reserved = [digest.peak_reserved for digest in job.digests]
        checks.append(_at_most(job, "max-reserved", "reserved", reserved, rules.max_reserved))
    if max_imbalance is not None:
        checks.append(_imbalance(job, max_imbalance))
    return checks + [_findings(job, kind) for kind in rules.fail_on]


def _at_most(job: Job, rule: str, what: str, values: Sequence[int], limit: int) -> Check:
    row = int(np.argmax(values))
    value = values[row]
    compared = "within" if value <= limit else f"{bytes_text(value - limit)} over"
    text = f"rank {job.ranks[row]}: peak {what} {bytes_text(value)}, {compared} the limit of {bytes_text(limit)}"
    return _result(job, row, rule, value <= limit, text, value, limit, [] if value <= limit else _largest(job, row))


def _imbalance(job: Job, share: float) -> Check:
    row, median = int(np.argmax(job.peaks)), int(np.median(job.peaks))
    value, limit = int(job.peaks[row]), int(median * (1 + share))
    above = share_text(value - median, max(median, 1))
    allowed = f"above the median of {len(job.rows)} ranks; {100 * share:g}% is allowed"
    text = f"rank {job.ranks[row]}: peak allocated {bytes_text(value)}, {above} {allowed}"
    passed = value <= limit
    evidence = [] if passed else [outlier_sentence(job, outlier).text for outlier in job.outliers[:EVIDENCE_ROWS]]
    return _result(job, row, "max-imbalance", passed, text, value, limit, evidence)


def _findings(job: Job, kind: str) -> Check:
    assert kind in FAILING_KINDS
    found = sorted({
        row
        for row, entry in enumerate(job.rows)
        for key, severity, _ in entry.packed.findings
        if key[0] == kind and severity != "info"
    })  # fmt: skip
    rows = sorted({*found} | ({first.row for first in job.ooms} if kind == "oom" else set()))
    text = f"{kind} {on_ranks(job, rows)}" if rows else f"no {kind} on {len(job.rows)} ranks"
    evidence = [
        f"rank {job.ranks[row]}: {finding.title}"
        for row in found[:EVIDENCE_ROWS]
        for finding in job.rows[row].packed.read().findings
        if finding.kind == kind and finding.severity != "info"
    ][:EVIDENCE_ROWS]
    return _result(job, rows[0] if rows else 0, f"fail-on {kind}", not rows, text, len(rows), 0, evidence)


def _result(
    job: Job, row: int, rule: str, passed: bool, message: str, value: int, limit: int, evidence: list[str]
) -> Check:
    digest = job.digests[row]
    device = "none" if digest.device is None else device_name(digest.kind, digest.device)
    unknown = _unknown(job) if passed else ""
    file = job.rows[row].path
    return Check(rule, file, device, passed and not unknown, message, value, limit, evidence, unknown)


def _unknown(job: Job) -> str:
    """Why the recordings cannot show that a rule holds; "" where they can."""
    if job.missing:
        return f"No file of {ranks_text(job.missing)} could be read."
    incomplete = [row for row, digest in enumerate(job.digests) if digest.gaps]
    if incomplete:
        return f"{job.digests[incomplete[0]].gaps[0]} ({on_ranks(job, incomplete)})"
    return ""


def _largest(job: Job, row: int) -> list[str]:
    stacks = sorted(job.rows[row].packed.read().stacks, key=lambda stack: -stack.bytes)[:EVIDENCE_ROWS]
    whole = int(job.peaks[row])
    return [f"{bytes_text(s.bytes)} ({share_text(s.bytes, whole)}) in {place(s).strip('`')}" for s in stacks]
