"""The files that a recording writes: snapshots, those that only become digests, and their names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapreport.recorder.allocator import CudaRecorder
from snapreport.recorder.digests import NEXT_SECONDS, DigestProcess
from snapreport.recorder.dump import TimeLimitError
from snapreport.recorder.file_names import FileNames, Retention
from snapreport.recorder.options import Options
from snapreport.recorder.profiler import SUFFIXES as PROFILE_SUFFIXES
from snapreport.recorder.profiler import ProfilerRecorder

# torchrun, Slurm and Kubernetes send SIGKILL 30 s after SIGTERM.
SIGNAL_SECONDS = 25.0
# Reasons of a program's last snapshot, which its last digest is of.
_ENDS = ("exit", "oom", "terminated")


class SnapshotFiles:
    """Writes one snapshot at a time. Errors cost it, and one line of ``say``."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.written: list[Path] = []
        self._options, self._say = options, say
        self._names: FileNames | None = None
        self._retention = Retention(options.keep)
        self._digests = DigestProcess(options.python, options.digests or options.directory)
        self._lock = threading.Lock()

    def open(self, memory: CudaRecorder | ProfilerRecorder) -> None:
        """Takes the names that this process writes to. Raises OSError."""
        ending = memory.suffixes[self._options.compression]
        self._names = FileNames(Path(self._options.directory), ending, at_once=memory.kind != "cpu")

    def close(self) -> None:
        """Releases the names, after the last digest."""
        self._digests.finish()
        if self._names is not None:
            self._names.release()

    def set_rank(self, rank: int) -> None:
        """As :meth:`FileNames.set_rank`, after :meth:`open`."""
        assert self._names is not None
        self._names.set_rank(rank)

    def profile_path(self) -> Path:
        """Where a profile of some steps is written."""
        assert self._names is not None
        return self._names.profile(PROFILE_SUFFIXES[self._options.compression])

    @property
    def is_writing(self) -> bool:
        return self._lock.locked()

    @property
    def is_digest_due(self) -> bool:
        """Whether the next digest can be started: one that is due while another is made is left out."""
        return not self._digests.is_busy

    def wait(self) -> bool:
        """Waits for a snapshot that another thread writes, if there is one. Returns whether there was."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return False
        if self._lock.acquire(timeout=SIGNAL_SECONDS):
            self._lock.release()
        return True

    def write(
        self,
        memory: CudaRecorder | ProfilerRecorder,
        step: int,
        reason: str,
        facts: Callable[[], dict[str, Any]],
        seconds: float | None = None,
        *,
        is_for_digest: bool = False,
    ) -> Path | None:
        """Writes a snapshot with its ``facts``. Returns its path; None if it does not stay, if another is being written
        or if writing failed or takes longer than ``seconds``.
        """
        if not self._lock.acquire(blocking=False):
            return None
        began = time.monotonic()
        try:
            assert self._names is not None
            own = facts()  # first: they have the rank, and with it the name
            path = self._names.unlisted(reason) if is_for_digest else self._names.path(step, reason)
            if not memory.write(path, self._options.compression, own, began + seconds if seconds else None):
                return None
        except TimeLimitError:
            self._say(f"no {reason} snapshot: writing it takes longer than {seconds:.0f} s")
        except Exception as error:  # noqa: BLE001  the program's models and optimizers may raise anything
            self._say(f"no {reason} snapshot: {str(error) or type(error).__name__}")
        else:
            if self._options.digest_every and (is_for_digest or reason in _ENDS):
                self._start_digest(path, remove=is_for_digest)
            if is_for_digest:
                return None
            self.written.append(path)
            self._retention.add(reason, path)
            return path
        finally:
            self._lock.release()
        return None

    def _start_digest(self, path: Path, *, remove: bool) -> None:
        """Waits for one under way, which would replace this one; :meth:`close` waits for both."""
        assert self._names is not None
        self._digests.finish(NEXT_SECONDS)
        try:
            self._digests.write(path, f"{self._names.prefix}.digest", remove=remove)
        except OSError as error:
            self._say(f"no digest: {error}")
            if remove:
                path.unlink(missing_ok=True)
