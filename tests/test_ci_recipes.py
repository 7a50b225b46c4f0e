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
from collections.abc import Callable
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
        self.values |= {"github.repository": "o/r", "github.run_id": "5", "steps.history.outputs.folder": ""}
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
    assert names == [
        "Install", "Fetch the history", "Record", "Check", "Report", "Keep the history", "Keep the report", "Comment",
        "Result",
    ]  # fmt: skip
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
    assert [path for path in kept["with"]["path"].split() if not (project / path).is_file()] == ["memory-history.html"]
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


def git(folder: Path, *words: str) -> str:
    author = [f"-c{key}" for key in ("user.name=a", "user.email=a@example.org")]
    words = tuple(part for each in author for part in (each[:2], each[2:])) + words
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(project: Path) -> Path:
    """The project as a clone of a bare repository, ``origin``, beside which are a usual recording and a larger one."""
    origin = project.parent / f"{project.name}-origin.git"
    git(project, "init", "--quiet", "--bare", str(origin))
    git(project, "init", "--quiet", "--initial-branch", "main")
    git(project, "remote", "add", "origin", str(origin))
    small = {"steps": 5, "layers": 1, "hidden": 64, "heads": 2, "sequence": 32, "vocabulary": 512}
    for name, more in (("usual", {}), ("larger", {"regression": 20.0})):
        shutil.copy(path_of("training", **small, **more), project.parent / f"{project.name}-{name}")
    return project


def commit(checkout: Path, recording: str = "usual") -> str:
    """Commits a change, whose recording it is; the commit."""
    with (checkout / "train.py").open("a") as file:
        file.write("# one more line\n")
    git(checkout, "add", "train.py")
    git(checkout, "commit", "--quiet", "-m", "A change")
    (checkout / "memory").mkdir(exist_ok=True)
    shutil.copy(checkout.parent / f"{checkout.name}-{recording}", checkout / "memory" / "snap.pickle")
    return git(checkout, "rev-parse", "HEAD")


def kept(checkout: Path) -> list[str]:
    """The commits that the branch of the history has at its origin."""
    git(checkout, "fetch", "--quiet", "origin", "memory-history")
    rows = git(checkout, "show", "FETCH_HEAD:history.jsonl").splitlines()
    return [json.loads(row)["commit"] for row in rows]


def test_action_keeps_the_history_in_a_branch(checkout: Path) -> None:
    """Five runs on main, each with a runner of its own; another pushes at the same time; then a pull request."""
    commits, statuses = list[str](), list[str]()

    def run(recording: str, *, is_push: bool, meanwhile: Callable[[], object] = lambda: None) -> Runner:
        commits.append(commit(checkout, recording))
        runner = Runner(checkout, history="memory-history", check="--max-peak 1TiB")
        temp = checkout.parent / f"{checkout.name}-temp"  # a runner empties it
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir()
        runner.env |= {"RUNNER_TEMP": str(temp), "GITHUB_SHA": commits[-1]}
        for name in ("Fetch the history", "Record", "Check", *(["Keep the history"] if is_push else [])):
            done = runner.step(name)
            assert done.returncode == 0, (name, done.stderr)
            if name == "Check":
                meanwhile()
        statuses.append(runner.values["steps.check.outputs.status"])
        return runner

    for _ in range(3):
        run("usual", is_push=True)
    assert kept(checkout) == commits
    # While a fourth runs, somebody else's commit is added.
    git(checkout, "fetch", "--quiet", "origin", "memory-history")
    other = git(checkout, "commit-tree", "-p", "FETCH_HEAD", "-m", "Other", "FETCH_HEAD^{tree}")
    run("usual", is_push=True, meanwhile=lambda: git(checkout, "push", "origin", f"{other}:refs/heads/memory-history"))
    assert kept(checkout) == commits
    assert git(checkout, "log", "--format=%s", "-2", "FETCH_HEAD").splitlines() == [f"Memory of {commits[-1]}", "Other"]
    assert (checkout / "memory-history.html").read_bytes().startswith(b"<!DOCTYPE html>")
    run("usual", is_push=False)
    summary = Path(run("larger", is_push=False).env["GITHUB_STEP_SUMMARY"]).read_text()
    assert statuses == ["0"] * 5 + ["1"] and "noise of the history" in summary
    assert kept(checkout) == commits[:4]
    step = next(one for one in Runner(checkout).action["runs"]["steps"] if one["name"] == "Keep the history")
    assert "!github.event.pull_request" in step["if"]
    # The same by hand, from the page.
    (block,) = re.findall(r"## In CI\n.*?```sh\n(.*?)```", (ROOT / "docs" / "history.md").read_text(), re.DOTALL)
    head = commit(checkout)
    shutil.copy(checkout / "memory" / "snap.pickle", checkout)
    author = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["bash", "-ec", block], cwd=checkout, env=environment(checkout, **author), check=True)
    assert kept(checkout) == [*commits[:4], head]


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
    paths = [*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()]
    assert [path for path in paths if not (project / path).is_file()] == ["memory-history.html"]
    assert job["artifacts"]["when"] == "always", "kept also when the check fails"
    assert (project / "memory.xml").read_text().count("<failure") == 1
    first, *_ = json.loads((project / "memory-lines.json").read_text())
    line = PROGRAM.splitlines().index("def train_step():") + 1
    assert first["location"] == {"path": "train.py", "lines": {"begin": line}} and first["severity"] == "major"
    assert first.keys() == {"description", "check_name", "fingerprint", "severity", "location"}


def test_gitlab_keeps_the_history_in_a_branch(checkout: Path) -> None:
    job = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())[".snapreport"]
    variables = job["variables"] | {"MEMORY_HISTORY": "memory-history", "MEMORY_CHECK": "--max-peak 1TiB"}
    variables |= {"MEMORY_PUSH_TO": f"{checkout}-origin.git", "CI_DEFAULT_BRANCH": "main"}

    def run(recording: str, **more: str) -> tuple[str, int]:
        sha = commit(checkout, recording)
        env = environment(checkout, **variables, CI_COMMIT_SHA=sha, **more)
        words = ["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])]
        done = subprocess.run(words, cwd=checkout, env=env, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return sha, done.returncode

    commits = [run("usual", CI_COMMIT_BRANCH="main") for _ in range(4)]
    assert kept(checkout) == [sha for sha, _ in commits]
    assert [code for _, code in commits] == [0] * 4
    assert run("usual")[1] == 0 and run("larger")[1] == 1  # of merge requests, which add nothing
    assert kept(checkout) == [sha for sha, _ in commits]
    assert run("larger", CI_COMMIT_BRANCH="main")[1] == 1 and len(kept(checkout)) == 5


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
