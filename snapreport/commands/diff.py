"""The command ``snapreport diff``: two snapshots, or a series, and what changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import UNSET

from snapreport import progress
from snapreport.commands.inputs import check_inputs, is_job_path, load_all, report_unlinked
from snapreport.commands.options import (
    expanded_paths,
    force_option,
    link_options,
    max_memory_option,
    redact_options,
)
from snapreport.contracts import json_text
from snapreport.output_file import check_output
from snapreport.terminal import echo

if TYPE_CHECKING:
    from snapreport.reading.redaction import Redaction


def device_numbers(value: str) -> tuple[int, ...]:
    """Device numbers, one for each snapshot or one for all: ``0:3``, ``2``; -1 is pinned host memory."""
    if not re.fullmatch(r"-?[0-9]{1,9}(:-?[0-9]{1,9})*", value):
        raise click.BadParameter(f"{value!r} names no devices; try 0:3 for device 0 before and 3 after")
    return tuple(int(part) for part in value.split(":"))


@click.command()
@click.argument("snaps", metavar="BEFORE AFTER...", nargs=-1, required=True, type=click.Path(), callback=expanded_paths)
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write the comparison as an HTML report.")
@click.option("--title", metavar="TEXT", help="Title of the report.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON (schema snapreport-diff/1).")
@click.option("--tree", is_flag=True, help="Print the stack traces that differ at the peaks, as a tree.")
@click.option(
    "--device",
    "devices",
    metavar="N[:N...]",
    type=device_numbers,
    help="Compare these devices, e.g. 0:3 for device 0 before and device 3 after.",
)
@click.option(
    "--run",
    "runs",
    metavar="ID",
    multiple=True,
    help="Of two jobs with files of several runs, those of this one, as in snapreport job --run; twice: BEFORE's, then "
    "AFTER's.",
)
@link_options
@redact_options(has_links=True)
@force_option
@max_memory_option
def diff(
    snaps: tuple[str, ...],
    output: str | None,
    title: str | None,
    as_json: bool,
    tree: bool,
    devices: tuple[int, ...] | None,
    runs: tuple[str, ...],
    link: str,
    strip_prefix: tuple[str, ...],
    redaction: Redaction | None,
    force: bool,
) -> None:
    """Compare two snapshots: what appeared, vanished, grew and shrank, at their peaks, at their ends and step by step.

    More than two are a series, ordered by the times that they recorded, else by name with 2 before 10. Every stack is
    followed through all of them to find leaks; the first and the last are compared.

    Two folders, or two lists of paths (@FILE), are two jobs: their ranks are paired by number.
    """
    if len(snaps) < 2:
        raise click.UsageError("two snapshots are needed: BEFORE and AFTER")
    if link and not output:
        raise click.UsageError("--link is for the report: add -o FILE")
    if tree and as_json:
        raise click.UsageError("--tree is text: it does not go with --json")
    if any(is_job_path(snap) for snap in snaps):
        if devices is not None or link or tree:
            raise click.UsageError("--device, --link and --tree are for snapshots; jobs are compared by rank")
        _diff_jobs(snaps, output, title, as_json, force, redaction, runs)
        return
    if runs:
        raise click.UsageError("--run is for jobs: folders, lists of paths, or digests")
    if output:
        check_inputs(snaps)
        check_output(output, snaps, force=force)
    from snapreport.report.source_links import SourceLinks

    links = SourceLinks(link, strip_prefix)  # a bad template is reported before the files are read
    with progress.shown():
        loaded = load_all(snaps, redaction=redaction)
        from snapreport.findings.comparable import in_order, paired_devices
        from snapreport.findings.diff import diff as compare
        from snapreport.findings.diff_document import diff_document
        from snapreport.findings.snapshot_series import follow, series_rows
        from snapreport.report.diff_text import diff_text, diff_tree_text, series_text

        snapshots, order = in_order(loaded)
        if devices is not None and len(devices) == len(loaded):
            # The numbers are given in the order of the files.
            given = {id(snapshot): number for snapshot, number in zip(loaded, devices, strict=True)}
            devices = tuple(given[id(snapshot)] for snapshot in snapshots)
        pairs = paired_devices(snapshots, devices)
        result = compare(snapshots[0], snapshots[-1], [(numbers[0], numbers[-1]) for numbers in pairs])
        series = follow(snapshots, order, pairs) if len(snapshots) > 2 else None
        if output:
            from snapreport.report.build import write_diff

            write_diff([result], output, title=title, series=series, links=links)
    if link:
        report_unlinked(links, loaded)
    if as_json:
        document = diff_document(result, series=series_rows(series) if series else UNSET)
        echo(json_text(document))
    elif output != "-":
        text = diff_tree_text(result) if tree else diff_text(result)
        if series:
            text = f"{series_text(series)}\n\nThe first and the last: {text}"
        echo(text)


def _diff_jobs(
    snaps: tuple[str, ...],
    output: str | None,
    title: str | None,
    as_json: bool,
    force: bool,
    redaction: Redaction | None,
    runs: tuple[str, ...],
) -> None:
    if len(snaps) != 2:
        raise click.UsageError("two jobs are needed: a folder, or a list of paths, for each")
    if len(runs) > 2:
        raise click.UsageError("--run is given once for both jobs, or once for each")
    if output:
        check_output(output, [], "the comparison", force=force)
    with progress.shown():
        from snapreport import job
        from snapreport.jobs.job_diff import diff_jobs, job_diff_text

        wanted = (*runs, *runs)[:2] or (None, None)
        before, after = (job(snap, run=run, redaction=redaction) for snap, run in zip(snaps, wanted, strict=True))
        result = diff_jobs(before, after)
        if output:
            from snapreport.jobs.job_diff_page import job_diff_page
            from snapreport.report.build import write_document

            names = [Path(snap.removeprefix("@")).name or snap for snap in snaps]
            if redaction:
                names = list(redaction.of_paths(names).values())
            page = job_diff_page(result, title or f"Two jobs: {' → '.join(names)}")
            write_document(output, page)
    if as_json:
        echo(json_text(result))
    elif output != "-":
        echo(job_diff_text(result))
