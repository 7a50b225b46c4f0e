"""The command ``snapreport digest``: what a job's report needs of each snapshot, in at most 64 KB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from snapreport import progress
from snapreport.commands.inputs import check_inputs, load_all
from snapreport.commands.options import (
    force_option,
    max_memory_option,
    reading_options,
)
from snapreport.errors import SnapshotError
from snapreport.output_file import check_output, make_folder
from snapreport.terminal import echo, lines


@click.command()
@click.argument("snaps", metavar="SNAP...", nargs=-1, required=True, type=click.Path())
@click.option(
    "-o",
    "--output",
    metavar="FILE|DIR",
    type=click.Path(),
    help="Where to write the digest; - is standard output. Of several snapshots, the folder of their digests.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    help="Processes that read several snapshots. Default: as many as cores and memory allow.",
)
@reading_options(has_links=False)
@click.option("--dry-run", is_flag=True, help="Write no digest; list the strings of the snapshot that it would hold.")
@force_option
@max_memory_option
def digest(
    snaps: tuple[str, ...],
    output: str | None,
    jobs: int | None,
    reading: dict[str, Any],
    dry_run: bool,
    force: bool,
) -> None:
    """Write what a job's report needs of a rank's snapshot: at most 64 KB, however large the snapshot is.

    Run it where the snapshots are, for example as a Slurm array; `snapreport job *.digest` makes the report. Of several
    snapshots, and of folders, each digest is named after its snapshot, in the folder given by -o.
    """
    if not output and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if len(snaps) > 1 or snaps[0].startswith("@") or Path(snaps[0]).is_dir():
        if dry_run or not output or output == "-":
            raise click.UsageError("several digests need a folder: -o DIR")
        _write_several(snaps, output, jobs, reading, force)
        return
    snap = snaps[0]
    check_inputs([snap])
    if output and not dry_run:
        check_output(output, [snap], "the digest", force=force)
    with progress.shown():
        from snapreport.jobs.digest import digest_bytes
        from snapreport.report.build import write_document

        snapshots = load_all([snap], **reading)
        data = digest_bytes(snapshots[0])
        if dry_run or not output:
            from snapreport.jobs.digest import read_digest
            from snapreport.jobs.outgoing import digest_strings
            from snapreport.report.outgoing_strings import outgoing_text

            echo(outgoing_text(digest_strings(read_digest(data))))
            return
        write_document(output, data)
    if output != "-":
        echo(lines([f"{output}: {len(data):,} bytes, digest of {Path(snap).name}"]), err=True)


def _write_several(
    snaps: tuple[str, ...],
    folder: str,
    jobs: int | None,
    reading: dict[str, Any],
    force: bool,
) -> None:
    """Raises :class:`SnapshotError` at the end if one of them could not be read; the others are written."""
    from snapreport.jobs.execution import make_all
    from snapreport.jobs.sources import digest_names, expand
    from snapreport.output_file import write_file

    files = expand(snaps)
    names = digest_names(files)
    make_folder(folder)
    for name in names:
        check_output(str(Path(folder) / name), files, "the digest", force=force)
    with progress.shown():
        made = make_all(files, jobs=jobs, options=reading)
        for name, one in zip(names, made, strict=True):
            if one.data is not None:
                write_file(Path(folder) / name, one.data, "the digest")
    failed = [one.error for one in made if one.data is None]
    for reason in failed[:5]:
        echo(lines([f"snapreport: {reason}"]), err=True)
    echo(lines([f"{folder}: {len(made) - len(failed):,} digests"]), err=True)
    if failed:
        raise SnapshotError(f"{len(failed):,} of {len(made):,} files could not be read")
