"""What the ``evidence`` of each kind of finding holds: the numbers behind its sentences, as plain values for JSON.

Sizes are bytes, events and positions are event indices (-1: before the first), ``stack`` is a number of the snapshot's
stacks (0: none). :data:`EVIDENCE` says which of the types a kind of finding has.
"""

from __future__ import annotations

from typing import TypedDict


class CategoryRow(TypedDict):
    """``bytes`` in ``count`` allocations of one category."""

    category: str
    bytes: int
    count: int


class StackRow(TypedDict):
    """The bytes of one stack; ``line`` with what launched it, ``category`` that of most of its bytes."""

    stack: int
    bytes: int
    count: int
    function: str
    line: str
    category: str


class PeakStackRow(StackRow):
    """And the peak had the stack's allocations not been there."""

    peak_without_bytes: int
    peak_without_event: int


class FunctionRow(TypedDict):
    function: str
    bytes: int
    count: int


class PlaceRow(TypedDict):
    """``place``: ``forward dit.py:83``."""

    place: str
    bytes: int
    count: int


class ModuleRow(TypedDict):
    module: str
    bytes: int
    count: int


class LastStretch(TypedDict):
    """The bytes added from ``from_event`` up to the peak that are still allocated."""

    from_event: int
    added_bytes: int
    count: int
    categories: list[CategoryRow]
    stacks: list[StackRow]


class PeakEvidence(TypedDict):
    """``max_memory_allocated_bytes``: PyTorch's own statistic, None where it cannot be known. ``recorded_peak_bytes``,
    ``recorded_peak_reserved_bytes``: peaks of the process that our recorder noted; None where it did not.
    """

    peak_bytes: int
    peak_event: int
    recorded_peak_bytes: int | None
    recorded_peak_reserved_bytes: int | None
    reserved_bytes: int
    max_memory_allocated_bytes: int | None
    count: int
    categories: list[CategoryRow]
    inferred_categories: list[str]
    unknown_bytes: int
    no_frames_bytes: int
    before_trace_bytes: int
    stacks: list[PeakStackRow]
    functions: list[FunctionRow]
    places: list[PlaceRow]
    modules: list[ModuleRow]
    module_bytes: int
    last_stretch: LastStretch


class PinningRow(TypedDict):
    """``allocated_bytes`` of one stack are all that is in use of ``segments`` with ``free_bytes`` free."""

    stack: int
    segments: int
    free_bytes: int
    allocated_bytes: int
    function: str


class SegmentRow(TypedDict):
    address: int
    size: int
    used: int
    free: int
    largest_free: int
    blocks: int


class MoreOomsEvidence(TypedDict):
    """The failures beyond the first few."""

    events: list[int]


class OomEvidence(MoreOomsEvidence):
    """One failure, or several at nearly the same moment.

    ``requested``: of each failure; ``requested_bytes``: of the first. ``new_segment_bytes``: what the allocator would
    have had to take from the device. ``usable_free_bytes``: free memory that the request could use, the largest block
    of it ``largest_usable_free_bytes``; ``free_segment_bytes``: of segments that are free as a whole.
    """

    verdict: str
    requested: list[int]
    requested_bytes: int
    device_free_bytes: int | None
    new_segment_bytes: int | None
    reserved_bytes: int
    allocated_bytes: int
    unused_bytes: int
    rounding_bytes: int
    usable_free_bytes: int
    other_stream_bytes: int
    other_pool_bytes: int
    other_size_bytes: int
    free_segment_bytes: int
    pending_free_bytes: int
    largest_usable_free_bytes: int
    largest_free_bytes: int
    expandable_segments: bool | None
    stack: int
    function: str
    line: str
    in_math_kernel: bool
    segment_bytes: int
    device_full: bool
    categories: list[CategoryRow]
    stacks: list[StackRow]
    pinning_stacks: list[PinningRow]


class _ReservedParts(TypedDict):
    event: int
    reserved_bytes: int
    rounding_bytes: int
    inactive_split_bytes: int
    free_segment_bytes: int
    expandable_segments: bool | None


class FragmentationEvidence(_ReservedParts):
    """A request for ``requested_bytes`` reserved more although ``usable_free_bytes`` were cached, the largest free
    block of ``largest_free_bytes``. ``joined_bytes``: the largest there would be if segments stood side by side.
    """

    requested_bytes: int
    allocated_bytes: int
    usable_free_bytes: int
    largest_free_bytes: int
    segments: list[SegmentRow]
    pinning_stacks: list[PinningRow]
    joined_bytes: int


class OversizedEvidence(_ReservedParts):
    """More was reserved than was ever allocated."""

    peak_bytes: int


class SavingRow(TypedDict):
    """The replayed peak without ``fraction`` of what ``query`` selects."""

    query: str
    fraction: float
    peak_bytes: int
    peak_event: int
    saves_bytes: int


class LeakStackRow(TypedDict):
    stack: int
    place: str
    bytes: int
    count: int
    bytes_per_step: int


class LeakEvidence(TypedDict):
    """Memory that grows. ``freed_bytes``: of ``live_bytes``, freed after the last repetition. ``every``: in so many
    repetitions once; ``bounds``: the events at which repetitions begin, and
    the end of the last; ``staircase``: the lowest live bytes of each. ``needed_peak_bytes``: the peak if each
    repetition keeps its part until the next one allocates its own.
    """

    bytes_per_step: int
    live_bytes: int
    live_count: int
    freed_bytes: int
    every: int
    unit: str
    steps: int
    staircase: list[int]
    bounds: list[int]
    device_limit: int
    replaced: bool
    category: str
    caller: str
    stacks: list[LeakStackRow]
    saving: SavingRow
    needed_peak_bytes: int


class CycleEvidence(TypedDict):
    """Memory that waits for the garbage collector: ``bursts`` of frees, the largest of ``burst_bytes``."""

    bursts: int
    burst_bytes: int
    burst_count: int
    share_of_bytes: float


class LiveAtEndEvidence(TypedDict):
    """Allocations of the trace that it did not free; ``older``: those from before it."""

    start_bytes: int
    end_bytes: int
    new_bytes: int
    new_count: int
    first_half_bytes: int
    older_bytes: int
    older_count: int
    leak_bytes: int
    steps: int | None
    categories: list[CategoryRow]
    stacks: list[StackRow]
    places: list[PlaceRow]


class ChurnRow(TypedDict):
    """A stack for which segments were allocated again: ``bytes`` in ``count`` segments."""

    stack: int
    bytes: int
    count: int


class ChurnEvidence(TypedDict):
    """Segments that were freed and allocated again after ``warm_event``. ``stall_us``: an upper bound of the time that
    took, None without times.
    """

    segments_again: int
    segments_freed: int
    bytes_again: int
    stall_us: int | None
    retries: int
    emptied: int
    emptied_in: str | None
    warm_event: int
    stacks: list[ChurnRow]


class CombinedRow(TypedDict):
    """The replayed peak with the advice of two rules."""

    rules: list[str]
    peak_bytes: int
    peak_event: int
    saves_bytes: int


class AdviceNumbers(TypedDict, total=False):
    """Optional evidence of advice. ``avoids_failure``: the request that failed fits, replayed."""

    avoids_failure: bool
    layers: int
    passes: int
    in_forward_bytes: int
    previous_bytes: int
    retained_bytes: int
    gradient_bytes: int
    weight_copy_bytes: int
    widths: list[int]
    blocks: int
    peaks: list[int]
    mean_bytes: int
    reserved_bytes: int
    replayed_bytes: int


class AdviceEvidence(AdviceNumbers):
    """``rule`` and its replayed saving. ``effort``: "one line", "a setting", "a rewrite" or "slower training".
    ``priority``: 0 for what a person does first, 2 for estimates. ``where``: the line of the program that allocates
    most of the bytes, ``/app/model.py:12``; ``line``: as it should read, where the rule says it.
    """

    rule: str
    saving: SavingRow | None
    together: CombinedRow | None
    second_maximum: CombinedRow | None
    at_peak_bytes: int | None
    taken_at_peak_bytes: int | None
    term: str
    url: str
    effort: str
    priority: int
    where: str | None
    line: str | None


EVIDENCE: dict[str, tuple[type, ...]] = {
    "peak": (PeakEvidence,),
    "oom": (OomEvidence, MoreOomsEvidence),
    "fragmentation": (FragmentationEvidence, OversizedEvidence),
    "leak": (LeakEvidence, CycleEvidence),
    "live_at_end": (LiveAtEndEvidence,),
    "churn": (ChurnEvidence,),
    "advice": (AdviceEvidence,),
}
