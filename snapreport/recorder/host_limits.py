"""Ends a recording that takes too long or too much host memory, from outside the program's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from snapreport.available_memory import available_memory
from snapreport.recorder.python_thread import call_in_main_thread

_CHECK_SECONDS = 0.25  # seconds between checks: a million calls take that long, and 100 MB at 100 bytes per call


class HostLimits(threading.Thread):
    """Calls ``end`` with the reason, in the main thread, once ``seconds`` have passed (None: never) or half of the host
    memory that was free at the start is left. The main thread must be running Python: a long C call delays it.
    """

    def __init__(self, seconds: float | None, end: Callable[[str], None]) -> None:
        super().__init__(name="snapreport-limits", daemon=True)
        self._seconds, self._end = seconds, end
        self._reason = ""
        self._cancelled = threading.Event()

    def run(self) -> None:
        began, free = time.monotonic(), available_memory(with_swap=False)
        while not self._cancelled.wait(_CHECK_SECONDS):
            left = available_memory(with_swap=False)
            if self._seconds is not None and time.monotonic() - began > self._seconds:
                self._reason = f"recorded the first {self._seconds:.0f} s; --steps A:B chooses steps instead"
            elif free is not None and left is not None and left < free / 2:
                self._reason = "recorded until half of the free host memory was used; --steps A:B chooses fewer steps"
            if self._reason:
                call_in_main_thread(self._in_main_thread)
                return

    def cancel(self) -> None:
        """Stops the checks: ``end`` is not called any more."""
        self._cancelled.set()

    def _in_main_thread(self) -> None:
        if not self._cancelled.is_set():
            self._end(self._reason)
