"""The memory that a failed run would have needed: the trace replayed under other settings and with more memory."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.minimum import minimum_memory
from snapreport.allocator.settings import parse_settings
from snapreport.allocator.whatif import WhatIf
from snapreport.allocator_facts import TRIED_SETTINGS
from snapreport.number_format import bytes_text
from snapreport.sentence import sentence
from snapreport.timeline.build import DeviceTimeline

MOST_EVENTS = 60_000
"""Longer traces are not searched for a finding: the search takes some 25 replays, 2 s of CPU for so many events."""
_TRIED = tuple(text for text in TRIED_SETTINGS if not text.startswith("garbage"))


class MemoryNeeded(Struct, frozen=True):
    """available: bytes that the allocator had. least: bytes with which the run as recorded does not fail, under its own
    settings or with expandable segments. tried: settings under which it fails with what was available.
    """

    available: int
    least: int
    tried: tuple[str, ...]

    @property
    def sentence(self) -> str:
        sizes = [bytes_text(self.least), bytes_text(self.available)]
        if sizes[0] == sizes[1]:
            sizes = [f"{size >> 20:,} MiB" for size in (self.least, self.available)]
        return sentence(
            "None of {} allocator settings avoids the failure: the recorded requests need {}, and {} were available "
            "(replayed).",
            len(self.tried),
            *sizes,
        )


def memory_needed(timeline: DeviceTimeline) -> MemoryNeeded | None:
    """None where a setting avoids the failure, where the replay is not exact, or where the trace is too long."""
    if timeline.kind != "cuda" or len(timeline.events) > MOST_EVENTS:
        return None
    whatif = WhatIf(timeline)
    if not whatif.trace.starts_empty or not whatif.trace.capacity.exact or not whatif.check.exact:
        return None
    wanted = {text: parse_settings([text], whatif.own) for text in _TRIED}
    if any(whatif.replay(settings).failure is None for settings in wanted.values()):
        return None
    searched = (whatif.own, replace(whatif.own, expandable_segments=True))
    found = [minimum_memory(whatif, settings, around=0).memory for settings in dict.fromkeys(searched)]
    least = min((memory for memory in found if memory is not None), default=0)
    available = whatif.trace.capacity.bytes or 0
    return MemoryNeeded(available, least, tuple(wanted)) if least > available else None
