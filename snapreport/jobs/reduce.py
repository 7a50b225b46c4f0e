"""Reduces digests to a job: rows in rank order, groups, outliers, first failures, missing ranks.

Digests are read one at a time, and only what ``rows.py`` describes stays in memory; curves and texts are read again
from the packed digests when the report is laid out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from snapreport.contracts.job import Clock
from snapreport.errors import SnapshotError
from snapreport.findings.comparable import natural_key
from snapreport.jobs.causes import Cause, find_cause
from snapreport.jobs.digest_model import Digest, DigestOom, DigestStack
from snapreport.jobs.execution import DigestResult
from snapreport.jobs.groups import Group, find_groups
from snapreport.jobs.outliers import Outlier, find_outliers
from snapreport.jobs.rank_names import NameFacts, facts_of_names, is_digest, missing_ranks, newest_of_each
from snapreport.jobs.rows import Packed, RankSource, Row
from snapreport.jobs.runs import Run, choose_run
from snapreport.jobs.stack_identity import EMPTY

MODEL_STATE = ("parameter", "gradient", "optimizer state")


class Failed(Struct, frozen=True):
    """A file that could not be read. rank: None if its name does not contain it."""

    rank: int | None
    path: str
    error: str


class FirstOom(Struct, frozen=True):
    """The first failure of a row. ``us``: by its host's clock."""

    row: int
    oom: DigestOom


class Job(Struct, frozen=True, eq=False, dict=True):
    """A job. rows: ascending by rank, at least one. left_out: files of the same ranks that are older than those
    compared. world_size: None if not recorded. left_out_sources: their names in their digests, by path. undecided: how
    many of them are not known to be older. report_names: of the ranks' own reports, by path. run, restart: the run and
    its attempt, where the recordings state it; restarts: for each other attempt, rank and whether memory ran out for
    each of its files.
    """

    rows: list[Row]
    failed: list[Failed] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    world_size: int | None = None
    left_out_sources: dict[str, str] = field(default_factory=dict)
    undecided: int = 0
    report_names: dict[str, str] = field(default_factory=dict)
    run: Run | None = None
    restart: int = 0
    restarts: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)

    @property
    def digests(self) -> list[Digest]:
        """The scalars of each row; see ``rows.Packed``."""
        return [row.digest for row in self.rows]

    @cached_property
    def ranks(self) -> np.ndarray:
        """Int64, the rank of each row."""
        return np.array([row.rank for row in self.rows], np.int64)

    @cached_property
    def missing(self) -> list[int]:
        """Ranks of the world without a readable file."""
        return missing_ranks(self.ranks.tolist(), self.world_size)

    @property
    def world(self) -> int:
        """The number of ranks: as recorded, else as far as files are known."""
        return self.world_size or max(len(self.rows), int(self.ranks.max()) + 1)

    @cached_property
    def start_us(self) -> int | None:
        """The time of the first event of any rank; None without times."""
        return min((row.first_us for row in self.rows if row.first_us is not None), default=None)

    @cached_property
    def peaks(self) -> np.ndarray:
        """Int64 peak allocated bytes of each row: what PyTorch counted, where the trace has lost events."""
        return np.array([digest.highest_allocated for digest in self.digests], np.int64)

    @cached_property
    def stack_ids(self) -> np.ndarray:
        """UInt64 identities of all stacks of all rows, ascending."""
        return np.unique(np.concatenate([row.packed.stack_ids for row in self.rows]))

    @cached_property
    def stacks(self) -> list[DigestStack]:
        """All stacks of all rows, by identity, each as described by the lowest rank that has it."""
        found: dict[int, DigestStack] = {}
        for row in self.rows:
            # Most ranks have the same stacks as earlier ones: their digests need not be read again.
            if not all(identity in found for identity in row.packed.stack_ids.tolist()):
                for stack in row.packed.read().stacks:
                    found.setdefault(int(stack.identity, 16), stack)
        return [found[identity] for identity in self.stack_ids.tolist()]

    @cached_property
    def stack_bytes(self) -> np.ndarray:
        """Float64 bytes at the peak, rows by stacks."""
        table = np.zeros((len(self.rows), len(self.stack_ids)))
        for number, row in enumerate(self.rows):
            at = np.searchsorted(self.stack_ids, row.packed.stack_ids)
            np.add.at(table[number], at, row.packed.stack_bytes)
        return table

    @cached_property
    def groups(self) -> list[Group]:
        """See ``groups.py``; row numbers are those of this job."""
        state = [sum(size for name, size in d.categories if name in MODEL_STATE) for d in self.digests]
        failed = np.array([bool(digest.ooms) for digest in self.digests])
        unnamed = self.stack_ids == int(EMPTY, 16)
        return find_groups(
            self.stack_bytes, self.peaks.astype(np.float64), np.array(state, np.float64), failed, unnamed
        )

    @cached_property
    def group_of(self) -> np.ndarray:
        """Int64 group of each row."""
        of = np.full(len(self.rows), -1, np.int64)
        for number, group in enumerate(self.groups):
            of[group.rows] = number
        return of

    @cached_property
    def outliers(self) -> list[Outlier]:
        """See ``outliers.py``."""
        return find_outliers(self.groups, self.stack_bytes, self.peaks.astype(np.float64))

    @cached_property
    def causes(self) -> dict[int, Cause]:
        """By row of the outliers whose cause the ratios of their stacks prove; see ``causes.py``."""
        found = {
            outlier.row: find_cause(self.rows, self.stack_ids, self.stacks, outlier, self.groups[outlier.group])
            for outlier in self.outliers
        }
        return {row: cause for row, cause in found.items() if cause is not None}

    @cached_property
    def clock(self) -> Clock:
        return _clock(self)

    @cached_property
    def ooms(self) -> list[FirstOom]:
        """The first failure of each row: sorted by time if clocks can be compared, otherwise by step, then rank."""
        first = [FirstOom(row, digest.ooms[0]) for row, digest in enumerate(self.digests) if digest.ooms]

        def order(found: FirstOom) -> tuple[float, float, int]:
            us, step = found.oom.us if self.clock.comparable else None, found.oom.step
            return math.inf if us is None else us, math.inf if step is None else step, found.row

        return sorted(first, key=order)

    @cached_property
    def worst(self) -> int:
        """The row that ran out of memory first, otherwise the one with the largest peak."""
        return self.ooms[0].row if self.ooms else int(np.argmax(self.peaks))

    @cached_property
    def typical(self) -> int:
        """The row whose peak is the median of the largest group; an outlier is not typical."""
        outliers = {outlier.row for outlier in self.outliers}
        rows = max(self.groups, key=lambda group: len(group.rows)).rows
        rows = [row for row in rows if row not in outliers and row != self.worst] or rows
        by_peak = sorted(rows, key=lambda row: int(self.peaks[row]))
        return by_peak[(len(by_peak) - 1) // 2]


class _RankFile(Struct, frozen=True):
    """A file of a job. rank: None where nothing says it; step: of training."""

    path: str
    packed: Packed
    rank: int | None
    rank_source: RankSource
    step: int | None
    is_oom: bool


def reduce_job(
    paths: Sequence[str],
    made: Sequence[DigestResult],
    *,
    rank_pattern: str | None = None,
    world_size: int | None = None,
    run: str | None = None,
) -> Job:
    """Reduces digests to a job. ``paths``, ``made``: as in ``execution.make_all``; ``run``: as in ``runs.choose_run``.

    The order of the files does not matter. Raises :class:`SnapshotError` if none of them could be read, or if they are
    of several runs and none is chosen.
    """
    facts = _facts(paths, made, rank_pattern)
    failed = [
        Failed(fact.rank, path, one.error) for path, one, fact in zip(paths, made, facts, strict=True) if not one.data
    ]
    files = _rank_files(paths, made, facts, is_by_pattern=rank_pattern is not None)
    if not files:
        first = failed[0].error if failed else "no files"
        raise SnapshotError(f"not one of {len(paths)} files could be read; the first: {first}")
    chosen_run = choose_run([file.packed.digest for file in files], [file.rank for file in files], run)
    candidates = [files[i] for i in chosen_run.files]
    newest = set(newest_of_each([(file.rank, file.step, file.is_oom, file.path) for file in candidates]))
    chosen, older = ([one for i, one in enumerate(candidates) if (i in newest) is has] for has in (True, False))
    compared = {(file.rank, file.step, file.is_oom) for file in chosen}
    left_out = older + [files[i] for of_attempt in chosen_run.others.values() for i in of_attempt]
    rows = _numbered(chosen, [file.rank for file in candidates])
    failed.sort(key=lambda one: (one.rank is None, one.rank or 0, natural_key(one.path)))
    return Job(
        rows,
        failed,
        sorted((file.path for file in left_out), key=natural_key),
        world_size or max((row.digest.world_size or 0 for row in rows), default=0) or None,
        {file.path: file.packed.digest.source for file in left_out},
        sum((file.rank, file.step, file.is_oom) in compared for file in older),
        run=chosen_run.run,
        restart=chosen_run.restart,
        restarts={
            attempt: sorted({(files[i].rank or 0, files[i].is_oom or bool(files[i].packed.digest.ooms)) for i in those})
            for attempt, those in chosen_run.others.items()
        },
    )


def _facts(paths: Sequence[str], made: Sequence[DigestResult], rank_pattern: str | None) -> list[NameFacts]:
    """From the names that digests have of their snapshots, then from those of the digests."""
    names = [
        one.packed.digest.source if one.packed and one.packed.digest.source and is_digest(path) else path
        for path, one in zip(paths, made, strict=True)
    ]
    facts = facts_of_names(names, rank_pattern)
    if names == list(paths) or all(fact.rank is not None for fact in facts):
        return facts
    own = facts_of_names(paths, rank_pattern)
    return [own[i] if fact.rank is None else fact for i, fact in enumerate(facts)]


def _rank_files(
    paths: Sequence[str], made: Sequence[DigestResult], facts: Sequence[NameFacts], *, is_by_pattern: bool
) -> list[_RankFile]:
    """The readable files. Ranks are as recorded, but for a pattern, and where all state the same one and names differ:
    processes started by hand can all have RANK=0.
    """
    read = [
        (path, one.packed, fact) for path, one, fact in zip(paths, made, facts, strict=True) if one.packed is not None
    ]
    recorded = [packed.digest.rank for _, packed, _ in read if packed.digest.rank is not None]
    named = {fact.rank for *_, fact in read}
    is_by_name = is_by_pattern or (
        len(set(recorded)) == 1 < len(recorded) and None not in named and len(named) == len(read)
    )
    files = []
    for path, packed, fact in read:
        digest = packed.digest
        is_recorded = digest.rank is not None and not is_by_name
        files.append(
            _RankFile(
                path,
                packed,
                digest.rank if is_recorded else fact.rank,
                "recording" if is_recorded else "file name",
                digest.step if digest.step is not None else fact.step,
                fact.oom or digest.reason == "oom",
            )
        )
    return files


def _numbered(files: Sequence[_RankFile], taken: Sequence[int | None]) -> list[Row]:
    """A row for each file, by rank. Files without a known rank get numbers that are not taken, in order of names."""
    used = set(taken)
    free = (number for number in itertools.count() if number not in used)
    in_order = sorted(files, key=lambda file: natural_key(file.path))
    rows = [
        Row(next(free), "order", file.path, file.packed)
        if file.rank is None
        else Row(file.rank, file.rank_source, file.path, file.packed)
        for file in in_order
    ]
    return sorted(rows, key=lambda row: row.rank)


def _clock(job: Job) -> Clock:
    """Whether clocks are comparable: all on one host, or the same steps end at the same time everywhere."""
    digests, step_ends = job.digests, [row.packed.step_ends for row in job.rows]
    if not any(digest.peak_us is not None for digest in digests) and not any(map(len, step_ends)):
        return Clock(False, "The recordings have no times.")
    hosts = {digest.host for digest in digests}
    if len(hosts) == 1 and "" not in hosts:
        return Clock(True, "All ranks ran on one host: their times can be compared.")
    ends = [ends for ends in step_ends if len(ends) >= 2]
    if len(ends) < max(2, len(digests) // 2):
        return Clock(False, "Hosts are unknown or differ, and too few steps were recorded to compare their clocks.")
    steps = min(map(len, ends))
    table = np.array([row[:steps] for row in ends])
    if np.isnan(table).any():
        return Clock(False, "Steps without times: the clocks of the hosts cannot be compared.")
    length = float(np.median(np.diff(table, axis=1)))
    apart = float((table.max(axis=0) - table.min(axis=0)).max())
    if apart <= max(length / 2, 1000.0):
        return Clock(True, f"The same steps end within {_ms(apart)} on all ranks: their times can be compared.")
    return Clock(
        False,
        f"The same steps end up to {_ms(apart)} apart, a step takes {_ms(length)}: the clocks cannot be compared.",
    )


def _ms(us: float) -> str:
    return f"{us / 1e6:,.1f} s" if us >= 1e6 else f"{us / 1e3:,.1f} ms"
