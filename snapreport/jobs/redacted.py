"""A job whose files are called by names that say nothing of people and hosts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from snapreport.jobs.reduce import Job
from snapreport.reading.redaction import Redaction
from snapreport.snapshot import Snapshot, load


@dataclass(frozen=True)
class RedactedJob:
    """``shown``: the new name of each path; ``read``: reads a snapshot by its new name, redacted."""

    job: Job
    shown: dict[str, str]
    read: Callable[[str], Snapshot]


def redacted_job(job: Job, redaction: Redaction) -> RedactedJob:
    """``job`` with its files renamed. Its digests must have been made with the same ``redaction``."""
    # A digest's own name for its source was redacted with what its recording knows of users and hosts.
    names = {row.path: row.digest.source for row in job.rows}
    names |= redaction.of_paths([*(failed.path for failed in job.failed), *job.left_out])
    shown: dict[str, str] = {}
    for path, name in names.items():
        shown[path] = name if name not in shown.values() else f"{name} ({len(shown) + 1})"
    real = {name: path for path, name in shown.items()}

    def read(name: str) -> Snapshot:
        snapshot = load(real[name])
        (snapshot.recording,) = redaction.of([snapshot.recording])
        return snapshot

    renamed = dataclasses.replace(
        job,
        rows=[dataclasses.replace(row, path=shown[row.path]) for row in job.rows],
        failed=[
            dataclasses.replace(row, path=shown[row.path], error=row.error.replace(row.path, shown[row.path]))
            for row in job.failed
        ],
        left_out=[shown[path] for path in job.left_out],
    )
    return RedactedJob(renamed, shown, read)
