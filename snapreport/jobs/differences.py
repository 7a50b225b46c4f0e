"""What the ranks of a job do not have in common besides memory: versions, devices, commits, settings."""

from __future__ import annotations

from collections import defaultdict

from snapreport.jobs.rank_text import JobSentence, ranks_text
from snapreport.jobs.reduce import Job
from snapreport.sentence import listed, sentence


def differences(job: Job) -> list[JobSentence]:
    """A sentence for each kind of difference. Ranks that do not state a value are not compared."""
    kinds = {
        "PyTorch": [digest.software.torch for digest in job.digests],
        "CUDA or ROCm": [digest.software.cuda for digest in job.digests],
        "their device": [digest.software.device for digest in job.digests],
        "the program's commit": [digest.software.commit for digest in job.digests],
    }
    found = [each for name, values in kinds.items() if (each := _sentence(job, name, values))]
    keys = sorted({key for digest in job.digests for key in digest.settings})
    for key in keys:
        values = [digest.settings.get(key, "") for digest in job.digests]
        if each := _sentence(job, sentence("the setting {key}", key=key), values):
            found.append(each)
    return found


def _sentence(job: Job, name: str, values: list[str]) -> JobSentence | None:
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        if value:
            rows[value].append(row)
    if len(rows) < 2:
        return None
    groups = sorted(rows.items(), key=lambda item: (-len(item[1]), item[1][0]))
    parts = [sentence("{value} ({})", ranks_text(job.ranks[of].tolist()), value=value) for value, of in groups[:4]]
    more = [sentence("{} more", len(groups) - 4)] if len(groups) > 4 else []
    rare = sorted(row for _, of in groups[1:] for row in of)
    return JobSentence(sentence("The ranks differ in {name}: {}.", listed([*parts, *more]), name=name), rare)
