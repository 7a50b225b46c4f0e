"""Whether the trace of a device is complete, and the evidence if not.

The recorder rarely reports missing entries. But an incomplete trace contradicts itself or the final state: blocks are
freed that were never allocated, an address is allocated twice, the totals do not add up, or more is reserved at the
start than the trace ever fills. Sizes from such a trace are lower bounds, never measurements.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.number_format import bytes_text, count_text, plural
from snapreport.sentence import sentence
from snapreport.timeline.interface import Timeline
from snapreport.timeline.lifetimes import IS_TRACED, allocates
from snapreport.timeline.neighbours import Lifetimes, ends_of
from snapreport.timeline.recorded_totals import RecordedPeaks, recorded_peaks

MAX_ENTRIES = "trace_alloc_max_entries"
START_EARLY = "Start recording before the model is built."
_RECORD = sentence("Call `torch.cuda.memory._record_memory_history()` before the model is built.")
_LARGER_RING = "Record with a larger max_entries."
_EARLIER_SHARE = 0.25
"""Minimum share of the memory reserved at the start that the trace never fills, which shows an earlier peak."""
_EARLIER_BYTES = 64 << 20


class Gap(Struct, frozen=True):
    """``key``: a name for programs; ``sentence``: what is missing, and the evidence; ``remedy``: how to record it next
    time, "" if there is none.
    """

    key: str
    sentence: str
    remedy: str = ""


def has_history(timeline: Timeline) -> bool:
    """Whether the trace shows any allocation or free."""
    # In birth order, blocks of the final state come first, so the last allocation decides.
    return bool(len(timeline.allocations)) and timeline.allocations["origin"][-1] != "ghost"


def find_gaps(timeline: Timeline) -> list[Gap]:
    """What is missing from the record, the clearest evidence first; empty if there is no evidence.

    A recording that starts late is not a gap by itself: everything since its start is recorded.
    """
    part = timeline.recording.devices[timeline.device].part
    if timeline.recording.is_profiled:
        return [gap for gap in (_missing_frees(timeline), _other_total(timeline)) if gap]
    if not has_history(timeline):
        return [Gap("no history", "Recorded without history: only the final state is known.", _RECORD)]
    found = [_ring(timeline), _missing_allocations(timeline), _missing_frees(timeline)]
    if not (part and part.first):
        found.append(_earlier_peak(timeline))
    if difference := timeline.reconciliation_bytes:
        more = "more" if difference > 0 else "less"
        text = f"The replay ends with {bytes_text(abs(difference))} {more} than the final blocks: events are missing."
        found.append(Gap("final state", text))
    if (timeline.allocated > timeline.reserved).any():
        text = "At some events more is allocated than reserved, which is impossible: the record contradicts itself."
        found.append(Gap("contradiction", text))
    return [gap for gap in found if gap]


def _other_total(timeline: Timeline) -> Gap | None:
    """A difference between the profiler's total and that of its events."""
    counted = timeline.recording.devices[timeline.device].counted_allocated
    if counted is None:
        return None
    apart = int(np.abs(timeline.allocated[1:] - counted).max(initial=0))
    if not apart:
        return None
    text = f"The profiler's own total differs by up to {bytes_text(apart)} from its events: some are missing."
    return Gap("profiler total", text, "Profile the program in one process, from before its first allocation.")


def _ring(timeline: Timeline) -> Gap | None:
    if timeline.overflowed:
        return Gap("overflowed", "The trace overflowed: its oldest events are lost.", _LARGER_RING)
    if timeline.overflowed is False:
        return None
    part = timeline.recording.devices[timeline.device].part
    events, limit = part.whole if part else len(timeline.events), _limit(timeline)
    is_full = events >= limit if limit else _is_round(events) and bool(timeline.reserved[0])
    if not is_full:
        return None
    what = "which is the recorder's limit" if limit else "which is probably the recorder's limit"
    text = f"The trace has exactly {count_text(events)} events, {what}: older ones are lost (inferred)."
    return Gap("full", text, _LARGER_RING)


def _limit(timeline: Timeline) -> int:
    """The most events that the recorder kept; 0 if unknown."""
    setting = timeline.recording.settings.get(MAX_ENTRIES)
    if isinstance(setting, int) and not isinstance(setting, bool) and setting > 0:
        return setting
    own = timeline.recording.recorder
    option = own.options.get("max_entries", "") if own else ""
    return int(option) if option.isdecimal() else 0


def _is_round(events: int) -> bool:
    """Whether it is a limit that people set: 300, 1,000, 25,000, 65,536. A program has one of these by chance in one of
    1,000 cases.
    """
    if events < 100:
        return False
    digits = str(events).rstrip("0")
    is_decimal = len(digits) == 1 or digits in ("15", "25", "75")
    return (is_decimal and events % 100 == 0) or (events >= 1024 and events & (events - 1) == 0)


def lost_events(timeline: Timeline) -> bool:
    """Whether the trace began earlier than its first event: its oldest events are lost, or this is a later part."""
    part = timeline.recording.devices[timeline.device].part
    return bool(part and part.first) or _ring(timeline) is not None


def recording_start(timeline: Timeline) -> str:
    """Before what memory from before the trace was allocated."""
    return "before the first event" if lost_events(timeline) else "before recording started"


def recording_end(timeline: Timeline) -> str:
    """What the last event is: "when recording stopped", or the end of a part of the trace."""
    part = timeline.recording.devices[timeline.device].part
    return "at the end of this part" if part and part.end < part.whole else "when recording stopped"


def counted_peaks(timeline: Timeline) -> RecordedPeaks | None:
    """What the recorder noted, where the record has gaps: the peaks of the process, which it may not show."""
    return recorded_peaks(timeline) if find_gaps(timeline) else None


def lost_peaks(timeline: Timeline) -> RecordedPeaks | None:
    """What the recorder noted, where the trace lost its oldest events and has no such peak in what is left. None of a
    part of a trace, which has a peak of its own.
    """
    is_part = timeline.recording.devices[timeline.device].part is not None
    counted = recorded_peaks(timeline) if not is_part and _ring(timeline) else None
    return counted if counted and counted.allocated > timeline.peak_bytes else None


def _missing_allocations(timeline: Timeline) -> Gap | None:
    """Blocks that count as older than the trace, in a segment that the trace created."""
    older = timeline.allocations.filter(~IS_TRACED)
    segments = timeline.segment_history
    if not len(segments):
        return None
    lookup = Lifetimes(*(segments[name].to_numpy() for name in ("address", "alloc_event", "free_event")))
    ends = ends_of(segments["address"].to_numpy(), segments["size"].to_numpy())
    address, freed = older["addr"].to_numpy(), older["free_event"].to_numpy()

    def covered(position: np.ndarray) -> np.ndarray:
        row = lookup.last_to(address, position)
        inside: np.ndarray = (row >= 0) & (address < ends[row])
        return inside

    last = np.where(freed < 0, len(timeline.events) - 1, freed - 1)
    unborn = covered(last) & ~covered(np.full(len(older), -1))
    if not unborn.any():
        return None
    size = bytes_text(int(older["size"].to_numpy()[unborn].sum()))
    return Gap("allocations", f"{plural(int(unborn.sum()), 'allocation')} of {size} in all are missing from the trace.")


def _missing_frees(timeline: Timeline) -> Gap | None:
    """Allocations at an address that was still in use."""
    freed = timeline.allocations["free_event"].to_numpy()
    reused = int(allocates(timeline.events)[freed[freed >= 0]].sum())
    return Gap("frees", f"{plural(reused, 'free')} missing from the trace: addresses were reused.") if reused else None


def shows_earlier_peak(reserved_start: int, peak: int) -> bool:
    """Whether so much was reserved when recording started (bytes) that more than ``peak`` (bytes) was once allocated:
    the program did other work before the trace.
    """
    return reserved_start - peak >= max(_EARLIER_BYTES, _EARLIER_SHARE * reserved_start)


def _earlier_peak(timeline: Timeline) -> Gap | None:
    start, peak = int(timeline.reserved[0]), timeline.peak_bytes
    recorded = recorded_peaks(timeline)
    if recorded and recorded.allocated == peak:  # reserved by other means, as by a private pool
        return None
    if not shows_earlier_peak(start, peak):
        return None
    return Gap(
        "earlier peak",
        f"{bytes_text(start)} were already reserved when recording started, but the trace never has more than "
        f"{bytes_text(peak)} allocated: an earlier peak was probably higher.",
        "" if _ring(timeline) else START_EARLY,
    )
