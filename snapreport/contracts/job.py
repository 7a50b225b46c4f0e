"""The documents of ``snapreport job --json``, and of ``snapreport diff --json`` for two jobs.

Sizes are in bytes, times in µs since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from snapreport.contracts.finding import Severity
from snapreport.contracts.values import Bytes, Count, Position, SignedBytes

Rank = Annotated[int, Meta(ge=0)]


class FailedFile(Struct):
    """A file that could not be read."""

    rank: Rank | None
    source: str
    error: str


class Clock(Struct):
    """Whether times of different hosts can be compared, and why."""

    comparable: bool
    sentence: str


class Imbalance(Struct):
    """The highest peak and the median of all. ``share``: how far the median is below the highest, as a share of it;
    ``unused_bytes``: what the other ranks together could use until they are as high.
    """

    worst_rank: Rank
    worst_bytes: Bytes
    median_bytes: Bytes
    share: float
    unused_bytes: Bytes


class FirstOom(Struct):
    """The first request of a rank that failed; null where the recording does not say."""

    event: int
    step: int | None
    time_us: int | None
    tried_bytes: Bytes
    free_bytes: int | None


class RankTrust(Struct):
    """How complete a recording is. ``gaps``: what it lacks; ``stackless_bytes``: at the peak without a stack trace."""

    gaps: list[str]
    overflowed: bool | None
    reconciliation_bytes: SignedBytes
    stackless_bytes: Bytes


class JobRank(Struct):
    """One rank. ``rank_source``: how its number is known; ``device``: the one it works on, null without data;
    ``reason``, ``step``: why its snapshot was written, and after how many steps; ``state``: what the rank of
    a running job was doing then, empty otherwise; ``torch``, ``device_name``,
    ``commit``: empty if not recorded; ``categories``: bytes at the peak; ``group``: index into ``groups``.
    """

    rank: Rank
    rank_source: str
    source: str
    host: str
    device: int | None
    kind: str
    reason: str
    state: str
    step: int | None
    torch: str
    device_name: str
    commit: str
    events: Count
    steps: Count
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: int
    peak_event: Position
    peak_step: int | None
    peak_us: int | None
    end_allocated_bytes: Bytes
    capacity_bytes: Bytes | None
    first_oom: FirstOom | None
    trust: RankTrust
    categories: dict[str, Bytes]
    group: int | None


class JobStack(Struct):
    """A stack of the job. ``identity``: equal on all ranks for the same functions, files and lines."""

    identity: str
    function: str
    file: str
    line: int
    name: str


class GroupStack(JobStack):
    """A stack of a group, with the median over its ranks."""

    median_bytes: Bytes


class OutlierStack(JobStack):
    """A stack of an outlier, and the bytes expected from its group."""

    bytes_above: int
    bytes: Bytes
    expected_bytes: int


class JobGroup(Struct):
    """Ranks with the same memory. ``memory``: their largest categories, in a line; ``stacks``: most bytes first."""

    ranks: list[Rank]
    kind: str
    memory: str
    median_bytes: Bytes
    min_bytes: Bytes
    max_bytes: Bytes
    slope_bytes_per_rank: int | None
    stacks: list[GroupStack]


CauseKind = Literal["batch", "sequence", "batch or sequence", "layers", "experts", "model", "leak"]


class JobCause(Struct):
    """Why a rank has more than its group, where the ratios of its stacks prove it. ``factor``: how many times as large
    its activations are, or how many times as many layers, experts or models it has; null for a leak; ``count``: of
    layers, experts or models more, null if unknown.
    """

    kind: CauseKind
    factor: float | None
    count: Count | None
    sentence: str


class JobOutlier(Struct):
    """A rank with more memory than its group. ``cause``: null where the ratios prove none; ``sentence`` ends with its
    sentence; ``stacks``: most bytes above first.
    """

    rank: Rank
    group: Count
    bytes_above: Bytes
    cause: JobCause | None
    sentence: str
    stacks: list[OutlierStack]


class JobFinding(Struct):
    """A finding of one rank or several. ``numbers_of_rank``: the rank that title, detail and bytes are about; null if
    the finding is equally large on all ranks.
    """

    kind: str
    severity: Severity
    title: str
    detail: list[str]
    bytes: int
    ranks: list[Rank]
    numbers_of_rank: Rank | None


class JobRun(Struct):
    """The run whose files are compared. ``id``: of the recorded command; ``launch``: what its launcher shares between
    hosts; ``restart``: the attempt, ``other_restarts``: those left out.
    """

    id: str
    launch: str
    started_us: int
    command: str
    restart: Count
    other_restarts: list[Count]


class JobDocument(Struct, tag_field="schema", tag="snapreport-job/2"):
    """All ranks of a job. ``missing_ranks``: numbers that no file has; ``left_out``: files of the same ranks that are
    older than those compared; ``run``: null where no file states it; ``differences``: what ranks do not have in common
    besides memory, a sentence each.
    """

    headline: list[str]
    run: JobRun | None
    differences: list[str]
    world_size: Count | None
    missing_ranks: list[Rank]
    failed: list[FailedFile]
    left_out: list[str]
    clock: Clock
    imbalance: Imbalance
    ranks: list[JobRank]
    groups: list[JobGroup]
    outliers: list[JobOutlier]
    findings: list[JobFinding]


class WorstRank(Struct):
    """The rank with the highest peak."""

    rank: Rank
    peak_allocated_bytes: Bytes


class RankBytes(Struct):
    """The peak of a rank in both jobs."""

    rank: Rank
    before_bytes: Bytes
    after_bytes: Bytes


class PlaceChange(Struct):
    """The change of one function and file, without the line, since edits move it."""

    name: str
    change_bytes: SignedBytes


class RankDiff(RankBytes):
    """And what changed on it."""

    places: list[PlaceChange]


class GroupDiff(Struct):
    """A group of the later job: medians of its ranks that both jobs have. ``change_bytes``: the median of the ranks'
    changes; ``places``: largest change first; ``apart``: ranks that changed otherwise than their group.
    """

    ranks: list[Rank]
    before_bytes: Bytes
    after_bytes: Bytes
    change_bytes: SignedBytes
    places: list[PlaceChange]
    apart: list[RankDiff]


class JobDiffDocument(Struct, tag_field="schema", tag="snapreport-job-diff/1"):
    """Two jobs compared, rank by rank. ``outlier_sentences``: what each new outlier has more than its group."""

    worst_before: WorstRank
    worst_after: WorstRank
    ranks: list[RankBytes]
    groups: list[GroupDiff]
    only_before: list[Rank]
    only_after: list[Rank]
    new_outliers: list[Rank]
    gone_outliers: list[Rank]
    outlier_sentences: list[str]
