"""The command ``snapreport history``: the memory of a program over its commits."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from snapreport import progress
from snapreport.commands.inputs import check_inputs, load_all
from snapreport.commands.options import (
    expanded_paths,
    force_option,
    max_memory_option,
    redact_options,
)
from snapreport.output_file import check_output
from snapreport.terminal import echo, lines

if TYPE_CHECKING:
    from snapreport.reading.redaction import Redaction


def moment_us(value: object) -> int:
    """A moment as ISO 8601 or as seconds since the epoch; µs since the epoch. Without a zone it is UTC."""
    if isinstance(value, int):
        return value
    text = str(value)
    try:
        if text.replace(".", "", 1).isdecimal():
            return int(float(text) * 1e6)
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time; try 2026-03-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1e6)


class _Group(click.Group):
    """``history DIR`` shows a history: a first argument that is no command is a folder."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help", "-h"}:
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "DIR [-o history.html] [--json]")
        formatter.write_usage(ctx.command_path, "add DIR SNAP [--commit SHA]", prefix="       ")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def history() -> None:
    """Keep the memory of a program over its commits, and tell at which one it shifted.

    DIR keeps a digest of some kilobytes for each commit. `snapreport check --history DIR SNAP` fails where a snapshot
    is above the noise of the last commits.
    """


@history.command()
@click.argument("folder", metavar="DIR", type=click.Path())
@click.argument("snaps", metavar="SNAP", type=click.Path(), nargs=-1, required=True, callback=expanded_paths)
@click.option("--commit", metavar="SHA", help="Default: the one that was recorded, else the working directory's.")
@click.option("--label", metavar="TEXT", default="", help="Shown beside the commit, such as a pull request's number.")
@click.option("--time", "time_us", metavar="TIME", type=moment_us, help="Of the commit; orders the history.")
@redact_options(has_links=False)
@max_memory_option
def add(
    folder: str,
    snaps: tuple[str, ...],
    commit: str | None,
    label: str,
    time_us: int | None,
    redaction: Redaction | None,
) -> None:
    """Keep the digest of a snapshot, or a digest, for a commit; one that is there is replaced."""
    if len(snaps) > 1:
        raise click.UsageError(f"{len(snaps)} snapshots, of which a commit has one")
    (snap,) = snaps
    check_inputs([snap])
    with progress.shown():
        from snapreport.history.store import add as keep

        data, recorded = _digest(snap, redaction, is_named=bool(commit))
        chosen = commit or recorded or _head()
        if not chosen:
            raise click.UsageError("--commit is needed: none was recorded, and this is no working copy of git")
        row = keep(Path(folder), data, chosen, label, time_us)
    echo(lines([f"{folder}: {row.commit}: {len(data):,} bytes"]), err=True)


def _digest(snap: str, redaction: Redaction | None, is_named: bool) -> tuple[bytes, str]:
    """The digest of a snapshot, or the digest that the file is; and the commit that was recorded, "" for none.

    is_named: whether the commit is given. If not, a recording of uncommitted changes raises an error.
    """
    from snapreport.jobs.digest import digest_bytes, read_digest
    from snapreport.jobs.digest_format import is_digest

    if snap != "-" and is_digest(Path(snap).read_bytes()[:100]):
        if redaction is not None:
            raise click.UsageError("options of redaction are for snapshots; a digest is redacted when it is made")
        data = Path(snap).read_bytes()
        read_digest(data)
        return data, ""
    (snapshot,) = load_all([snap], redaction=redaction)
    recorder = snapshot.recording.recorder
    git = recorder.git if recorder else None
    if git and git.dirty and not is_named:
        raise click.UsageError(
            f"it was recorded with changes that {git.commit[:10]} does not have: commit them and record again, or name "
            "the commit with --commit"
        )
    return digest_bytes(snapshot), git.commit if git else ""


def _head() -> str:
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


@history.command(hidden=True)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write the history as a page.")
@click.option("--title", metavar="TEXT", help="Title of the page.")
@click.option("--json", "as_json", is_flag=True, help="Print the history as JSON (schema snapreport-history/1).")
@force_option
def show(folder: str, output: str | None, title: str | None, as_json: bool, force: bool) -> None:
    """Print a history, or write its page."""
    if output:
        check_output(output, [], "the history", force=force)
    from snapreport.contracts import json_text
    from snapreport.history.document import history_document
    from snapreport.history.page import history_page, history_text
    from snapreport.history.store import entries
    from snapreport.output_file import write_file

    found = entries(folder)
    document = history_document(found)
    if output:
        write_file(output, history_page(found, document, title or Path(folder).resolve().name), "the history")
    if as_json:
        echo(json_text(document))
    elif not output:
        echo(history_text(found, document))
