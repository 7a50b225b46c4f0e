"""Progress on a terminal: one line on standard error with a share, a rate and the time left of a stage of the work;
nothing anywhere else.

Work announces itself with :func:`stage`. Who runs it decides with :func:`shown` whether anybody is told, so that the
library stays quiet. No thread paints the line: the unpickler never lets one run.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, TextIO

from snapreport import supervision

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 1 << 20
_REPAINT_SECONDS = 0.1  # seconds between two pictures of the line
_DELAY_SECONDS = 0.4  # what is done by then needs none
_terminal: TextIO | None = None


class Bar:
    """One stage of the work. ``total`` and what is done are counted in ``unit``: "B" for bytes, or things by name."""

    def __init__(self, label: str, total: int, unit: str, stream: TextIO | None) -> None:
        self._label, self._total, self._unit, self._stream = label, total, unit, stream
        self._done = 0
        self._began = time.monotonic()
        self._due = self._began + _DELAY_SECONDS
        self._painted = False
        self._lock = threading.Lock()

    def advance(self, amount: int) -> None:
        """So much more is done. From any thread."""
        if self._stream is None:
            return
        with self._lock:
            self._done = min(self._total, self._done + amount)
            now = time.monotonic()
            if now >= self._due:
                self._paint(f"\r\x1b[K{self._line(now - self._began)}")
                self._due, self._painted = now + _REPAINT_SECONDS, True

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

    def _line(self, seconds: float) -> str:
        done, total = self._done, max(1, self._total)
        filled = 20 * done // total
        text = f"{self._label:<10} [{'#' * filled}{'.' * (20 - filled)}] {100 * done // total:3d}%"
        if done:
            text += (
                f"  {_rate(done / seconds, self._unit)}/s  {(total - done) * seconds / done:.0f} s left of this stage"
            )
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
    try:
        yield bar
    finally:
        bar.close()
