"""Runs a task in a thread started by Python, or in the main thread."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import threading
from collections.abc import Callable
from typing import Any

_Pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_pending: list[Any] = []  # the interpreter holds no reference to what it is to call


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


def call_in_main_thread(task: Callable[[], None]) -> None:
    """Calls ``task`` at once in the main thread. From any other, the main thread calls it when it next runs Python
    code: a long C call delays it.
    """
    if _thread.get_ident() == threading.main_thread().ident:
        task()
        return

    def run(_: object) -> int:
        with contextlib.suppress(Exception):
            task()
        return 0

    _pending.append(_Pending(run))
    ctypes.pythonapi.Py_AddPendingCall(_pending[-1], None)
