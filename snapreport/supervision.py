"""What a supervised process says of itself, to the process that may have to end it (``supervisor.py``).

The two share a page that says which file is being read, how often reading went on, and which temporary file to remove.
Without a supervisor, as in a program that calls ``snapreport.load``, all of this does nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TextIO, TypeVar

_T = TypeVar("_T")

HANG_SECONDS_OF_WORKERS = 20.0  # of the clock
_TEXT = 4096
# Reads and matches so far, which work is to go on (UNPICKLING or MATCHING, else 0), memory limit in bytes (0: the
# default), whether the child is to be asked to end.
_NUMBERS = struct.Struct("<QQQQ")
NAME, TEMPORARY, _SIZE = _NUMBERS.size, _NUMBERS.size + _TEXT, _NUMBERS.size + 2 * _TEXT


class SharedPage:
    """State of the child that the parent reads, in memory that both map."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _SIZE)

    def number(self, place: int) -> int:
        value: int = struct.unpack_from("<Q", self._page, 8 * place)[0]
        return value

    def set_number(self, place: int, value: int) -> None:
        struct.pack_into("<Q", self._page, 8 * place, value)

    def text(self, place: int) -> bytes:
        return self._page[place : place + _TEXT].rstrip(b"\0")

    def set_text(self, place: int, text: bytes) -> None:
        # A name too long for the page is cut; of a temporary file's that could name another one.
        fitting = text[:_TEXT] if place == NAME else text if len(text) <= _TEXT else b""
        self._page[place : place + _TEXT] = fitting.ljust(_TEXT, b"\0")


READS, WORK, LIMIT, ASK = range(4)
UNPICKLING, MATCHING = 1, 2
_shared_page: SharedPage | None = None
_default_limit = 0
_hang_seconds = 0.0  # of the clock, after which this process ends itself; 0: it does not
_is_armed = False
_armed_at = 0.0
_devnull: TextIO | None = None


def name_file(name: str) -> None:
    """Says which file an end of this process is to be explained with."""
    if _shared_page:
        _shared_page.set_text(NAME, name.encode("utf-8", "replace"))


def end_when_hanging(seconds: float) -> None:
    """From now on this process, a worker that nobody looks at, ends itself where the unpickler hangs so long.

    Python's watchdog is a thread of C, which needs no lock of the interpreter. It goes by the clock: it waits longer.
    """
    global _hang_seconds
    _hang_seconds = seconds


def _set_watchdog() -> None:
    import faulthandler

    global _devnull, _armed_at
    _armed_at = time.monotonic()
    _devnull = _devnull or open(os.devnull, "w", encoding="ascii")  # noqa: SIM115  # it is to stay open
    faulthandler.dump_traceback_later(_hang_seconds, exit=True, file=_devnull)


@contextlib.contextmanager
def unpickling() -> Iterator[None]:
    """While inside, :func:`note_progress` is called again and again, or the process hangs."""
    if _hang_seconds:
        with _armed():
            yield
        return
    if not _shared_page:
        yield
        return
    _shared_page.set_number(WORK, UNPICKLING)
    try:
        yield
    finally:
        _shared_page.set_number(WORK, 0)


@contextlib.contextmanager
def _armed() -> Iterator[None]:
    import faulthandler

    global _is_armed
    _is_armed = True
    _set_watchdog()
    try:
        yield
    finally:
        _is_armed = False
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def matching() -> Iterator[None]:
    """While inside, :func:`match` is called again and again, or a worker hangs."""
    with _armed() if _hang_seconds else contextlib.nullcontext():
        yield


def match(work: Callable[[], _T]) -> _T:
    """What ``work`` returns, which searches a few texts for a regular expression of the user's: that can take for ever,
    with Python's lock held.
    """
    note_progress()
    if _hang_seconds or not _shared_page:
        return work()
    _shared_page.set_number(WORK, MATCHING)
    try:
        return work()
    finally:
        _shared_page.set_number(WORK, 0)


class Ending:
    """Whether this process is asked to end. No lock: a signal can interrupt the handler of another one."""

    def __init__(self) -> None:
        self.is_asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.is_asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))


@contextlib.contextmanager
def ending_by_itself() -> Iterator[Ending]:
    """While inside, the first SIGINT, SIGTERM or SIGHUP asks this process to end, and the second ends it."""
    ending = Ending()
    before = signal.signal(signal.SIGINT, ending.ask)
    if _shared_page:
        _shared_page.set_number(ASK, 1)
    try:
        yield ending
    finally:
        if _shared_page:
            _shared_page.set_number(ASK, 0)
        signal.signal(signal.SIGINT, before)


def note_progress() -> None:
    if _is_armed:
        if time.monotonic() > _armed_at + _hang_seconds / 20:  # setting it starts a thread
            _set_watchdog()
    elif _shared_page:
        _shared_page.set_number(READS, _shared_page.number(READS) + 1)


@contextlib.contextmanager
def temporary_file(path: str) -> Iterator[None]:
    """While inside, ``path`` is removed if this process is ended."""
    if not _shared_page:
        yield
        return
    _shared_page.set_text(TEMPORARY, os.fsencode(os.path.abspath(path)))
    try:
        yield
    finally:
        _shared_page.set_text(TEMPORARY, b"")


def is_watched() -> bool:
    """Whether anybody looks at how reading goes on."""
    return _hang_seconds > 0 or _shared_page is not None


def set_memory_limit(size: int) -> None:
    """``--max-memory``, in bytes."""
    if _shared_page:
        _shared_page.set_number(LIMIT, size)


def memory_limit() -> int | None:
    """Bytes that this process may hold; None where nobody watches."""
    return limit_of(_shared_page) if _shared_page else None


def limit_of(page: SharedPage) -> int:
    """Bytes that the process that shares ``page`` may hold."""
    return page.number(LIMIT) or _default_limit


def share(page: SharedPage, default_limit: int) -> None:
    """From now on this process and those that it starts say on ``page`` what they do."""
    global _shared_page, _default_limit
    _shared_page, _default_limit = page, default_limit
