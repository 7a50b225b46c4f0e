"""What a setting of the allocator would have changed: the trace replayed under it by the allocator's own rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from snapreport.allocator.check import self_check
from snapreport.allocator.placement import Ascending
from snapreport.allocator.replay import replay
from snapreport.allocator.settings import AllocatorSettings
from snapreport.allocator.start import start_state
from snapreport.allocator.trace import Trace, trace_of
from snapreport.timeline.build import DeviceTimeline

MOST_EVENTS = 60_000
"""Longer traces are not replayed for a finding: 20,000 events take half a second."""


@dataclass(frozen=True)
class SettingReplay:
    """Peak reserved bytes as recorded and with the setting, and the ``oom`` events that would not have happened."""

    before: int
    after: int
    avoided: tuple[int, ...]


class SettingReplays:
    """Replays of one device's trace. Its self-check runs with the first."""

    def __init__(self, timeline: DeviceTimeline) -> None:
        self.timeline = timeline

    def replay(self, **changes: Any) -> SettingReplay | None:
        """``changes``: of ``AllocatorSettings``. None where the trace's own settings do not replay it exactly.

        A trace that starts with memory reserved is not replayed: what its blocks would have been is not known.
        """
        if self._prepared is None:
            return None
        trace, settings = self._prepared
        done = replay(trace, replace(settings, **changes), Ascending(trace.capacity.bytes), start=None)
        if done.oom_event is not None:
            return None
        return SettingReplay(trace.peak_reserved, done.peak_reserved, tuple(done.avoided))

    @cached_property
    def _prepared(self) -> tuple[Trace, AllocatorSettings] | None:
        """The trace's operations and its own settings."""
        timeline = self.timeline
        if not len(timeline.events) or len(timeline.events) > MOST_EVENTS or timeline.kind == "host":
            return None
        trace = trace_of(timeline)
        if not trace.starts_empty:
            return None
        check = self_check(trace, start_state(trace))
        return (trace, check.settings) if check.exact else None
