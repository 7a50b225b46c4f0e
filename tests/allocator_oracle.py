"""What PyTorch's caching allocator reserved, computed independently: event by event, with plain lists of blocks.

Written from the allocator's rules alone, without snapreport, numpy or polars. It walks a trace that was recorded from
the start (or one whose initial state is given as segments and blocks) and stores every segment as a list of blocks,
[address, size, requested, state]; free neighbours are joined after each event. Small traces only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

MIB = 1024 * 1024
FREE, ALLOCATED, PENDING = "free", "allocated", "pending free"


@dataclass
class Segment:
    address: int
    size: int
    stream: int
    pool: Any
    expandable: bool
    blocks: list[list[Any]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.address + self.size

    def join(self) -> None:
        """Joins free neighbours."""
        joined: list[list[Any]] = []
        for block in self.blocks:
            if joined and joined[-1][3] == block[3] == FREE:
                joined[-1][1] += block[1]
            else:
                joined.append(block)
        self.blocks = joined

    def block_at(self, address: int) -> list[Any] | None:
        return next((b for b in self.blocks if b[0] == address), None)


def rounded(size: int, divisions: dict[str, int] | None = None) -> int:
    """The size of the block for a request, by torch's integer arithmetic."""
    if size < 512:
        return 512
    interval = max(0, min(15, size.bit_length() - 1 - 20))
    parts = (divisions or {}).get(str(2**interval), 0)
    if parts > 1 and size > 512 * parts:
        if size & (size - 1) == 0:
            return size
        step = (1 << (size.bit_length() - 1)) >> (parts.bit_length() - 1)
        floor = size & ~(step - 1)
        return size if floor == size else floor + step
    return (size + 511) // 512 * 512


class Replay:
    """The allocator's memory; ``step`` applies one trace entry. ``born`` has (event, address, block bytes) of every
    alloc.
    """

    def __init__(self, settings: dict[str, Any] | None = None) -> None:
        settings = settings or {}
        self.divisions = settings.get("roundup_power2_divisions") or {}
        limit = settings.get("max_split_size", -1)
        self.max_split = limit if limit > 0 else 2**63
        self.expandable = settings.get("expandable_segments", False)
        self.segments: list[Segment] = []
        self.born: list[tuple[int, int, int]] = []
        self.count = 0

    def holder(self, address: int) -> Segment:
        return next(s for s in self.segments if s.address <= address < s.end)

    def step(self, event: dict[str, Any]) -> None:
        getattr(self, f"on_{event['action']}", lambda e: None)(event)
        for segment in self.segments:
            segment.join()
        self.count += 1

    def on_segment_alloc(self, e: dict[str, Any]) -> None:
        block = [e["addr"], e["size"], 0, FREE]
        self.segments.append(Segment(e["addr"], e["size"], e["stream"], e.get("pool_id"), False, [block]))

    def on_segment_free(self, e: dict[str, Any]) -> None:
        segment = self.holder(e["addr"])
        assert (segment.address, segment.size) == (e["addr"], e["size"]), "given back whole"
        assert [b[3] for b in segment.blocks] == [FREE], "given back with something in it"
        self.segments.remove(segment)

    def on_segment_map(self, e: dict[str, Any]) -> None:
        new = Segment(e["addr"], e["size"], e["stream"], e.get("pool_id"), True, [[e["addr"], e["size"], 0, FREE]])
        for other in [s for s in self.segments if s.expandable and (s.stream, s.pool) == (new.stream, new.pool)]:
            if other.end == new.address or new.end == other.address:
                self.segments.remove(other)
                new.blocks = sorted(other.blocks + new.blocks)
                new.address, new.size = min(other.address, new.address), other.size + new.size
        self.segments.append(new)

    def on_segment_unmap(self, e: dict[str, Any]) -> None:
        segment = self.holder(e["addr"])
        start, end = e["addr"], e["addr"] + e["size"]
        self.segments.remove(segment)
        sides: list[list[list[Any]]] = [[], []]
        for address, size, requested, state in segment.blocks:
            if address < start:
                sides[0].append([address, min(size, start - address), requested, state])
            if address + size > end:
                sides[1].append([max(address, end), address + size - max(address, end), requested, state])
            assert state == FREE or address + size <= start or address >= end, "unmapped under a block"
        for blocks in sides:
            if blocks:
                size = sum(b[1] for b in blocks)
                self.segments.append(Segment(blocks[0][0], size, segment.stream, segment.pool, True, blocks))

    def on_alloc(self, e: dict[str, Any]) -> None:
        segment = self.holder(e["addr"])
        block = segment.block_at(e["addr"])
        assert block is not None and block[3] == FREE, "handed out of the middle of something"
        size = rounded(e["size"], self.divisions)
        left = block[1] - size
        assert left >= 0, "handed out more than there is"
        if size <= MIB or segment.expandable or self.expandable:
            split = left >= 512
        else:
            split = left > MIB and size < self.max_split
        if split:
            segment.blocks.append([e["addr"] + size, left, 0, FREE])
            block[1] = size
        block[2:] = [e["size"], ALLOCATED]
        segment.blocks.sort()
        self.born.append((self.count, e["addr"], block[1]))

    def on_free_requested(self, e: dict[str, Any]) -> None:
        block = self.holder(e["addr"]).block_at(e["addr"])
        assert block is not None
        block[3] = PENDING

    def on_free_completed(self, e: dict[str, Any]) -> None:
        block = self.holder(e["addr"]).block_at(e["addr"])
        assert block is not None
        block[2:] = [0, FREE]

    def state(self) -> list[Segment]:
        copies = [replace(segment, blocks=[list(block) for block in segment.blocks]) for segment in self.segments]
        return sorted(copies, key=lambda s: s.address)

    def parts(self) -> tuple[int, int, int]:
        """(rounding, holes beside blocks in use, unused segments) in bytes."""
        rounding = sum(b[1] - b[2] for s in self.segments for b in s.blocks if b[3] != FREE)
        whole = sum(s.size for s in self.segments if all(b[3] == FREE for b in s.blocks))
        free = sum(b[1] for s in self.segments for b in s.blocks if b[3] == FREE)
        return rounding, free - whole, whole


def states(
    events: list[dict[str, Any]], settings: dict[str, Any] | None
) -> tuple[Replay, list[list[Segment]], list[tuple[int, int, int]]]:
    """(the replay at its end, segments at every position from -1 on, parts of fragmentation at every position)."""
    replay = Replay(settings)
    found, parts = [replay.state()], [replay.parts()]
    for event in events:
        replay.step(event)
        found.append(replay.state())
        parts.append(replay.parts())
    return replay, found, parts
