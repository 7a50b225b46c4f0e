"""Out-of-memory events in the manifest: the bytes around each failure, as the page draws and describes them."""

from __future__ import annotations

from snapreport.findings.shortage import Shortage, shortage, verdict
from snapreport.timeline.build import DeviceTimeline

MOST_EXPLAINED = 32
"""Failures whose segments are replayed: each needs a replayed allocator state, 10 to 60 ms on a million events."""


def oom_entries(timeline: DeviceTimeline) -> list[dict[str, object]]:
    """One entry per ``oom`` event, in order: ``event`` and ``requested`` for all of them, the rest for the first 32.

    Every figure is in bytes and comes from :func:`snapreport.findings.oom.shortage`, so the page and the finding cannot
    disagree. ``device_free`` is None if the recorder did not write it.
    """
    sizes = timeline.events["size"]
    entries: list[dict[str, object]] = []
    for number, event in enumerate(timeline.oom_events):
        entry: dict[str, object] = {"event": event, "requested": int(sizes[event])}
        if number < MOST_EXPLAINED:
            found, _ = shortage(timeline, event)
            entry.update(_figures(found))
        entries.append(entry)
    return entries


def _figures(found: Shortage) -> dict[str, object]:
    free_memory = found.free_memory
    available = (found.device_free or 0) + free_memory.usable + free_memory.locked + found.pending
    return {
        "verdict": verdict(found),
        "segment": found.segment_size,
        "device_free": found.device_free,
        "reserved": found.reserved,
        "allocated": found.allocated,
        "rounding": found.rounding,
        "pending": found.pending,
        "usable": free_memory.usable,
        "other_stream": free_memory.other_stream,
        "other_pool": free_memory.other_pool,
        "other_size": free_memory.other_size,
        "largest_usable": free_memory.largest_usable,
        "largest_free": free_memory.largest,
        "shortfall": max(0, found.requested - available),
    }
