"""The tables of a recording, into which a snapshot is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct, field

from snapreport.reading.recorder_metadata import RecorderMetadata
from snapreport.reading.run_profile import RunProfile

HOST = -1  # the device number of pinned host memory

# Known actions, in the order of the codes of the ``action`` column of every recording. Others remain events and are
# counted in the notes.
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "workspace_snapshot",
    "annotate",
    "user_defined",
)
PENDING_STATES = ("active_pending_free", "active_awaiting_free")
ACTIVE_STATES = ("active_allocated", *PENDING_STATES)
SNAPSHOT, PROFILER = "snapshot", "profiler"


class Part(Struct, frozen=True):
    """The events of a trace that a record has: from ``first`` to the one before ``end``, of ``whole`` events."""

    first: int
    end: int
    whole: int


class DeviceRecord(Struct):
    """One device's recorded history and final state. A profiler trace has no final state: no segments, and at most one
    block, without a segment, for the allocations made before the trace that outlived it.

    events: a row per trace entry, in recorded order: ``action`` Enum (``ACTIONS``, then unknown ones), ``addr`` UInt64
      null, ``size`` Int64 bytes (0 where absent), ``stream`` Int64, ``pool`` String null ("(0, 1)"), ``time_us`` Int64
      null, ``stack`` Int32, ``forward_stack`` Int32 (0: none; the forward operator whose backward pass allocates),
      ``compile_context``, ``user_metadata``, ``category`` String null, ``device_free`` Int64 null.
    segments: a row per final segment: ``address`` UInt64, ``total_size``, ``allocated_size``, ``active_size``,
      ``requested_size`` Int64, ``stream`` Int64, ``segment_type`` String null, ``pool`` String null, ``is_expandable``
      Boolean, ``stack`` Int32.
    blocks: a row per block of the segments, in order: ``segment`` Int32 (a row of ``segments``), ``address`` UInt64,
      ``size``, ``requested_size`` Int64, ``state`` String, ``stack`` Int32.
    counted_allocated, counted_reserved: Int64 bytes, the profiler's totals after each event; None in snapshots.
    part: which events of the trace these are, if not all; segments and blocks are the state after the last of them.
    """

    device: int
    kind: str
    events: pl.DataFrame
    segments: pl.DataFrame
    blocks: pl.DataFrame
    counted_allocated: np.ndarray | None = None
    counted_reserved: np.ndarray | None = None
    part: Part | None = None


class Recording(Struct, eq=False, weakref=True):
    """Everything in one snapshot file, as columns.

    Stack s is ``stack_frames[stack_offsets[s]:stack_offsets[s + 1]]``: rows of ``frames``, innermost first. Stack 0 is
    empty. Stacks with the same outer frames are adjacent, so that neighbours share most frames; frames are numbered by
    first appearance, stack by stack from the outermost inwards.

    name: the file's name without folders. path: as given ("-" for standard input). file_bytes: bytes as stored.
    settings: the recorder's allocator settings, plain values only.
    frames: ``filename`` String, ``line`` Int64, ``name`` String, and any ``fx_*`` keys, String null.
    annotations: ``device`` Int64, ``name``, ``stage`` String, ``time_us`` Int64 null.
    recorder: the metadata of snapreport's recorder; None for files of other recorders.
    source: ``SNAPSHOT`` (of an allocator) or ``PROFILER`` (a trace).
    notes: harmless oddities worth reporting: {"unknown_actions": {name: count}, ...}.
    profile: the ``torch.profiler`` trace of the same run.
    """

    name: str
    path: str
    file_bytes: int
    settings: dict[str, Any]
    frames: pl.DataFrame
    stack_offsets: np.ndarray
    stack_frames: np.ndarray
    annotations: pl.DataFrame
    devices: dict[int, DeviceRecord]
    recorder: RecorderMetadata | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    source: str = SNAPSHOT
    profile: RunProfile | None = None

    @property
    def is_profiled(self) -> bool:
        """Whether this is a profiler trace: only allocations and frees, without the allocator's state."""
        return self.source == PROFILER

    def stack(self, number: int) -> list[int]:
        """The frame rows of a stack, innermost first."""
        rows: list[int] = self.stack_frames[self.stack_offsets[number] : self.stack_offsets[number + 1]].tolist()
        return rows
