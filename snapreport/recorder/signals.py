"""Snapshots on signals: the process dumps, and then does what the signal would have done.

Python runs signal handlers in the main thread, between two bytecodes. A rank that waits in NCCL or for a kernel is
inside a C call and does not get there. So a thread of ours learns of each signal too, through the file descriptor that
Python's handler in C writes to, and dumps where the main thread does not.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from snapreport.recorder.python_thread import call_in_main_thread

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_MEANINGLESS = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))
TAKEN_SECONDS = 1.0
"""How long the main thread has before it counts as blocked: its handler usually runs within milliseconds."""
_CHECK_SECONDS = 0.02

_installed: SignalDumps | None = None
_forks_watched = False


class SignalDumps:
    """Calls ``dump`` with each arriving signal of ``numbers``, in the main thread, or in another one if the main thread
    is blocked in a C call (``anywhere`` is False where only the main thread can dump).

    Then the program's handler runs; without one, the signal's default happens, which for SIGTERM ends the process by
    that signal. After SIGUSR1 and SIGUSR2, which mean nothing by themselves, the program continues. ``ENDING`` signals
    that the program ignores stay ignored, and dump nothing. A handler that the program sets later replaces ours; the
    other thread then dumps beside it.
    """

    def __init__(self, numbers: Sequence[int], dump: Callable[[int], None], *, anywhere: bool) -> None:
        self._numbers, self._dump, self._anywhere = tuple(numbers), dump, anywhere
        self._before: dict[int, Any] = {}
        self._taken: dict[int, int] = {}
        self._deferred: list[tuple[int, FrameType | None]] = []
        self._busy: set[int] = set()
        self._wakeup = -1

    def install(self) -> None:
        """Sets the handlers: at once in the main thread, otherwise as soon as that runs Python code."""
        call_in_main_thread(self._install)

    def _install(self) -> None:
        global _installed, _forks_watched
        for number in self._numbers:
            before = signal.getsignal(number)
            # None: a handler in C, which could not be called.
            if before is not None and not (before is signal.SIG_IGN and number in ENDING):
                self._before[number], self._taken[number] = before, 0
                signal.signal(number, self._handle)
        if not self._before:
            return
        _installed = self
        if hasattr(os, "register_at_fork"):
            if not _forks_watched:
                _forks_watched = True
                os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_forget_in_child)
            self._listen()

    def _listen(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        other = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if other >= 0:  # asyncio's: leave it, the handlers work without
            signal.set_wakeup_fd(other)
            os.close(reading)
            os.close(writing)
            return
        self._wakeup = writing
        _thread.start_new_thread(self._watch, (reading,))

    def remove(self) -> None:
        """Restores the handlers from before, where the program has not set others."""
        global _installed
        if _installed is self:
            _installed = None
        before, self._before = self._before, {}
        for number, handler in before.items():
            if signal.getsignal(number) == self._handle:
                with contextlib.suppress(ValueError):  # in another thread ours stays, and only passes signals on
                    signal.signal(number, handler)
        if self._wakeup >= 0:
            with contextlib.suppress(ValueError):
                other = signal.set_wakeup_fd(-1)
                if other != self._wakeup:
                    signal.set_wakeup_fd(other)
            os.close(self._wakeup)
            self._wakeup = -1

    @contextlib.contextmanager
    def postponed(self) -> Iterator[None]:
        """While this thread dumps: a signal waits for the end of the dump, and writes no second one."""
        thread = _thread.get_ident()
        self._busy.add(thread)
        try:
            yield
        finally:
            self._busy.discard(thread)
            while self._deferred and thread == threading.main_thread().ident:
                self._pass_on(*self._deferred.pop())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._taken[number] = self._taken.get(number, 0) + 1
        if _thread.get_ident() in self._busy:
            self._deferred.append((number, frame))
            return
        if number in self._before:
            self._dump(number)
        self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        elif before is signal.SIG_DFL and number not in _MEANINGLESS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            signal.signal(number, self._handle)  # its default is to be ignored, or to stop until SIGCONT

    # The methods below run in the other thread.

    def _watch(self, reading: int) -> None:
        with contextlib.suppress(OSError):
            while arrived := os.read(reading, 256):  # ends when the other end is closed
                for number in arrived:
                    if number in self._before:
                        self._arrived(number)
            os.close(reading)

    def _arrived(self, number: int) -> None:
        is_ours = signal.getsignal(number) == self._handle
        if is_ours and self._is_taken(number):
            return
        if self._anywhere:
            self._dump(number)
        is_default = self._before.get(number) is signal.SIG_DFL and number not in _MEANINGLESS
        if is_ours and is_default and not self._taken[number]:
            # signal.signal() is for the main thread alone.
            ctypes.CDLL(None).signal(number, 0)
            os.kill(os.getpid(), number)

    def _is_taken(self, number: int) -> bool:
        """Whether the main thread's handler runs within a second."""
        until = time.monotonic() + TAKEN_SECONDS
        while not self._taken[number] and time.monotonic() < until:
            time.sleep(_CHECK_SECONDS)
        is_taken = self._taken[number] > 0
        self._taken[number] = max(0, self._taken[number] - 1)
        return is_taken


_blocked: dict[int, set[int]] = {}


def _block() -> None:
    """A signal that reaches a forked child before it has its own handlers waits until then."""
    if _installed is not None:
        old = signal.pthread_sigmask(signal.SIG_BLOCK, list(_installed._before))
        _blocked[_thread.get_ident()] = {int(number) for number in old}


def _unblock() -> None:
    old = _blocked.pop(_thread.get_ident(), None)
    if old is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _forget_in_child() -> None:
    """A forked child has no thread to watch, and must not write to the pipe of its parent."""
    global _installed
    if _installed is not None:
        for number, handler in _installed._before.items():
            if signal.getsignal(number) == _installed._handle:
                signal.signal(number, handler)
        if _installed._wakeup >= 0:
            other = signal.set_wakeup_fd(-1)
            if other != _installed._wakeup:
                signal.set_wakeup_fd(other)
        _installed = None
    _unblock()
