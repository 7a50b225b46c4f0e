"""The command ``snapreport diff``: two snapshots, or a series, and what changed."""

from __future__ import annotations

import json

import click

from snapreport import progress
from snapreport.commands.shared import check_output, load_all, pipe_safe


@click.command()
@click.argument("snaps", metavar="BEFORE AFTER...", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write the comparison as an HTML report.")
@click.option("--title", metavar="TEXT", help="Title of the report.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON (schema snapreport-diff/1).")
def diff(snaps: tuple[str, ...], output: str | None, title: str | None, as_json: bool) -> None:
    """Compare two snapshots: what appeared, vanished, grew and shrank, at their peaks, at their ends and step by step.

    More than two are a series in the order given: each is compared with the first, and their peaks are listed.
    """
    if len(snaps) < 2:
        raise click.UsageError("two snapshots are needed: BEFORE and AFTER")
    if output:
        check_output(output, snaps)
    with progress.shown():
        snapshots = load_all(snaps)
        from snapreport.findings.diff import diff as compare
        from snapreport.findings.diff import diff_json
        from snapreport.findings.snapshot_series import series
        from snapreport.report.diff_text import diff_text, series_text

        results = [compare(snapshots[0], other) for other in snapshots[1:]]
        if output:
            from snapreport.report.build import write_diff

            pipe_safe(lambda: write_diff(results, output, title=title))
    if as_json:
        document = diff_json(results[-1])
        if len(results) > 1:
            document["series"] = series(snapshots)
        pipe_safe(lambda: click.echo(json.dumps(document, indent=1)))
    elif output != "-":
        text = diff_text(results[-1])
        if len(results) > 1:
            text = f"{series_text(series(snapshots))}\n\n{text}"
        pipe_safe(lambda: click.echo(text))
