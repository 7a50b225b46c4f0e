"""Segments and blocks at any moment, computed independently from the raw events: one walk gives every block its size;
for a moment, everything is searched.

Built on :mod:`oracle`, and like it without snapreport. The rules are those of PyTorch's caching allocator: a request is
rounded up to 512 bytes; the block includes the rest of the free range it is cut from where that is not split off (large
blocks outside expandable segments: a remainder of at most 1 MiB); free neighbours form one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import Any

import oracle

MIB = 1 << 20
# Address, bytes, allocation id or -1 for free, pending free.
Range = tuple[int, int, int, bool]


@dataclass(frozen=True)
class Segment:
    """A segment, or a contiguous mapped range of an expandable one."""

    start: int
    end: int
    stream: int
    expandable: bool


@dataclass
class Moment:
    """Segments by address, each with its ranges; ``outside``: live blocks in no segment. The rest are bytes."""

    segments: list[tuple[Segment, list[Range]]]
    outside: list[Range]
    rounding: int
    split: int
    free_segments: int
    largest_free: int


def segments_by_position(device: oracle.Device) -> list[list[Segment]]:
    """The segments at every position, computed backwards from the final ones; entry i + 1 is position i."""
    now = [
        Segment(s["address"], s["address"] + s["total_size"], s.get("stream", 0), bool(s.get("is_expandable")))
        for s in device.segments
        if s["total_size"]
    ]
    states = [now]
    for event in reversed(device.events):
        action, start, end = event["action"], event.get("addr", 0), event.get("addr", 0) + event.get("size", 0)
        if action == "segment_alloc":
            now = [s for s in now if s.expandable or s.start != start]
        elif action == "segment_free":
            now = [*now, Segment(start, end, event["stream"], False)]
        elif action == "segment_map":
            cut = []
            for s in now:
                if not s.expandable or s.end <= start or s.start >= end:
                    cut.append(s)
                    continue
                pieces = [Segment(s.start, start, s.stream, True), Segment(end, s.end, s.stream, True)]
                cut += [piece for piece in pieces if piece.start < piece.end]
            now = cut
        elif action == "segment_unmap":
            touching = [
                s for s in now if s.expandable and s.start <= end and s.end >= start and s.stream == event["stream"]
            ]
            low, high = min([start, *(s.start for s in touching)]), max([end, *(s.end for s in touching)])
            now = [s for s in now if s not in touching] + [Segment(low, high, event["stream"], True)]
        states.append(now)
    return states[::-1]


def rounded(size: int) -> int:
    """A request rounded up, without roundup_power2_divisions, which no snapshot here uses."""
    return max(512, -(-size // 512) * 512)


class Blocks:
    """The blocks of one device's allocations. ``expandable``: the allocator's setting; ``max_split``: bytes or None."""

    def __init__(self, device: oracle.Device, settings: dict[str, Any] | None) -> None:
        self.device = device
        self.segments = segments_by_position(device)
        settings = settings or {}
        limit = settings.get("max_split_size", -1)
        self.max_split = limit if 0 < limit < 1 << 62 else None
        self.expandable = bool(settings.get("expandable_segments"))
        self.sizes = self._walk()

    def _walk(self) -> list[int]:
        """Replays once, in order: the block of each allocation is cut when it is born, from what is free then."""
        allocations, events = self.device.allocations, self.device.events
        sizes = [0] * len(allocations)
        born: dict[int, list[int]] = {}
        gone: dict[int, list[int]] = {}
        for i, a in enumerate(allocations):
            born.setdefault(a.alloc_event, []).append(i)
            gone.setdefault(a.free_event if a.free_event >= 0 else len(events), []).append(i)
        live: list[int] = []
        for position in range(-1, len(events)):
            for i in gone.get(position, ()):
                live.remove(allocations[i].addr)
            for i in born.get(position, ()):
                insort(live, allocations[i].addr)
            for i in born.get(position, ()):
                sizes[i] = self._size(i, live)
        return sizes

    def _holder(self, addr: int, position: int) -> Segment | None:
        return next((s for s in self.segments[position + 1] if s.start <= addr < s.end), None)

    def _size(self, number: int, live: list[int]) -> int:
        """Bytes of a block when it is born; ``live``: ascending addresses of all blocks alive then."""
        a = self.device.allocations[number]
        size, born = rounded(a.size), a.alloc_event
        holder = self._holder(a.addr, born)
        if holder is None:
            return 1 << max(a.size - 1, 0).bit_length() if self.device.device == oracle.HOST else size
        if self.device.device == oracle.HOST:
            return holder.end - a.addr
        if size <= MIB or self.expandable or holder.expandable:
            return size
        behind = a.addr + size
        above = live[bisect_right(live, a.addr) :][:1]
        left = min([holder.end, *above]) - behind
        if left > 0 and (left <= MIB or (self.max_split is not None and size >= self.max_split)):
            return size + left
        if born < 0 and left > 0:
            # Cut from its range before the trace: the first allocation directly behind it shows where it ended.
            gone = a.free_event if a.free_event >= 0 else len(self.device.events)
            later = [
                b.addr
                for b in self.device.allocations
                if 0 <= b.alloc_event < gone and behind <= b.addr <= behind + MIB
            ]
            return min(later, default=behind) - a.addr
        return size

    def at(self, position: int) -> Moment:
        """Everything at a position (-1: before the first event)."""
        live = sorted((self.device.allocations[i].addr, i) for i in self.device.live_at(position))
        addresses = [addr for addr, _ in live]
        moment = Moment([], [], 0, 0, 0, 0)
        ranges_of = {i: self._range(i, position) for _, i in live}
        for segment in sorted(self.segments[position + 1], key=lambda s: s.start):
            inside = live[bisect_left(addresses, segment.start) : bisect_left(addresses, segment.end)]
            ranges: list[Range] = []
            cursor = segment.start
            for addr, i in inside:
                if addr > cursor:
                    ranges.append((cursor, addr - cursor, -1, False))
                ranges.append(ranges_of.pop(i))
                cursor = max(cursor, addr + self.sizes[i])
            if cursor < segment.end:
                ranges.append((cursor, segment.end - cursor, -1, False))
            free = [size for _, size, i, _ in ranges if i < 0]
            moment.largest_free = max([moment.largest_free, *free])
            if inside:
                moment.split += sum(free)
            else:
                moment.free_segments += segment.end - segment.start
            moment.segments.append((segment, ranges))
        moment.rounding = sum(self.sizes[i] - self.device.allocations[i].size for _, i in live)
        moment.outside = list(ranges_of.values())
        return moment

    def _range(self, number: int, position: int) -> Range:
        a = self.device.allocations[number]
        return a.addr, self.sizes[number], number, 0 <= a.free_requested_event <= position
