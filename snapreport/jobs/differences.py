"""What the ranks of a job do not have in common besides memory: versions, devices, commits, settings."""

from __future__ import annotations

from collections import defaultdict

from snapreport.findings.live import listed
from snapreport.jobs.rank_text import JobSentence, ranks_text
from snapreport.jobs.reduce import Job


def differences(job: Job) -> list[JobSentence]:
    """A sentence for each kind of difference. Ranks that do not state a value are not compared."""
    kinds = {
        "PyTorch": [digest.software.torch for digest in job.digests],
        "CUDA or ROCm": [digest.software.cuda for digest in job.digests],
        "their device": [digest.software.device for digest in job.digests],
        "the program's commit": [digest.software.commit for digest in job.digests],
    }
    found = [sentence for name, values in kinds.items() if (sentence := _sentence(job, name, values))]
    keys = sorted({key for digest in job.digests for key in digest.settings})
    for key in keys:
        values = [digest.settings.get(key, "") for digest in job.digests]
        if sentence := _sentence(job, f"the setting {key}", values):
            found.append(sentence)
    return found


def _sentence(job: Job, name: str, values: list[str]) -> JobSentence | None:
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        if value:
            rows[value].append(row)
    if len(rows) < 2:
        return None
    groups = sorted(rows.items(), key=lambda item: (-len(item[1]), item[1][0]))
    parts = [f"{value} ({ranks_text(job.ranks[of].tolist())})" for value, of in groups[:4]]
    more = [f"{len(groups) - 4} more"] if len(groups) > 4 else []
    rare = sorted(row for _, of in groups[1:] for row in of)
    return JobSentence(f"The ranks differ in {name}: {listed([*parts, *more])}.", rare)
