"""From paths to a job, and from a job to its report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from snapreport import progress
from snapreport.errors import SnapshotError
from snapreport.jobs.detail import DEFAULT_DETAIL, RankReader, chosen_rows, read_details
from snapreport.jobs.digest import digest_bytes
from snapreport.jobs.document import Detail, job_document
from snapreport.jobs.execution import DASK_SECONDS, DigestResult, fresh_processes, make_all
from snapreport.jobs.headline import headline, notes
from snapreport.jobs.heat_picture import heat_picture
from snapreport.jobs.rank_names import facts_of_names
from snapreport.jobs.rank_reports import link_to_job, report_names
from snapreport.jobs.rank_text import ranks_text
from snapreport.jobs.reduce import Job, reduce_job
from snapreport.jobs.sources import expand
from snapreport.jobs.static_summary import job_summary
from snapreport.number_format import size_text, upper_first
from snapreport.packing.columns import encode_column
from snapreport.reading.redaction import Redaction
from snapreport.report.build import Whole, fit_document, write_document
from snapreport.report.payload import Sections
from snapreport.report.source_links import REPOSITORY_LINKS, SourceLinks
from snapreport.report.summary import Summary
from snapreport.sentence import joined
from snapreport.snapshot import Snapshot, load

LARGE_DETAIL = 32 << 20
"""Bytes of snapshots shown in full above which a separate process pays off: it takes 0.7 s to start, and reading a
snapshot takes six times its size in memory."""
_READ = RankReader()


def digest(path: str | os.PathLike[str]) -> bytes:
    """The digest of a snapshot: at most 64 KB, see ``docs/jobs.md``. Raises :class:`SnapshotError` for a bad file."""
    return digest_bytes(load(path))


def job(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    executor: Executor | None = None,
    dask: str | None = None,
    dask_timeout: float = DASK_SECONDS,
    jobs: int | None = None,
    rank_pattern: str | None = None,
    world_size: int | None = None,
    run: str | None = None,
    each: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    rules: str | os.PathLike[str] | None = None,
    inference: bool = True,
    redaction: Redaction | None = None,
) -> Job:
    """Reduce the snapshots and digests of a job's ranks.

    paths: files, folders, globs, fsspec URLs or lists of paths (see ``sources.expand``). executor: any
    ``concurrent.futures.Executor``, for example that of mpi4py, whose workers see the same paths; dask: address or
    scheduler file of a cluster, whose first worker is waited for dask_timeout seconds; jobs: number of local processes
    otherwise. rank_pattern: a regular expression whose
    group is the rank. run: the beginning of a run's id, where the files are of several; "last" is the one that started
    last, and ":0" after it the attempt before the first restart. each: a folder for a report of each rank, on the
    machine that processes the rank; report: where the job's report will be, to which those of the ranks link. Ranks
    that cannot be read are in ``Job.failed``; raises :class:`SnapshotError` if none can be read, or if the files are of
    several runs and none is chosen.
    """
    arguments = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    files = expand(arguments)
    facts = facts_of_names(files, rank_pattern)
    options: dict[str, object] = {"inference": inference, "redaction": redaction}
    if rules is not None:
        options["rules"] = os.fspath(rules)
    names: dict[str, str] = {}
    if each is not None:
        names = report_names(files, [fact.rank for fact in facts], is_redacted=redaction is not None)
        options |= {"each": os.fspath(each), "names": names}
        if report is not None:
            options["job_link"] = link_to_job(each, report)
    labels = {
        path: f"rank {fact.rank}" if fact.rank is not None else Path(path).name
        for path, fact in zip(files, facts, strict=True)
    }
    made = make_all(
        files,
        jobs=jobs,
        executor=executor,
        dask=dask,
        dask_timeout=dask_timeout,
        options=options,
        label=lambda path: labels[path],
    )
    reduced = reduce_job(files, made, rank_pattern=rank_pattern, world_size=world_size, run=run)
    return replace(reduced, report_names=names)


def job_of(snapshots: Sequence[Snapshot]) -> Job:
    """The job made of snapshots that are already loaded."""
    return reduce_job(list(by_path(snapshots)), [DigestResult(digest_bytes(snapshot)) for snapshot in snapshots])


def by_path(snapshots: Sequence[Snapshot]) -> dict[str, Snapshot]:
    """Snapshots by the file name that :func:`job_of` uses: redacted paths can be equal."""
    found: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        path = snapshot.recording.path
        found[path if path not in found else f"{path} ({len(found) + 1})"] = snapshot
    return found


class PageOptions(Struct, frozen=True):
    """What a job's report shows and omits.

    detail: ranks to show in full: "worst" (the one that ran out of memory first, else the highest peak), "median", or
    rank numbers; ranks with only a digest are omitted unless their number was given. each: links to the ranks' own
    reports by path of the snapshot, relative to this report. snapshots: those already loaded, by path; read: reads the
    others. max_size, source, links: as in ``report.build.build_report``, for the ranks shown in full. is_apart: whether
    large ranks are read and laid out in a separate process, so that they add nothing to the memory of this one.
    refresh_seconds: after which the page loads itself again, 0 for never.
    """

    title: str | None = None
    detail: Sequence[str] = DEFAULT_DETAIL
    each: Mapping[str, str] = field(default_factory=dict)
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    max_size: int | None = None
    source: Sequence[str | os.PathLike[str]] = ()
    links: SourceLinks = REPOSITORY_LINKS
    read: Callable[[str], Snapshot] = _READ
    is_apart: bool = False
    refresh_seconds: int = 0


class Written(Struct, frozen=True):
    """``size``: bytes of the document. ``left_out``: one sentence on what a size limit removed, or "" if nothing."""

    size: int
    left_out: str


def write_job_report(job: Job, path: str | os.PathLike[str], options: PageOptions | None = None) -> Written:
    """Write a job's report. Raises :class:`SnapshotError` if a rank given by number cannot be shown, or if the report
    does not fit into ``max_size`` or cannot be written.
    """
    document, left_out = _fitted(job, options or PageOptions())
    write_document(path, document)
    return Written(len(document), left_out)


def build_job(job: Job, options: PageOptions | None = None) -> bytes:
    """The document that :func:`write_job_report` writes. The same job and version give the same bytes."""
    return _fitted(job, options or PageOptions())[0]


def _fitted(job: Job, options: PageOptions) -> tuple[bytes, str]:
    """The document, and what was omitted from it. If omitting columns is not enough, ranks are dropped from those shown
    in full, the last chosen first.
    """
    if options.is_apart:
        shown = [job.rows[row] for row in chosen_rows(job, options.detail)]
        if sum(row.digest.file_bytes for row in shown if row.path not in options.snapshots) > LARGE_DETAIL:
            try:
                with progress.stage("ranks shown in full", 1, "reports"), fresh_processes(1) as pool:
                    return pool.submit(_fitted, job, replace(options, is_apart=False)).result()
            except BrokenProcessPool:
                raise SnapshotError(
                    "the process that lays out the ranks shown in full was killed, for lack of memory or because it "
                    "did not end; --detail none does without them"
                ) from None
    title = options.title or job_title(job)
    snapshots, details = read_details(job, options.detail, options.snapshots, options.read)
    for count in range(len(details), -1, -1):
        dropped = _not_in_full(job, details[count:], options)
        try:
            document, left_out = fit_document(
                snapshots[:count],
                title,
                options.max_size,
                options.source,
                links=options.links,
                whole=_whole(job, details[:count], options, dropped),
            )
        except SnapshotError:
            if not count:
                raise
            continue
        return document, "; ".join(filter(None, (dropped.rstrip("."), left_out.sentence)))
    raise AssertionError("the last turn returns or raises")


def _whole(job: Job, details: Sequence[Detail], options: PageOptions, note: str) -> Whole:
    content = job_document(job, details, [options.each.get(row.path, "") for row in job.rows])

    def add(sections: Sections) -> None:
        for name, columns in content.columns.items():
            sections.columns[name] = [encode_column(column) for column in columns]
            sections.place[name] = name
        sections.extra["job"] = content.manifest

    def summary(of_details: Summary) -> Summary:
        whole = job_summary(job, of_details, details, heat_picture(content.heat), note)
        return replace(whole, refresh_seconds=options.refresh_seconds)

    return Whole(summary, add)


def _not_in_full(job: Job, dropped: Sequence[Detail], options: PageOptions) -> str:
    if not dropped or options.max_size is None:
        return ""
    verb = "is" if len(dropped) == 1 else "are"
    ranks = ranks_text(sorted(int(job.ranks[detail.row]) for detail in dropped))
    return f"{upper_first(ranks)} {verb} not shown in full, to fit {size_text(options.max_size)}."


def job_title(job: Job) -> str:
    """``Job of 64 ranks``, preceded by the name of the folder that all files share."""
    folders = {row.path.replace("\\", "/").rpartition("/")[0].rpartition("/")[2] for row in job.rows}
    folder = folders.pop() if len(folders) == 1 else ""
    return f"{folder and f'{folder}: '}job of {len(job.rows)} rank{'' if len(job.rows) == 1 else 's'}"


def job_line(job: Job) -> str:
    """The answer in one line, for the terminal: without its :func:`notes`."""
    other = [note.text for note in notes(job)]
    texts = [text for sentence in headline(job) if (text := sentence.text) not in other]
    return joined(texts[:2])
