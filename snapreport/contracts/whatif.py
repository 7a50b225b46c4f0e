"""The document of ``snapreport whatif --json``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from snapreport.contracts.values import Bytes, Count


class ReplayCheck(Struct):
    """A replay under the recorded settings compared with the recording. ``same_allocations``: those at the recorded
    address; ``same_segment_events``: those with the recorded event, action and bytes. ``curve_error``: the greatest
    difference of reserved memory, as a share of its peak. ``reason``: why the replay is not exact, null where it is.
    """

    exact: bool
    allocations: Count
    same_allocations: Count
    segment_events: Count
    same_segment_events: Count
    curve_error: float
    reason: str | None


class ReplayRun(Struct):
    """The trace replayed under one combination of settings.

    ``without``: the queries whose allocations never happen; ``scale``: the factors of sizes. ``peak_reserved_bytes``:
    null where a request failed that did not fail in the recording; ``low_bytes`` and ``high_bytes``: its error bar.
    ``oom_event``: the first event whose request fails; ``avoided_oom_events``: recorded failures whose request
    succeeds. ``note``: why there is no result, where there is none.
    """

    name: str
    settings: str
    without: str | None
    scale: str | None
    peak_reserved_bytes: Bytes | None
    low_bytes: Bytes | None
    high_bytes: Bytes | None
    peak_allocated_bytes: Bytes | None
    retries: Count | None
    oom_event: Count | None
    avoided_oom_events: list[Count]
    note: str | None


class MinimumMemory(Struct):
    """The least memory for the allocator on which the trace runs; null where it does not run on unlimited memory.

    ``retries``: at that size. ``monotone``: whether all smaller sizes that were tried fail, and all larger ones run.
    ``unlimited_peak_reserved_bytes``: what it reserves where nothing limits it.
    """

    settings: str
    memory_bytes: Bytes | None
    retries: Count | None
    monotone: bool
    unlimited_peak_reserved_bytes: Bytes


class CardFit(Struct):
    """Whether the trace runs on a graphics card. ``usable_bytes``: what PyTorch's allocator can use of it; ``source``:
    where its memory is on record; ``spare_bytes``: usable beyond the minimum.
    """

    card: str
    example: str
    usable_bytes: Bytes
    source: str
    fits: bool
    spare_bytes: int | None
    settings: str


class WhatIfDevice(Struct):
    """One device replayed. ``placements``: how many placements of new segments are tried; ``limits``: of this replay, a
    sentence each; ``runs``: empty where the replay is not exact. ``minimum_…``: the first of ``minimums``.
    """

    device: int
    check: ReplayCheck
    start: Literal["fresh", "recorded"]
    settings: str
    recorded_peak_reserved_bytes: int
    capacity_bytes: Bytes | None
    placements: int
    limits: list[str]
    runs: list[ReplayRun]
    minimum_memory_bytes: Bytes | None
    minimum_retries: Count | None
    minimums: list[MinimumMemory]
    cards: list[CardFit]


class WhatIfFile(Struct):
    """The devices of one snapshot that have events."""

    file: str
    devices: list[WhatIfDevice]


class WhatIfDocument(Struct, tag_field="schema", tag="snapreport-whatif/1"):
    """The traces under other settings. One file is at the top; several are listed in ``snapshots``."""

    file: str | UnsetType = UNSET
    devices: list[WhatIfDevice] | UnsetType = UNSET
    snapshots: Annotated[list[WhatIfFile] | UnsetType, Meta(description="if several files are given")] = UNSET


def whatif_document(files: list[WhatIfFile]) -> WhatIfDocument:
    """The document of one file or several."""
    if len(files) == 1:
        return WhatIfDocument(files[0].file, files[0].devices)
    return WhatIfDocument(snapshots=files)
