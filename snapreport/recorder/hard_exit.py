"""``os._exit()``, with which processes of ``fork`` and of multiprocessing end: it skips ``atexit``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import NoReturn


def on_hard_exit(callback: Callable[[], None]) -> Callable[[], None]:
    """Calls ``callback`` before ``os._exit()`` ends the process. Returns a function that undoes it."""
    leave = os._exit

    def call_and_exit(status: int) -> NoReturn:
        with contextlib.suppress(Exception):
            callback()
        leave(status)

    def undo() -> None:
        if os._exit is call_and_exit:
            os._exit = leave

    os._exit = call_and_exit
    return undo
