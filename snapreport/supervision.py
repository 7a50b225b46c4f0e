"""A supervising process, which ends the working one where nothing inside could: Linux only.

A pickle of 236 bytes can make the C unpickler hash for ever, with every thread of Python waiting and Ctrl-C unseen; a
few kilobytes can ask for all memory of the machine. So the command line forks before it reads anything. The child does
everything; the parent looks at it 20 times a second and ends it

* on SIGINT, SIGTERM and SIGHUP, at once, whatever it is doing (but where it wants to end by itself, on the second),
* when it holds more memory than ``--max-memory`` allows,
* when the unpickler has computed for ``HANG_SECONDS`` without reading on (honest files need 0.1 s for a buffer),
* when one match of a regular expression of the user's takes as long.

Nothing is copied between the two: they share a page that says which file is being read, how often reading went on, and
which temporary file to remove. The library does none of this: a program that calls ``snapreport.load`` is its own
supervisor.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO, TypeVar

from snapreport.available_memory import available_memory
from snapreport.terminal import echo, visible

_T = TypeVar("_T")

HANG_SECONDS_OF_WORKERS = 20.0  # of the clock
HANG_SECONDS = 5.0  # of the child's processor time, so that a busy or stopped machine is no reason
POLL_SECONDS = 0.05
AVAILABLE_SHARE = 0.9
MIN_LIMIT = 512 << 20
BAD_INPUT = 2
_F_SETSIG = 10  # of <fcntl.h>; Python has no name for it
_TEXT = 4096
# Reads and matches so far, which work is to go on (an index into _HANGS), memory limit in bytes (0: the default),
# whether the child is to be asked to end.
_NUMBERS = struct.Struct("<QQQQ")
_NAME, _TEMPORARY, _SIZE = _NUMBERS.size, _NUMBERS.size + _TEXT, _NUMBERS.size + 2 * _TEXT
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class _SharedPage:
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
        fitting = text[:_TEXT] if place == _NAME else text if len(text) <= _TEXT else b""
        self._page[place : place + _TEXT] = fitting.ljust(_TEXT, b"\0")


_READS, _WORK, _LIMIT, _ASK = range(4)
_UNPICKLING, _MATCHING = 1, 2
_HANGS = (
    "",
    "the pickle cannot be read in reasonable time: it holds values that multiply when they are compared",
    "a pattern takes too long to search one text: write it without repetitions inside repetitions",
)
_shared_page: _SharedPage | None = None
_hang_seconds = 0.0  # of the clock, after which this process ends itself; 0: it does not
_is_armed = False
_armed_at = 0.0
_devnull: TextIO | None = None


def name_file(name: str) -> None:
    """Says which file an end of this process is to be explained with."""
    if _shared_page:
        _shared_page.set_text(_NAME, name.encode("utf-8", "replace"))


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
    _shared_page.set_number(_WORK, _UNPICKLING)
    try:
        yield
    finally:
        _shared_page.set_number(_WORK, 0)


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
    _shared_page.set_number(_WORK, _MATCHING)
    try:
        return work()
    finally:
        _shared_page.set_number(_WORK, 0)


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
        _shared_page.set_number(_ASK, 1)
    try:
        yield ending
    finally:
        if _shared_page:
            _shared_page.set_number(_ASK, 0)
        signal.signal(signal.SIGINT, before)


def note_progress() -> None:
    if _is_armed:
        if time.monotonic() > _armed_at + _hang_seconds / 20:  # setting it starts a thread
            _set_watchdog()
    elif _shared_page:
        _shared_page.set_number(_READS, _shared_page.number(_READS) + 1)


@contextlib.contextmanager
def temporary_file(path: str) -> Iterator[None]:
    """While inside, ``path`` is removed if this process is ended."""
    if not _shared_page:
        yield
        return
    _shared_page.set_text(_TEMPORARY, os.fsencode(os.path.abspath(path)))
    try:
        yield
    finally:
        _shared_page.set_text(_TEMPORARY, b"")


def is_watched() -> bool:
    """Whether anybody looks at how reading goes on."""
    return _hang_seconds > 0 or _shared_page is not None


def set_memory_limit(size: int) -> None:
    """``--max-memory``, in bytes."""
    if _shared_page:
        _shared_page.set_number(_LIMIT, size)


def memory_limit() -> int | None:
    """Bytes that this process may hold; None where nobody watches."""
    return _limit_of(_shared_page) if _shared_page else None


def _limit_of(page: _SharedPage) -> int:
    return page.number(_LIMIT) or _default_limit


_default_limit = 0


def supervised(work: Callable[[], NoReturn]) -> NoReturn:
    """Run ``work`` in a child and leave with its exit code. Without Linux, run it here."""
    global _shared_page, _default_limit
    if sys.platform != "linux":
        work()
    _shared_page = _SharedPage()
    _default_limit = max(MIN_LIMIT, int((available_memory(with_swap=True) or 1 << 62) * AVAILABLE_SHARE))
    ended, ends = os.pipe()
    alive, living = os.pipe()
    parent = os.getpid()
    # From here on a signal waits until there is somebody to receive it.
    waiting = {getattr(signal, name) for name in _SIGNALS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    child = os.fork()
    if child == 0:
        os.close(ended)
        os.close(living)
        _end_with(parent, alive)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts both; the parent decides
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        work()
    os.close(ends)
    os.close(alive)
    for number in waiting:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)
    while True:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            reason = _watch(child, ended, _shared_page)
            break
        except _Signalled as end:
            if _shared_page.number(_ASK):
                _shared_page.set_number(_ASK, 0)
                os.kill(child, signal.SIGINT)
                continue
            for number in waiting:
                signal.signal(number, signal.SIG_IGN)
            _kill(child, _shared_page)
            os._exit(128 + end.number)
    _, status = os.waitpid(child, 0)
    _leave(status, reason, _shared_page)


class _Signalled(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise _Signalled(number)


def _end_with(parent: int, alive: int) -> None:
    """Asks the system to end this process when its parent, which has the other end of the pipe ``alive``, is killed.

    The system itself sends SIGKILL when a pipe's last writer is closed (fcntl(2), F_SETSIG). prctl(2) would do too, but
    takes ctypes, a tenth of the time of ``snapreport --version``.
    """
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.fcntl(alive, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(alive, _F_SETSIG, int(signal.SIGKILL))
        fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | os.O_ASYNC)
    if os.getppid() != parent:
        os._exit(BAD_INPUT)


def _watch(child: int, ended: int, page: _SharedPage) -> str:
    """Waits for the end of the child; why it was ended, or ""."""
    reads, since = -1, 0.0
    while not select.select([ended], [], [], POLL_SECONDS)[0]:
        limit = _limit_of(page)
        if _resident(child) > limit:
            _kill(child, page, reap=False)
            what = "--max-memory allows" if page.number(_LIMIT) else "are available (--max-memory allows more)"
            return f"needs more memory than the {_size_text(limit)} that {what}"
        kind = page.number(_WORK)
        if not kind:
            reads = -1
            continue
        used = _processor_seconds(child)
        if page.number(_READS) != reads:
            reads, since = page.number(_READS), used
        elif used - since > HANG_SECONDS:
            _kill(child, page, reap=False)
            return _HANGS[kind]
    return ""


def _kill(child: int, page: _SharedPage, *, reap: bool = True) -> None:
    for process in [child, *_descendants(child)]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    if reap:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    _clean_up(page)


def _descendants(process: int) -> Iterator[int]:
    """Processes that a process has started, such as those that read the ranks of a job."""
    with contextlib.suppress(OSError, ValueError):
        for child in map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()):
            yield child
            yield from _descendants(child)


def _clean_up(page: _SharedPage) -> None:
    if temporary := page.text(_TEMPORARY):
        with contextlib.suppress(OSError):
            Path(os.fsdecode(temporary)).unlink()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")  # of a progress line


def _leave(status: int, reason: str, page: _SharedPage) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and not reason:
        _clean_up(page)
        number = -code
        if number == signal.SIGKILL:
            reason = "the system ended this process, most likely because memory ran out"
        elif number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
            reason = f"reading it ended in a crash ({signal.Signals(number).name}), most likely because memory ran out"
        else:
            os._exit(128 + number)
    if reason:
        name = visible(page.text(_NAME).decode("utf-8", "replace"))
        echo(": ".join(filter(None, ("snapreport", name, reason))), err=True)
        os._exit(BAD_INPUT)
    os._exit(code)


def _resident(process: int) -> int:
    """Bytes of memory of a process that are its own: what is mapped from files can be dropped."""
    try:
        _, resident, shared = Path(f"/proc/{process}/statm").read_text().split()[:3]
        return (int(resident) - int(shared)) * mmap.PAGESIZE
    except (OSError, ValueError):
        return 0


def _processor_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def _size_text(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.3g} MiB"
