"""The blocks of a sample's allocator: with what the recorder writes of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapreport.allocator import blocks

if TYPE_CHECKING:
    from snapreport.samples.recorder import Frames


class Block(blocks.Block):
    """A block with its request, its stack trace and the streams that delay its free.

    `requested` stays what it was when a block is freed: torch reports that stale number for inactive blocks too.
    `uses` are the other streams that used it (record_stream), `events` how many of those are still outstanding.
    """

    __slots__ = ("allocated", "events", "frames", "requested", "uses")

    def __init__(self, address: int, size: int, pool: blocks.BlockPool, stream: int) -> None:
        super().__init__(address, size, pool, stream)
        self.requested = 0
        self.allocated = False
        self.uses: set[int] | None = None
        self.events = 0
        self.frames: Frames | None = None
