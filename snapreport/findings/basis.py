"""What a finding is based on, in sentences: how much of the truth the record can show."""

from __future__ import annotations

from snapreport.number_format import plural, share_text
from snapreport.timeline.build import DeviceTimeline


def basis_of(timeline: DeviceTimeline) -> list[str]:
    """The number of events, the share of the peak that has a stack trace, and what is missing from the record."""
    framed = timeline.peak_bytes - timeline.peak_stackless_bytes
    share = share_text(framed, timeline.peak_bytes)
    return [
        f"Based on {plural(len(timeline.events), 'event')}.",
        f"{share} of the bytes at the peak have a stack trace.",
        *(gap.sentence for gap in timeline.recording_gaps),
    ]
