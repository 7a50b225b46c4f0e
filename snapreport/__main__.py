"""``snapreport`` as a program: ``python -m snapreport`` and the installed command."""

from __future__ import annotations

import signal

# Ctrl-C ends the imports below, and those of the commands, as it ends any program: without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import contextlib
import gc
import os
import sys
from typing import NoReturn

from snapreport.process_memory import keep_little
from snapreport.supervisor import supervised

# Commands that start programs of the user: these are not to be ended with us, nor counted as our memory, and our
# settings of numpy and polars are not to be theirs.
_UNSUPERVISED = ("record",)


def run() -> NoReturn:
    """Runs the command line in a supervised process, and exits."""
    _open_closed_streams()
    if sys.argv[1:2] and sys.argv[1] in _UNSUPERVISED:
        _work()
    # A command ends soon, and makes no cycles worth collecting: looking for them takes 0.06 s while modules are
    # imported, and 0.1 s on a million events.
    gc.disable()
    keep_little()
    supervised(_work)


def _work() -> NoReturn:
    """Run the command line and leave.

    Exits without the interpreter's shutdown, which looks for cycles and frees every object one by
    one: 0.07 s after a million events, for memory that the system takes back anyway.
    """
    from snapreport.cli import main

    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main(prog_name="snapreport")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    with contextlib.suppress(OSError, ValueError):  # its reader has closed the pipe, or it was closed itself
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def _open_closed_streams() -> None:
    """Started with a standard stream closed (``>&-``), a program would open its first file as that stream. What is
    opened here instead fails when it is used, with an error that says so.
    """
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, mode)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


if __name__ == "__main__":
    run()
