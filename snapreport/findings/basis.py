"""The basis of a finding, in sentences: how much the recording can show."""

from __future__ import annotations

from snapreport.number_format import plural, share_text
from snapreport.timeline.blocks import ASSUMED
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


def block_doubts(timeline: DeviceTimeline, position: int) -> list[str]:
    """What is not known for sure of the blocks in use at ``position``, in a sentence; empty where all of it is."""
    source = timeline.blocks_at(position).source
    assumed = int((source == ASSUMED).sum())
    if not assumed:
        return []
    share = share_text(assumed, len(source))
    return [
        f"The block sizes of {plural(assumed, 'allocation')} ({share} of those live then) are assumed: each may "
        f"be up to 1 MiB larger."
    ]
