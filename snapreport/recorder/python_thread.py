"""Runs a task in a thread started by Python."""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Callable


def run_in_python_thread(task: Callable[[], None], seconds: float) -> bool:
    """Runs ``task`` in a new thread and waits for it, at most ``seconds``. Returns whether it is done.

    PyTorch calls its out-of-memory observer in the thread that failed, which for a backward pass is a C++ thread.
    Python state left in that thread (``threading.current_thread()`` is enough) aborts the process when the thread ends,
    as seen with PyTorch 2.14. So the work is done in another thread, and nothing of ``threading`` is used here.
    """
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            with contextlib.suppress(Exception):
                task()
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    return done.acquire(timeout=seconds)
