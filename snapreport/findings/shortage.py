"""The free memory when a request failed, and why it was not enough."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from snapreport.findings.fragmentation import expandable_setting
from snapreport.findings.free_memory_reachability import SMALL_SEGMENT, FreeMemory, Request, reachable_free_memory
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.fragmentation import parts_at
from snapreport.timeline.rounding import SMALL_SIZE
from snapreport.timeline.state import PENDING, STATES, State, state_at

Verdict = Literal["demand", "fragmentation", "pool-locked", "mixed", "limit", "unclear"]
LARGE_SEGMENT = 20 << 20
_OWN_SEGMENT = 10 << 20
"""Requests from this size on have a segment to themselves."""
FULL_SHARE = 0.9
"""Share of reserved plus device-free memory that is allocated: from this share on the device counts as full."""


class Shortage(Struct, frozen=True):
    """The bytes around one failure.

    requested: as the allocator rounded it. device_free: None where it was not recorded. unused: reserved, less
    allocated: rounding and ``free_memory``. pending: of blocks whose free waits for another stream (they count as
    allocated). segment_size: what the allocator would have had to take from the device, see :func:`segment_size_for`;
    None: just as much.
    """

    requested: int
    device_free: int | None
    reserved: int
    allocated: int
    rounding: int
    pending: int
    free_segments: int
    free_memory: FreeMemory
    segment_size: int | None = None

    @property
    def unused(self) -> int:
        return self.reserved - self.allocated


def shortage(timeline: DeviceTimeline, event: int) -> tuple[Shortage, State]:
    """The shortage when the allocator gave up at ``event``, and the state itself."""
    row = timeline.events.row(event, named=True)
    state = state_at(timeline, event)
    segments = state.segments
    free = row["device_free"]
    found = Shortage(
        requested=row["size"],
        device_free=free if free is None or free >= 0 else None,
        reserved=int(timeline.reserved[event + 1]),
        allocated=int(timeline.allocated[event + 1]),
        rounding=parts_at(timeline, event).rounding,
        pending=int(state.blocks.filter(state.blocks["state"] == STATES[PENDING])["size"].sum()),
        free_segments=int(segments.filter(segments["blocks"] == 0)["free"].sum()),
        free_memory=reachable_free_memory(state, Request(event, row["size"], row["stream"], row["pool"])),
        segment_size=segment_size_for(row["size"], expandable=expandable_setting(timeline) is True),
    )
    return found, state


def segment_size_for(requested: int, *, expandable: bool) -> int:
    """Bytes that the allocator takes from the device at once for a request that no free block holds.

    Small requests share segments of 2 MiB and middling ones segments of 20 MiB; what is greater has one of its own, in
    whole 2 MiB. Expandable segments grow by pages of the same sizes.
    """
    if expandable and requested > SMALL_SIZE:
        return -(-requested // LARGE_SEGMENT) * LARGE_SEGMENT
    return segment_of(requested)


def segment_of(request: int) -> int:
    """Bytes of a new segment for a request, which is what PyTorch's error message names (``get_allocation_size``)."""
    if request <= SMALL_SIZE:
        return SMALL_SEGMENT
    if request < _OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-request // SMALL_SEGMENT) * SMALL_SEGMENT


def message_size(size: int) -> str:
    """A size as PyTorch's error message writes it: ``20.00 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size > unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"


def verdict(s: Shortage) -> Verdict:
    """What would have made the request fit, the smallest change first.

    limit: the device had enough for the segment that the allocator would take. unclear: there was a free block that is
    large enough. fragmentation: what is free would do if it were contiguous. pool-locked: so would what other pools and
    streams hold free. mixed: only all of that together, or with what waits to be freed. demand: not even that.
    """
    device = s.device_free or 0
    from_device = max(s.requested, s.segment_size or 0)

    def fits(cached: int) -> bool:
        """Whether ``cached`` bytes in one range would serve the request, alone or with the device's free memory."""
        return cached >= s.requested or cached + device >= from_device

    if device >= from_device:
        return "limit"
    if s.free_memory.largest_usable >= s.requested:
        return "unclear"
    if fits(s.free_memory.usable):
        return "fragmentation"
    if fits(s.free_memory.locked):
        return "pool-locked"
    if fits(s.free_memory.usable + s.free_memory.locked + s.pending):
        return "mixed"
    return "demand"


def is_full(s: Shortage) -> bool:
    """Whether nearly all that the process could have was allocated, so that more room is what it needs first."""
    return s.allocated + s.rounding >= FULL_SHARE * (s.reserved + (s.device_free or 0))
