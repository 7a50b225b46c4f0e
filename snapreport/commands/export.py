"""The command ``snapreport export``: a snapshot in the format of another tool."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from snapreport import plugins, progress
from snapreport.commands.inputs import load_all
from snapreport.commands.options import (
    device_option,
    expanded_paths,
    force_option,
    max_memory_option,
    reading_options,
)
from snapreport.errors import SnapshotError
from snapreport.output_file import cannot_write, check_output, output_file
from snapreport.terminal import echo, lines

if TYPE_CHECKING:
    from snapreport.snapshot import Snapshot

_REQUIRED_LIBRARY = {
    "perfetto": "perfetto",
    "pprof": "google.protobuf",
    "duckdb": "duckdb",
    "svg": "matplotlib",
    "png": "matplotlib",
}
_TRACES = ("perfetto", "chrome-trace")
_TIMELINES = ("memory-timeline",)
_PROFILES = ("pprof", "speedscope", "folded")
_FOLDERS = ("parquet", "csv")
_DATABASES = ("duckdb", "sqlite")
_PICTURES = ("svg", "png")
FORMATS = (*_TRACES, *_TIMELINES, *_PROFILES, *_FOLDERS, *_DATABASES, *_PICTURES)
_OF_OTHERS = tuple(name for name in plugins.names(plugins.EXPORTERS) if name not in FORMATS)


@click.command()
@click.argument("snaps", metavar="SNAP...", nargs=-1, required=True, type=click.Path(), callback=expanded_paths)
@click.option(
    "--to", "kind", type=click.Choice((*FORMATS, *_OF_OTHERS)), required=True, help="The format, see docs/export.md."
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(),
    required=True,
    help="The file to write; the folder for parquet and csv; - is standard output, except for folders and databases.",
)
@click.option(
    "--at",
    metavar="MOMENT",
    default="peak",
    show_default=True,
    help="Of pprof, speedscope and folded: peak, end, or an event.",
)
@click.option(
    "--of",
    type=click.Choice(("allocations", "segments")),
    default="allocations",
    help="Of the same: allocations by the stack trace that made them, or segments by that which made PyTorch call "
    "cudaMalloc for them.",
)
@device_option
@reading_options(has_links=False)
@force_option
@max_memory_option
def export(
    snaps: tuple[str, ...],
    kind: str,
    output: str,
    at: str,
    of: str,
    devices: tuple[int, ...],
    reading: dict[str, Any],
    force: bool,
) -> None:
    """Write snapshots in the format of another tool.

    perfetto and chrome-trace are memory over time; memory-timeline is what torch.profiler's export_memory_timeline
    wrote; pprof, speedscope and folded are bytes by stack trace at one moment;
    parquet, csv, duckdb and sqlite are tables; svg and png are pictures.
    """
    for name, given in (("at", at != "peak"), ("of", of != "allocations")):
        if given and kind not in _PROFILES:
            raise click.UsageError(f"--{name} goes with --to {', '.join(_PROFILES)}")
    if output == "-" and kind in (*_FOLDERS, *_DATABASES):
        raise click.UsageError(f"--to {kind} cannot be written to standard output")
    _require_library(kind)
    if kind not in _FOLDERS:
        check_output(output, snaps, "the export", force=force)
    with progress.shown():
        snapshots = load_all(snaps, **reading, devices=devices)
        if kind in _FOLDERS:
            _write_folders(snapshots, kind, Path(output), force)
        elif kind in _DATABASES:
            _write_database(snapshots, kind, output)
        else:
            _write_stream(snapshots, kind, output, at, of)
    if kind in (*_TRACES, *_TIMELINES):
        from snapreport.exporting.trace_files import without_times

        for name in without_times(snapshots):
            echo(lines([f"snapreport: {name} has no times: an event takes 1 µs"]), err=True)
    if output != "-":
        echo(lines([f"{output}: {kind} of {', '.join(Path(snap).name for snap in snaps)}"]), err=True)


def _require_library(kind: str) -> None:
    """The library that writes a format, asked for before the snapshots are read."""
    try:
        if module := _REQUIRED_LIBRARY.get(kind):
            importlib.import_module(module)
    except ImportError:
        raise SnapshotError(f"--to {kind} needs {module}: pip install 'snapreport[export]'") from None


def _write_stream(snapshots: Sequence[Snapshot], kind: str, output: str, at: str, of: str) -> None:
    write = _writer(snapshots, kind, at, of)
    if output == "-":
        write(sys.stdout.buffer)
        sys.stdout.flush()
        return
    try:
        with output_file(output) as file:
            write(file)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(output, "the export", error) from None


def _writer(snapshots: Sequence[Snapshot], kind: str, at: str, of: str) -> Callable[[BinaryIO], None]:
    if kind in _TRACES:
        from snapreport.exporting import trace_files

        trace: Any = {"perfetto": trace_files.write_perfetto, "chrome-trace": trace_files.write_chrome_trace}[kind]
        return lambda file: trace(snapshots, file)
    if kind in _TIMELINES:
        from snapreport.exporting.memory_timeline import write_memory_timeline

        return lambda file: write_memory_timeline(snapshots, file)
    if kind in _OF_OTHERS:
        of_others = plugins.load(plugins.EXPORTERS, kind)
        return lambda file: of_others(snapshots, file)
    if kind in _PICTURES:
        from snapreport.exporting.picture import write_picture

        return lambda file: write_picture(snapshots, file, kind)
    from snapreport.exporting import stack_profile

    profile: Any = getattr(stack_profile, f"write_{kind}")
    return lambda file: profile(snapshots, file, at, of)


def _write_folders(snapshots: Sequence[Snapshot], kind: str, folder: Path, force: bool) -> None:
    """Each snapshot's tables; of several in a folder each, named after the snapshot."""
    from snapreport.exporting import tables

    write = tables.write_parquet if kind == "parquet" else tables.write_csv
    names: dict[str, int] = {}
    for snapshot in snapshots:
        name = snapshot.recording.name
        names[name] = names.get(name, 0) + 1
        into = folder / (name if names[name] == 1 else f"{name}-{names[name]}") if len(snapshots) > 1 else folder
        if not force and into.is_dir() and any(into.iterdir()):
            raise SnapshotError(f"{into}: not empty; --force writes into it")
        try:
            into.mkdir(parents=True, exist_ok=True)
            write(snapshot, into)
        except OSError as error:
            raise cannot_write(str(into), "the export", error) from None


def _write_database(snapshots: Sequence[Snapshot], kind: str, output: str) -> None:
    """Made beside its place and moved there when it is whole."""
    from snapreport.exporting import databases

    write = databases.write_duckdb if kind == "duckdb" else databases.write_sqlite
    target = Path(output)
    try:
        with tempfile.TemporaryDirectory(prefix=".snapreport-", dir=target.parent) as scratch:
            made = Path(scratch) / "made"
            write(snapshots, made)
            made.replace(target)
    except OSError as error:
        raise cannot_write(output, "the export", error) from None
