"""Profiles chosen steps with ``torch.profiler`` while memory is recorded, and writes the trace beside the snapshots.

Both use one clock, so that a report draws kernels and operators under the memory of the same moment.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from snapreport.recorder.chrome_trace import TRACE_NAME
from snapreport.recorder.dump import write_file
from snapreport.recorder.options import Options
from snapreport.recorder.step_hooks import on_profiler_start

_TAIL = 4096  # bytes at the end of a trace, among them its name


class StepProfile:
    """The profile of ``options.profile``, steps of this process. ``kind``: of the device; ``notice``: a line for the
    log.
    """

    def __init__(self, options: Options, kind: str, notice: Callable[[str], None]) -> None:
        self._options, self._kind, self._notice = options, kind, notice
        self._profile: Any = None
        self._thread = 0
        self._unwatch: Callable[[], None] = lambda: None
        self.path: Path | None = None

    @property
    def name(self) -> str | None:
        """Name of the trace's file, which may not be whole yet; None before the first of the steps."""
        return self.path.name if self.path else None

    def step(self, number: int, path: Callable[[], Path]) -> None:
        """Step ``number`` begins: starts or ends the profile. ``path``: of the file to write."""
        first, end = self._options.profile or (0, 0)
        if self._profile is None and self.path is None and first <= number < end:
            self._start(path)
        elif self._profile is not None and number >= end:
            self.end()

    def _start(self, path: Callable[[], Path]) -> None:
        torch = sys.modules["torch"]
        profiler = torch.profiler
        if torch._C._autograd._profiler_enabled():
            self._notice("no profile: the program runs torch.profiler itself")
            return
        activities = [profiler.ProfilerActivity.CPU]
        activities += [one for name, one in profiler.ProfilerActivity.__members__.items() if name == self._kind.upper()]
        profile = profiler.profile(activities=activities, profile_memory=True)
        self._thread = threading.get_ident()
        profile.start()
        self._profile, self.path = profile, path()
        self._unwatch = on_profiler_start(lambda: profile, lambda: self.end("the program starts torch.profiler itself"))

    def end(self, reason: str = "") -> None:
        """Writes the profile of the steps so far, if one is running; ``reason``: why before its last step."""
        profile, self._profile = self._profile, None
        if profile is None or self.path is None:
            return
        self._unwatch()
        if self._thread != threading.get_ident():
            self._notice("no profile: another thread than that of its first step ends the last")
            return
        plain = self.path.with_name(f".{self.path.name}.json.{os.getpid()}.part")
        try:
            profile.stop()
            profile.export_chrome_trace(str(plain))
            write_file(self.path, self._options.compression, lambda stream: _copy(plain, stream))
        except (RuntimeError, OSError, ValueError) as error:
            self._notice(f"no profile: {error}")
        else:
            self._notice(f"{f'{reason}: ' if reason else ''}profile: {self.path}")
        finally:
            with contextlib.suppress(OSError):
                plain.unlink()


def _copy(plain: Path, stream: IO[bytes]) -> None:
    """The trace without its name, which is that of a file that is removed at once."""
    with plain.open("rb") as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        remaining = max(size - _TAIL, 0)
        while remaining and (chunk := source.read(min(remaining, 1 << 20))):
            stream.write(chunk)
            remaining -= len(chunk)
        stream.write(TRACE_NAME.sub(b'"traceName": ""', source.read()))
