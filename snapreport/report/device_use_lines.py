"""The memory in use on a device, of all processes, as lines of "About this recording"."""

from __future__ import annotations

from msgspec import UNSET

from snapreport.contracts.stats import DeviceUseChange
from snapreport.findings.oom_sentences import OUTSIDE
from snapreport.number_format import bytes_text, plural
from snapreport.sentence import bytes_part, code_part, device_part, listed, sentence
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.device_use import device_use

MOST_CHANGES = 6
_SOURCES = {"nvml": "NVML", "mem_get_info": "`mem_get_info`"}


def device_use_lines(timeline: DeviceTimeline) -> list[str]:
    """The most in use and its parts, and what took memory outside PyTorch's allocator; without samples what was in use
    at the end; empty where the recorder noted neither.
    """
    use = device_use(timeline)
    if use is UNSET:
        return _at_the_end(timeline)
    parts = [sentence("{} reserved by PyTorch", bytes_part(use.reserved_bytes))]
    if use.other_processes_bytes is None:
        parts.append(sentence("{} outside its allocator, of this process and others", bytes_part(use.outside_bytes)))
    else:
        parts.append(sentence("{} of this process outside its allocator", bytes_part(use.outside_bytes)))
        parts.append(sentence("{} of other processes", bytes_part(use.other_processes_bytes)))
    lines: list[str] = [
        sentence(
            "At most {} of {} were in use on {device}: {parts} ({samples}, {source}).",
            bytes_part(use.peak_used_bytes),
            bytes_part(use.total_bytes),
            device=device_part(timeline.kind, timeline.device),
            parts=listed(parts),
            samples=plural(use.samples, "sample"),
            source=_SOURCES[use.source],
        )
    ]
    if use.changes:
        more = len(use.changes) - MOST_CHANGES
        each = [_change(one) for one in use.changes[:MOST_CHANGES]]
        tail = [plural(more, "smaller change")] if more > 0 else []
        lines.append(sentence("Changes outside PyTorch's allocator: {each}.", each=listed([*each, *tail])))
    return lines


def _change(change: DeviceUseChange) -> str:
    size = bytes_part(abs(change.bytes))
    text = sentence("{cause} {sign}{}", size, cause=change.cause, sign="+" if change.bytes > 0 else "−")
    return sentence("{text} in {line}", text=text, line=code_part(change.line)) if change.line else text


def _at_the_end(timeline: DeviceTimeline) -> list[str]:
    recorder = timeline.recording.recorder
    if recorder is None or timeline.device not in recorder.memory_at_dump:
        return []
    free, total = recorder.memory_at_dump[timeline.device]
    allocated, reserved = int(timeline.allocated[-1]), int(timeline.reserved[-1])
    outside = total - free - reserved
    if outside < 0:  # an allocator that reserves less than it maps, or a device that others resized
        return []
    return [
        f"Of {bytes_text(total)} on the device at the end, {bytes_text(allocated)} were allocated, "
        f"{bytes_text(reserved - allocated)} reserved but not allocated, {bytes_text(free)} free. "
        f"{bytes_text(outside)} were outside PyTorch's caching allocator: {OUTSIDE}."
    ]
