"""The command line: arguments in, files and exit codes out. Everything heavy is imported when a command runs."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from snapreport import progress
from snapreport.commands.inputs import check_inputs, load_all, report_unlinked
from snapreport.commands.options import (
    device_option,
    expanded_paths,
    force_option,
    link_options,
    max_memory_option,
    page_options,
    part_options,
    profile_option,
    reading_options,
)
from snapreport.commands.project_settings import project_options
from snapreport.errors import SnapshotError, one_line
from snapreport.output_file import check_output
from snapreport.reading.paths import file_name
from snapreport.terminal import echo, lines, wrapped
from snapreport.version import __version__

if TYPE_CHECKING:
    from snapreport.snapshot import Snapshot

BAD_INPUT = 2
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + the signal's number, as shells count
_SUFFIXES = (".gz", ".zst", ".xz", ".bz2", ".pickle", ".pkl", ".pt", ".pth", ".json")

# name → (module, attribute, one line of help): what other modules define is imported when called, not for --help.
_LAZY_COMMANDS = {
    "stats": ("snapreport.commands.stats", "stats", "Print findings and numbers, as text, JSON or Markdown."),
    "diff": ("snapreport.commands.diff", "diff", "Compare two snapshots, or follow a series."),
    "check": ("snapreport.commands.check", "check", "Fail when a snapshot breaks a rule, for continuous integration."),
    "job": ("snapreport.commands.job", "job", "Write one report over the ranks of a job."),
    "digest": ("snapreport.commands.digest", "digest", "Write the digest of a rank's snapshot, for job."),
    "record": ("snapreport.commands.record", "record", "Run a command and record the memory of its processes."),
    "whatif": (
        "snapreport.commands.whatif",
        "whatif",
        "Replay a trace under other allocator settings, or on a smaller device.",
    ),
    "fit": (
        "snapreport.commands.fit",
        "fit",
        "Foretell the memory at another batch size or length, and the largest that fits.",
    ),
    "export": (
        "snapreport.commands.export",
        "export",
        "Write a snapshot for other tools: Perfetto, pprof, speedscope, Parquet, DuckDB, SQLite, pictures.",
    ),
    "history": ("snapreport.commands.history", "history", "Keep memory over commits, and tell where it shifted."),
    "mcp": ("snapreport.commands.agents", "mcp", "Serve snapshots to agents, by the Model Context Protocol."),
    "skill": ("snapreport.commands.agents", "skill", "Print or install the skill that tells agents how to use this."),
    "schema": ("snapreport.commands.schema", "schema", "Print the JSON Schema of what a command prints."),
    "sample": ("snapreport.commands.sample", "sample", "Write a recording, to try things with."),
}


def _misspelt(word: str, commands: Sequence[str]) -> str:
    """The command that a word means which names no file; "" if it looks like a file's name."""
    if re.search(r"[/\\.*?:@]", word) or os.path.lexists(word):
        return ""
    return next(iter(difflib.get_close_matches(word, commands, 1, 0.7)), "")


class _Commands(click.Group):
    """A group whose first argument need not be a command: ``snapreport SNAP...`` makes a report."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell asks what may come next
            return super().parse_args(ctx, args)
        if not args:
            raise click.UsageError("no snapshot given", ctx)
        commands = self.list_commands(ctx)
        if args[0] == "help":
            args = [*(["report"] if args[1:2] and args[1] not in commands else args[1:2]), "--help"]
        elif args[0] not in {*commands, "--help", "-h", "--version", "-v", "-V"}:
            if near := _misspelt(args[0], [*commands, "help"]):
                raise click.UsageError(f"no file and no command is called {args[0]!r}; did you mean {near!r}?", ctx)
            args = ["report", *args]
        command = None if args[0].startswith("-") else self.get_command(ctx, args[0])
        if command is not None and "--help" not in args:
            ctx.default_map = {args[0]: project_options(command, args[0], ["report", *commands])}
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, and files: a report is written without a command."""
        return [*super().shell_complete(ctx, incomplete), CompletionItem(incomplete, type="file")]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(name for name, command in self.commands.items() if not command.hidden), *_LAZY_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _LAZY_COMMANDS:
            module, attribute, _ = _LAZY_COMMANDS[cmd_name]
            command: click.Command = getattr(import_module(module), attribute)
            return command
        return super().get_command(ctx, cmd_name)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "SNAP... [-o report.html]")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The report's own options first, since a report is written without a command."""
        made = self.commands["report"]
        records = [record for param in made.get_params(ctx) if (record := param.get_help_record(ctx))]
        with formatter.section("Options of a report"):
            formatter.write_dl([record for record in records if "--help" not in record[0]])
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, command.get_short_help_str()) for name, command in self.commands.items() if not command.hidden]
        rows += [(name, text) for name, (_, _, text) in _LAZY_COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """A reader that closed the pipe is not reported as an error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # Discards the interpreter's last flush instead of failing.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """The one place where errors are printed: one line, exit code 2."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "snapreport"
            _fail(f"{error.format_message()} (see '{path} --help')")
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except SnapshotError as error:
            _fail(str(error), error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        except OSError as error:
            _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
        except MemoryError:
            _fail("not enough memory")
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    echo(f"snapreport: {one_line(message)}", err=True)
    sys.exit(code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "-v", "--version", prog_name="snapreport")
def main() -> None:
    """Turn PyTorch memory snapshots into one self-contained HTML report.

    SNAP is a file written by torch.cuda.memory._dump_snapshot() (pickle, torch.save; compressed or not), or - for
    standard input. Several files, of several ranks or moments, become one report. Without -o the report is named after
    the first snapshot and written to the current directory; -o - writes it to standard output.

    Write ./stats for a file that is named like a command.
    """


@main.command(hidden=True)
@click.argument("snaps", metavar="SNAP...", nargs=-1, required=True, type=click.Path(), callback=expanded_paths)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), help="Where to write the report; - is standard output."
)
@click.option("--title", metavar="TEXT", help="Title of the report. Default: the names of the snapshots.")
@device_option
@part_options
@profile_option
@page_options
@link_options
@reading_options(has_links=True)
@click.option("--dry-run", is_flag=True, help="Write no report; list the strings of the snapshots that it would hold.")
@force_option
@max_memory_option
@click.option(
    "--separate",
    is_flag=True,
    help="Show every file in full. Otherwise files of several ranks become a job's report, as with `snapreport job`.",
)
def report(
    snaps: tuple[str, ...],
    output: str | None,
    title: str | None,
    devices: tuple[int, ...],
    part: Mapping[str, Any],
    profile: str | None,
    max_size: int | None,
    source: tuple[str, ...],
    link: str,
    strip_prefix: tuple[str, ...],
    reading: dict[str, Any],
    dry_run: bool,
    force: bool,
    separate: bool,
) -> None:
    """Write a report over one or several snapshots; over those of several ranks, the report of their job."""
    if reading["redaction"] and source:
        raise click.UsageError("--source quotes text as it is; it does not go with --redact")
    may_be_job = len(snaps) > 1 and "-" not in snaps and not (separate or devices or part)
    if may_be_job and _are_ranks(snaps):
        from snapreport.commands.job import job_page, run_job

        check_inputs(snaps)
        output = output or "job.html"
        if not dry_run:
            check_output(output, snaps, force=force)
        page = job_page(link, strip_prefix, title=title, max_size=max_size, source=source)
        run_job(snaps, output, page, dry_run=dry_run, **reading)
        return
    output = output or _default_output(snaps[0])
    check_inputs(snaps)
    if not dry_run:
        check_output(output, snaps, force=force)
    from snapreport.report.build import fit_document, write_document
    from snapreport.report.source_links import SourceLinks

    links = SourceLinks(link, strip_prefix)  # a bad template is reported before the files are read
    with progress.shown():
        snapshots = load_all(snaps, **reading, devices=devices, part=part, profile=profile)
        if may_be_job and _recorded_ranks(snapshots):
            from snapreport.commands.job import job_page, write_loaded_job

            page = job_page(link, strip_prefix, title=title, max_size=max_size, source=source)
            write_loaded_job(snapshots, output, page, dry_run=dry_run)
            return
        if dry_run:
            from snapreport.report.outgoing_strings import outgoing_strings, outgoing_text

            names = ", ".join(snapshot.recording.name for snapshot in snapshots)
            echo(outgoing_text(outgoing_strings(snapshots, title or names, source, links)))
            return
        document, left_out = fit_document(snapshots, title, max_size, source, links=links)
        write_document(output, document)
    if output != "-":
        echo(lines([f"{output}: {_headline(snapshots, len(document))}", *_diagnosis(snapshots)]), err=True)
    if left_out.parts:
        echo(lines([f"{output}: {left_out.sentence}"]), err=True)
    if link:
        report_unlinked(links, snapshots)


def _are_ranks(snaps: Sequence[str]) -> bool:
    """Whether files are ranks of a job by their names, or digests."""
    from snapreport.jobs.rank_names import are_ranks

    return all(snap.lower().endswith(".digest") for snap in snaps) or are_ranks(snaps)


def _recorded_ranks(snapshots: Sequence[Snapshot]) -> bool:
    """Whether the recordings have the metadata of several ranks."""
    recorders = [snapshot.recording.recorder for snapshot in snapshots]
    ranks = [recorder.distributed.get("RANK") if recorder else None for recorder in recorders]
    return None not in ranks and len(set(ranks)) > 1


def _default_output(snap: str) -> str:
    name = "report" if snap == "-" else file_name(snap)
    while name.lower().endswith(_SUFFIXES) and Path(name).stem:
        name = Path(name).stem
    return f"{name or 'report'}.html"


def _headline(snapshots: Sequence[Snapshot], size: int) -> str:
    from snapreport.number_format import bytes_text, count_text, device_name, plural

    timelines = [snapshot.timeline(device) for snapshot in snapshots for device in snapshot.devices]
    if not any(t.peak_bytes or len(t.events) for t in timelines):
        return f"{bytes_text(size)}; no allocations and no events recorded"
    top = max(timelines, key=lambda t: t.counted_stats.peak_allocated_bytes)
    name = device_name(top.kind, top.device)
    when = "before the first event"
    if top.peak_event >= 0 and top.counted_stats is top.stats:
        when = f"at event {count_text(top.peak_event)} of {count_text(len(top.events))}"
    ooms = sum(len(t.oom_events) for t in timelines)
    failures = f"; out of memory {plural(ooms, 'time')}" if ooms else ""
    peak = bytes_text(top.counted_stats.peak_allocated_bytes)
    return f"{bytes_text(size)}; peak on {name}: {peak} allocated {when}{failures}"


def _diagnosis(snapshots: Sequence[Snapshot]) -> list[str]:
    """What the report says first, in lines."""
    from snapreport.findings.diagnosis import diagnosis
    from snapreport.findings.opening import opening
    from snapreport.findings.run import findings
    from snapreport.sentence import joined

    start = opening(snapshots)
    said = diagnosis(findings(snapshots[start.snapshot]), start.device) if start else []
    return wrapped(joined(statement.text for statement in said))
