"""Names of snapshot files: ``rank_00037_step_00000412_oom.pickle.gz``, and removal of old ones."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows, where process numbers keep names unique
    fcntl = None  # type: ignore[assignment]


class FileNames:
    """The names that one process writes to in ``folder``; no two processes share one.

    Every rank is one process. Processes without a rank count as rank 0, and so can two programs of one command: the
    first takes the rank's lock, others add their process number. A restarted worker adds its restart count.

    ``at_once``: claims the names at the start, not with the first path. A launcher that imports torch without CUDA
    never writes, and must not take the names of rank 0.
    """

    def __init__(self, folder: Path, suffix: str, *, at_once: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.suffix = folder, suffix
        self._lock: int | None = None
        self._rank = environment_int("RANK") or 0
        self._prefix = ""
        if at_once:
            self._claim(self._rank)

    def set_rank(self, rank: int) -> None:
        """Names later files after ``rank``, for a process that learns its rank after the start."""
        if rank != self._rank or not self._prefix:
            self.release()
            self._claim(rank)

    def _claim(self, rank: int) -> None:
        self._rank, self._prefix = rank, f"rank_{rank:05}"
        restart = environment_int("TORCHELASTIC_RESTART_COUNT")
        if restart:
            self._prefix += f"_restart_{restart:02}"
        self._lock_path = self.folder / f".{self._prefix}.lock"
        if not self._take_lock():
            self._prefix += f"_pid_{os.getpid()}"

    @property
    def prefix(self) -> str:
        """The beginning of the names, ``rank_00037``, claimed when it is first needed."""
        if not self._prefix:
            self._claim(self._rank)
        return self._prefix

    def path(self, step: int, reason: str) -> Path:
        """The path for a snapshot. An existing file of that name is never replaced."""
        return self._new(f"{self.prefix}_step_{step:08}_{reason}", self.suffix)

    def _new(self, name: str, suffix: str) -> Path:
        path = self.folder / f"{name}{suffix}"
        number = 2
        while path.exists():
            path = self.folder / f"{name}_{number}{suffix}"
            number += 1
        return path

    def profile(self, suffix: str) -> Path:
        """The path of a profile of this process, ``profile_rank_00037.suffix``, which no job takes for a snapshot."""
        return self._new(f"profile_{self.prefix}", suffix)

    def unlisted(self, reason: str) -> Path:
        """The path of a snapshot that does not stay, and that no job takes for one. What a killed process leaves there
        is removed as unfinished.
        """
        return self.folder / f"{self.prefix}_digest_{reason}.{os.getpid()}.part"

    def release(self) -> None:
        """Releases the prefix for another process."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock_path.unlink()
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> bool:
        if fcntl is None:
            return False
        try:
            handle = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed the file between the two calls; the lock then protects nothing.
            if os.fstat(handle).st_ino == self._lock_path.stat().st_ino:
                self._lock = handle
                return True
        except OSError:
            pass
        os.close(handle)
        return False


class Retention:
    """Removes the oldest of the files written for one reason. The newest ``keep`` remain, and each is removed only
    after a newer one is complete.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._written: dict[str, list[Path]] = {}

    def add(self, reason: str, path: Path) -> None:
        paths = self._written.setdefault(reason, [])
        paths.append(path)
        while len(paths) > self._keep:
            with contextlib.suppress(OSError):
                paths.pop(0).unlink()


def environment_int(name: str) -> int | None:
    """An environment variable as a whole number; None if absent or not a number."""
    with contextlib.suppress(ValueError):
        return int(os.environ[name]) if name in os.environ else None
    return None
