"""Peaks that the recorder noted beside the trace: PyTorch counts them even where the trace has lost events."""

from __future__ import annotations

from msgspec import Struct

from snapreport.timeline.interface import Timeline

_ALLOCATED, _BLOCKS, _RESERVED = (f"{what}_bytes.all.peak" for what in ("requested", "allocated", "reserved"))


class RecordedPeaks(Struct, frozen=True):
    """Bytes, the greatest of the process until the snapshot was written. ``blocks``: allocated, in whole blocks, as
    ``max_memory_allocated()`` counts them.
    """

    allocated: int
    blocks: int
    reserved: int


def recorded_peaks(timeline: Timeline) -> RecordedPeaks | None:
    """None where the recorder did not note them, or where the trace has more: the program has reset its statistics."""
    recorder = timeline.recording.recorder
    device = recorder.devices.get(timeline.device) if recorder and timeline.kind == "cuda" else None
    if device is None or any(key not in device.stats for key in (_ALLOCATED, _BLOCKS, _RESERVED)):
        return None
    found = RecordedPeaks(device.stats[_ALLOCATED], device.stats[_BLOCKS], device.stats[_RESERVED])
    is_reset = found.allocated < timeline.peak_bytes or found.reserved < int(timeline.reserved.max())
    return None if is_reset else found
