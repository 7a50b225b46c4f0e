"""The command ``snapreport digest``: what a job's report needs of one snapshot, in at most 64 KB."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from snapreport import progress
from snapreport.commands.shared import (
    category_options,
    check_inputs,
    force_option,
    load_all,
    max_memory_option,
    pipe_safe,
    redact_options,
    redact_prefix_option,
    redaction_only,
)
from snapreport.output_file import check_output
from snapreport.terminal import echo, lines


@click.command()
@click.argument("snap", metavar="SNAP", type=click.Path())
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Where to write the digest; - is standard output.",
)
@category_options
@redact_options
@redact_prefix_option
@click.option("--dry-run", is_flag=True, help="Write no digest; list the strings of the snapshot that it would hold.")
@force_option
@max_memory_option
def digest(
    snap: str,
    output: str | None,
    rules: str | None,
    no_inference: bool,
    redact: bool,
    redact_pattern: tuple[str, ...],
    strip_prefix: tuple[str, ...],
    dry_run: bool,
    force: bool,
) -> None:
    """Write what a job's report needs of one rank's snapshot: at most 64 KB, however large the snapshot is.

    Run it where the snapshots are, for example as a Slurm array; `snapreport job *.digest` makes the report.
    """
    redaction = redaction_only(redact, redact_pattern, strip_prefix)
    check_inputs([snap])
    if not output and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if output and not dry_run:
        check_output(output, [snap], "the digest", force=force)
    with progress.shown():
        from snapreport.jobs.digest import digest_bytes
        from snapreport.report.build import write_document

        snapshots = load_all([snap], rules, inference=not no_inference, redaction=redaction)
        data = digest_bytes(snapshots[0])
        if dry_run or not output:
            from snapreport.jobs.digest import read_digest
            from snapreport.jobs.outgoing import digest_strings
            from snapreport.report.outgoing_strings import outgoing_text

            text = outgoing_text(digest_strings(read_digest(data)))
            pipe_safe(lambda: echo(text))
            return
        pipe_safe(lambda: write_document(output, data))
    if output != "-":
        echo(lines([f"{output}: {len(data):,} bytes, digest of {Path(snap).name}"]), err=True)
    sys.stdout.flush()
