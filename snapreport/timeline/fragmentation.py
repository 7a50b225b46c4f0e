"""Reserved but not allocated, at a position: rounding, free blocks next to blocks in use, unused segments."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.timeline.interface import Timeline
from snapreport.timeline.lifetimes import is_live_at
from snapreport.timeline.neighbours import containing


class Parts(Struct, frozen=True):
    """Bytes at one position. rounding: block sizes less requested sizes. unused_segments: segments (mapped ranges) with
    no block in use. inactive_split: free blocks in the other segments. The three add up to reserved less allocated;
    pending frees count as allocated. In a contradictory record (blocks overlap, or are outside of all segments)
    inactive_split may be negative.
    """

    rounding: int
    inactive_split: int
    unused_segments: int


def parts_at(timeline: Timeline, position: int) -> Parts:
    """The parts at a ``position`` (-1 … events - 1): 3 ms for 300,000 allocations."""
    live = live_ids(timeline, position)
    rounding = int((timeline.blocks_at(position).size - timeline.allocations["size"].to_numpy()[live]).sum())
    unused_segments = unused_segment_bytes(timeline, position)
    unused = int(timeline.reserved[position + 1]) - int(timeline.allocated[position + 1])
    return Parts(rounding, unused - rounding - unused_segments, unused_segments)


def unused_segment_bytes(timeline: Timeline, position: int) -> int:
    """Bytes in segments (mapped ranges) with no block in use. Needs no block sizes, which take 0.1 s for 300,000."""
    segments = timeline.segment_history.filter(is_live_at(position)).sort("address", maintain_order=True)
    start, size = segments["address"].to_numpy(), segments["size"].to_numpy()
    at = containing(start, size, timeline.allocations["addr"].to_numpy()[live_ids(timeline, position)])
    return int(size.sum() - size[np.unique(at[at >= 0])].sum())


def live_ids(timeline: Timeline, position: int) -> np.ndarray:
    """Int64 ids of the allocations that are live at a position, ascending."""
    born, freed = (timeline.allocations[name].to_numpy() for name in ("alloc_event", "free_event"))
    return np.flatnonzero((born <= position) & ((freed < 0) | (freed > position)))
