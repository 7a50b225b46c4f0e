"""A job whose files are renamed so that they reveal no people or hosts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, structs

from snapreport.jobs.reduce import Job
from snapreport.reading.paths import file_name
from snapreport.reading.redaction import HIDDEN, Redaction


class RedactedJob(Struct, frozen=True):
    """``shown``: the new name of each path."""

    job: Job
    shown: dict[str, str]

    @property
    def real(self) -> dict[str, str]:
        """The path of each new name."""
        return {name: path for path, name in self.shown.items()}


def redacted_job(job: Job, redaction: Redaction) -> RedactedJob:
    """``job`` with its files renamed. Its digests must have been made with the same ``redaction``."""
    # The digest's name for its source was redacted with the users and hosts that its recording names.
    names = {row.path: row.digest.source for row in job.rows} | job.left_out_sources
    # The name of a file that could not be read may contain a host known from the others.
    hidden = {name for path, shown in names.items() for name in _hidden(file_name(path), shown)}
    names |= redaction.of_paths([failed.path for failed in job.failed], hidden)
    shown: dict[str, str] = {}
    for path, name in names.items():
        shown[path] = name if name not in shown.values() else f"{name} ({len(shown) + 1})"
    renamed = structs.replace(
        job,
        rows=[structs.replace(row, path=shown[row.path]) for row in job.rows],
        failed=[
            structs.replace(row, path=shown[row.path], error=row.error.replace(row.path, shown[row.path]))
            for row in job.failed
        ],
        left_out=[shown[path] for path in job.left_out],
    )
    return RedactedJob(renamed, shown)


def _hidden(name: str, shown: str) -> Sequence[str]:
    """The parts that redaction removed from a file's name."""
    found = re.fullmatch(re.escape(shown).replace(re.escape(HIDDEN), "(.+?)"), name) if HIDDEN in shown else None
    return found.groups() if found else ()
