"""Python environments with real CUDA builds of PyTorch over a driver that needs no GPU (tests/fakecuda)."""

from __future__ import annotations

import atexit
import functools
import gzip
import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import snapreport

TESTS = Path(__file__).resolve().parent
PROGRAMS = TESTS / "fakecuda" / "programs"
TRAIN = PROGRAMS / "train.py"
# Folders of environments, as tests/run.py builds them: one PyTorch version each.
FOLDERS = [Path(folder) for folder in os.environ.get("SNAPREPORT_FAKE_TORCH", "").split(os.pathsep) if folder]
NONE = "no PyTorch over the fake CUDA driver: SNAPREPORT_FAKE_TORCH names none (tests/run.py builds one)"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class FakeTorch:
    """An environment whose programs see a CUDA device of 4 GiB."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def version(self) -> str:
        return self.folder.name.removeprefix("torch-")

    def has(self, module: str) -> bool:
        return any((self.folder / "lib").glob(f"python3*/site-packages/{module}"))

    def run(self, *arguments: object, timeout: float = 300, **environment: object) -> Done:
        """Runs the environment's Python."""
        return execute(self.python, *arguments, timeout=timeout, **environment)

    def record(self, *options: object, command: list[object], timeout: float = 300, **environment: object) -> Done:
        """Runs ``snapreport record options -- python command`` with the tests' snapreport, recording this Python."""
        call = [sys.executable, "-m", "snapreport", "record", *options, "--", self.python, *command]
        return execute(*call, timeout=timeout, **environment)


@functools.cache
def _forks(python: Path) -> subprocess.Popen[str]:
    """A process that runs programs in forks of itself (see programs/forks.py), until these tests end."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
        variables.pop(name, None)
    started = subprocess.Popen(
        [str(python), str(PROGRAMS / "forks.py")],
        env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(started.kill)
    return started


def forked(python: Path, *argv: object, **environment: object) -> Done:
    """Runs a program with an environment's Python without importing torch again."""
    process = _forks(python)
    assert process.stdin and process.stdout
    call = {"argv": [str(part) for part in argv], "env": {k: str(v) for k, v in environment.items()}}
    process.stdin.write(json.dumps(call) + "\n")
    process.stdin.flush()
    return Done(**json.loads(process.stdout.readline()))


def execute(*command: object, timeout: float, **environment: object) -> Done:
    variables = {
        **os.environ, "FAKE_GPU_GIB": "4", "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in environment.items()},
    }  # fmt: skip
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling torch takes longer than most of these programs
    done = subprocess.run(
        [str(part) for part in command], env=variables, capture_output=True, text=True, timeout=timeout, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def package_folder(folder: Path) -> str:
    """A folder for PYTHONPATH with this snapreport and nothing else of the tests' environment."""
    link = folder / "snapreport"
    if not link.exists():
        folder.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(snapreport.__file__).parent)
    return str(folder)


def raw(path: Path) -> Any:
    """The object in a snapshot that our recorder wrote."""
    with gzip.open(path) as file:
        return pickle.load(file)


def snapshots(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def parameters() -> list[Any]:
    found = [pytest.param(FakeTorch(folder), id=folder.name) for folder in FOLDERS if (folder / "bin/python").exists()]
    return found or [pytest.param(None, marks=pytest.mark.skip(reason=NONE), id="none")]
