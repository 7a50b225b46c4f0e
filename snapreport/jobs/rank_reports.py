"""Reports of single ranks that ``--each`` writes: their names, and the links between them and the job's report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec.structs import replace

from snapreport.jobs.reduce import Job
from snapreport.report.build import Whole, fit_document, write_document
from snapreport.snapshot import Snapshot


def report_names(paths: Sequence[str], ranks: Sequence[int | None], *, is_redacted: bool = False) -> dict[str, str]:
    """Names of the ranks' own reports, by path: ``rank_00037.html``. If a file's name does not give the rank, or
    several files have the same rank, the file's own name, or its number if names are redacted.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    files_of_rank = Counter(ranks)
    for number, (path, rank) in enumerate(zip(paths, ranks, strict=True)):
        own = f"file_{number:05}" if is_redacted else Path(path.replace("\\", "/")).name
        name = f"rank_{rank:05}.html" if rank is not None and files_of_rank[rank] == 1 else f"{own}.html"
        while name in taken:
            name = f"{len(names)}_{name}"
        names[path] = name
        taken.add(name)
    return names


def report_links(job: Job, folder: str, output: str) -> dict[str, str]:
    """Links to the reports in ``folder``, relative to the job's report, by snapshot path; digests have none."""
    here = Path(output).resolve().parent if output != "-" else Path.cwd()
    found = {}
    for row in job.rows:
        # Use the name that was written: a recording may state a different rank than its file name.
        file = (Path(folder) / job.report_names[row.path]).resolve()
        if file.exists():
            found[row.path] = _relative_address(file, here)
    return found


def link_to_job(folder: str | os.PathLike[str], report: str | os.PathLike[str]) -> str:
    """Address of the job's report, relative to the reports in ``folder``; "" if it goes to standard output."""
    return "" if os.fspath(report) == "-" else _relative_address(Path(report).resolve(), Path(folder).resolve())


def write_rank_report(snapshot: Snapshot, path: Path, job_link: str = "") -> None:
    """Write the report of one rank, with a link to the job's report unless ``job_link`` is "".

    Raises :class:`SnapshotError` if it cannot be written.
    """
    document, _ = fit_document([snapshot], None, None, whole=Whole(lambda summary: replace(summary, job_link=job_link)))
    write_document(path, document)


def _relative_address(file: Path, folder: Path) -> str:
    """A relative URL of ``file``; "" if there is none, as between drives."""
    try:
        return quote(os.path.relpath(file, folder).replace(os.sep, "/"))
    except ValueError:
        return ""
