"""The newcomer's page: each of its blocks runs, in an empty folder and in its order, without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli import command
from test_notebook import CELLS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "first-steps.md"
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(os.name == "nt", reason="lines of a Unix shell")
def test_every_line_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("perfetto")
    tools, home = tmp_path / "bin", tmp_path / "home"
    for folder in (tools, home):
        folder.mkdir()
    for name, words in (("snapreport", command()), ("python", [sys.executable])):
        (tools / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (tools / name).chmod(0o755)
    author = {
        f"GIT_{who}_{what}": "newcomer@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    env = {
        **os.environ,
        **author,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "GIT_CEILING_DIRECTORIES": str(tmp_path),
    }
    (program, *cells), shells = ([text for kind, text in BLOCKS if kind == wanted] for wanted in ("python", "sh"))
    (home / "train.py").write_text(program)
    results = [
        subprocess.run(["bash", "-ec", text], cwd=home, env=env, capture_output=True, text=True, check=False)
        for text in shells
    ]
    failed = [number for number, text in enumerate(shells) if "snapreport check" in text]
    assert [number for number, run in enumerate(results) if run.returncode] == failed, [run.stderr for run in results]
    (check,) = (results[number] for number in failed)
    assert check.returncode == 1 and re.search(r"\+\S+ MiB in \S+ train\.py:\d+\n", check.stdout), check.stdout
    for name in ("training.html", "report.html", "history.html"):
        assert (home / name).read_bytes().startswith(b"<!DOCTYPE html>")
    assert (home / "snap.perfetto-trace").stat().st_size > 1000
    said = subprocess.run(
        [*command(), "history", "memory-history"], cwd=home, capture_output=True, text=True, check=True
    )
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=home, env=env, capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"{head.stdout[:10]}: peak allocated ")
    assert [cell.rstrip() for cell in cells] == CELLS[:2]
