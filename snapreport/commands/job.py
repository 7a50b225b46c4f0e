"""The command ``snapreport job``: one report over the ranks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from snapreport import progress
from snapreport.commands.options import (
    force_option,
    link_options,
    max_memory_option,
    page_options,
    reading_options,
)
from snapreport.output_file import check_output, make_folder
from snapreport.terminal import echo, lines

if TYPE_CHECKING:
    from snapreport.jobs.build import PageOptions, Written
    from snapreport.jobs.reduce import Job
    from snapreport.reading.redaction import Redaction
    from snapreport.snapshot import Snapshot

FAILED_ROWS = 5  # files that could not be read, named on standard error


def rank_words(value: str) -> tuple[str, ...]:
    """Ranks to show in full, with commas: ``worst``, ``median``, ``none``, and numbers."""
    words = tuple(dict.fromkeys(word.strip().lower() for word in value.split(",") if word.strip()))
    for word in words:
        if word not in ("worst", "median", "none") and not (word.isascii() and word.isdigit()):
            raise click.BadParameter(f"{word!r} is no rank; give worst, median, none, or numbers, with commas")
    return words or ("none",)


@click.command()
@click.argument("snaps", metavar="DIGEST_OR_SNAP...", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write the report; - is standard output.")
@click.option("--title", metavar="TEXT", help="Title of the report.")
@click.option("--json", "as_json", is_flag=True, help="Print the job as JSON (schema snapreport-job/2).")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    help="Processes that read snapshots; 1 is this one. Default: as many as cores and memory allow.",
)
@click.option("--dask", metavar="ADDRESS|FILE", help="Read them on this Dask cluster: its scheduler's address or file.")
@click.option(
    "--dask-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="How long to wait for its first worker. Default: 300.",
)
@click.option(
    "--rank-pattern",
    metavar="REGEX",
    help="How names contain the rank: the first group, e.g. 'node\\d+_gpu(\\d+)'. Default: the recording's own word, "
    "then names such as rank3, 000003_step_10 and -TP-3-.",
)
@click.option(
    "--world-size",
    metavar="N",
    type=click.IntRange(1),
    help="Ranks that the job has: names those that are missing.",
)
@click.option(
    "--run",
    metavar="ID",
    help="Of files of several runs, those of this one: the beginning of its id, or last; ID:0 is the attempt before "
    "its first restart.",
)
@click.option(
    "--detail",
    metavar="RANKS",
    type=rank_words,
    default="worst,median",
    show_default=True,
    help="Ranks to show in full: worst, median, none, and numbers, with commas.",
)
@click.option(
    "--watch",
    metavar="SECONDS",
    type=click.IntRange(1),
    help="While the job runs, write the report anew whenever a digest has changed, looking every so many seconds; the "
    "open page follows. Ctrl-C writes it a last time.",
)
@click.option(
    "--each",
    metavar="DIR",
    type=click.Path(),
    help="Write a report of each rank into DIR. They and the job's report link to each other.",
)
@page_options
@link_options
@reading_options(has_links=True)
@click.option("--dry-run", is_flag=True, help="Write no report; list the strings of the snapshots that it would hold.")
@force_option
@max_memory_option
def job(
    snaps: tuple[str, ...],
    output: str | None,
    title: str | None,
    as_json: bool,
    jobs: int | None,
    dask: str | None,
    dask_timeout: float | None,
    rank_pattern: str | None,
    world_size: int | None,
    run: str | None,
    detail: tuple[str, ...],
    watch: int | None,
    each: str | None,
    max_size: int | None,
    source: tuple[str, ...],
    link: str,
    strip_prefix: tuple[str, ...],
    reading: dict[str, Any],
    dry_run: bool,
    force: bool,
) -> None:
    """Write one report over the ranks of a job: which rank is different, and why.

    Snapshots and digests may be mixed. Folders, globs, URLs (with fsspec) and lists of paths (@FILE) stand for the
    files that they name. Without -o and --json the report is job.html. --max-size, --source and --link are for it and
    the ranks that it shows in full.
    """
    if as_json and output == "-":
        raise click.UsageError("--json and -o - both write to standard output")
    if dry_run and (as_json or each is not None):
        raise click.UsageError("--dry-run lists the strings of the report; it does not go with --json and --each")
    if dask and jobs:
        raise click.UsageError("--jobs is for this machine; a Dask cluster has its own workers")
    if dask_timeout is not None and not dask:
        raise click.UsageError("--dask-timeout goes with --dask")
    if reading["redaction"] and source:
        raise click.UsageError("--source quotes text as it is; it does not go with --redact")
    output = output or (None if as_json else "job.html")
    if (max_size or source or link) and not output:
        raise click.UsageError("--max-size, --source and --link are for the report; give -o as well")
    if output and not dry_run:
        check_output(output, [snap for snap in snaps if "://" not in snap], force=force)
    if watch and (as_json or dry_run or reading["redaction"] or each is not None or output == "-"):
        raise click.UsageError("--watch writes a report; it does not go with --json, --dry-run, --redact and --each")
    page = job_page(link, strip_prefix, title=title, detail=detail, max_size=max_size, source=source)
    if watch:
        from snapreport.commands.watch import watch_job

        assert output is not None
        is_given = click.get_current_context().get_parameter_source("detail") is not ParameterSource.DEFAULT
        watched = replace(page, detail=detail if is_given else ("none",))
        make = {"jobs": jobs, "dask": dask, "options": reading}
        made = {**make, **({} if dask_timeout is None else {"dask_timeout": dask_timeout})}
        watch_job(snaps, output, watched, watch, made, rank_pattern=rank_pattern, world_size=world_size, run=run)
        return
    run_job(
        snaps,
        output,
        page,
        each=each,
        as_json=as_json,
        dry_run=dry_run,
        jobs=jobs,
        dask=dask,
        **({} if dask_timeout is None else {"dask_timeout": dask_timeout}),
        rank_pattern=rank_pattern,
        world_size=world_size,
        run=run,
        **reading,
    )


def job_page(link: str, strip_prefix: Sequence[str], **options: Any) -> PageOptions:
    """``options``: more of them. Raises :class:`SnapshotError` for a bad template."""
    from snapreport.jobs.build import PageOptions
    from snapreport.report.source_links import SourceLinks

    return PageOptions(links=SourceLinks(link, strip_prefix), is_apart=True, **options)


def run_job(
    snaps: Sequence[str],
    output: str | None,
    page: PageOptions,
    *,
    each: str | None = None,
    as_json: bool = False,
    dry_run: bool = False,
    **options: Any,
) -> None:
    """Reduces, writes, and prints the answer on standard error. ``dry_run``: lists the report's strings instead.
    ``each``: the folder of the ranks' own reports. ``options``: of ``snapreport.job``.
    """
    redaction: Redaction | None = options.get("redaction")
    if each is not None:
        make_folder(each)
    written = None
    with progress.shown():
        from snapreport.contracts import json_text
        from snapreport.jobs.build import job as reduce_paths
        from snapreport.jobs.detail import RankReader
        from snapreport.jobs.job_json import job_json
        from snapreport.jobs.rank_reports import report_links
        from snapreport.jobs.redacted import redacted_job

        reduced = reduce_paths(snaps, each=each, report=output, **options)
        links = report_links(reduced, each, output) if output and each is not None else {}
        real: dict[str, str] = {}
        if redaction:
            redacted = redacted_job(reduced, redaction)
            reduced, real = redacted.job, redacted.real
            links = {redacted.shown[path]: link for path, link in links.items()}
        read = RankReader(options.get("rules"), options.get("inference", True), redaction, real)
        if output:
            written = _write(reduced, output, replace(page, each=links, read=read), dry_run=dry_run)
    if as_json:
        echo(json_text(job_json(reduced)))
    for failed in reduced.failed[:FAILED_ROWS]:
        echo(lines([f"snapreport: {failed.error}"]), err=True)
    if len(reduced.failed) > FAILED_ROWS:
        echo(f"snapreport: {len(reduced.failed) - FAILED_ROWS:,} more files could not be read", err=True)
    if output and written:
        _say(reduced, output, written)
    elif as_json:
        _say_notes(reduced)


def write_loaded_job(snapshots: Sequence[Snapshot], output: str, page: PageOptions, *, dry_run: bool = False) -> None:
    """Writes the job's report of snapshots that are already loaded, or lists its strings."""
    from snapreport.jobs.build import by_path, job_of

    reduced = job_of(snapshots)
    written = _write(reduced, output, replace(page, snapshots=by_path(snapshots)), dry_run=dry_run)
    if written:
        _say(reduced, output, written)


def _write(reduced: Job, output: str, options: PageOptions, *, dry_run: bool) -> Written | None:
    """Writes the report, or lists its strings on standard output."""
    if dry_run:
        from snapreport.jobs.outgoing import job_strings
        from snapreport.report.outgoing_strings import outgoing_text

        echo(outgoing_text(job_strings(reduced, options)))
        return None
    from snapreport.jobs.build import write_job_report

    return write_job_report(reduced, output, options)


def _say(reduced: Job, output: str, written: Written) -> None:
    from snapreport.jobs.build import job_line
    from snapreport.number_format import bytes_text

    _say_notes(reduced)
    if output == "-":
        return
    echo(lines([f"{output}: {bytes_text(written.size)}; {job_line(reduced)}"]), err=True)
    if written.left_out:
        echo(lines([f"{output}: {written.left_out}"]), err=True)


def _say_notes(reduced: Job) -> None:
    """What the page says about missing, unreadable and left out files, and about ranks that differ otherwise."""
    from snapreport.jobs.headline import notes

    for note in notes(reduced):
        echo(lines([f"snapreport: {note.text}"]), err=True)
