"""The document of ``snapreport job --json``."""

from __future__ import annotations

import numpy as np

from snapreport.contracts.job import (
    FailedFile,
    FirstOom,
    GroupStack,
    Imbalance,
    JobDocument,
    JobFinding,
    JobGroup,
    JobOutlier,
    JobRank,
    JobRun,
    OutlierStack,
    RankTrust,
)
from snapreport.jobs.cause_text import cause_json
from snapreport.jobs.headline import differences, headline
from snapreport.jobs.imbalance import imbalance_of
from snapreport.jobs.rank_findings import merged_findings
from snapreport.jobs.reduce import Job
from snapreport.jobs.sentences import group_memory, outlier_sentence
from snapreport.jobs.states import states_of


def job_json(job: Job) -> JobDocument:
    """What is known of a job, without the curves and stacks of each rank."""
    cost = imbalance_of(job)
    return JobDocument(
        headline=[sentence.text for sentence in headline(job)],
        run=_run(job),
        differences=[sentence.text for sentence in differences(job)],
        world_size=job.world_size,
        missing_ranks=job.missing,
        failed=[FailedFile(one.rank, one.path, one.error) for one in job.failed],
        left_out=job.left_out,
        clock=job.clock,
        imbalance=Imbalance(
            worst_rank=int(job.ranks[cost.worst_row]),
            worst_bytes=cost.worst_bytes,
            median_bytes=cost.median_bytes,
            share=cost.share,
            unused_bytes=cost.unused_bytes,
        ),
        ranks=[_rank(job, row, state) for row, state in enumerate(states_of(job))],
        groups=[_group(job, number) for number in range(len(job.groups))],
        outliers=[
            JobOutlier(
                rank=int(job.ranks[outlier.row]),
                group=outlier.group,
                bytes_above=outlier.bytes_above,
                cause=cause_json(job.causes.get(outlier.row), job.stacks),
                sentence=outlier_sentence(job, outlier).text,
                stacks=[OutlierStack(*_stack(job, number), *sizes) for number, *sizes in outlier.stacks],
            )
            for outlier in job.outliers
        ],
        findings=[
            JobFinding(
                kind=merged.finding.kind,
                severity=merged.finding.severity,
                title=merged.finding.title,
                detail=list(merged.finding.detail),
                bytes=merged.finding.bytes,
                ranks=job.ranks[merged.rows].tolist(),
                numbers_of_rank=None if merged.row is None else int(job.ranks[merged.row]),
            )
            for merged in merged_findings(job)
        ],
    )


def _run(job: Job) -> JobRun | None:
    if job.run is None:
        return None
    run = job.run
    return JobRun(run.id, run.launch, run.start_us, run.command, job.restart, sorted(job.restarts))


def _stack(job: Job, number: int) -> tuple[str, str, str, int, str]:
    """The fields that name a stack of ``job.stacks``."""
    stack = job.stacks[number]
    return stack.identity, stack.function, stack.file, stack.line, stack.name


def _rank(job: Job, row: int, state: str) -> JobRank:
    entry, digest = job.rows[row], job.rows[row].digest
    oom = digest.ooms[0] if digest.ooms else None
    return JobRank(
        rank=entry.rank,
        rank_source=entry.rank_source,
        source=entry.path,
        host=digest.host,
        device=digest.device,
        kind=digest.kind,
        reason=digest.reason,
        state=state,
        step=digest.step,
        torch=digest.software.torch,
        device_name=digest.software.device,
        commit=digest.software.commit,
        events=digest.events,
        steps=digest.steps,
        peak_allocated_bytes=digest.highest_allocated,
        peak_reserved_bytes=digest.highest_reserved,
        peak_event=digest.peak_event,
        peak_step=digest.peak_step,
        peak_us=digest.peak_us,
        end_allocated_bytes=digest.end_allocated,
        capacity_bytes=digest.capacity,
        first_oom=None if oom is None else FirstOom(oom.event, oom.step, oom.us, oom.tried, oom.free),
        trust=RankTrust(list(digest.gaps), digest.overflowed, digest.reconciliation, digest.stackless),
        categories=dict(digest.categories),
        group=int(job.group_of[row]),
    )


def _group(job: Job, number: int) -> JobGroup:
    group = job.groups[number]
    peaks, typical = job.peaks[group.rows], np.median(job.stack_bytes[group.rows], axis=0)
    order = np.argsort(-typical, kind="stable")[:10]
    return JobGroup(
        ranks=job.ranks[group.rows].tolist(),
        kind=group.kind,
        memory=group_memory(job, group),
        median_bytes=int(np.median(peaks)),
        min_bytes=int(peaks.min()),
        max_bytes=int(peaks.max()),
        slope_bytes_per_rank=None if group.slope is None else int(group.slope),
        stacks=[GroupStack(*_stack(job, int(i)), int(typical[i])) for i in order if typical[i] > 0],
    )
