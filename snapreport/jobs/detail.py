"""Ranks that a job's report shows in full: which, and how their snapshots are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from snapreport.errors import SnapshotError
from snapreport.jobs.digest import rank_device
from snapreport.jobs.document import Detail
from snapreport.jobs.reduce import Job
from snapreport.process_memory import release_freed
from snapreport.reading.redaction import Redaction
from snapreport.snapshot import Snapshot, load

DEFAULT_DETAIL = ("worst", "median")


@dataclass(frozen=True)
class RankReader:
    """Reads a rank's snapshot as its digest was made, by the path that the job has for it. Any process can have it.

    rules, inference: of ``snapreport.load``. real: where files are that a redacted job calls otherwise.
    """

    rules: str | os.PathLike[str] | None = None
    inference: bool = True
    redaction: Redaction | None = None
    real: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, path: str) -> Snapshot:
        snapshot = load(self.real.get(path, path), self.rules, inference=self.inference)
        if self.redaction:
            (snapshot.recording,) = self.redaction.of([snapshot.recording])
        return snapshot


def chosen_rows(job: Job, wanted: Sequence[str]) -> dict[int, str]:
    """Rows to show in full, each with why: "worst", "median" or "given".

    ``wanted``: those two words, "none", and ranks. Raises :class:`SnapshotError` for a rank that is not there.
    """
    chosen: dict[int, str] = {}
    for word in wanted:
        if word == "none":
            continue
        if word in ("worst", "median"):
            chosen.setdefault(job.worst if word == "worst" else job.typical, word)
            continue
        rows = [row for row, rank in enumerate(job.ranks.tolist()) if str(rank) == word]
        if not rows:
            raise SnapshotError(f"--detail {word}: no such rank; give worst, median, none, or numbers of ranks")
        chosen.setdefault(rows[0], "given")
    return chosen


def read_details(
    job: Job, wanted: Sequence[str], known: Mapping[str, Snapshot], read: Callable[[str], Snapshot]
) -> tuple[list[Snapshot], list[Detail]]:
    """The snapshots of the ranks to show in full, those in ``known`` by their paths, others with ``read``.

    Ranks of which only a digest is there are left out; :class:`SnapshotError` is raised where one was given by number.
    """
    snapshots: list[Snapshot] = []
    details: list[Detail] = []
    devices = 0
    for row, why in chosen_rows(job, wanted).items():
        path = job.rows[row].path
        try:
            snapshot = known.get(path) or read(path)
        except SnapshotError as error:
            if why == "given":
                raise SnapshotError(f"--detail {job.ranks[row]}: cannot be shown in full: {error}") from None
            continue
        release_freed()
        device = devices + snapshot.devices.index(rank_device(snapshot)) if snapshot.devices else devices
        details.append(Detail(row, len(snapshots), device, why))
        snapshots.append(snapshot)
        devices += len(snapshot.devices)
    return snapshots, details
