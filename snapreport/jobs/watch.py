"""A job that is reduced again and again while it runs: a digest is read once, and again only when its file changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snapreport.errors import SnapshotError
from snapreport.jobs.execution import DigestResult, make_all
from snapreport.jobs.reduce import Job, reduce_job
from snapreport.jobs.sources import expand
from snapreport.reading.paths import file_stamp


class JobWatch:
    """The files that ``arguments`` name, as in ``snapreport.job``. options: of ``execution.make_all``; reduce: of
    ``reduce_job``. read: how many files the last :meth:`update` read.
    """

    def __init__(self, arguments: Sequence[str], options: dict[str, Any], reduce: dict[str, Any]) -> None:
        self._arguments, self._options, self._reduce = list(arguments), options, reduce
        self._made: dict[str, tuple[object, DigestResult]] = {}
        self.read = 0

    def update(self) -> bool:
        """Reads what is new. Returns whether anything has changed, also that a file is gone."""
        try:
            files = expand(self._arguments)
        except SnapshotError:  # the job has not written its first file
            files = []
        stamps = {path: file_stamp(path) for path in files}
        known = {path: stamp for path, (stamp, _) in self._made.items()}
        # A file whose state cannot be asked for is read again.
        changed = [path for path in files if stamps[path] is None or known.get(path) != stamps[path]]
        made = make_all(changed, **self._options) if changed else []
        fresh = {path: (stamps[path], one) for path, one in zip(changed, made, strict=True)}
        # A digest on its way to an object store, or a folder's file that is gone by now, is read at the next turn.
        fresh = {path: pair for path, pair in fresh.items() if pair[1].data is not None or path not in self._made}
        before = {path: self._made[path][1].data for path in changed if path in self._made}
        is_gone = bool(self._made.keys() - set(files))
        self._made = {
            path: fresh.get(path) or self._made[path] for path in files if path in fresh or path in self._made
        }
        self.read = len(changed)
        return is_gone or any(before.get(path) != pair[1].data for path, pair in fresh.items())

    @property
    def is_empty(self) -> bool:
        return not any(made.data for _, made in self._made.values())

    def job(self) -> Job:
        """The job of what has been read. Raises :class:`SnapshotError` as ``reduce_job`` does."""
        return reduce_job(list(self._made), [made for _, made in self._made.values()], **self._reduce)
