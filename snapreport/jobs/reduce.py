"""Reduces digests to a job: rows in rank order, groups, outliers, first failures, missing ranks.

Digests are read one at a time, and only what ``rows.py`` describes stays in memory; curves and texts are read again
from the packed digests when the report is laid out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from snapreport.errors import SnapshotError
from snapreport.findings.comparable import natural_key
from snapreport.jobs.causes import Cause, find_cause
from snapreport.jobs.digest_model import Digest, DigestOom, DigestStack
from snapreport.jobs.execution import Made
from snapreport.jobs.groups import Group, find_groups
from snapreport.jobs.outliers import Outlier, find_outliers
from snapreport.jobs.rank_names import facts_of_names, missing_ranks, newest_of_each
from snapreport.jobs.rows import Packed, RankSource, Row
from snapreport.jobs.runs import Run, choose_run
from snapreport.jobs.stack_identity import EMPTY

MODEL_STATE = ("parameter", "gradient", "optimizer state")


@dataclass(frozen=True)
class Failed:
    """A file that could not be read. rank: None if its name does not contain it."""

    rank: int | None
    path: str
    error: str


@dataclass(frozen=True)
class FirstOom:
    """The first failure of a row. ``us``: by its host's clock."""

    row: int
    oom: DigestOom


@dataclass(frozen=True)
class Clock:
    """Whether times of different ranks can be compared, and why."""

    is_comparable: bool
    sentence: str


@dataclass(frozen=True, eq=False)
class Job:
    """A job. rows: ascending by rank. left_out: files of the same ranks that are older than those compared. world_size:
    None if not recorded. left_out_sources: their names in their digests, by path. undecided: how many of them are not
    known to be older. report_names: of the ranks' own reports, by path. run, restart: the run and its attempt, where
    the recordings state it; restarts: for each other attempt, rank and whether memory ran out for each of its files.
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

    @cached_property
    def start_us(self) -> int | None:
        """The time of the first event of any rank; None without times."""
        return min((row.first_us for row in self.rows if row.first_us is not None), default=None)

    @cached_property
    def peaks(self) -> np.ndarray:
        """Int64 peak allocated bytes of each row."""
        return np.array([digest.peak_allocated for digest in self.digests], np.int64)

    @cached_property
    def stack_ids(self) -> np.ndarray:
        """UInt64 identities of all stacks of all rows, ascending."""
        ids = [row.packed.stack_ids for row in self.rows]
        return np.unique(np.concatenate(ids)) if ids else np.zeros(0, np.uint64)

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
        late = 2**63

        def order(found: FirstOom) -> tuple[int, int, int]:
            us, step = found.oom.us, found.oom.step
            when = us if self.clock.is_comparable and us is not None else late if us is None else 0
            return when, late if step is None else step, found.row

        return sorted(first, key=order)

    @cached_property
    def worst(self) -> int:
        """The row that ran out of memory first, otherwise the one with the largest peak."""
        return self.ooms[0].row if self.ooms else int(np.argmax(self.peaks)) if len(self.rows) else -1

    @cached_property
    def typical(self) -> int:
        """The row whose peak is the median of the largest group; an outlier is not typical."""
        if not self.rows:
            return -1
        outliers = {outlier.row for outlier in self.outliers}
        rows = max(self.groups, key=lambda group: len(group.rows)).rows
        rows = [row for row in rows if row not in outliers and row != self.worst] or rows
        by_peak = sorted(rows, key=lambda row: (int(self.peaks[row]), row))
        return by_peak[(len(by_peak) - 1) // 2]


def reduce_job(
    paths: Sequence[str],
    made: Sequence[Made],
    *,
    rank_pattern: str | None = None,
    world_size: int | None = None,
    run: str | None = None,
) -> Job:
    """Reduces digests to a job. ``paths``, ``made``: as in ``execution.make_all``; ``run``: as in ``runs.choose_run``.

    The order of the files does not matter. Raises :class:`SnapshotError` if none of them could be read, or if they are
    of several runs and none is chosen.
    """
    read = [result.packed for result in made]
    names = [
        one.digest.source if one and one.digest.source and path.lower().endswith(".digest") else path
        for path, one in zip(paths, read, strict=True)
    ]
    facts = facts_of_names(names, rank_pattern)
    if any(fact.rank is None for fact in facts) and names != list(paths):
        own = facts_of_names(list(paths), rank_pattern)
        facts = [own[i] if fact.rank is None else fact for i, fact in enumerate(facts)]
    failed = [
        Failed(fact.rank, path, result.error)
        for path, result, fact in zip(paths, made, facts, strict=True)
        if result.data is None
    ]
    # Processes started by hand can all have RANK=0, and write files with distinct names.
    recorded = [one.digest.rank for one in read if one and one.digest.rank is not None]
    named = [fact.rank for fact, one in zip(facts, read, strict=True) if one]
    names_tell_more = len(set(recorded)) == 1 < len(recorded) and None not in named and len(set(named)) == len(named)
    candidates: list[tuple[int | None, RankSource, int]] = []
    for index, one in enumerate(read):
        if one is None:
            continue
        if one.digest.rank is not None and rank_pattern is None and not names_tell_more:
            candidates.append((one.digest.rank, "recording", index))
        else:
            candidates.append((facts[index].rank, "file name", index))
    if not candidates:
        first = failed[0].error if failed else "no files"
        raise SnapshotError(f"not one of {len(paths)} files could be read; the first: {first}")
    rank_of = {index: rank for rank, _, index in candidates}
    chosen_run = choose_run([one.digest if one else None for one in read], [*map(rank_of.get, range(len(read)))], run)
    others = {index for files in chosen_run.others.values() for index in files}
    candidates = [candidate for candidate in candidates if candidate[2] in chosen_run.files]
    moments = [
        _moment(read[index], facts[index].step, facts[index].oom, rank, paths[index]) for rank, _, index in candidates
    ]
    chosen = newest_of_each(moments)
    older = sorted({candidates[i][2] for i in set(range(len(candidates))) - set(chosen)} | others)
    compared = {moments[i][:3] for i in chosen}
    undecided = sum(moments[i][:3] in compared for i in set(range(len(moments))) - set(chosen))
    sources = {paths[index]: one.digest.source for index in older if (one := read[index])}
    restarts = {
        attempt: sorted({(rank_of[i] or 0, facts[i].oom or bool(one.digest.ooms)) for i in files if (one := read[i])})
        for attempt, files in chosen_run.others.items()
    }
    rows, taken = [], {rank for rank, _, _ in candidates if rank is not None}
    free = (number for number in range(len(paths) + len(taken)) if number not in taken)
    # Files without a known rank are numbered by name, with the numbers that are left.
    in_order = sorted(
        (candidates[i] for i in chosen), key=lambda c: (c[0] is None, c[0] or 0, natural_key(paths[c[2]]))
    )
    for rank, source, index in in_order:
        chosen_one = read[index]
        assert chosen_one is not None
        origin: RankSource = source if rank is not None else "order"
        rows.append(Row(next(free) if rank is None else rank, origin, paths[index], chosen_one))
    rows.sort(key=lambda row: row.rank)
    worlds = [row.digest.world_size for row in rows if row.digest.world_size]
    world = world_size or max(worlds, default=0) or None
    failed.sort(key=lambda row: (row.rank is None, row.rank or 0, natural_key(row.path)))
    return Job(
        rows,
        failed,
        sorted((paths[index] for index in older), key=natural_key),
        world,
        sources,
        undecided,
        run=chosen_run.run,
        restart=chosen_run.restart,
        restarts=restarts,
    )


def _moment(
    one: Packed | None, step: int | None, is_oom: bool, rank: int | None, path: str
) -> tuple[int | None, int | None, bool, str]:
    assert one is not None
    digest = one.digest
    return rank, digest.step if digest.step is not None else step, is_oom or digest.reason == "oom", path


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


def is_unnamed(stack: DigestStack) -> bool:
    """Whether a stack row represents allocations without a stack trace."""
    return stack.identity == EMPTY
