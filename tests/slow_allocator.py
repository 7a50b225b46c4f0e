"""PyTorch's caching allocator implemented a second time, without any of snapreport's code, numpy or polars.

Every segment is a plain list of ranges [start, bytes, state], every search looks at all of them, and nothing is sorted
in advance. It follows the source text of c10/cuda/CUDACachingAllocator.cpp. Small programs only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
FREE, USED, UNMAPPED = "free", "used", "unmapped"


@dataclass
class Range:
    start: int
    size: int
    state: str
    freed_at: int = 0
    number: int = 0


@dataclass
class Segment:
    start: int
    small: bool
    pool: Any
    stream: int
    growing: bool
    number: int
    ranges: list[Range] = field(default_factory=list)

    def join(self, number: int = -1) -> None:
        """Joins neighbours that are both free or both unmapped; the block with this number absorbs others."""
        at = 0
        while at + 1 < len(self.ranges):
            one, two = self.ranges[at], self.ranges[at + 1]
            if one.state == two.state != USED:
                one.size += two.size
                one.freed_at = max(one.freed_at, two.freed_at)
                one.number = number if two.number == number else one.number
                del self.ranges[at + 1]
            else:
                at += 1

    def replace(self, old: Range, *new: Range) -> None:
        at = self.ranges.index(old)
        self.ranges[at : at + 1] = [r for r in new if r.size]


def rounded(size: int, divisions: list[int]) -> int:
    if size < 512:
        return 512
    parts = divisions[max(0, min(15, int(math.log2(size)) - 20))]
    if parts > 1 and size > 512 * parts:
        step = 2 ** int(math.log2(size)) // parts
        return math.ceil(size / step) * step
    return math.ceil(size / 512) * 512


class SlowAllocator:
    """``addresses``: where the next segment goes, called with its bytes. ``events``: (action, bytes) of segments."""

    def __init__(
        self,
        addresses: Any,
        capacity: int,
        total: int,
        *,
        expandable: bool,
        max_split: int | None,
        rounding: int,
        divisions: list[int],
        threshold: float,
        limit: int | None,
        tie_break: str,
        large_segment: int = 20 * MIB,
    ) -> None:
        self.addresses, self.capacity, self.total = addresses, capacity, total
        self.expandable, self.max_split, self.rounding = expandable, max_split, rounding
        self.divisions, self.threshold, self.limit, self.tie_break = divisions, threshold, limit, tie_break
        self.large_segment = large_segment
        self.segments: list[Segment] = []
        self.events: list[tuple[str, int]] = []
        self.count = self.peak = self.retries = self.blocks = 0
        self.asked: dict[tuple[Any, bool], int] = {}

    @property
    def reserved(self) -> int:
        return sum(r.size for s in self.segments for r in s.ranges if r.state != UNMAPPED)

    def note(self, action: str, size: int) -> None:
        self.events.append((action, size))
        self.peak = max(self.peak, self.reserved)

    def malloc(self, size: int, stream: int, pool: Any) -> int | None:
        need = rounded(size, self.divisions)
        small = need <= MIB
        collecting = self.limit is not None and self.threshold > 0
        if collecting:
            self.asked[pool, small] = self.asked.get((pool, small), 0) + 1
        found = self.best(need, stream, pool, small)
        if found is None:
            if collecting:
                self.collect()
            found = self.new(need, stream, pool, small)
        if found is None and self.release_oversize(need, stream, pool, small):
            found = self.new(need, stream, pool, small)
        if found is None:
            self.empty_cache()
            self.retries += 1
            found = self.new(need, stream, pool, small)
        if found is None:
            return None
        segment, block = found
        rest = block.size - need
        if small or self.expandable:
            cut = rest >= 512
        else:
            cut = rest > MIB and (self.max_split is None or need < self.max_split)
        if cut:
            now = self.asked.get((pool, small), 0)
            used = Range(block.start, need, USED, number=self.new_number())
            segment.replace(block, used, Range(block.start + need, rest, FREE, now, block.number))
        else:
            block.state = USED
        return block.start

    def free(self, start: int) -> None:
        for segment in self.segments:
            for block in segment.ranges:
                if block.start == start and block.state == USED:
                    block.state = FREE
                    for other in segment.ranges:
                        if other.state == FREE and (other is block):
                            other.freed_at = self.asked.get((segment.pool, segment.small), 0)
                    segment.join(block.number)
                    return
        raise AssertionError("no such block")

    def candidates(self, need: int, stream: int, pool: Any, small: bool) -> list[tuple[Segment, Range]]:
        found = [
            (s, r)
            for s in self.segments
            if (s.pool, s.stream, s.small) == (pool, stream, small)
            for r in s.ranges
            if r.state == FREE and r.size >= need
        ]
        ranks = {"address": lambda f: 0, "segment": lambda f: f[0].number, "block": lambda f: f[1].number}
        return sorted(found, key=lambda f: (f[1].size, ranks[self.tie_break](f), f[1].start))

    def new_number(self) -> int:
        self.blocks += 1
        return self.blocks

    def best(self, need: int, stream: int, pool: Any, small: bool) -> tuple[Segment, Range] | None:
        found = self.candidates(need, stream, pool, small)
        if not found:
            return None
        at = 0
        if self.expandable:

            def reach(item: tuple[Segment, Range]) -> int:
                segment, block = item
                after = segment.ranges[segment.ranges.index(block) + 1 :]
                return block.size + (after[0].size if after and after[0].state == UNMAPPED else 0)

            while found[at][0].growing and at + 1 < len(found) and reach(found[at + 1]) < reach(found[at]):
                at += 1
        segment, block = found[at]
        if self.max_split is not None:
            if need < self.max_split <= block.size:
                return None
            if need >= self.max_split and block.size >= need + self.rounding:
                return None
        return segment, block

    def new(self, need: int, stream: int, pool: Any, small: bool) -> tuple[Segment, Range] | None:
        if need <= MIB:
            length = 2 * MIB
        elif need < 10 * MIB:
            length = self.large_segment
        else:
            length = math.ceil(need / (2 * MIB)) * 2 * MIB
        if self.limit is not None and self.reserved + length > self.limit:
            return None
        if self.expandable:
            return self.grow(need, stream, pool, small)
        if self.reserved + length > self.capacity:
            return None
        segment = Segment(self.addresses(length), small, pool, stream, False, self.count)
        self.count += 1
        block = Range(segment.start, length, FREE, number=self.new_number())
        segment.ranges.append(block)
        self.segments.append(segment)
        self.note("segment_alloc", length)
        return segment, block

    def grow(self, need: int, stream: int, pool: Any, small: bool) -> tuple[Segment, Range] | None:
        granule = 2 * MIB if small else self.large_segment
        own = [s for s in self.segments if s.growing and (s.pool, s.stream, s.small) == (pool, stream, small)]
        for segment in sorted(own, key=lambda s: s.start):
            for at, block in enumerate(segment.ranges):
                if block.state != UNMAPPED:
                    continue
                first = at - 1 if at and segment.ranges[at - 1].state == FREE else at
                room = 0
                for other in segment.ranges[first:]:
                    if other.state == USED or room >= need:
                        break
                    room += other.size
                if room >= need:
                    return self.map(segment, segment.ranges[first].start, need, granule)
        length = math.ceil((self.total + self.total // 8) / granule) * granule
        segment = Segment(self.addresses(length), small, pool, stream, True, self.count)
        self.count += 1
        segment.ranges.append(Range(segment.start, length, UNMAPPED, number=self.new_number()))
        self.segments.append(segment)
        return self.map(segment, segment.start, need, granule)

    def map(self, segment: Segment, start: int, need: int, granule: int) -> tuple[Segment, Range] | None:
        while True:
            block = next(r for r in segment.ranges if r.start <= start < r.start + r.size)
            if block.state == FREE and block.size >= need:
                return segment, block
            unmapped = block
            if block.state == FREE:
                unmapped = segment.ranges[segment.ranges.index(block) + 1]
            missing = need - (block.size if block.state == FREE else 0)
            end = unmapped.start + min(missing, unmapped.size)
            end = segment.start + math.ceil((end - segment.start) / granule) * granule
            length = end - unmapped.start
            if self.reserved + length > self.capacity:
                return None
            now = self.asked.get((segment.pool, segment.small), 0)
            rest = Range(end, unmapped.size - length, UNMAPPED, number=self.new_number())
            segment.replace(unmapped, Range(unmapped.start, length, FREE, now, unmapped.number), rest)
            segment.join(unmapped.number)
            self.note("segment_map", length)

    def release_oversize(self, need: int, stream: int, pool: Any, small: bool) -> bool:
        if self.max_split is None or self.expandable:
            return False
        want = max(need, self.max_split)
        fitting = self.candidates(want, stream, pool, small)
        if fitting:
            self.release(fitting[0][0])
            return True
        released = 0
        for segment, block in reversed(self.candidates(0, stream, pool, small)):
            if released >= want or block.size < self.max_split:
                break
            released += block.size
            self.release(segment)
        return released >= want

    def release(self, segment: Segment) -> None:
        assert [r.state for r in segment.ranges] == [FREE], "only unused segments are freed"
        self.segments.remove(segment)
        self.note("segment_free", segment.ranges[0].size)

    def empty_cache(self) -> None:
        for small in (False, True):
            mine = [s for s in self.segments if s.pool is None and s.small == small]
            for segment in mine:
                if not segment.growing and [r.state for r in segment.ranges] == [FREE]:
                    self.release(segment)
            for segment in mine:
                if segment.growing:
                    unmapped = [self.unmap(segment, block) for block in segment.ranges[:] if block.state == FREE]
                    if any(unmapped) and [r.state for r in segment.ranges] == [UNMAPPED]:
                        self.segments.remove(segment)

    def unmap(self, segment: Segment, block: Range) -> bool:
        granule = 2 * MIB if segment.small else self.large_segment
        start = segment.start + math.ceil((block.start - segment.start) / granule) * granule
        end = segment.start + (block.start + block.size - segment.start) // granule * granule
        if start >= end:
            return False
        segment.replace(
            block,
            Range(block.start, start - block.start, FREE, block.freed_at, self.new_number()),
            Range(start, end - start, UNMAPPED, number=block.number),
            Range(end, block.start + block.size - end, FREE, block.freed_at, self.new_number()),
        )
        segment.join(block.number)
        self.note("segment_unmap", end - start)
        return True

    def collect(self) -> None:
        assert self.limit is not None
        threshold = int(self.threshold * self.limit)
        target = self.reserved - threshold
        if target <= 0:
            return
        now = self.asked.get((None, False), 0)
        own = [s for s in self.segments if s.pool is None and not s.small and not s.growing]
        unused = [s for s in own if [r.state for r in s.ranges] == [FREE]]
        ages = {s.start: now - s.ranges[0].freed_at for s in unused}
        got, found = 0, True
        while got < target and found and ages:
            average, found = sum(ages.values()) / len(ages), False
            for segment in [s for s in unused if s.start in ages]:
                if ages[segment.start] >= average:
                    found = True
                    got += segment.ranges[0].size
                    del ages[segment.start]
                    self.release(segment)
