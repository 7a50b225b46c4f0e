"""The strings from snapshots that a digest or a job's report would contain, for ``--dry-run``."""

from __future__ import annotations

import os

from msgspec.structs import asdict

from snapreport.jobs.build import PageOptions, job_title
from snapreport.jobs.detail import read_details
from snapreport.jobs.digest_model import Digest
from snapreport.jobs.document import MOST_FINDINGS, job_document
from snapreport.jobs.rank_findings import merged_findings
from snapreport.jobs.reduce import Job
from snapreport.report.outgoing_strings import outgoing_strings

Strings = dict[str, list[str]]


def digest_strings(digest: Digest) -> Strings:
    """Distinct strings of a digest by kind, sorted; without snapreport's own terms such as categories."""
    stacks = digest.stacks
    return _sorted({
        "names of files": {digest.source},
        "hosts": {digest.host},
        "runs, launchers and commands": {digest.run.id, digest.run.launch, digest.run.command},
        "versions, devices and commits": set(asdict(digest.software).values()),
        "allocator settings": {text for setting in digest.settings.items() for text in setting},
        "files of stack traces": {stack.file for stack in stacks},
        "functions of stack traces": {stack.function for stack in stacks},
        "lines of stack traces": {text for stack in stacks for text in (stack.name, *stack.callers)},
        "sentences of findings": {text for finding in digest.findings for text in (finding.title, *finding.detail)},
        "gaps in recordings": set(digest.gaps),
    })  # fmt: skip


def job_strings(job: Job, options: PageOptions) -> Strings:
    """Distinct strings of the report that :func:`snapreport.jobs.build.write_job_report` would write, by kind, sorted:
    from the tables of all ranks, and from the snapshots of those shown in full.
    """
    snapshots, details = read_details(job, options.detail, options.snapshots, options.read)
    page = job_document(job, details, [options.each.get(row.path, "") for row in job.rows]).manifest
    stacks, findings = page["stack_names"], [merged.finding for merged in merged_findings(job)[:MOST_FINDINGS]]
    title = options.title or job_title(job)
    found: dict[str, set[str]] = {
        "titles and names of snapshots": {title},
        "names of files": {*page["sources"], *page["left_out"], *(failed["source"] for failed in page["failed"])},
        "links to reports": set(page["links"]),
        "files that could not be read": {failed["error"] for failed in page["failed"]},
        "hosts": set(page["hosts"]),
        "files of stack traces": {stack["file"] for stack in stacks},
        "functions of stack traces": {stack["function"] for stack in stacks},
        "lines of stack traces": {text for stack in stacks for text in (stack["name"], *stack["frames"])},
        "sentences of findings": {text for finding in findings for text in (finding.title, *finding.detail)},
        "gaps in recordings": {gap for digest in job.digests for gap in digest.gaps[:1]},
    }
    if snapshots:
        source = [os.fspath(folder) for folder in options.source]
        for kind, texts in outgoing_strings(snapshots, title, source, options.links).items():
            found.setdefault(kind, set()).update(texts)
    return _sorted(found)


def _sorted(found: dict[str, set[str]]) -> Strings:
    kinds = {kind: sorted(texts - {""}) for kind, texts in found.items()}
    return {kind: texts for kind, texts in kinds.items() if texts}
