"""Habits of the command line: help, misspelt commands, completion, colours, options of a project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import corpus
import pytest
from cli import command, in_process, on_loaded

from snapreport import terminal


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "colour", "auto")


def test_help_of_a_command() -> None:
    assert in_process("help").out == in_process("--help").out
    assert in_process("help", "stats").out == in_process("stats", "--help").out
    assert in_process("-v").out == in_process("--version").out


@pytest.mark.parametrize(("word", "meant"), [("sats", "stats"), ("jobs", "job"), ("chekc", "check"), ("hepl", "help")])
def test_a_misspelt_command(word: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = in_process(word)
    assert run.code == 2 and f"did you mean {meant!r}?" in run.err
    (tmp_path / word).write_bytes(b"a file is a file")
    assert "did you mean" not in in_process(word).err
    assert "did you mean" not in in_process(f"{word}.pickle").err


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [("snapreport st", 1, "stats"), ("snapreport export --to sp", 3, "speedscope"), ("snapreport fl", 1, "file,fl")],
)
def test_completion(words: str, at: int, expected: str) -> None:
    code = "from snapreport.cli import main; main(prog_name='snapreport')"
    asked = {"_SNAPREPORT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    run = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, check=False)
    assert expected in run.stdout.decode()


def test_colours_only_where_they_are_wanted() -> None:
    snap = corpus.path_of("oom")
    plain, coloured = (on_loaded("stats", *option, snap).out for option in ([], ["--color", "always"]))
    assert "\x1b" not in plain and "\x1b[1;31mERROR\x1b[0m" in coloured
    assert coloured.replace("\x1b[1;31m", "").replace("\x1b[0m", "") == plain


@pytest.mark.skipif(os.name == "nt", reason="terminals of Unix")
@pytest.mark.parametrize(
    ("options", "variables", "is_coloured"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        ((), {"TERM": "dumb"}, False),
        (("--color", "never"), {}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_a_terminal_has_colours(options: tuple[str, ...], variables: dict[str, str], is_coloured: bool) -> None:
    import pty

    ours, theirs = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | variables
    arguments = [*command(), "stats", *options, str(corpus.path_of("oom"))]
    with subprocess.Popen(arguments, stdout=theirs, stderr=subprocess.DEVNULL, env=env) as run:
        os.close(theirs)
        shown = b""
        while part := read_part(ours):
            shown += part
    os.close(ours)
    assert run.returncode == 0 and b"oom.pickle" in shown
    assert (b"\x1b[" in shown) is is_coloured


def read_part(terminal: int) -> bytes:
    """Linux says that a terminal has ended by an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
@pytest.mark.parametrize("arguments", [("stats",), ("check", "--max-peak", "1B", "--junit", "-"), ("schema", "stats")])
def test_a_reader_that_closes_the_pipe_is_no_error(arguments: tuple[str, ...]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    snaps = [] if arguments[0] == "schema" else [str(corpus.path_of("small"))]
    run = subprocess.run([*command(), *arguments, *snaps], stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert (run.returncode, run.stderr) == (141, b"")


def test_one_device(tmp_path: Path) -> None:
    snap = corpus.path_of("multi-gpu")
    run = in_process("stats", "--json", "--device", 2, snap)
    assert [device["device"] for device in run.json["snapshots"][0]["devices"]] == [2]
    out = tmp_path / "one.html"
    assert in_process(snap, "--device", 2, "-o", out).code == 0
    refused = in_process("stats", "--device", 9, snap)
    assert refused.code == 2 and "there are 0, 1, 2\n" in refused.err


class TestProject:
    def test_options_are_those_of_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        below = tmp_path / "a" / "b"
        below.mkdir(parents=True)
        (tmp_path / "rules.toml").write_text("not rules")
        (tmp_path / "pyproject.toml").write_text(
            '[tool.snapreport.check]\nmax-peak = "1MiB"\n[tool.snapreport.stats]\njson = true\n'
        )
        monkeypatch.chdir(below)
        snap = corpus.path_of("small")
        assert on_loaded("check", snap).code == 1
        assert on_loaded("check", "--max-peak", "1TiB", snap).code == 0
        assert on_loaded("stats", snap).json["schema"] == "snapreport-stats/3"
        (tmp_path / "pyproject.toml").write_text('[tool.snapreport]\nrules = "rules.toml"\n')
        run = in_process("stats", snap)
        assert run.code == 2 and str(tmp_path / "rules.toml") in run.err

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[tool.snapreport]\nmax-peek = 3\n", "'max-peek' is none of"),
            ("[tool.snapreport.chekc]\nmax-peak = '1GiB'\n", "no such command"),
            ("[tool.snapreport.stats]\nmax-peak = '1GiB'\n", "'max-peak' is no option of it"),
            ("[tool]\nsnapreport = 3\n", "is not a table"),
        ],
    )
    def test_what_is_no_option(self, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pyproject.toml").write_text(text)
        run = in_process("stats", corpus.path_of("small"))
        assert run.code == 2 and said in run.err and run.err.count("\n") == 1

    def test_a_broken_file_is_not_ours(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pyproject.toml").write_text("[[[")
        assert on_loaded("stats", corpus.path_of("small")).code == 0
