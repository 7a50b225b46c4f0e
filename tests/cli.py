"""Runs the command, in this process (many times a second) or as a user would (a process of its own)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import corpus
from waiting import GUARD_SECONDS

import snapreport


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def in_process(*arguments: object, stdin: bytes | None = None) -> Run:
    """Runs the command through click's runner. An exception that escapes the command escapes here too.

    Ranks of a job are read in this process as well, unless --jobs says otherwise: test_jobs_execution starts others.
    """
    from click.testing import CliRunner

    from snapreport.cli import main
    from snapreport.jobs import execution

    def here(_: int, paths: Sequence[str], options: dict[str, Any] | None, done: Callable[[int, Any], None]) -> None:
        for index, path in enumerate(paths):
            done(index, execution.make_digest(path, options))

    processes = execution._on_processes if "--jobs" in arguments else here
    with mock.patch.object(execution, "_on_processes", processes), mock.patch("gc.freeze"):
        result = CliRunner().invoke(main, [str(a) for a in arguments], input=stdin, prog_name="snapreport")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{arguments}: {result.exception!r} escaped") from result.exception
    return Run(result.exit_code, result.stdout, result.stderr)


def on_loaded(*arguments: object) -> Run:
    """:func:`in_process` on files of the corpus that are already loaded; options that change reading have no effect."""
    with mock.patch.object(snapreport, "load", lambda path, *_, **__: corpus.loaded(Path(path))):
        return in_process(*arguments)


def command() -> list[str]:
    """The installed console script beside this Python; the module when run from a checkout."""
    script = Path(sys.executable).parent / "snapreport"
    return [str(script)] if script.exists() else [sys.executable, "-m", "snapreport"]


def process(
    *arguments: object,
    stdin: bytes | None = None,
    cwd: Path | None = None,
    limit: int | None = None,
    program: list[str] | None = None,
) -> Run:
    """Runs the command, or ``program`` instead, as a process; ``limit`` bounds its address space in bytes."""

    def bound() -> None:
        if limit is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(
        [*(program or command()), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        timeout=GUARD_SECONDS,
        preexec_fn=bound,
        env={**os.environ, "PYTHONUTF8": "1"},
        check=False,
    )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode())


def assert_refused(run: Run, *named: object) -> None:
    """Exit 2 and one line on standard error that contains ``named``; nothing on standard output, no traceback."""
    assert run.code == 2, f"exit code {run.code}: {run.err[-600:]}"
    lines = run.err.splitlines()
    assert len(lines) == 1 and run.err.endswith("\n"), f"not one line: {run.err!r}"
    assert "Traceback" not in run.err and not run.out
    for name in named:
        assert str(name) in lines[0], f"{name} is not in {lines[0]!r}"
