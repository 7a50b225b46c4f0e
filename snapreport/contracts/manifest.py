"""The manifest of a report: what the page knows of it before it decodes any column."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from snapreport.contracts.diff import SeriesDevice
from snapreport.contracts.job_manifest import JobManifest
from snapreport.contracts.stats import DeviceNumbers, DeviceUse, ModuleMemory


class SnapshotFile(Struct):
    """A snapshot file. ``settings``: of the allocator; ``notes``: what was unusual in the file."""

    file: str
    bytes: int
    settings: dict[str, Any]
    notes: dict[str, Any]


class Annotation(Struct, array_like=True):
    """``time_us``: µs of the snapshot's own clock; ``snapshot``: index into the manifest's list."""

    device: int
    name: str
    stage: str
    time_us: int | None
    snapshot: int


class Opening(Struct):
    """What the report opens on. ``device``: index into the manifest's list."""

    device: int
    event: int


class StackBytes(Struct):
    """The bytes of a stack at the peak."""

    bytes: int
    count: int
    stack: int


class PageStats(DeviceNumbers):
    """The numbers of ``snapreport stats --json``; stacks by their number."""

    top_stacks_at_peak: list[StackBytes]
    modules: list[ModuleMemory] | UnsetType = UNSET
    modules_source: Literal["recorded", "inferred"] | UnsetType = UNSET
    device_use: DeviceUse | UnsetType = UNSET


class OomEntry(Struct):
    """An out-of-memory event, in bytes; only ``event`` and ``requested`` after the first 32, whose segments are not
    replayed. ``segment``: what the allocator would have taken from the device, null: as much as was requested;
    ``device_free``: null where it was not recorded; ``pending``: of blocks whose free waits for another stream;
    ``usable`` and ``other_…``: cached in blocks that the request could use, and in those it could not; ``shortfall``:
    missing even with all free, cached and pending bytes together.
    """

    event: int
    requested: int
    verdict: Literal["demand", "fragmentation", "pool-locked", "mixed", "limit", "unclear"] | UnsetType = UNSET
    segment: int | UnsetType | None = UNSET
    device_free: int | UnsetType | None = UNSET
    reserved: int | UnsetType = UNSET
    allocated: int | UnsetType = UNSET
    rounding: int | UnsetType = UNSET
    pending: int | UnsetType = UNSET
    usable: int | UnsetType = UNSET
    other_stream: int | UnsetType = UNSET
    other_pool: int | UnsetType = UNSET
    other_size: int | UnsetType = UNSET
    largest_usable: int | UnsetType = UNSET
    largest_free: int | UnsetType = UNSET
    shortfall: int | UnsetType = UNSET


class RawSteps(Struct):
    """Training steps. ``source``: what they were recognised from; ``first``: the first event, as the difference to the
    step before; ``events``: how many.
    """

    source: str
    names: list[str]
    numbers: list[int]
    first: list[int]
    events: list[int]


class RawSpans(Struct):
    """Annotated spans; outer ones come before those inside them. ``name``: index into ``names``; ``first``: the first
    event, as the difference to the span before; ``events``: how many; ``depth``: row among the spans, 0 the outermost;
    ``ragged``: which halves of pairs are missing; ``start_us``: since time0, as the difference to the span before;
    ``us``: length.
    """

    names: list[str]
    name: list[int]
    first: list[int]
    events: list[int]
    depth: list[int]
    ragged: list[int] | UnsetType = UNSET
    start_us: list[int] | UnsetType = UNSET
    us: list[int] | UnsetType = UNSET


class RawActivities(Struct):
    """What a profiler's trace of the run has, in the section ``activities``. ``rows``: the kind of each row."""

    trace: str
    rows: list[Literal["cost", "operator", "kernel"]]


class BrokenAnnotations(Struct):
    """How many annotations are broken. ``untimed``: at no known event; ``unknown_stage``: neither START nor END;
    ``outside``: of the trace; ``without_allocation``: at an address with no live allocation.
    """

    unpaired_starts: int | UnsetType = UNSET
    unpaired_ends: int | UnsetType = UNSET
    untimed: int | UnsetType = UNSET
    unknown_stage: int | UnsetType = UNSET
    outside: int | UnsetType = UNSET
    without_allocation: int | UnsetType = UNSET


class RawDevice(Struct, forbid_unknown_fields=True):
    """A device of a snapshot. ``device``: the recorder's number, not unique where a report has several files;
    ``peak_event``: -1 before the first event; ``time0``: µs of event 0 on the snapshot's clock;
    ``named_bytes``: of the peak, those of a known category; ``counted_bytes``: what
    ``torch.cuda.max_memory_allocated()`` would report, where it is known; ``lost_peak_bytes``: the peak that PyTorch
    counted, where the trace lost it; ``names_only``: whether ``metadata`` are names of tensors alone;
    ``completions_differ``: whether completions of frees have stacks other than those of their requests;
    ``settings_since_2_10``: whether PyTorch 2.10 or newer read the allocator's settings;
    ``left_out``: columns and sections that a size limit kept out, whose values read as 0.
    """

    snapshot: int
    device: int
    kind: str
    section: str
    events: int
    allocations: int
    start_reserved: int
    peak_bytes: int
    peak_event: int
    named_bytes: int
    ghosts: int
    freed: int
    time0: int | None
    actions: list[str]
    categories: list[str]
    category_sources: list[str]
    streams: list[str]
    pools: list[str]
    contexts: list[str]
    metadata: list[str]
    stats: PageStats
    modules: list[str] | UnsetType = UNSET
    shapes: list[str] | UnsetType = UNSET
    dtypes: list[str] | UnsetType = UNSET
    grad_fns: list[str] | UnsetType = UNSET
    ooms: list[OomEntry] | UnsetType = UNSET
    steps: RawSteps | UnsetType = UNSET
    spans: RawSpans | UnsetType = UNSET
    activities: RawActivities | UnsetType | None = UNSET
    broken_annotations: BrokenAnnotations | UnsetType = UNSET
    counted_bytes: int | UnsetType = UNSET
    lost_peak_bytes: int | UnsetType = UNSET
    names_only: bool | UnsetType = UNSET
    profiled: bool | UnsetType = UNSET
    settings_since_2_10: bool | UnsetType = UNSET
    completions_differ: bool | UnsetType = UNSET
    left_out: list[str] | UnsetType = UNSET


class RawMoment(Struct, array_like=True):
    """A pair of events that belong together, -1 for before the first."""

    name: str
    before: int
    after: int


class RawDiffDevice(Struct, array_like=True):
    """One device of both snapshots. ``before``, ``after``: indices into the manifest's devices."""

    device: int
    before: int
    after: int
    moments: list[RawMoment]


class RawDiff(Struct):
    """The comparison of the first snapshot with the last."""

    before: int
    after: int
    devices: list[RawDiffDevice]
    only_before: list[int]
    only_after: list[int]
    series: Annotated[list[SeriesDevice], Meta(description="growth over more than two snapshots")]


class LeftOutParts(Struct):
    """What a size limit kept out of the report."""

    limit: int
    full_bytes: int
    words: list[str]


class RawManifest(Struct, forbid_unknown_fields=True):
    """``sections``: name of a section → the blob that has it; ``opening``: null: the first device with a timeline."""

    format: int
    title: str
    snapshots: list[SnapshotFile]
    sections: dict[str, str]
    annotations: list[Annotation]
    devices: list[RawDevice]
    opening: Opening | None
    left_out: LeftOutParts | UnsetType = UNSET
    job: JobManifest | UnsetType = UNSET
    diff: RawDiff | UnsetType = UNSET
