"""The workflows of this project are understood, and small ones run as on a runner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import corpus
import pytest
import yaml
from workflows import ROOT, SYSTEM, Machine, WorkflowError, fitting, workflows

BUILD_AND_USE = """
on: push
jobs:
  use:
    needs: [build]
    strategy:
      matrix: {os: [ubuntu-latest, macos-latest, windows-latest], python: ["3.0"]}
    runs-on: ${{ matrix.os }}
    steps:
      - uses: actions/download-artifact@v4
        with: {name: made, path: got}
      - run: test "$(cat got/file)" = "${{ matrix.python }} main" && test ! -e committed && echo used > "$LOG"
        working-directory: .
  build:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
      - run: |
          test -e committed && test ! -e uncommitted && test -d "$RUNNER_TEMP"
          python -c "import sys; assert sys.prefix != sys.base_prefix"
          mkdir out && echo "3.0 $GITHUB_REF_NAME" > out/file
      - uses: actions/upload-artifact@v4
        with: {name: made, path: out}
      - uses: somebody/something@v1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".github" / "workflows").mkdir(parents=True)
    (folder / "committed").touch()
    (folder / "snapreport").mkdir()
    (folder / "snapreport" / "version.py").write_text('__version__ = "7.8"\n')
    as_somebody = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*as_somebody, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / "uncommitted").touch()
    return folder


def run(project: Path, text: str, *skipped: str) -> Machine:
    path = project / ".github" / "workflows" / "one.yml"
    path.write_text(text)
    (project.parent / "scratch").mkdir(exist_ok=True)
    machine = Machine(project, project.parent / "scratch", skipped)
    machine.run(path)
    return machine


def test_jobs_in_order_in_clean_clones(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG", str(project / "log"))
    machine = run(project, BUILD_AND_USE)
    assert not machine.is_failed and (project / "log").read_text() == "used\n"
    assert machine.notes == [
        "one.yml, build: somebody/something@v1: somebody/something@v1 is not emulated",
        "one.yml, use: 2 more of its matrix are for other machines",
    ]


def test_a_step_that_fails_fails_the_job_and_those_that_need_it(project: Path) -> None:
    machine = run(project, BUILD_AND_USE.replace("test -e committed &&", "false;"))
    assert machine.is_failed
    assert machine.notes[-1] == "one.yml, use: did not run, since build failed"


def test_pipes_fail_only_where_the_shell_is_named(project: Path) -> None:
    text = "on: push\njobs: {a: {runs-on: ubuntu-latest, steps: [{run: 'false | true'SHELL}]}}"
    assert not run(project, text.replace("SHELL", "")).is_failed
    assert run(project, text.replace("SHELL", ", shell: bash")).is_failed


def test_skipped_steps_are_reported(project: Path) -> None:
    machine = run(project, "on: push\njobs: {a: {runs-on: x, steps: [{run: 'false now'}]}}", "false now")
    assert not machine.is_failed and machine.notes == ["one.yml, a: false now: skipped, as requested"]


def test_a_tag_is_the_version_and_a_called_workflow_runs_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG", str(project / "log"))
    called = "on: workflow_call\njobs: {a: {runs-on: x, steps: [{run: 'echo ran >> \"$LOG\"'}]}}"
    (project / ".github" / "workflows" / "called.yml").write_text(called)
    text = "on: {push: {tags: ['v*']}}\njobs:\n  b: {uses: ./.github/workflows/called.yml}\n"
    text += "  c: {needs: b, runs-on: x, steps: [{run: 'test $GITHUB_REF_NAME = v7.8'}]}"
    machine = run(project, text)
    machine.run(project / ".github" / "workflows" / "called.yml")
    assert not machine.is_failed and (project / "log").read_text() == "ran\n"


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("{run: a, if: always()}", "if is not emulated"),
        ("{run: 'echo ${{ secrets.TOKEN }}'}", "secrets.TOKEN"),
        ("{run: a, shell: pwsh}", "pwsh is not emulated"),
    ],
)
def test_what_is_not_understood_ends_the_run(step: str, what: str, project: Path) -> None:
    with pytest.raises(WorkflowError, match=what):
        run(project, f"on: push\njobs: {{a: {{runs-on: x, steps: [{step}]}}}}")


def test_the_entry_of_a_matrix_that_fits() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    matrix = {"os": [f"{SYSTEM}-latest"], "python": ["2.7", python], "include": [{"os": "other", "python": python}]}
    assert fitting(matrix) == ({"os": f"{SYSTEM}-latest", "python": python}, 2)
    assert fitting({}) == ({}, 0)


def test_this_projects_workflows_are_understood() -> None:
    """Every key and expression; what their steps do is what ``tests/run.py --workflows`` runs."""
    assert ROOT == corpus.ROOT
    paths = list(workflows(ROOT))
    assert [path.name for path in paths] == ["tests.yml", "release.yml"]
    jobs = [job for path in paths for job in yaml.safe_load(path.read_text())["jobs"].values()]
    steps = [step for job in jobs for step in job.get("steps", [])]
    assert len(steps) > 10 and all("run" in step or "uses" in step for step in steps)
