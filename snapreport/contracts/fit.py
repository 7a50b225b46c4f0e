"""The document of ``snapreport fit --json``."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from snapreport.contracts.finding import Confidence
from snapreport.contracts.values import Bytes, Count

Value = Annotated[float, Meta(description="of the number that may differ, e.g. a batch size")]


class AlignedRecordings(Struct):
    """How far the recordings are the same program. ``exact``: all have the same requests and frees in the same order,
    and each size follows the value. ``events``: requests and frees of the largest recording. ``unmatched_bytes``: what
    no other recording has, at most at once; of one recording alone what may grow or not. ``reason``: why nothing is
    foretold, null where it is.
    """

    exact: bool
    events: Count
    unmatched_bytes: Bytes
    reason: str | None


class LeftOutRecording(Struct):
    """A recording beside what the others foretell of it; null where they cannot."""

    value: Value
    recorded_allocated_bytes: Bytes
    recorded_reserved_bytes: Bytes
    peak_allocated_bytes: Bytes | None
    peak_reserved_bytes: Bytes | None


class OtherRequests(Struct):
    """What two neighbouring recordings do not have in common: other kernels are taken from one value to the next.
    ``fewer``, ``more``: requests that only the recording at the smaller, or larger, value has; ``bytes``: of these, at
    most at once.
    """

    from_value: Value
    to_value: Value
    fewer: Count
    more: Count
    bytes: Bytes


class Bend(Struct):
    """From ``value`` on each unit adds ``per_unit_bytes_after`` to the peak allocated, below it
    ``per_unit_bytes_before``: the peak moves from the line ``line_before`` to ``line_after``, null where there is no
    stack trace.
    """

    value: Value
    per_unit_bytes_before: int
    per_unit_bytes_after: int
    line_before: str | None
    line_after: str | None


class CategoryGrowth(Struct):
    """What one more unit adds at the peak, of one category."""

    category: str
    bytes: int


class FitPrediction(Struct):
    """One value. ``peak_reserved_bytes``, ``retries``: null where a request fails in the given memory.
    ``allocated_low_bytes``, ``allocated_high_bytes``, ``low_bytes``, ``high_bytes``: the ranges of peak allocated and
    peak reserved memory, equal where nothing is uncertain. ``fits``: null where no memory was given, or the range
    includes it. ``confidence``: measured where the value was recorded, inferred near recordings of the same requests,
    else estimate.
    """

    value: Value
    peak_allocated_bytes: Bytes
    allocated_low_bytes: Bytes
    allocated_high_bytes: Bytes
    peak_reserved_bytes: Bytes | None
    low_bytes: Bytes | None
    high_bytes: Bytes | None
    retries: Count | None
    fits: bool | None
    confidence: Confidence


class LargestValue(Struct):
    """The largest whole value for one size of memory: it and all smaller ones run, the next one does not.

    ``card``: null for memory that was given. ``value``: null where not even 1 runs; where ``is_limit``, the search
    ended there. ``low_value``, ``high_value``: its range, 0 where not even 1 may run. Of several recordings the lower
    end is what they answer for: above it the program may take other kernels, which need more; ``confidence`` is then
    an estimate. With workspaces of convolutions the range is that of the values that run with larger and smaller ones.
    ``peak_reserved_bytes``: null where ``value`` is; ``spare_bytes``: what it leaves of the memory.
    """

    card: str | None
    memory_bytes: Bytes
    value: Value | None
    low_value: Count
    high_value: Count
    is_limit: bool
    peak_reserved_bytes: Bytes | None
    spare_bytes: Bytes | None
    retries: Count | None
    confidence: Confidence


class FitRemedy(Struct):
    """Advice, or a setting of the allocator. ``rule``, ``effort``, ``confidence``, ``where``: as in the advice of
    ``stats --findings``; ``do``: what to do.
    """

    rule: str
    do: str
    effort: str
    confidence: Confidence
    where: str | None


class FitRemedies(Struct):
    """Remedies that are applied together, and the replay with all of them."""

    remedies: list[FitRemedy]
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes
    spare_bytes: Bytes
    retries: Count


class FitCheapest(Struct):
    """What makes the recorded program run in ``memory_bytes``. ``needed_bytes``: what it needs as it is; ``fits``: it
    runs as it is. ``sets``: the cheapest first, and up to three more. Where there are none, ``least_bytes`` is the
    least that it needs with any, which is with ``least_with``. ``ends_at_failure``: the recording ends where the
    program ran out of memory, and what it would have done after that is not known.
    """

    memory_bytes: Bytes
    needed_bytes: Bytes
    fits: bool
    sets: list[FitRemedies]
    least_bytes: Bytes | None
    least_with: list[FitRemedy]
    ends_at_failure: bool


class FitDevice(Struct):
    """One device. ``per_unit_bytes``: what one more unit adds to the peak, at the largest recording; ``growth``: of
    each category, most bytes first. ``bends``: where that changes, between the values that are asked for.
    ``other_requests``, ``left_out``: how far several recordings agree; the second of three or more. Where nothing is
    foretold, all lists are empty. ``cheapest``: of one recording alone, where memory was given. ``workspace_bytes``: of
    convolutions, at most at once in the largest recording; the ranges hold from half to twice as much.
    """

    device: int
    aligned: AlignedRecordings
    per_unit_bytes: int
    growth: list[CategoryGrowth]
    predictions: list[FitPrediction]
    largest: list[LargestValue]
    cheapest: FitCheapest | None
    bends: list[Bend] = []
    other_requests: list[OtherRequests] = []
    left_out: list[LeftOutRecording] = []
    workspace_bytes: Bytes = 0


class FitRecording(Struct):
    """One of the recordings. ``value``: null where none was given."""

    file: str
    value: Value | None


class FitRank(Struct):
    """One device of a job's rank, as in :class:`FitDevice`."""

    rank: Count
    device: int
    reason: str | None
    predictions: list[FitPrediction]


class FirstRank(Struct):
    """The rank of a job that fails first in one size of memory, and the largest value at which it runs: the largest at
    which the job runs. ``tied_ranks``: others that fail at the same value. ``rank``, ``device``: null where nothing is
    foretold of any. ``value``, ``is_limit``: as in :class:`LargestValue`.
    """

    card: str | None
    memory_bytes: Bytes
    rank: Count | None
    device: int | None
    value: Value | None
    is_limit: bool
    tied_ranks: list[Count] = []


class FitDocument(Struct, tag_field="schema", tag="snapreport-fit/1"):
    """Peaks at values that were not recorded. ``name``: of the number. ``ranks``, ``first_to_fail``: of a job, whose
    ``recordings`` and ``devices`` are those of the rank that fails first in the least memory.
    """

    name: str
    settings: str
    recordings: list[FitRecording]
    devices: list[FitDevice]
    ranks: list[FitRank] = []
    first_to_fail: list[FirstRank] = []
