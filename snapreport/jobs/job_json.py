"""The document of ``snapreport job --json``, schema ``snapreport-job/1``."""

from __future__ import annotations

from typing import Any

import numpy as np

from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import headline, holds, imbalance_of, merged_findings, outlier_sentence

SCHEMA = "snapreport-job/1"


def job_json(job: Job) -> dict[str, Any]:
    """Plain values; sizes in bytes, times in µs since the epoch. See ``docs/jobs.md``."""
    cost = imbalance_of(job)
    return {
        "schema": SCHEMA,
        "headline": [sentence.text for sentence in headline(job)],
        "world_size": job.world_size,
        "missing_ranks": job.missing,
        "failed": [{"rank": f.rank, "source": f.path, "error": f.error} for f in job.failed],
        "left_out": job.left_out,
        "clock": {"comparable": job.clock.is_comparable, "sentence": job.clock.sentence},
        "imbalance": {
            "worst_rank": int(job.ranks[cost.worst]),
            "worst_bytes": cost.worst_bytes,
            "median_bytes": cost.median_bytes,
            "share": round(cost.share, 6),
            "unused_bytes": cost.unused,
        },
        "ranks": [_rank(job, row) for row in range(len(job.rows))],
        "groups": [_group(job, number) for number in range(len(job.groups))],
        "outliers": [
            {
                "rank": int(job.ranks[outlier.row]),
                "group": outlier.group,
                "bytes_above": outlier.bytes_above,
                "sentence": outlier_sentence(job, outlier).text,
                "stacks": [
                    {**stack_json(job, stack), "bytes_above": above, "bytes": size, "expected_bytes": expected}
                    for stack, above, size, expected in outlier.stacks
                ],
            }
            for outlier in job.outliers
        ],
        "findings": [
            {
                "kind": merged.finding.kind,
                "severity": merged.finding.severity,
                "title": merged.finding.title,
                "detail": list(merged.finding.detail),
                "bytes": merged.finding.bytes,
                "ranks": job.ranks[merged.rows].tolist(),
                "numbers_of_rank": None if merged.row is None else int(job.ranks[merged.row]),
            }
            for merged in merged_findings(job)
        ],
    }


def stack_json(job: Job, number: int) -> dict[str, Any]:
    """The fields that name a stack of ``job.stacks``."""
    stack = job.stacks[number]
    return {
        "identity": stack.identity,
        "function": stack.function,
        "file": stack.file,
        "line": stack.line,
        "name": stack.name,
    }


def _rank(job: Job, row: int) -> dict[str, Any]:
    entry, digest = job.rows[row], job.rows[row].digest
    oom = digest.ooms[0] if digest.ooms else None
    return {
        "rank": entry.rank,
        "rank_source": entry.rank_source,
        "source": entry.path,
        "host": digest.host,
        "device": digest.device,
        "kind": digest.kind,
        "events": digest.events,
        "steps": digest.steps,
        "peak_allocated_bytes": digest.peak_allocated,
        "peak_reserved_bytes": digest.peak_reserved,
        "peak_event": digest.peak_event,
        "peak_step": digest.peak_step,
        "peak_us": digest.peak_us,
        "end_allocated_bytes": digest.end_allocated,
        "capacity_bytes": digest.capacity,
        "first_oom": None
        if oom is None
        else {
            "event": oom.event,
            "step": oom.step,
            "time_us": oom.us,
            "tried_bytes": oom.tried,
            "free_bytes": oom.free,
        },
        "trust": {
            "gaps": list(digest.gaps),
            "overflowed": digest.overflowed,
            "reconciliation_bytes": digest.reconciliation,
            "stackless_bytes": digest.stackless,
        },
        "categories": dict(digest.categories),
        "group": int(job.group_of[row]),
    }


def _group(job: Job, number: int) -> dict[str, Any]:
    group = job.groups[number]
    peaks, typical = job.peaks[group.rows], np.median(job.stack_bytes[group.rows], axis=0)
    order = np.argsort(-typical, kind="stable")[:10]
    return {
        "ranks": job.ranks[group.rows].tolist(),
        "kind": group.kind,
        "holds": holds(job, group),
        "median_bytes": int(np.median(peaks)),
        "min_bytes": int(peaks.min()),
        "max_bytes": int(peaks.max()),
        "slope_bytes_per_rank": None if group.slope is None else int(group.slope),
        "stacks": [{**stack_json(job, int(i)), "median_bytes": int(typical[i])} for i in order if typical[i] > 0],
    }
