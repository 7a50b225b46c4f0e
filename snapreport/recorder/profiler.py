"""Records tensors in host memory with ``torch.profiler``, if PyTorch has no memory recorder for an accelerator.

The profiler stores everything until it stops, including every Python call: 100 bytes per call, and 1.5 KiB when it
stops. So it runs for chosen steps, or the first ten, or the first minute of a program without steps; and at most until
half of the free host memory is used.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from snapreport.recorder.chrome_trace import write_trimmed, write_whole
from snapreport.recorder.dump import write_file
from snapreport.recorder.host_limits import HostLimits
from snapreport.recorder.options import Options
from snapreport.recorder.step_hooks import on_profiler_start

FIRST_STEPS = 10
MOST_SECONDS = 60.0
SUFFIXES = {"gzip": ".json.gz", "zstd": ".json.zst", "none": ".json"}


class ProfilerRecorder:
    """``torch.profiler`` with memory events and stacks; the interface of ``CudaRecorder``."""

    kind = "cpu"
    suffixes = SUFFIXES

    def __init__(self, options: Options) -> None:
        self._options = options
        self._profile: Any = None
        self._thread = 0
        self._restore: Any = None
        self.recording = False
        # Called with the reason if recording has to end early, in the program's thread, which then dumps.
        self.ends_early: Callable[[str], None] = lambda _: None
        self.notice: Callable[[str], None] = lambda _: None
        self._limits: HostLimits | None = None

    @property
    def steps(self) -> tuple[int, int] | None:
        """The steps to record, and to dump after."""
        return self._options.steps or (None if self._options.every else (0, FIRST_STEPS))

    def when_ready(self, begin: Callable[[], None]) -> None:
        """Calls ``begin`` at once: host memory needs no initialisation."""
        begin()

    def begin(self, on_oom: Callable[[int, int, int, int], None]) -> None:
        """Prepares recording; :meth:`step` starts the profiler. There is no observer of failed host allocations."""
        self.recording = True
        self._restore = on_profiler_start(lambda: self._profile, self._end_by_program)

    def _end_by_program(self) -> None:
        if self._profile is not None:
            self.ends_early("the program uses torch.profiler itself: recorded until here")

    def step(self, number: int) -> None:
        """Starts the profiler if step ``number`` is to be recorded."""
        steps = self.steps
        if self.recording and self._profile is None and (steps is None or steps[0] <= number < steps[1]):
            self._start()

    def stop(self) -> None:
        """Ends recording; events that were not dumped are lost."""
        self.recording = False
        self._end()
        if self._restore is not None:
            self._restore()
            self._restore = None

    def write(self, path: Path, compression: str, facts: dict[str, Any], deadline: float | None) -> bool:
        """Ends the profile and writes it to ``path``, atomically as in ``dump.py``; returns False and writes nothing if
        it has no memory events. The next recording starts empty. The export knows no ``deadline``.
        """
        profile = self._profile
        if profile is None:
            return False
        if self._thread != threading.get_ident():
            raise RuntimeError("the profiler can be stopped only by the thread that started it")
        self._end()
        plain = path.with_name(f".{path.name}.{os.getpid()}.json.part")
        try:
            profile.export_chrome_trace(str(plain))
            if not _has_memory_events(plain):
                return False
            self._write_trimmed(plain, path, compression, facts)
        finally:
            with contextlib.suppress(OSError):
                plain.unlink()
        return True

    def _write_trimmed(self, plain: Path, path: Path, compression: str, own: dict[str, Any]) -> None:
        most, found = self._options.max_entries, 0

        def fill(stream: IO[bytes]) -> None:
            nonlocal found
            found = write_trimmed(source, stream, own, most)

        with plain.open("rb") as source:
            try:
                write_file(path, compression, fill)
            except ValueError:  # written by a PyTorch with a different layout: keep all of it
                source.seek(0)
                write_file(path, compression, lambda stream: write_whole(source, stream, own))
        if found > most:
            self.notice(f"the last {most:,} of {found:,} memory events are kept; --max-entries keeps more")

    def _start(self) -> None:
        profiler = sys.modules["torch"].profiler
        profile = profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True, with_stack=True)
        self._thread = threading.get_ident()
        self._profile = profile
        profile.start()
        if threading.current_thread() is threading.main_thread():
            seconds = MOST_SECONDS if self.steps == (0, FIRST_STEPS) and not self._options.steps else None
            self._limits = HostLimits(seconds, self.ends_early)
            self._limits.start()

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if self._limits is not None:
            self._limits.cancel()
        if profile is not None and self._thread == threading.get_ident():
            with contextlib.suppress(RuntimeError):
                profile.stop()


def _has_memory_events(path: Path) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(b'"[memory]"') >= 0


def unrecorded_accelerator() -> str:
    """The name of an accelerator that has no recorder of memory, such as mps; empty if there is none."""
    torch = sys.modules["torch"]
    with contextlib.suppress(AttributeError, RuntimeError):
        if torch.backends.mps.is_available():
            return "mps"
    with contextlib.suppress(AttributeError, RuntimeError):
        found = torch.accelerator.current_accelerator()
        if found is not None and found.type not in ("cpu", "cuda", "xpu"):
            return str(found.type)
    return ""
