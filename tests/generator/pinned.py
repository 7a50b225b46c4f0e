"""Pinned host memory: the `host_traces` and `host_segments` of PyTorch's CachingHostAllocator.

aten/src/ATen/core/CachingHostAllocator.h: sizes are rounded up to a power of two, each block is a segment, and a freed
block waits for the streams that copied from it before it can be reused.
"""

from __future__ import annotations

import random
from typing import Any

from generator.options import Options
from generator.recorder import ALLOC, FREE_COMPLETED, FREE_REQUESTED, Frames, Recorder
from generator.stacks import APP, TORCH, StackBook
from snapreport.allocator.model import SEGMENT_ALLOC

HOST_DEVICE = -1
HOST_BASE = 0x7F10_0000_0000
PREFETCH = 3
"""Batches that the loader has at a time."""


class PinnedMemory:
    """The pinned batches of a data loader: `run` traces as many steps as the devices ran."""

    def __init__(self, options: Options, start_us: int, book: StackBook) -> None:
        self.options = options
        self.recorder = Recorder(start_us, random.Random(options.seed * 1009 - 1), options.max_entries)
        load = book.program(APP + "train.py", 214).call(TORCH + "utils/data/dataloader.py", 733, "__next__")
        pin = load.call(TORCH + "utils/data/_utils/pin_memory.py", 70, "pin_memory")
        self._pin, self._drop = pin.stack("aten::pin_memory"), load.release()
        self._segments: list[dict[str, Any]] = []
        self._next = HOST_BASE

    def run(self, steps: int) -> None:
        """Load `steps` batches; the last ones are not freed."""
        held: list[dict[str, Any]] = []
        for _ in range(steps):
            self.recorder.now_us += 12_000
            if len(held) == PREFETCH:
                self._free(held.pop(0))
            held.append(self._alloc(2 * self.options.batch * self.options.sequence * 8 - 24))

    def segments(self) -> list[dict[str, Any]]:
        """host_segments: one block each."""
        result = []
        for block in self._segments:
            used = block["requested_size"] if block["state"] == "active_allocated" else 0
            size = block["size"] if used else 0
            result.append(
                {
                    "device": HOST_DEVICE, "address": block["address"], "total_size": block["size"],
                    "allocated_size": size, "active_size": size, "requested_size": used, "stream": 0,
                    "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                    "blocks": [block],
                }
            )  # fmt: skip
        return result

    def _alloc(self, requested: int) -> dict[str, Any]:
        size = 1 << (requested - 1).bit_length()
        block = next((one for one in self._segments if one["state"] == "inactive" and one["size"] == size), None)
        stack = self._kept(self._pin)
        if block is None:
            block = {"address": self._next, "size": size}
            self._next += size
            self._segments.append(block)
            self.recorder.record(SEGMENT_ALLOC, block["address"], size, 0, (0, 0), stack)
        block |= {"requested_size": requested, "state": "active_allocated", "frames": stack or []}
        self.recorder.record(ALLOC, block["address"], requested, 0, (0, 0), stack)
        return block

    def _free(self, block: dict[str, Any]) -> None:
        stack = self._kept(self._drop)
        for action in (FREE_REQUESTED, FREE_COMPLETED):
            self.recorder.record(action, block["address"], block["requested_size"], 0, (0, 0), stack)
        block |= {"state": "inactive", "frames": []}

    def _kept(self, stack: Frames) -> Frames | None:
        return None if self.options.context == "none" else stack.copy() if self.options.own_stacks else stack
