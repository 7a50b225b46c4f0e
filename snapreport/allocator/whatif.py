"""What a recorded trace would have reserved under other settings, on another device, or without some allocations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.check import Check, self_check
from snapreport.allocator.placement import Ascending, placements
from snapreport.allocator.replay import Replayed, replay
from snapreport.allocator.settings import AllocatorSettings, parse_settings
from snapreport.allocator.start import start_state
from snapreport.allocator.trace import Trace, trace_of
from snapreport.allocator_facts import REPLAYS, TRIED_SETTINGS, sentence
from snapreport.contracts.whatif import ReplayRun
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.curves import allocated_curve
from snapreport.timeline.state import State

RECORDED, FRESH = "recorded", "fresh"
OWN = sentence("notes", "own")
"""The name of the run that all others are compared with."""


class Change(Struct, frozen=True):
    """The changes to the recording: ``without`` Boolean by allocation id, ``sizes`` Int64 bytes by id (None: as
    recorded), and the texts that named them.
    """

    without: np.ndarray | None = None
    sizes: np.ndarray | None = None
    without_text: str | None = None
    scale_text: str | None = None


class WhatIf:
    """The replays of one device. ``capacity``: bytes for the allocator, None for the trace's own.

    start: ``fresh`` allocates what was live at the start of the trace first, in order of address; ``recorded`` goes on
    from the recorded state, whose cached memory then stays cached. Where the trace starts empty both are the same.
    """

    def __init__(self, timeline: DeviceTimeline, *, capacity: int | None = None, start: str = FRESH) -> None:
        self.timeline = timeline
        self.start = start
        self._capacity = capacity

    @cached_property
    def trace(self) -> Trace:
        return trace_of(self.timeline)

    @cached_property
    def state(self) -> State:
        return start_state(self.trace)

    @cached_property
    def check(self) -> Check:
        return self_check(self.trace, self.state)

    @cached_property
    def own(self) -> AllocatorSettings:
        """The settings of the recording."""
        return self.check.settings

    @property
    def capacity(self) -> int | None:
        """Bytes for the allocator; None: unlimited."""
        return self._capacity if self._capacity is not None else self.trace.capacity.bytes

    @property
    def capacity_given(self) -> bool:
        """Whether the capacity was set by the user; otherwise it is the trace's own."""
        return self._capacity is not None

    @property
    def lowest_capacity(self) -> int | None:
        """The lower end, in bytes, of the range in which the device's capacity lies; None where ``capacity`` is one
        value.
        """
        return None if self.capacity_given else self.trace.capacity.lowest

    @property
    def placements(self) -> int:
        """How many placements of new segments are tried."""
        is_long = len(self.trace.kind) > REPLAYS["long_trace"]
        return REPLAYS["placements_of_long_traces" if is_long else "placements"]

    def replay(
        self,
        settings: AllocatorSettings,
        change: Change | None = None,
        *,
        memory: Ascending | None = None,
        start: str | None = None,
    ) -> Replayed:
        """One replay. ``memory``: bytes in place of the device's."""
        change = change or Change()
        state = self.state if (start or self.start) == RECORDED else None
        memory = memory or Ascending(self.capacity)
        return replay(self.trace, settings, memory, start=state, without=change.without, sizes=change.sizes)

    @cached_property
    def baseline(self) -> ReplayRun:
        """The recorded settings, replayed: the baseline of the other runs."""
        return self._spread(OWN, self.own, Change(), residual=0)

    @cached_property
    def residual(self) -> int:
        """How far the replay of the recorded settings, with new segments at places of its own, is from the recording,
        in bytes of peak reserved memory; 0 for a fresh start of a trace that does not start empty, which nothing
        recorded can be compared with.
        """
        if self.start == FRESH and not self.trace.starts_empty:
            return 0
        if self._capacity is not None:
            done = self.replay(self.own, memory=Ascending(self.trace.capacity.bytes))
            return abs(done.peak_reserved - self.trace.peak_reserved)
        return abs((self.baseline.peak_reserved_bytes or 0) - self.trace.peak_reserved)

    def run(self, settings: AllocatorSettings, change: Change | None = None, name: str | None = None) -> ReplayRun:
        """A run with its error bar: the larger of the residual and the spread over placements and capacities."""
        change = change or Change()
        if settings.garbage_collection_threshold and settings.memory_fraction is None:
            if self.capacity is None:
                note = sentence("notes", "needs_memory", option="--memory")
                return self._run(name or settings.text(), settings, change, note=note)
            settings = replace(settings, memory_fraction=1.0)
            name = settings.text() if name is None else f"{name},per_process_memory_fraction:1"
        return self._spread(name or settings.text(), settings, change, self.residual)

    def standard(self, change: Change) -> list[ReplayRun]:
        """The usual settings, each on top of the recorded ones."""
        wanted = [parse_settings([text], self.own) for text in TRIED_SETTINGS]
        return [
            self.run(settings, change, text)
            for text, settings in zip(TRIED_SETTINGS, wanted, strict=True)
            if settings != self.own
        ]

    def peak_allocated(self, change: Change) -> int:
        """Requested bytes at most; the recorded curve without, or with other sizes of, the allocations that change."""
        if change.without is None and change.sizes is None:
            return self.timeline.peak_bytes
        allocations = self.timeline.allocations
        sizes = self.trace.size if change.sizes is None else change.sizes
        if change.without is not None:
            sizes = np.where(change.without, 0, sizes)
        alloc, free = (allocations[name].to_numpy() for name in ("alloc_event", "free_event"))
        return int(allocated_curve(alloc, free, sizes, len(self.timeline.events)).max())

    def _spread(self, name: str, settings: AllocatorSettings, change: Change, residual: int) -> ReplayRun:
        done = [self.replay(settings, change, memory=memory) for memory in placements(self.capacity, self.placements)]
        first = done[0]
        if first.oom_event is not None:
            return self._run(name, settings, change, first)
        peaks = [one.peak_reserved for one in done if one.oom_event is None]
        peak, failed = first.peak_reserved, len(done) - len(peaks)
        notes = [sentence("notes", "placements", failed=failed, tried=len(done))] if failed else []
        if self.lowest_capacity is not None:
            smallest = self.replay(settings, change, memory=Ascending(self.lowest_capacity))
            if smallest.oom_event is None:
                peaks.append(smallest.peak_reserved)
            else:
                # A run that never reserves more than the lower end would run there in the same way and not fail.
                peaks.append(self.lowest_capacity)
                notes.append(sentence("notes", "lowest_capacity"))
        low, high = min(*peaks, peak - residual), max(*peaks, peak + residual)
        return self._run(name, settings, change, first, (peak, low, high), "; ".join(notes))

    def _run(
        self,
        name: str,
        settings: AllocatorSettings,
        change: Change,
        done: Replayed | None = None,
        reserved: tuple[int | None, int | None, int | None] = (None, None, None),
        note: str = "",
    ) -> ReplayRun:
        return ReplayRun(
            name,
            settings.text(),
            change.without_text,
            change.scale_text,
            *reserved,
            self.peak_allocated(change),
            done.retries if done else 0,
            done.failure if done else None,
            done.avoided if done else [],
            note or None,
        )


def scaled(trace: Trace, parts: Sequence[tuple[np.ndarray, float]]) -> np.ndarray:
    """Int64 bytes by allocation id, with each part's allocations multiplied and rounded to whole bytes; 0: rounded to
    nothing, an empty tensor, for which PyTorch requests no memory.
    """
    sizes = trace.size.astype(np.int64)
    for mask, factor in parts:
        sizes = np.where(mask, np.rint(sizes * factor), sizes).astype(np.int64)
    return sizes
