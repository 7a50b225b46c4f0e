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
)
from snapreport.output_file import check_output
from snapreport.terminal import echo, lines


@click.command()
@click.argument("snap", metavar="SNAP", type=click.Path())
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    type=click.Path(),
    help="Where to write the digest; - is standard output.",
)
@category_options
@force_option
@max_memory_option
def digest(snap: str, output: str, rules: str | None, no_inference: bool, force: bool) -> None:
    """Write what a job's report needs of one rank's snapshot: at most 64 KB, however large the snapshot is.

    Run it where the snapshots are, for example as a Slurm array; `snapreport job *.digest` makes the report.
    """
    check_inputs([snap])
    check_output(output, [snap], "the digest", force=force)
    with progress.shown():
        from snapreport.jobs.digest import digest_bytes
        from snapreport.report.build import write_document

        data = digest_bytes(load_all([snap], rules, inference=not no_inference)[0])
        pipe_safe(lambda: write_document(output, data))
    if output != "-":
        echo(lines([f"{output}: {len(data):,} bytes, digest of {Path(snap).name}"]), err=True)
    sys.stdout.flush()
