"""A job's entry in the manifest of its report. A row is one recording of a rank, ascending by rank number.

Numbers of each rank are in the sections "job" and "job.heat".
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from snapreport.contracts.finding import Confidence, Severity
from snapreport.contracts.job import Clock, FailedFile, JobCause


class SentencePart(Struct):
    """A part of a sentence that refers to something. ``number``: of a stack, device, rank or event, or of bytes;
    ``file``, ``line``: of a place.
    """

    kind: Literal["code", "stack", "place", "device", "rank", "event", "bytes"]
    text: str
    number: int | UnsetType = UNSET
    file: str | UnsetType = UNSET
    line: int | UnsetType = UNSET


Parts = list[str | SentencePart]
"""A sentence: text, and parts that refer to something."""


class JobSentence(Struct):
    """A sentence of the headline, and what it is about."""

    text: Parts
    rows: list[int]
    stack: int | None


class JobImbalance(Struct):
    """The highest peak and the median of all, in bytes."""

    worst_row: int
    worst_bytes: int
    median_bytes: int
    share: float
    unused_bytes: int
    sentence: str


class JobGroupStack(Struct, array_like=True):
    """The median bytes of a stack."""

    stack: int
    median_bytes: int


class JobGroup(Struct):
    """Rows with the same memory. ``memory``: their largest categories, in a line."""

    name: str
    kind: str
    rows: list[int]
    memory: str
    median_bytes: int
    min_bytes: int
    max_bytes: int
    slope_bytes_per_rank: int | None
    stacks: list[JobGroupStack]


class JobOutlierStack(Struct, array_like=True):
    """A stack of an outlier, and the bytes expected from its group."""

    stack: int
    bytes_above: int
    bytes: int
    expected_bytes: int


class JobOutlier(Struct):
    """A row with more memory than its group. ``cause``: null where the ratios of its stacks prove none."""

    row: int
    rank: int
    group: int
    bytes_above: int
    cause: JobCause | None
    sentence: Parts
    stacks: list[JobOutlierStack]


class JobOom(Struct):
    """The first failed request of a row. ``time_us``: since the job's first event."""

    row: int
    step: int | None
    time_us: int | None
    event: int
    tried_bytes: int | None


class JobFinding(Struct):
    """A finding of some rows. ``where``: "on 61 of 64 ranks"; ``row``: the one that title and detail are about, null
    where it is equally large on all of them or there is one row.
    """

    kind: str
    severity: Severity
    title: Parts
    detail: list[Parts]
    confidence: Confidence
    where: str
    count: int
    rows: list[int]
    row: int | None
    bytes: int | None


class JobAxis(Struct):
    """The columns of a map: the first and last value of each, in ``unit``."""

    key: Literal["step", "time", "event"]
    label: str
    unit: Literal["step", "us", "share"]
    note: str
    columns: int
    first: list[int]
    last: list[int]


class JobDetail(Struct):
    """A row whose snapshot the report has in full. ``snapshot``, ``device``: indices into the manifest's lists."""

    row: int
    snapshot: int
    device: int
    why: str


class JobStackName(Struct):
    """A stack of the job. ``frames``: the program's outer lines."""

    function: str
    file: str
    line: int
    name: str
    frames: list[str]


class JobManifest(Struct, forbid_unknown_fields=True):
    """All ranks of a job. ``ranks``: number of rows; ``missing``: rank numbers that no file has; ``ooms``: the job's
    first first; ``sources``: file of each row; ``states``: what each row's rank was doing, "" where no digest is of a
    running program; ``links``: relative address of each row's own report, or ""; ``heat_scale``: bytes of one level of
    the maps; ``origin_us``: µs since the epoch of the time axis' 0.
    """

    schema: str
    world_size: int | None
    missing: list[int]
    failed: list[FailedFile]
    left_out: list[str]
    headline: list[JobSentence]
    clock: Clock
    imbalance: JobImbalance | None
    groups: list[JobGroup]
    outliers: list[JobOutlier]
    ooms: list[JobOom]
    findings: list[JobFinding]
    ranks: int
    hosts: list[str]
    kinds: list[str]
    sources: list[str]
    states: list[str]
    links: list[str]
    rank_sources: list[str]
    categories: list[str]
    axes: list[JobAxis]
    metrics: list[str]
    heat_scale: float
    origin_us: int | None
    detail: list[JobDetail]
    stack_names: list[JobStackName]
