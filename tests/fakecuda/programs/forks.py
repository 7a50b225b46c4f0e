"""Runs programs one after another, each in a fork of this process, which has already imported torch: the import takes
two seconds, and most programs a tenth of one.

python forks.py SOCKET: listens there, for in_fork.py. A call is a JSON object, {"argv", "env", "cwd"}, and three open
files: the program's standard input, output and error. The answer is its exit code, negative for a signal. ``argv`` is
what follows ``python``: a file, ``-m`` and a module, or ``-c`` and code; and arguments. CUDA starts in the fork, and
reads its settings there.

The program finds torch as a new process does: its first ``import torch`` asks the finders on ``sys.meta_path``, where
``snapreport record`` waits for it.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import json
import os
import runpy
import socket
import sys
import threading
import types
from importlib.machinery import ModuleSpec

import torch._dynamo  # noqa: F401  # imported by the first optimizer


class Imported:
    """A finder and loader that gives out a module which this process has imported before."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        found = self.module.__spec__
        if name != self.module.__name__ or found is None:
            return None
        return importlib.util.spec_from_file_location(
            name, found.origin, loader=self, submodule_search_locations=found.submodule_search_locations
        )

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        """It has run."""


def run(argv: list[str], variables: dict[str, str], folder: str, files: list[int]) -> None:
    """Runs in the fork. Returns when the program ends."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.orig_argv = [sys.executable, *argv]
    sys.meta_path.insert(0, Imported(sys.modules.pop("torch")))
    # As Python starts: PYTHONPATH, and the sitecustomize that lies there.
    sys.path[:0] = [folder for folder in variables.get("PYTHONPATH", "").split(os.pathsep) if folder]
    importlib.invalidate_caches()
    sys.modules.pop("sitecustomize", None)
    if importlib.util.find_spec("sitecustomize"):
        import sitecustomize  # noqa: F401  # whatever it is
    if argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        sys.path.insert(0, "")
        exec(compile(argv[1], "<string>", "exec"), main.__dict__)
    elif argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path.insert(0, folder)
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
        runpy.run_path(argv[0], run_name="__main__")


def end(argv: list[str], variables: dict[str, str], folder: str, files: list[int]) -> None:
    """Runs a program and ends this process as Python ends."""
    code = 0
    try:
        run(argv, variables, folder, files)
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def answer(caller: socket.socket) -> None:
    """One call, in a process of its own, so that programs can run at the same time."""
    text, files, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    call = json.loads(text)
    child = os.fork()
    if child == 0:
        caller.close()
        end(call["argv"], call["env"], call["cwd"], files)
    caller.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


def serve(listening: socket.socket) -> None:
    children: set[int] = set()
    while True:
        caller, _ = listening.accept()
        child = os.fork()
        if child == 0:
            listening.close()
            answer(caller)
        caller.close()
        children.add(child)
        children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}


if __name__ == "__main__":
    gc.freeze()
    atexit._clear()  # what torch has registered would run at the end of every fork
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(sys.argv[1])
        listening.listen()
        print("listening", flush=True)
        serve(listening)
