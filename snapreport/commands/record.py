"""The command ``snapreport record``: runs a command whose Python processes record their memory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import click

from snapreport.errors import SnapshotError
from snapreport.recorder.dump import SUFFIXES, zstd_available
from snapreport.recorder.metadata import git_facts
from snapreport.recorder.options import (
    COMPRESSIONS,
    CONTEXTS,
    MAX_ENTRIES,
    STACKS,
    VARIABLE,
    Options,
    parse_steps,
    signal_number,
)
from snapreport.recorder.profiler import SUFFIXES as PROFILE_SUFFIXES
from snapreport.terminal import echo, lines

BOOTSTRAP = Path(__file__).resolve().parent.parent / "recorder" / "bootstrap"
_SNAPSHOTS = tuple(f"rank_*{suffix}" for suffix in (*SUFFIXES.values(), *PROFILE_SUFFIXES.values()))
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells report it


def _steps(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    try:
        return parse_steps(value) if value else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _signal(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        return value if value is None or signal_number(value) else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """``90%`` as 0.9."""
    found = re.fullmatch(r"\s*(\d{1,2}(?:\.\d{1,6})?|100)\s*%\s*", value) if value is not None else None
    if value is not None and (found is None or not float(found[1])):
        raise click.BadParameter(f"{value!r} is not a share such as 90%")
    return float(found[1]) / 100 if found else None


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-o", "--output", metavar="DIR", default="memory", show_default=True, help="Folder that snapshots are written to."
)
@click.option(
    "--stacks", type=click.Choice(STACKS), default="python", show_default=True,
    help="Stack traces: Python frames, or C++ frames too, which makes every dump take minutes.",
)  # fmt: skip
@click.option(
    "--context", type=click.Choice(CONTEXTS), default="all", show_default=True,
    help="Stack traces of allocations and frees, of allocations, or only of what is live.",
)  # fmt: skip
@click.option("--max-entries", type=click.IntRange(1), default=MAX_ENTRIES, show_default=True, help="Events to keep.")
@click.option(
    "--steps", metavar="A:B", callback=_steps,
    help="Record the events of steps A to B-1 only, counted from 0, and dump after them.",
)  # fmt: skip
@click.option(
    "--profile", metavar="A:B", callback=_steps,
    help="Write a torch.profiler trace of steps A to B-1 beside the snapshots; reports and stats of them show it.",
)  # fmt: skip
@click.option("--every", metavar="N", type=click.IntRange(1), help="Dump after every N steps.")
@click.option(
    "--digest-every", metavar="N", type=click.IntRange(1),
    help="Write a digest of each process after every N steps and at its end, for snapreport job --watch.",
)  # fmt: skip
@click.option(
    "--digests", metavar="DIR|URL",
    help="Folder or address (s3://…, with fsspec) that digests are written to. Default: that of -o.",
)  # fmt: skip
@click.option(
    "--on-oom/--no-on-oom", default=True, show_default=True, help="Dump before an out-of-memory error is raised."
)
@click.option("--on-signal", metavar="NAME", callback=_signal, help="Dump when a process gets this signal, e.g. USR1.")
@click.option(
    "--at-exit/--no-at-exit", default=None, help="Dump at the end of each process. Default: unless --steps or --every."
)
@click.option("--annotations", is_flag=True, help="Record record_function regions and profiler steps too.")
@click.option(
    "--modules/--no-modules", default=True, show_default=True,
    help="Note which module of the program allocates, and the shapes of what modules return.",
)  # fmt: skip
@click.option(
    "--device-memory/--no-device-memory", default=True, show_default=True,
    help="Sample the memory in use on each device, of all processes: by NVML, or at the ends of steps.",
)  # fmt: skip
@click.option(
    "--pinned/--no-pinned", default=True, show_default=True,
    help="Record pinned host memory too, with PyTorch 2.10 or newer.",
)  # fmt: skip
@click.option(
    "--alarm", metavar="SHARE", callback=_share,
    help="Dump, and log a line, when so much of a device's memory is in use, e.g. 90%.",
)  # fmt: skip
@click.option(
    "--alarm-growth", metavar="N", type=click.IntRange(1),
    help="Dump, and log a line, after N steps in a row that each end with more allocated than any before.",
)  # fmt: skip
@click.option(
    "--keep", metavar="N", type=click.IntRange(1), default=3, show_default=True,
    help="Periodic dumps, and OOM dumps, to keep of each process.",
)  # fmt: skip
@click.option(
    "--compression", type=click.Choice(COMPRESSIONS), default="gzip", show_default=True, help="Of the snapshots."
)
@click.option(
    "--redact", metavar="REGEX", multiple=True, help="Replace what matches in the recorded command line by ***."
)
@click.option("--report", is_flag=True, help="Make a report of each snapshot when the command ends.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGS]...")
def record(command: tuple[str, ...], output: str, report: bool, **options: Any) -> None:
    """Run a command and record the memory of its Python processes, without a change to the program.

    CUDA or XPU memory is recorded from before the first allocation. Without such a device torch.profiler records the
    tensors on the CPU, for the first ten steps or those of --steps. Child processes are recorded too, so torchrun and
    other launchers work. Output and exit code of the command pass through.
    """
    digests = options.pop("digests")
    if digests is not None and "://" not in digests:
        digests = str(Path(digests).resolve())
    try:
        chosen = Options(str(Path(output).resolve()), digests=digests, **options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if chosen.compression == "zstd" and not zstd_available():
        raise click.UsageError("--compression zstd needs the package 'zstandard'")
    folder = Path(chosen.directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapshotError(f"{output}: cannot write snapshots: {error.strerror or error}") from None
    before = set(_snapshots(folder))
    code = _run(command, replace(chosen, git=git_facts(Path.cwd())))
    _remove_unfinished(folder)
    written = [path for path in _snapshots(folder) if path not in before]
    if chosen.digest_every:
        _say(f"digests in {digests or output}: snapreport job {digests or output}")
    if written or not chosen.digest_every:
        _conclude(written, output, report)
    sys.exit(code)


def _snapshots(folder: Path) -> list[Path]:
    return sorted(path for pattern in _SNAPSHOTS for path in folder.glob(pattern))


def _run(command: Sequence[str], options: Options) -> int:
    """The command's exit code; 128 and its number for a signal, as shells count."""
    paths = [str(BOOTSTRAP), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Kineto, PyTorch's profiler library, logs each start and stop on stderr; 6 is silent.
    environment = {
        "KINETO_LOG_LEVEL": "6",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        VARIABLE: options.to_json(),
    }
    try:
        process = subprocess.Popen(command, env=environment)
    except FileNotFoundError:
        _say(f"{command[0]}: command not found")
        return _NOT_FOUND
    except OSError as error:
        _say(f"{command[0]}: {error.strerror or error}")
        return _NOT_EXECUTABLE
    with _signals_to(process):
        code = process.wait()
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Passes on signals that end a job. A terminal interrupts the command itself, so that signal is only ignored."""

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    handlers: dict[signal.Signals, Any] = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: forward}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = forward
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _remove_unfinished(folder: Path) -> None:
    """Removes what killed processes left behind: unfinished dumps, and locks."""
    for path in (*folder.glob(".*rank_*.part"), *folder.glob("rank_*_digest_*.part"), *folder.glob(".rank_*.lock")):
        process = path.name.split(".")[-2]
        if not (process.isdigit() and _is_alive(int(process))):
            with contextlib.suppress(OSError):
                path.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _conclude(written: Sequence[Path], output: str, report: bool) -> None:
    if not written:
        reason = "no process of the command allocated memory that is recorded, or none lived until a dump was due"
        _say(f"no snapshot: {reason}")
        return
    count = "1 snapshot" if len(written) == 1 else f"{len(written)} snapshots"
    _say(f"{count} in {output}: {written[0].name}{', …' if len(written) > 1 else ''}")
    failed = [path for path in written if "_oom" in path.name]
    if failed:
        _guarded(failed[0], _headline)
    for path in written if report else []:
        _guarded(path, _write_report)


def _guarded(path: Path, action: Any) -> None:
    """The command has ended with an exit code of its own, which a snapshot that cannot be read does not change."""
    try:
        action(path)
    except SnapshotError as error:
        _say(str(error))


def _headline(path: Path) -> None:
    """The first line of what a report of the snapshot would say."""
    from snapreport.commands.inputs import load_all
    from snapreport.report.summary import summarise

    for sentence in summarise(load_all([str(path)]), path.name).headline_text[:1]:
        _say(f"{path.name}: {sentence}")


def _write_report(path: Path) -> None:
    from snapreport.commands.inputs import load_all
    from snapreport.report.build import write_report

    name = path.name[: path.name.index(".")]
    target = path.with_name(f"{name}.html")
    write_report(load_all([str(path)]), target)
    _say(f"{target}")


def _say(text: str) -> None:
    echo(lines([f"snapreport: {text}"]), err=True)
