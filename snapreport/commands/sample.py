"""The command `snapreport sample`: write a recording to try things with."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from snapreport.commands.options import force_option
from snapreport.output_file import cannot_write, check_output, output_file
from snapreport.samples import SAMPLES, recordings
from snapreport.terminal import echo, lines

_LIST = "\b\nSamples:\n" + "\n".join(f"  {name:<14} {about}" for name, about in SAMPLES.items())


@click.command(epilog=_LIST)
@click.argument("name", type=click.Choice(list(SAMPLES)), metavar="[NAME]", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="File to write (- for standard output), .gz and .xz are compressed; of a job a folder.  "
    "[default: NAME.pickle, or the folder NAME]",
)
@force_option
def sample(name: str | None, output: str | None, force: bool) -> None:
    """Write a recording to try things with, where there is no GPU and no PyTorch.

    Small programs ran on PyTorch's own allocator, and snapreport recorded them.

    \b
      snapreport sample training && snapreport training.pickle -o report.html
      snapreport sample job && snapreport job job/ -o job.html
    """  # noqa: D301  # click's mark for lines that it must not wrap is the character \b
    if name is None:
        echo(lines([f"{each:<14} {about}" for each, about in SAMPLES.items()]))
        return
    if output and output.lower().endswith((".html", ".htm")):
        raise click.UsageError(f"a sample is a recording; its report: snapreport {name}.pickle -o {output}")
    found = recordings(name)
    if len(found) == 1:
        _write(found[0], output or f"{name}.pickle", force)
        return
    folder = Path(output or name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, "the sample", error) from None
    for path in found:
        _write(path, str(folder / path.name.removesuffix(".xz")), force)


def _write(recording: Path, output: str, force: bool) -> None:
    import gzip
    import lzma

    check_output(output, [], "the sample", force=force)
    with lzma.open(recording) as source:
        if output == "-":
            shutil.copyfileobj(source, sys.stdout.buffer)
            return
        try:
            with output_file(output) as raw:
                if output.endswith(".gz"):
                    with gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
                        shutil.copyfileobj(source, packed)
                elif output.endswith(".xz"):
                    with lzma.LZMAFile(raw, "wb") as packed_xz:
                        shutil.copyfileobj(source, packed_xz)
                else:
                    shutil.copyfileobj(source, raw)
        except (OSError, ValueError) as error:
            raise cannot_write(output, "the sample", error) from None
    echo(lines([f"{output}: {Path(output).stat().st_size:,} bytes"]), err=True)
