"""The blocks of a sample's allocator, with the fields that the recorder writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapreport.allocator import blocks

if TYPE_CHECKING:
    from generator.recorder import Frames


class Block(blocks.Block):
    """A block with its request, its stack trace and the streams that delay its free.

    `requested` does not change when a block is freed: torch also reports that stale number for inactive blocks. `uses`
    are the other streams that used it (record_stream), `events` the number of those still outstanding.
    """

    __slots__ = ("allocated", "events", "frames", "requested", "uses")

    def __init__(self, address: int, size: int, pool: blocks.BlockPool, stream: int) -> None:
        super().__init__(address, size, pool, stream)
        self.requested = 0
        self.allocated = False
        self.uses: set[int] | None = None
        self.events = 0
        self.frames: Frames | None = None
