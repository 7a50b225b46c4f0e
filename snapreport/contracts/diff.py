"""The document of ``snapreport diff --json`` for snapshots."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from snapreport.contracts.values import Bytes, Count, Frames, Position, SignedBytes

Change = Literal["appeared", "vanished", "grew", "shrank", "same"]


class DiffFile(Struct):
    """A compared file."""

    file: str
    bytes: Count


class DiffTotals(Struct):
    """The numbers of one side, as in ``snapreport stats --json``."""

    events: Count
    allocations: Count
    peak_allocated_bytes: Bytes
    peak_event: Position
    peak_reserved_bytes: SignedBytes
    end_allocated_bytes: Bytes
    end_reserved_bytes: SignedBytes


class NamedChange(Struct):
    """The change of one category or function at one moment."""

    name: str | None
    bytes_before: Bytes
    bytes_after: Bytes
    count_before: Count
    count_after: Count
    delta: SignedBytes
    change: Change


class StackChange(Struct):
    """The change of one stack at one moment."""

    bytes_before: Bytes
    bytes_after: Bytes
    count_before: Count
    count_after: Count
    delta: SignedBytes
    change: Change
    frames: Frames


class MomentDiff(Struct):
    """A pair of moments: ``name`` is "peak", "end" or "step 12". Changes: greatest first."""

    name: str
    before_event: Position
    after_event: Position
    before_bytes: Bytes
    after_bytes: Bytes
    delta: SignedBytes
    categories: list[NamedChange]
    functions: list[NamedChange]
    stacks: list[StackChange]
    modules: Annotated[list[NamedChange] | UnsetType, Meta(description="where they were recorded")] = UNSET


class SegmentChange(Struct):
    """Segments of the final states, by type, pool, stream and size in bytes: how many there are before and after, and
    how many of them at an address that the other side does not have.
    """

    segment_type: str | None
    pool: str | None
    stream: int | None
    size: Bytes
    before: Count
    after: Count
    only_before: Count
    only_after: Count


class DiffDevice(Struct):
    """One device of both. ``device_after``: its number after; ``cause``: why the peak changed, a sentence, empty where
    the traces do not prove it.
    """

    device: int
    device_after: int
    kind: str
    cause: str
    before: DiffTotals
    after: DiffTotals
    moments: list[MomentDiff]
    segments: list[SegmentChange]


class SeriesStack(Struct):
    """A stack through a series: bytes and allocations at the end of each snapshot. ``stack``: its number in the last
    one; ``bytes_per_snapshot``: Theil-Sen slope; ``grows``: whether that is growth and not noise.
    """

    place: str
    bytes: list[Bytes]
    counts: list[Count]
    bytes_per_snapshot: SignedBytes
    grows: bool
    stack: Count
    frames: Frames | UnsetType = UNSET


class SeriesDevice(Struct):
    """One device through a series; lists have an entry for each snapshot. ``devices``: its numbers; ``order``: what the
    files are ordered by. ``growth``: the median change from one snapshot to the next of what is allocated at the end;
    ``slope``: the same by Theil-Sen. ``stacks``: growing ones first, the fastest of each first.
    """

    device: int
    devices: list[int]
    kind: str
    files: Annotated[list[str], Meta(min_length=3)]
    order: str
    peak_allocated_bytes: list[Bytes]
    end_allocated_bytes: list[Bytes]
    peak_reserved_bytes: list[SignedBytes]
    end_reserved_bytes: list[SignedBytes]
    growth: SignedBytes
    slope: SignedBytes
    leak_bytes_per_snapshot: SignedBytes
    stacks: list[SeriesStack]


class RenamedFile(Struct):
    """A file of the program that was moved or renamed; its functions are compared as the same."""

    before: str
    after: str


class DiffDocument(Struct, tag_field="schema", tag="snapreport-diff/1"):
    """The changes between two snapshots. ``only_before``, ``only_after``: devices of one side alone; ``series``: of
    three and more snapshots, of which the first and the last are compared.
    """

    before: DiffFile
    after: DiffFile
    only_before: list[int]
    only_after: list[int]
    devices: list[DiffDevice]
    renamed: list[RenamedFile]
    series: list[SeriesDevice] | UnsetType = UNSET
