"""Progress on a terminal: one line on standard error with a share, a rate and the time left of a stage of the work;
nothing anywhere else.

The time left is that of the stage, from a quarter of it on, at the rate of the later half of what is done: a reader is
slow until it knows how entries are written. What follows reading takes between a sixth and five times as long, by what
the trace holds, so that no total is told; and no time left of stages whose units differ in weight.

Work announces itself with :func:`stage`. Who runs it decides with :func:`shown` whether anybody is told, so that the
library stays quiet. No thread paints the line: the unpickler never lets one run.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, BinaryIO, TextIO

from snapreport import supervision

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 1 << 20
_REPAINT_SECONDS = 0.1  # seconds between two pictures of the line
_DELAY_SECONDS = 0.4  # what is done by then needs none
_terminal: TextIO | None = None
_is_slow = False  # a line was shown: no stage after it is silent
_open: list[Bar] = []  # of stages side by side, the line shows the latest


class Bar:
    """One stage of the work. ``total`` and what is done are counted in ``unit``: "B" for bytes, or things by name; ""
    where one takes a second and the next none.
    """

    def __init__(self, label: str, total: int, unit: str, stream: TextIO | None) -> None:
        self._label, self._total, self._unit, self._stream = label, total, unit, stream
        self._done = 0
        self._began = time.monotonic()
        self._due = self._began + (0 if _is_slow else _DELAY_SECONDS)
        self._painted = False
        self._past = [(self._began, 0)]  # (time, done) at each picture
        self._lock = threading.Lock()

    def advance(self, amount: int) -> None:
        """So much more is done. From any thread."""
        global _is_slow
        if self._stream is None:
            return
        with self._lock:
            self._done = min(self._total, self._done + amount)
            now = time.monotonic()
            if now >= self._due and self is _open[-1]:
                self._paint(f"\r\x1b[K{self._line(now)}")
                self._due, self._painted, _is_slow = now + _REPAINT_SECONDS, True, True

    def rename(self, label: str) -> None:
        """What the line says from its next picture on. From any thread."""
        self._label = label

    def watched(self, file: BinaryIO) -> BinaryIO:
        """``file``, whose reading advances this bar by bytes and shows that this process does not hang."""
        is_needed = self._stream is not None or supervision.is_watched()
        return io.BufferedReader(_Watched(file, self), _BUFFER) if is_needed else file

    def close(self) -> None:
        """Take the line away."""
        if self._painted:
            self._paint("\r\x1b[K")

    def _paint(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            assert self._stream is not None
            self._stream.write(text)
            self._stream.flush()

    def _line(self, now: float) -> str:
        done, total = self._done, max(1, self._total)
        filled = 20 * done // total
        text = f"{self._label:<10} [{'#' * filled}{'.' * (20 - filled)}] {100 * done // total:3d}%"
        if 4 * done >= total and self._unit:
            time_then, done_then = self._past[bisect_right(self._past, done / 2, key=itemgetter(1)) - 1]
            rate = (done - done_then) / (now - time_then)
            text += f"  {_rate(rate, self._unit)}/s  {(total - done) / rate:.0f} s left of this stage"
        self._past.append((now, done))
        return text


class _Watched(io.RawIOBase):
    """Tells a bar what is read of a file."""

    def __init__(self, file: BinaryIO, bar: Bar) -> None:
        self._file, self._bar = file, bar

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count: int = self._file.readinto(buffer)  # type: ignore[attr-defined]  # all binary files have it; BinaryIO's stub has not
        supervision.note_progress()
        self._bar.advance(count)
        return count


def _rate(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 1e6:,.0f} MB" if value >= 1e7 else f"{value / 1e6:.1f} MB"
    return f"{value:,.0f} {unit}"


@contextlib.contextmanager
def shown(stream: TextIO | None = None) -> Iterator[None]:
    """Show the progress of what runs inside on ``stream`` (standard error), if that is a terminal."""
    global _terminal
    stream = stream or sys.stderr
    before, _terminal = _terminal, stream if stream.isatty() else None
    try:
        yield
    finally:
        _terminal = before


@contextlib.contextmanager
def stage(label: str, total: int, unit: str) -> Iterator[Bar]:
    """A stage of the work that is ``total`` units long."""
    bar = Bar(label, total, unit, _terminal)
    _open.append(bar)
    try:
        bar.advance(0)
        yield bar
    finally:
        _open.remove(bar)
        bar.close()
