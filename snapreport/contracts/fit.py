"""The document of ``snapreport fit --json``."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from snapreport.contracts.values import Bytes, Count

Value = Annotated[float, Meta(description="of the number that differs between the recordings, e.g. a batch size")]


class AlignedRecordings(Struct):
    """How far the recordings are the same program. ``exact``: all have the same requests and frees in the same order,
    and each size follows the value. ``events``: requests and frees of the largest recording. ``unmatched_bytes``: what
    no other recording has, at most at once. ``reason``: why nothing is foretold, null where it is.
    """

    exact: bool
    events: Count
    unmatched_bytes: Bytes
    reason: str | None


class CategoryGrowth(Struct):
    """What one more unit adds at the peak, of one category."""

    category: str
    bytes: int


class FitPrediction(Struct):
    """One value. ``peak_reserved_bytes``, ``retries``: null where a request fails in the given memory.
    ``low_bytes``, ``high_bytes``: the range of peak reserved memory, equal where nothing is uncertain; null where no
    memory was reserved. ``fits``: null where no memory was given. ``is_recorded``: the value is that of a recording.
    """

    value: Value
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes | None
    low_bytes: Bytes | None
    high_bytes: Bytes | None
    retries: Count | None
    fits: bool | None
    is_recorded: bool


class LargestValue(Struct):
    """The largest whole value for one size of memory: it and all smaller ones run, the next one does not.

    ``card``: null for memory that was given. ``value``: null where not even 1 runs; where ``is_limit``, the search
    ended there. ``peak_reserved_bytes``: null then; ``spare_bytes``: what it leaves of the memory.
    """

    card: str | None
    memory_bytes: Bytes
    value: Value | None
    is_limit: bool
    peak_reserved_bytes: Bytes | None
    spare_bytes: Bytes | None
    retries: Count | None


class FitDevice(Struct):
    """One device. ``per_unit_bytes``: what one more unit adds to the peak, at the largest recording; ``growth``: of
    each category, most bytes first. Where nothing is foretold, all lists are empty.
    """

    device: int
    aligned: AlignedRecordings
    per_unit_bytes: int
    growth: list[CategoryGrowth]
    predictions: list[FitPrediction]
    largest: list[LargestValue]


class FitRecording(Struct):
    """One of the recordings."""

    file: str
    value: Value


class FitDocument(Struct, tag_field="schema", tag="snapreport-fit/1"):
    """Peaks at values that were not recorded. ``name``: of the number."""

    name: str
    settings: str
    recordings: list[FitRecording]
    devices: list[FitDevice]
