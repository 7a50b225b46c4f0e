"""The ranks that a job's report shows in full, and how their snapshots are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from snapreport.errors import SnapshotError
from snapreport.jobs.digest import rank_device
from snapreport.jobs.document import Detail
from snapreport.jobs.reduce import Job
from snapreport.process_memory import release_freed
from snapreport.reading.redaction import Redaction
from snapreport.snapshot import Snapshot, load

DEFAULT_DETAIL = ("worst", "median")


class RankReader(Struct, frozen=True):
    """Reads a rank's snapshot with the options of its digest, by the job's path for it. Can be sent to any process.

    rules, inference: as in ``snapreport.load``. real: the real paths of files that a redacted job renamed.
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
    """Rows to show in full, each with its reason: "worst", "median" or "given".

    ``wanted``: "worst", "median", "none", or rank numbers. Raises :class:`SnapshotError` for a rank that the job lacks.
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
    """The snapshots of the ranks to show in full: from ``known`` by path, otherwise read with ``read``.

    Ranks with only a digest are omitted; raises :class:`SnapshotError` for such a rank if its number was given.
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
