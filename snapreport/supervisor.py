"""A supervising process, which ends the working one where nothing inside could: Linux only.

A pickle of 236 bytes can make the C unpickler hash for ever, with every thread of Python waiting and Ctrl-C unseen; a
few kilobytes can ask for all memory of the machine. So the command line forks before it reads anything. The child does
everything; the parent looks at it 20 times a second and ends it

* on SIGINT, SIGTERM and SIGHUP, at once, whatever it is doing (but where it wants to end by itself, on the second),
* when it holds more memory than ``--max-memory`` allows,
* when the unpickler has computed for ``HANG_SECONDS`` without reading on (honest files need 0.1 s for a buffer),
* when one match of a regular expression of the user's takes as long.

Nothing is copied between the two. The library does none of this: a program that calls ``snapreport.load`` is its own
supervisor.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from snapreport.available_memory import available_memory
from snapreport.supervision import (
    ASK,
    LIMIT,
    MATCHING,
    NAME,
    READS,
    TEMPORARY,
    UNPICKLING,
    WORK,
    SharedPage,
    limit_of,
    share,
)
from snapreport.terminal import echo, visible

HANG_SECONDS = 5.0  # of the child's processor time, so that a busy or stopped machine is no reason
POLL_SECONDS = 0.05
AVAILABLE_SHARE = 0.9
MIN_LIMIT = 512 << 20
BAD_INPUT = 2
_F_SETSIG = 10  # of <fcntl.h>; Python has no name for it
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_HANGS = {
    UNPICKLING: "the pickle cannot be read in reasonable time: it holds values that multiply when they are compared",
    MATCHING: "a pattern takes too long to search one text: write it without repetitions inside repetitions",
}


def supervised(work: Callable[[], NoReturn]) -> NoReturn:
    """Run ``work`` in a child and leave with its exit code. Without Linux, run it here."""
    if sys.platform != "linux":
        work()
    page = SharedPage()
    share(page, max(MIN_LIMIT, int((available_memory(with_swap=True) or 1 << 62) * AVAILABLE_SHARE)))
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
            reason = _watch(child, ended, page)
            break
        except _Signalled as end:
            if page.number(ASK):
                page.set_number(ASK, 0)
                os.kill(child, signal.SIGINT)
                continue
            for number in waiting:
                signal.signal(number, signal.SIG_IGN)
            _kill(child, page)
            os._exit(128 + end.number)
    _, status = os.waitpid(child, 0)
    _leave(status, reason, page)


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


def _watch(child: int, ended: int, page: SharedPage) -> str:
    """Waits for the end of the child; why it was ended, or ""."""
    reads, since = -1, 0.0
    while not select.select([ended], [], [], POLL_SECONDS)[0]:
        limit = limit_of(page)
        if _resident(child) > limit:
            _kill(child, page, reap=False)
            what = "--max-memory allows" if page.number(LIMIT) else "are available (--max-memory allows more)"
            return f"needs more memory than the {_size_text(limit)} that {what}"
        kind = page.number(WORK)
        if not kind:
            reads = -1
            continue
        used = _processor_seconds(child)
        if page.number(READS) != reads:
            reads, since = page.number(READS), used
        elif used - since > HANG_SECONDS:
            _kill(child, page, reap=False)
            return _HANGS[kind]
    return ""


def _kill(child: int, page: SharedPage, *, reap: bool = True) -> None:
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


def _clean_up(page: SharedPage) -> None:
    if temporary := page.text(TEMPORARY):
        with contextlib.suppress(OSError):
            Path(os.fsdecode(temporary)).unlink()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")  # of a progress line


def _leave(status: int, reason: str, page: SharedPage) -> NoReturn:
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
        name = visible(page.text(NAME).decode("utf-8", "replace"))
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
