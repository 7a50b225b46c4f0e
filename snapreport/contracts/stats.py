"""The document of ``snapreport stats --json``, and the numbers of a device that the page has, too."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from snapreport.contracts.finding import Finding
from snapreport.contracts.values import Bytes, Count, Frames, Position, SignedBytes


class DeviceNumbers(Struct):
    """The numbers of one device. ``preexisting_allocations``: from before the trace; ``live_at_end``: allocations;
    ``max_memory_allocated_bytes``: what PyTorch's function of that name would have returned at the end, for the trace
    alone; ``trace_overflowed``: whether the oldest events were dropped, null where the recording does not say;
    ``reconciliation_bytes``: allocated at the end of the replay, less what the final state has.
    """

    device: Annotated[int, Meta(description="-1: pinned host memory")]
    kind: str
    events: Count
    allocations: Count
    preexisting_allocations: Count
    live_at_end: Count
    segments: Count
    start_allocated_bytes: Bytes
    end_allocated_bytes: Bytes
    peak_allocated_bytes: Bytes
    peak_event: Position
    max_memory_allocated_bytes: Bytes
    trace_overflowed: bool | None
    reconciliation_bytes: SignedBytes
    start_reserved_bytes: SignedBytes
    end_reserved_bytes: SignedBytes
    peak_reserved_bytes: SignedBytes
    oom_events: list[Count]


class StackAtPeak(Struct, forbid_unknown_fields=True):
    """The bytes of one stack at the peak. ``stack``: its number; ``name``: the program's line, null without a trace."""

    stack: Count
    name: str | None
    bytes: Bytes
    count: Count


class MatchedStack(Struct):
    """The matching allocations of one stack, and those live at the peak; ``stack`` and ``name`` as at the peak."""

    stack: Count
    name: str | None
    bytes_at_peak: Bytes
    count_at_peak: Count
    bytes: Bytes
    count: Count


class Matches(Struct):
    """The allocations that match the query. ``notes``: why a term cannot match anything on this device."""

    count: Count
    bytes: Bytes
    count_at_peak: Count
    bytes_at_peak: Bytes
    top_stacks: list[MatchedStack]
    notes: list[str]


class ModuleMemory(Struct):
    """A module and all below it: the bytes of its allocations that are live at the peak, by category, and how many
    allocations it made at all. ``module``: its path, where inferred of lines and numbers ("dit:249.3"); ``kind``: its
    class; ``like``: the first of its siblings that is built alike, null for that one itself.
    """

    module: str
    kind: str | None
    like: str | None
    allocations: Count = 0
    peak_bytes: Bytes = 0
    parameter_bytes: Bytes = 0
    gradient_bytes: Bytes = 0
    optimizer_state_bytes: Bytes = 0
    activation_bytes: Bytes = 0
    temporary_bytes: Bytes = 0
    other_bytes: Bytes = 0


class StepMemory(Struct, forbid_unknown_fields=True):
    """A training step and its peak. ``growth_bytes``: allocated at its end less than at the end of the one before;
    ``duration_us``: from its first event to its last; ``longest_gap_us``: the longest time between two events of it,
    the first of which is ``gap_event``; ``until_next_us``: from its last event to the first of the next step.
    None of the times has that in which the program waited for our recorder, which wrote files.
    """

    step: int
    name: str
    first_event: Position
    last_event: Position
    peak_allocated_bytes: Bytes
    growth_bytes: SignedBytes | None
    duration_us: Count | None
    longest_gap_us: Count | None = None
    gap_event: Position | None = None
    until_next_us: Count | None = None


class PrivatePool(Struct, forbid_unknown_fields=True):
    """A pool of a CUDA graph or ``torch.cuda.MemPool`` in the final state. ``pool``: PyTorch's id of it."""

    pool: str
    segments: Count
    reserved_bytes: Bytes
    allocated_bytes: Bytes


class ServingMemory(Struct, forbid_unknown_fields=True):
    """What the memory is for that a program reserves at the end to serve a model. ``cuda_graph_bytes``: reserved by
    private pools beside those of weights and cache; ``activation_reserve_bytes``: cached, or for what a forward pass is
    at; ``peak_activation_bytes``: the most that passes outside of graphs had allocated at once, null without a trace.
    """

    reserved_bytes: Bytes
    weight_bytes: Bytes
    kv_cache_bytes: Bytes
    cuda_graph_bytes: SignedBytes
    activation_reserve_bytes: SignedBytes
    other_bytes: Bytes
    peak_activation_bytes: Bytes | None


DeviceUseCause = Literal["CUDA context", "cuBLAS", "NCCL", "CUDA graphs", "kernels and libraries", "other processes"]


class DeviceUseChange(Struct, forbid_unknown_fields=True):
    """A change of the memory in use outside PyTorch's allocator. ``event``: the last one before the sample that shows
    it; ``cause``: what took or freed it; ``line``: what the program ran then, null if unknown.
    """

    event: Position
    bytes: SignedBytes
    cause: DeviceUseCause
    line: str | None


class DeviceUse(Struct, forbid_unknown_fields=True):
    """The memory in use on the whole device when it was most, as samples show it. ``samples``: that differ from the one
    before; ``peak_event``: the last event before it; ``reserved_bytes``: by PyTorch at that time; ``outside_bytes``: by
    the process, but not by PyTorch's allocator, and by other processes too where they are not told apart;
    ``other_processes_bytes``: null there.
    """

    source: Literal["nvml", "mem_get_info"]
    samples: Count
    total_bytes: Bytes
    peak_used_bytes: Bytes
    peak_event: Position
    reserved_bytes: Bytes
    outside_bytes: Bytes
    other_processes_bytes: Bytes | None
    changes: Annotated[list[DeviceUseChange], Meta(description="largest first")]


class DeviceStats(DeviceNumbers):
    """``trace_peak_allocated_bytes``: allocated at ``peak_event``, where the trace lost a higher peak; the peaks and
    ``max_memory_allocated_bytes`` are then what PyTorch counted.
    """

    top_stacks_at_peak: Annotated[list[StackAtPeak], Meta(max_length=10, description="most bytes first")]
    matches: Annotated[Matches | UnsetType, Meta(description="with --query")] = UNSET
    headline: Annotated[list[str] | UnsetType, Meta(description="the diagnosis, then the peak, in sentences")] = UNSET
    findings: list[Finding] | UnsetType = UNSET
    trace_peak_allocated_bytes: Bytes | UnsetType = UNSET
    steps: Annotated[list[StepMemory] | UnsetType, Meta(description="where the trace shows any")] = UNSET
    private_pools: Annotated[list[PrivatePool] | UnsetType, Meta(description="most reserved first")] = UNSET
    serving: Annotated[ServingMemory | UnsetType, Meta(description="of inference with a KV cache at the end")] = UNSET
    modules: Annotated[list[ModuleMemory] | UnsetType, Meta(description="where any are known")] = UNSET
    modules_source: Literal["recorded", "inferred"] | UnsetType = UNSET
    device_use: Annotated[DeviceUse | UnsetType, Meta(description="where samples were recorded")] = UNSET


TimeCause = Literal[
    "recomputation", "cudaMalloc", "empty_cache", "retry", "cudaFree", "copies to the host", "copies to the device",
    "torch.save",
]  # fmt: skip


class TimeCost(Struct, forbid_unknown_fields=True):
    """What one cause costs. ``empty_cache``, ``retry``: calls of cudaFree by ``torch.cuda.empty_cache()``, and by an
    allocation that failed before; ``cudaFree``: all others. ``count``: of backward functions that ran forward operators
    again, of calls, of copies; ``torch.save``: also of ``torch.distributed.checkpoint``; ``bytes``: of copies;
    ``host_us``: time of the threads that ran it; ``device_us``: time of its kernels and copies, null where the trace
    has no activities of a device.
    """

    cause: TimeCause
    count: Count
    host_us: Count
    device_us: Count | None
    bytes: Bytes | UnsetType = UNSET


class StepTime(Struct, forbid_unknown_fields=True):
    """The time of a training step that the trace covers: from its first allocation to that of the next step."""

    step: int
    name: str
    duration_us: Count
    costs: list[TimeCost]


class TimeCosts(Struct, forbid_unknown_fields=True):
    """What a ``torch.profiler`` trace of the same run says about time. ``matched``: allocations that both have;
    ``clock_shift_us``: added to its times, so that those allocations have the snapshot's times; ``clock_error_us``: how
    far they are apart then, in the median, and in the median of those 20 in a row that are farthest apart, null without
    any; ``has_calls``: whether it has calls of the CUDA runtime, without which only recomputation is known.
    """

    trace: str
    matched: Count
    clock_error_us: list[float] | None
    clock_shift_us: int
    duration_us: Count
    has_calls: bool
    costs: list[TimeCost]
    steps: list[StepTime]


class FileStats(Struct):
    """One snapshot file. ``source``: of a profiler's trace, what wrote it; ``notes``: what was unusual in the file;
    ``stacks``: with --frames, the stack traces of all numbers of stacks in this document.
    """

    file: str
    bytes: Count
    source: str | UnsetType = UNSET
    devices: list[DeviceStats] = []
    notes: dict[str, Any] = {}
    stacks: dict[str, Frames] | UnsetType = UNSET
    time: Annotated[TimeCosts | UnsetType, Meta(description="with a profiler's trace")] = UNSET


class StatsDocument(Struct, tag_field="schema", tag="snapreport-stats/3"):
    """The numbers and findings of snapshot files. ``query``: of --query."""

    snapshots: list[FileStats]
    query: str | UnsetType = UNSET
