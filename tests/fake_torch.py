"""Python environments with real CUDA builds of PyTorch over a driver that needs no GPU (tests/fakecuda)."""

from __future__ import annotations

import atexit
import functools
import gzip
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
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

    def run(self, *arguments: object, timeout: float = 300, is_new: bool = False, **environment: object) -> Done:
        """Runs a program with the environment's Python: in a fork, or in a new process, which imports torch itself."""
        return execute(*self.start(is_new), *arguments, timeout=timeout, **environment)

    def record(
        self, *options: object, command: list[object], timeout: float = 300, is_new: bool = False, **environment: object
    ) -> Done:
        """Runs ``snapreport record options -- python command`` with the tests' snapreport, recording that Python."""
        call = [sys.executable, "-m", "snapreport", "record", *options, "--", *self.start(is_new), *command]
        return execute(*call, timeout=timeout, **environment)

    def start(self, is_new: bool) -> list[object]:
        """The beginning of a command, in place of ``python``."""
        return [self.python] if is_new else [self.python, "-I", PROGRAMS / "in_fork.py", _forks(self.python)]


@functools.cache
def _forks(python: Path) -> Path:
    """The socket of a process that runs programs in forks of itself (see programs/forks.py), until these tests end."""
    folder = Path(tempfile.mkdtemp(prefix="snapreport-forks-"))
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
        variables.pop(name, None)
    command = [str(python), str(PROGRAMS / "forks.py"), str(folder / "socket")]
    started = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def end() -> None:
        started.kill()
        started.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    assert started.stdout and started.stdout.readline() == "listening\n"
    return folder / "socket"


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
