"""Which files are of the same run: two runs into one folder are two jobs, and a restart is another attempt.

A run has one id on each host, that of its recorded command; in programs that record themselves, one per process. So
ids are one run where the launcher is the same, no rank is in both, and both ran at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct, field

from snapreport.errors import SnapshotError
from snapreport.jobs.digest_model import Digest
from snapreport.number_format import plural

START_APART_US = 60_000_000
"""Hosts start a job within this time of each other, though one may have failed before another has started."""
_NAMED = 5


class Run(Struct):
    """Files of one run. id: of the command that started first. files: indices; end_us: of the last snapshot."""

    id: str
    launch: str
    world_size: int | None
    start_us: int
    end_us: int
    ids: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    files: list[int] = field(default_factory=list)
    restarts: set[int] = field(default_factory=set)
    command: str = ""

    def takes(self, other: Run) -> bool:
        """Whether ``other``, which started later, is part of this run."""
        if (self.launch, self.world_size) != (other.launch, other.world_size) or self.ranks & other.ranks:
            return False
        is_elsewhere = not self.hosts & other.hosts
        return other.start_us <= self.end_us or (is_elsewhere and other.start_us - self.start_us <= START_APART_US)

    def add(self, other: Run) -> None:
        self.end_us = max(self.end_us, other.end_us)
        for name in ("ids", "hosts", "ranks", "restarts"):
            getattr(self, name).update(getattr(other, name))
        self.files += other.files

    @property
    def text(self) -> str:
        """``3f2a91bc of 2026-11-23 12:01 (8 ranks, restarts 0–1: python train.py)``."""
        began = (
            datetime.fromtimestamp(self.start_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if self.start_us else ""
        )
        last = max(self.restarts)
        again = f", {plural(last, 'restart')}" if last else ""
        command = f": {self.command[:60]}{'…' if len(self.command) > 60 else ''}" if self.command else ""
        return f"{self.id}{f' of {began}' if began else ''} ({plural(len(self.ranks), 'rank')}{again}{command})"


class Chosen(Struct, frozen=True):
    """The files of a run that a job compares. run: None where no file states it. restart: the attempt; others: the
    files of each other attempt, by its number.
    """

    files: list[int]
    run: Run | None = None
    restart: int = 0
    others: dict[int, list[int]] = field(default_factory=dict)


def find_runs(digests: Sequence[Digest], ranks: Sequence[int | None]) -> list[Run]:
    """The runs of the files that state one, by start. ``digests``, ``ranks``: of the files."""
    parts: dict[str, Run] = {}
    for index, (digest, rank) in enumerate(zip(digests, ranks, strict=True)):
        if not digest.run.id:
            continue
        stated = digest.run
        start = stated.start_us or stated.end_us or 0
        part = parts.setdefault(
            stated.id, Run(stated.id, stated.launch, digest.world_size, start, stated.end_us or start)
        )
        part.start_us, part.end_us = min(part.start_us, start), max(part.end_us, stated.end_us or start)
        part.world_size = part.world_size or digest.world_size
        part.command = part.command or stated.command
        part.ids.add(stated.id)
        part.hosts.add(digest.host)
        part.restarts.add(stated.restart)
        part.files.append(index)
        if rank is not None:
            part.ranks.add(rank)
    runs: list[Run] = []
    for part in sorted(parts.values(), key=lambda run: (run.start_us, run.id)):
        taker = next((run for run in runs if run.takes(part)), None)
        if taker is None:
            runs.append(part)
        else:
            taker.add(part)
    return runs


def choose_run(digests: Sequence[Digest], ranks: Sequence[int | None], wanted: str | None = None) -> Chosen:
    """The files to compare: all that state no run, and those of one run in its last attempt.

    ``wanted``: the beginning of a run's id, or ``last``; with ``:0`` its attempt before the first restart. Raises
    :class:`SnapshotError`, which lists the runs, if there are several and none is wanted, or none that is wanted.
    """
    runs = find_runs(digests, ranks)
    stated = {index for run in runs for index in run.files}
    if wanted is None and len(runs) > 1:
        raise SnapshotError(
            f"these files are of {len(runs)} runs, and a job is one; choose it with --run: {_listed(runs)}"
        )
    name, _, attempt = (wanted or "").partition(":")
    fitting = runs[-1:] if name == "last" else [run for run in runs if any(i.startswith(name) for i in run.ids)]
    if wanted is not None and len(fitting) != 1:
        known = f"there are {_listed(runs)}" if runs else "no file states its run"
        raise SnapshotError(f"--run {wanted}: not one run of these files; {known}")
    rest = [index for index in range(len(digests)) if index not in stated] if wanted is None else []
    if not runs:
        return Chosen(rest)
    run = fitting[0]
    attempts: defaultdict[int, list[int]] = defaultdict(list)
    for index in sorted(run.files):
        attempts[digests[index].run.restart].append(index)
    if attempt and (not attempt.isdecimal() or int(attempt) not in attempts):
        raise SnapshotError(f"--run {wanted}: the run has the attempts {', '.join(map(str, sorted(attempts)))}")
    restart = int(attempt) if attempt else max(attempts)
    files = sorted([*rest, *attempts.pop(restart)])
    return Chosen(files, run, restart, dict(attempts))


def _listed(runs: Sequence[Run]) -> str:
    more = [f"{len(runs) - _NAMED} more"] if len(runs) > _NAMED else []
    return "; ".join([*(run.text for run in runs[:_NAMED]), *more])
