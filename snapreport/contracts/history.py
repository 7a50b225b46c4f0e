"""The document of ``snapreport history --json``."""

from __future__ import annotations

from msgspec import Struct

from snapreport.contracts.values import Bytes, Count, SignedBytes


class PlaceChange(Struct, forbid_unknown_fields=True):
    """A function whose allocations hold more or less at the peak. ``line``: of the largest that came; 0: none did."""

    function: str
    file: str
    line: Count
    change_bytes: SignedBytes


class Shift(Struct, forbid_unknown_fields=True):
    """The commit at which a measure left its noise. ``index``: of ``commits``. is_confirmed: by another after it.
    ``places``: what grew most from the commit before, or shrank most where the measure fell.
    """

    measure: str
    index: Count
    commit: str
    before_bytes: Bytes
    after_bytes: Bytes
    is_confirmed: bool
    places: list[PlaceChange]


class CommitMemory(Struct, forbid_unknown_fields=True):
    """``low``, ``high``: the noise of its level, for ``peak_allocated_bytes`` and ``peak_reserved_bytes``."""

    commit: str
    label: str
    time_us: int | None
    torch: str
    peak_allocated_bytes: Bytes
    allocated_low_bytes: SignedBytes
    allocated_high_bytes: SignedBytes
    peak_reserved_bytes: SignedBytes
    reserved_low_bytes: SignedBytes
    reserved_high_bytes: SignedBytes
    steps: Count
    out_of_memory: Count
    categories: dict[str, Bytes]


class HistoryDocument(Struct, tag_field="schema", tag="snapreport-history/1"):
    """The memory of a program over its commits, oldest first."""

    commits: list[CommitMemory]
    shifts: list[Shift]
