"""The effect of a setting of the allocator: the trace replayed under it by the allocator's own rules."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.check import self_check
from snapreport.allocator.placement import placements
from snapreport.allocator.replay import Replayed, replay
from snapreport.allocator.settings import AllocatorSettings
from snapreport.allocator.start import start_state
from snapreport.allocator.trace import Trace, trace_of
from snapreport.timeline.build import DeviceTimeline

MOST_EVENTS = 300_000
"""Longer traces are not replayed for a finding: so many events take 0.4 s of CPU a replay, up to 14 are made."""
PLACEMENTS = 2
"""A statement has to hold with new segments above all others and below them: PyTorch breaks ties by address."""


class SettingReplay(Struct, frozen=True):
    """Peak reserved bytes under the recorded settings and with the setting, likewise retries, and the ``oom`` events
    that would not have happened: of several placements of new segments the worst for the setting. fresh: the trace did
    not start empty, and both start with what was live then, allocated in order of address.
    """

    before: int
    after: int
    avoided: tuple[int, ...]
    retries_before: int
    retries_after: int
    fresh: bool


class SettingReplays:
    """Replays of one device's trace. Its self-check runs with the first."""

    def __init__(self, timeline: DeviceTimeline) -> None:
        self.timeline = timeline

    def replay(self, **changes: Any) -> SettingReplay | None:
        """``changes``: of ``AllocatorSettings``. None where the trace's own settings do not replay it exactly, where a
        fresh start does not fail where the recording did, and where a request fails that did not.
        """
        if self._prepared is None:
            return None
        trace, settings, own = self._prepared
        done = _replays(trace, replace(settings, **changes))
        if any(one.oom_event is not None for one in done):
            return None
        avoided = [event for event in trace.timeline.oom_events if all(event in one.avoided for one in done)]
        return SettingReplay(
            own.peak_reserved,
            max(one.peak_reserved for one in done),
            tuple(avoided),
            own.retries,
            max(one.retries for one in done),
            not trace.starts_empty,
        )

    @cached_property
    def _prepared(self) -> tuple[Trace, AllocatorSettings, Replayed] | None:
        """The trace's operations, its own settings, and what they do from where replays start."""
        timeline = self.timeline
        if not len(timeline.events) or len(timeline.events) > MOST_EVENTS or timeline.kind == "host":
            return None
        trace = trace_of(timeline)
        check = self_check(trace, start_state(trace))
        if not check.exact:
            return None
        own = _replays(trace, check.settings)[0]
        if own.oom_event is not None or own.avoided:
            return None
        return trace, check.settings, own


def _replays(trace: Trace, settings: AllocatorSettings) -> list[Replayed]:
    return [replay(trace, settings, memory, start=None) for memory in placements(trace.capacity.bytes, PLACEMENTS)]
