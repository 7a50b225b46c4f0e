"""What a finding rests on, in sentences: how much of the truth the record can hold."""

from __future__ import annotations

from snapreport.number_format import bytes_text, plural, share_text
from snapreport.timeline.build import DeviceTimeline


def basis_of(timeline: DeviceTimeline) -> list[str]:
    """The events seen, the share of the peak's bytes that has frames, overflow, and whether the replay reconciles."""
    framed = timeline.peak_bytes - timeline.peak_stackless_bytes
    lines = [
        f"{plural(len(timeline.events), 'event')} seen; {share_text(framed, timeline.peak_bytes)} of the peak's bytes "
        "have frames."
    ]
    if timeline.overflowed:
        lines.append("The trace overflowed: its oldest events are lost.")
    elif timeline.overflowed is None:
        lines.append("Whether the trace overflowed was not recorded.")
    if timeline.reconciliation_bytes:
        lines.append(f"The replay differs from the final blocks by {bytes_text(abs(timeline.reconciliation_bytes))}.")
    return lines
