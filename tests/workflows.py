"""Runs the steps of this project's workflows on this machine: ``python3 tests/run.py --workflows [options]``.

Every job has a clean clone of the checkout (committed files only), an environment of its own made from this Python in
place of ``actions/setup-python``, and RUNNER_TEMP; jobs that ``needs`` names run before. Artifacts are folders. Of a
matrix, the entry that fits this machine runs. An action that is not emulated is reported, and whatever else is not
understood ends the run: no step counts as passed that did not run. (``act`` does it in containers, which need Docker.)
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SYSTEM = {"linux": "ubuntu", "darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
# What bash without `shell:`, and with it, is called with on a runner.
SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}
WORKFLOW_KEYS = {"name", "on", "permissions", "jobs", "concurrency"}
JOB_KEYS = {"name", "needs", "runs-on", "strategy", "steps", "uses", "permissions", "environment", "timeout-minutes"}
STEP_KEYS = {"name", "uses", "with", "run", "shell", "working-directory", "env"}
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


class WorkflowError(Exception):
    """A workflow asks for something that is not emulated."""


@dataclass
class Machine:
    """What the jobs of a run share. ``told`` is one line for each step that failed, was skipped or not emulated."""

    source: Path
    scratch: Path
    skipped: tuple[str, ...] = ()
    finished: set[tuple[Path, str]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    is_failed: bool = False

    def run(self, path: Path, ref: str | None = None) -> None:
        """Runs a workflow's jobs, each after those that it needs; a job whose needs failed does not run."""
        workflow = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
        _known(workflow, WORKFLOW_KEYS, path.name)
        ref = ref or self._ref(workflow)
        waiting = dict(workflow["jobs"])
        while waiting:
            ready = [name for name, job in waiting.items() if not set(_list(job.get("needs"))) & waiting.keys()]
            if not ready:
                raise WorkflowError(f"{path.name}: the jobs {', '.join(waiting)} need each other")
            job = waiting.pop(ready[0])
            if (path, ready[0]) in self.finished:
                continue
            self.finished.add((path, ready[0]))
            if not self._job(path, ready[0], job, ref):
                self.is_failed = True
                for name in [name for name, other in waiting.items() if ready[0] in _list(other.get("needs"))]:
                    self._note(f"{path.name}, {name}: did not run, since {ready[0]} failed")
                    del waiting[name]

    def _job(self, path: Path, name: str, job: dict[str, Any], ref: str) -> bool:
        _known(job, JOB_KEYS, f"{path.name}, {name}")
        if "uses" in job:
            if not job["uses"].startswith("./"):
                raise WorkflowError(f"{path.name}, {name}: the workflow {job['uses']} is not here")
            before, self.is_failed = self.is_failed, False
            self.run(self.source / job["uses"], ref)
            has_passed, self.is_failed = not self.is_failed, before or self.is_failed
            return has_passed
        matrix, others = fitting((job.get("strategy") or {}).get("matrix") or {})
        if others:
            self._note(f"{path.name}, {name}: {others} more of its matrix are for other machines")
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))
        for place in ("workspace", "temp"):
            (folder / place).mkdir()
        variables = {
            **{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")},
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(folder / "workspace"),
            "GITHUB_REF_NAME": ref,
            "RUNNER_TEMP": str(folder / "temp"),
        }
        for step in job["steps"]:
            title = (
                f"{path.name}, {name}: {step.get('name') or step.get('uses') or step.get('run', '').splitlines()[0]}"
            )
            _known(step, STEP_KEYS, title)
            step = _filled(step, {f"matrix.{key}": value for key, value in matrix.items()} | {"github.ref_name": ref})
            if any(text in title or text in step.get("run", "") for text in self.skipped):
                self._note(f"{title}: skipped, as requested")
            elif "uses" in step:
                self._action(title, step, folder, variables)
            elif not self._command(title, step, folder, variables):
                self._note(f"{title}: FAILED")
                return False
        shutil.rmtree(folder)
        return True

    def _command(self, title: str, step: dict[str, Any], folder: Path, variables: dict[str, str]) -> bool:
        if step.get("shell") not in SHELLS:
            raise WorkflowError(f"{title}: the shell {step['shell']} is not emulated")
        print(f"== {title}", flush=True)
        script = folder / "temp" / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            [*SHELLS[step.get("shell")], str(script)],
            cwd=folder / "workspace" / step.get("working-directory", "."),
            env=variables | step.get("env", {}),
            check=False,
        )
        return done.returncode == 0

    def _action(self, title: str, step: dict[str, Any], folder: Path, variables: dict[str, str]) -> None:
        action, given = step["uses"].partition("@")[0], step.get("with", {})
        workspace = folder / "workspace"
        if action == "actions/checkout":
            shutil.rmtree(workspace)
            subprocess.run(["git", "clone", "--quiet", str(self.source), str(workspace)], check=True)
        elif action == "actions/setup-python":
            venv.create(folder / "python", with_pip=True, symlinks=os.name != "nt")
            place = folder / "python" / ("Scripts" if os.name == "nt" else "bin")
            variables["PATH"] = f"{place}{os.pathsep}{variables['PATH']}"
        elif action == "actions/setup-node":
            if not shutil.which("node"):
                raise WorkflowError(f"{title}: there is no Node on this machine")
        elif action == "actions/upload-artifact":
            artifact = self.scratch / "artifacts" / given["name"]
            shutil.rmtree(artifact, ignore_errors=True)
            shutil.copytree(workspace / given["path"], artifact)
            if not any(artifact.iterdir()):
                raise WorkflowError(f"{title}: {given['path']} is empty")
        elif action == "actions/download-artifact":
            shutil.copytree(self.scratch / "artifacts" / given["name"], workspace / given["path"], dirs_exist_ok=True)
        else:
            self._note(f"{title}: {step['uses']} is not emulated")

    def _note(self, text: str) -> None:
        self.notes.append(text)
        print(f"== {text}", flush=True)

    def _ref(self, workflow: dict[str, Any]) -> str:
        """The branch or tag that starts a workflow: of one for tags such as ``v*``, that of the package's version."""
        push = workflow["on"].get("push") if isinstance(workflow["on"], dict) else None
        if not isinstance(push, dict) or "tags" not in push:
            return "main"
        version = re.search(r'__version__ = "(.+)"', (self.source / "snapreport" / "version.py").read_text())
        return str(push["tags"][0]).replace("*", version[1] if version else "0")


def fitting(matrix: dict[str, Any]) -> tuple[dict[str, str], int]:
    """The entry of a matrix that fits this machine's system and Python best, and how many others there are.

    An entry of ``include`` is one of its own: additions to others are not emulated.
    """
    axes = {key: values for key, values in matrix.items() if key not in ("include", "exclude")}
    if "exclude" in matrix:
        raise WorkflowError("exclude in a matrix is not emulated")
    entries = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())] if axes else []
    entries += matrix.get("include", [])
    if not entries:
        return {}, 0
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    mine = [entry for entry in entries if entry.get("os", SYSTEM).startswith(SYSTEM)]
    if not mine:
        raise WorkflowError(f"no entry of the matrix is for {SYSTEM}")
    return max(mine, key=lambda entry: entry.get("python") == python), len(entries) - 1


def _filled(value: Any, known: dict[str, str]) -> Any:
    """``value`` with its ``${{ expressions }}`` replaced by what is known."""
    if isinstance(value, dict):
        return {key: _filled(part, known) for key, part in value.items()}
    if not isinstance(value, str):
        return value
    text = EXPRESSION.sub(lambda found: known.get(found[1], found[0]), value)
    if "${{" in text:
        raise WorkflowError(f"not emulated: {text.strip()}")
    return text


def _known(given: dict[str, Any], keys: set[str], where: str) -> None:
    unknown = given.keys() - keys
    if unknown:
        raise WorkflowError(f"{where}: {', '.join(sorted(unknown))} is not emulated")


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def workflows(source: Path) -> Iterator[Path]:
    yield from sorted((source / ".github" / "workflows").glob("*.yml"), key=lambda path: path.name != "tests.yml")


def main() -> int:
    parser = argparse.ArgumentParser(prog="run.py --workflows", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="TEXT", help="skip steps whose title or text has it"
    )
    parser.add_argument(
        "--pytest", default="", metavar="ARGUMENTS", help="more arguments for each pytest, for a quick run"
    )
    options = parser.parse_args()
    if options.pytest:
        os.environ["PYTEST_ADDOPTS"] = options.pytest
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        print("== what is not committed is not in the clones", flush=True)
    with tempfile.TemporaryDirectory(prefix="snapreport-workflows-") as scratch:
        machine = Machine(ROOT, Path(scratch), tuple(options.skip))
        for path in workflows(ROOT):
            machine.run(path)
    print("\n".join(["== all workflows", *machine.notes, "FAILED" if machine.is_failed else "passed"]))
    return int(machine.is_failed)


if __name__ == "__main__":
    sys.exit(main())
