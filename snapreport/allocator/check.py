"""The self-check: a trace replayed under its own settings must give what was recorded."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.placement import Recorded
from snapreport.allocator.replay import Replayed, replay
from snapreport.allocator.settings import TIE_BREAKS, AllocatorSettings
from snapreport.allocator.trace import ALLOC, EMPTY_CACHE, GROWS, OOM, RELEASES, RETRY, Trace
from snapreport.allocator_facts import NEW_SETTINGS, sentence
from snapreport.number_format import share_text
from snapreport.reading.recording import ACTIONS
from snapreport.timeline.lifetimes import action_codes
from snapreport.timeline.state import State


class Check(Struct, frozen=True):
    """How a trace's replay under its own settings, with recorded addresses for new segments, compares to the trace.

    settings: those of the trace, with what the comparison found out. allocations, same_allocations: those in the trace,
    and those of them at the recorded address. segment_events, same_segment_events: likewise, by event, action and
    bytes. curve_error: the greatest difference of reserved memory, as a share of its peak. reason: why it is not exact,
    in words; empty where it is.
    """

    exact: bool
    settings: AllocatorSettings
    allocations: int
    same_allocations: int
    segment_events: int
    same_segment_events: int
    curve_error: float
    reason: str = ""

    @property
    def rank(self) -> tuple[float, int]:
        """Greater is closer to the recording."""
        return -self.curve_error, self.same_allocations


def self_check(trace: Trace, start: State) -> Check:
    """Replays the trace under its own settings and compares every address, segment event and the curve."""
    refused = _not_replayable(trace)
    if refused:
        return Check(False, trace.settings, int(trace.born.sum()), 0, 0, 0, 1.0, refused)
    # The first attempt takes retries from the recording, which may not say how much memory the device had. Which of two
    # equal free blocks is used depends on the version of PyTorch, which no snapshot names; newer ones have more
    # settings.
    is_new = not NEW_SETTINGS.isdisjoint(trace.timeline.recording.settings)
    tie_breaks = TIE_BREAKS[::-1] if is_new else TIE_BREAKS
    best: Check | None = None
    for recorded_retries in (True, False):
        if not recorded_retries and trace.capacity.bytes is None:
            break
        for tie_break in tie_breaks:
            settings = replace(trace.settings, tie_break=tie_break)
            check = _compare(trace, settings, start, recorded_retries)
            if check.exact:
                return check
            if best is None or check.rank > best.rank:
                best = check
    assert best is not None
    return best


def _not_replayable(trace: Trace) -> str:
    timeline = trace.timeline
    if timeline.kind != "cuda":
        return sentence("refusals", "kind", kind=timeline.kind)
    if timeline.recording.is_profiled:
        return sentence("refusals", "profiler")
    if not trace.born.any():
        return sentence("refusals", "no_allocations")
    actions = set(timeline.events["action"].unique().to_list())
    if not actions & {"free_completed"} and int((trace.timeline.allocations["free_event"] >= 0).sum()):
        return sentence("refusals", "no_completed_frees")
    if not actions & {"segment_alloc", "segment_map"} and timeline.overflowed is None and trace.starts_empty:
        return sentence("refusals", "no_segment_events")
    return ""


def _compare(trace: Trace, settings: AllocatorSettings, start: State, recorded_retries: bool) -> Check:
    capacity = None if recorded_retries else trace.capacity.bytes
    timeline, born = trace.timeline, trace.born
    count = int(born.sum())
    try:
        done = replay(
            trace,
            settings,
            Recorded(capacity, trace.segments_at),
            start=start,
            recorded_retries=recorded_retries,
            with_addresses=True,
        )
    except (IndexError, KeyError):  # two free blocks of the model had one address
        return Check(False, settings, count, 0, 0, 0, 1.0, sentence("refusals", "overlap"))
    assert done.addresses is not None
    recorded = timeline.allocations["addr"].to_numpy().astype(np.int64)
    same = int((done.addresses[born] == recorded[born]).sum())
    want, got = _segment_events(trace, recorded_retries), Counter(done.segment_events)
    segments, both = sum(want.values()), sum((want & got).values())
    error = _curve_error(trace, done, recorded_retries)
    exact = same == count and both == segments == sum(got.values()) and error == 0
    reason = "" if exact else _reason(trace, done, count - same)
    return Check(exact, settings, count, same, segments, both, error, reason)


def _segment_events(trace: Trace, recorded_retries: bool) -> Counter[tuple[int, str, int]]:
    """The recorded segment events under the event that the replay gives them: of a growth or of a retry the request, of
    an empty_cache() its first event.
    """
    events = trace.timeline.events
    action = action_codes(events)
    owner = trace.owner.copy()
    releases = (trace.kind == EMPTY_CACHE) | (trace.kind == RETRY)
    for kind, last, first in zip(
        trace.kind[releases].tolist(), trace.item[releases].tolist(), trace.event[releases].tolist(), strict=True
    ):
        if kind == EMPTY_CACHE or recorded_retries:
            owner[first : last + 1] = first
    rows = np.flatnonzero(np.isin(action, GROWS + RELEASES))
    names = [ACTIONS[code] for code in action[rows].tolist()]
    return Counter(zip(owner[rows].tolist(), names, events["size"].to_numpy()[rows].tolist(), strict=True))


def _curve_error(trace: Trace, done: Replayed, recorded_retries: bool) -> float:
    """Compared behind each request and each release, where no segment event is pending."""
    reserved = trace.timeline.reserved
    kind, event, item = trace.kind, trace.event, trace.item
    decided = RETRY if recorded_retries else OOM
    rows = (kind == ALLOC) | (kind == EMPTY_CACHE) | (kind == decided)
    at = np.where((kind == ALLOC) | (kind == OOM), event, item)[rows]
    key = event[rows]
    value = done.reserved[np.searchsorted(done.events, key, "right") - 1]
    peak = max(int(reserved.max()), 1)
    if done.oom_event is not None:
        return 1.0
    return float(np.abs(value - reserved[at + 1]).max(initial=0) / peak)


def _reason(trace: Trace, done: Replayed, different: int) -> str:
    """The likeliest cause, most telling first."""
    timeline = trace.timeline
    expandable = timeline.segment_history["expandable"]
    if timeline.reconciliation_bytes:
        return sentence("refusals", "contradictory")
    if done.contradictions:
        return sentence("refusals", "start")
    if bool(expandable.any()) and not bool(expandable.all()):
        return sentence("refusals", "mixed")
    if trace.settings.garbage_collection_threshold:
        return sentence("refusals", "collected")
    if len(trace.pools) > 1:
        return sentence("refusals", "pools")
    if timeline.overflowed:
        return sentence("refusals", "overflowed")
    return sentence("refusals", "elsewhere", share=share_text(different, int(trace.born.sum())))
