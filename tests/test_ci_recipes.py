"""The composite action and the GitLab template, step by step, as their runners would run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import corpus
import pytest
import yaml
from cli import command, in_process, on_loaded
from planted import path_of

ROOT = Path(__file__).resolve().parent.parent
ACTION = ROOT / "action.yml"
PROGRAM = """
import torch
kept = []
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def train_step():
    out = model(torch.randn(512, 256))
    kept.append(out)
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()

for step in range(12):
    train_step()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with a program that leaks, and tools of a runner on PATH: ours, and ``gh``, which notes its calls."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    tools = tmp_path.parent / f"{tmp_path.name}-tools"
    tools.mkdir()
    gh = 'echo "$@" >> "$CALLS"\nfor last; do :; done\ncase "$*" in *--paginate*) cat "$FOUND";; esac\n'
    snapreport = " ".join(command())
    for name, text in (
        ("gh", gh),
        ("snapreport", f'exec {snapreport} "$@"\n'),
        ("python", f'exec {sys.executable} "$@"\n'),
    ):
        (tools / name).write_text(f"#!/bin/bash\n{text}")
        (tools / name).chmod(0o755)
    return tmp_path


def environment(project: Path, **more: str) -> dict[str, str]:
    tools = project.parent / f"{project.name}-tools"
    files = {name: str(tools / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "CALLS", "FOUND")}
    for path in files.values():
        Path(path).touch()
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **files, "PATH": path, "GITHUB_REPOSITORY": "o/r", "PYTHONPATH": str(ROOT), **more}


class Runner:
    """As much of a runner as a composite action needs: expressions, outputs of steps, `if`."""

    def __init__(self, project: Path, **inputs: str) -> None:
        self.action: dict[str, Any] = yaml.safe_load(ACTION.read_text())
        self.project, self.values = project, {"github.token": "t", "github.action_path": str(ROOT)}
        self.values |= {"github.event.pull_request.number": "7", "github.server_url": "https://github.com"}
        self.values |= {"github.repository": "o/r", "github.run_id": "5"}
        for name, one in self.action["inputs"].items():
            self.values[f"inputs.{name}"] = self.filled(inputs.pop(name, one["default"]))
        assert not inputs
        self.env = environment(project)

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: self.values[found[1]], text)

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        (step,) = [step for step in self.action["runs"]["steps"] if step["name"] == name]
        env = self.env | {key: self.filled(value) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.project, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        for line in Path(env["GITHUB_OUTPUT"]).read_text().splitlines():
            key, _, value = line.partition("=")
            self.values[f"steps.{step.get('id')}.outputs.{key}"] = value
        Path(env["GITHUB_OUTPUT"]).write_text("")
        return done


def test_action(project: Path) -> None:
    runner = Runner(project, command="python train.py", check="--fail-on leak,oom --max-peak 1GiB")
    names = [step["name"] for step in runner.action["runs"]["steps"]]
    assert names == ["Install", "Record", "Check", "Report", "Keep the report", "Comment", "Result"]
    assert runner.step("Record").returncode == 0
    checked = runner.step("Check")
    assert checked.returncode == 0, checked.stderr
    (error,) = [line for line in checked.stdout.splitlines() if line.startswith("::error ")]
    line = PROGRAM.splitlines().index("def train_step():") + 1  # the profiler of the CPU knows where functions begin
    assert re.match(rf"::error file=train\.py,line={line},", error)
    assert "memory%3A fail-on leak::" in error
    summary = Path(runner.env["GITHUB_STEP_SUMMARY"]).read_text()
    assert "1 of 3 memory checks failed" in summary and "```mermaid\nxychart-beta" in summary
    assert runner.step("Report").returncode == 0
    assert (project / "memory.html").read_bytes().startswith(b"<!DOCTYPE html>")
    kept = next(step for step in runner.action["runs"]["steps"] if step["name"] == "Keep the report")
    assert all((project / path).is_file() for path in kept["with"]["path"].split())
    for own, method in (("", "POST repos/o/r/issues/7/comments"), ("31\n44\n", "PATCH repos/o/r/issues/comments/31")):
        Path(runner.env["FOUND"]).write_text(own)
        assert runner.step("Comment").returncode == 0
        assert f"--method {method} --field body=@comment.md" in Path(runner.env["CALLS"]).read_text()
    comment = (project / "comment.md").read_text()
    assert comment.startswith("<!-- snapreport memory -->\n## 1 of 3") and "o/r/actions/runs/5" in comment
    assert runner.step("Result").returncode == 1


def test_action_says_that_the_program_failed(project: Path) -> None:
    runner = Runner(project, command="python train.py && exit 3", check="--max-peak 1GiB")
    runner.step("Record")
    assert runner.step("Check").returncode == 0
    assert runner.step("Result").returncode == 3


class Notes(BaseHTTPRequestHandler):
    """As much of GitLab's API as comments need: two notes a page, the token checked."""

    notes: ClassVar[list[dict[str, Any]]] = []

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        assert path.startswith("/api/v4/projects/9/merge_requests/7/notes")
        sent = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        code, found = 200, None
        if self.headers["PRIVATE-TOKEN"] != "secret":
            code = 401
        elif self.command == "GET":
            page = int(parse_qs(query)["page"][0])
            found = self.notes[2 * page - 2 : 2 * page]
        elif self.command == "PUT":
            next(note for note in self.notes if note["id"] == int(path.rpartition("/")[2])).update(sent)
        else:
            self.notes.append({"id": len(self.notes) + 1, **sent})
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    do_GET = do_PUT = do_POST = answer  # noqa: N815  # the names that the class asks for

    def log_message(self, *_: object) -> None:
        pass


def test_gitlab(project: Path) -> None:
    job = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())[".snapreport"]
    variables = job["variables"] | {"MEMORY_COMMAND": "python train.py", "MEMORY_CHECK": "--fail-on leak"}
    script = "\n".join(job["script"])
    Notes.notes = [{"id": number, "body": "looks good"} for number in (1, 2)]
    with ThreadingHTTPServer(("127.0.0.1", 0), Notes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables |= {"CI_API_V4_URL": f"http://127.0.0.1:{server.server_port}/api/v4", "CI_PROJECT_ID": "9"}
        variables |= {"CI_MERGE_REQUEST_IID": "7", "CI_JOB_URL": "https://gitlab.com/o/r/-/jobs/5"}

        def run(**more: str) -> None:
            env = environment(project, **variables, **more)
            command = ["bash", "-eo", "pipefail", "-c", script]
            done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 1, (done.stdout, done.stderr)

        run(MEMORY_TOKEN="secret")
        assert [note["id"] for note in Notes.notes] == [1, 2, 3]
        assert Notes.notes[2]["body"].startswith("<!-- snapreport memory -->\n## 1 of 1 memory check")
        assert "xychart-beta" in Notes.notes[2]["body"]
        Notes.notes[2]["body"] = "<!-- snapreport memory --> an older result"
        variables["MEMORY_COMMAND"] = ""  # the snapshots are there
        run(MEMORY_TOKEN="secret")
        assert len(Notes.notes) == 3 and "## 1 of 1 memory check" in Notes.notes[2]["body"]
        run(MEMORY_TOKEN="wrong")  # the check's own result stays
        server.shutdown()
    for path in [*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()]:
        assert (project / path).is_file(), path
    assert job["artifacts"]["when"] == "always", "kept also when the check fails"
    assert (project / "memory.xml").read_text().count("<failure") == 1
    first, *_ = json.loads((project / "memory-lines.json").read_text())
    line = PROGRAM.splitlines().index("def train_step():") + 1
    assert first["location"] == {"path": "train.py", "lines": {"begin": line}} and first["severity"] == "major"
    assert first.keys() == {"description", "check_name", "fingerprint", "severity", "location"}


def test_annotations_escape_what_a_recording_says() -> None:
    run = on_loaded("check", corpus.path_of("oom"), "--fail-on", "oom", "--max-peak", "1GiB", "--annotations")
    commands = [line for line in run.out.splitlines() if line.startswith("::")]
    assert run.code == 1 and [line.split()[0] for line in commands[:2]] == ["::error", "::error"]
    assert all(re.fullmatch(r"::(error|notice) ([a-z]+=[^,:]*)(,[a-z]+=[^,:]*)*::.+", line) for line in commands)
    assert on_loaded("check", corpus.path_of("oom"), "--fail-on", "oom", "--chart").code == 2


def test_the_jobs_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They use inputs that there are, and their checks hold for a program that is as its baseline, and for no other."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    github, gitlab = map(yaml.safe_load, blocks)
    step = github["jobs"]["memory"]["steps"][-1]["with"]
    variables = gitlab["memory"]["variables"]
    assert step.keys() <= yaml.safe_load(ACTION.read_text())["inputs"].keys()
    template = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())
    assert gitlab["memory"]["extends"] in template
    assert variables.keys() <= template[gitlab["memory"]["extends"]]["variables"].keys()
    small = {"steps": 5, "layers": 1, "hidden": 64, "heads": 2, "sequence": 32, "vocabulary": 512}
    good, bad = (path_of("training", **small, **more) for more in ({}, {"regression": 20.0}))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(good, "good.pickle")
    assert in_process("digest", "good.pickle", "-o", "tests/memory.digest").code == 0
    words = shlex.split(step["check"])
    assert in_process("check", "good.pickle", *words).code == 0
    assert in_process("check", bad, *words).code == 1
    assert in_process("check", "good.pickle", *shlex.split(variables["MEMORY_CHECK"])).code == 0
