"""A workload's interface to one device: allocate and free with a stack, streams, annotations, an event budget."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import AbstractContextManager

from generator.allocator import Allocator
from generator.blocks import Block
from generator.recorder import Frames, Recorder

CONTEXTS = ("all", "alloc", "state", "none")
"""`context=` of `_record_memory_history`: which stacks are recorded. all: allocs and frees; alloc: a free shows the
stack of its alloc; state: only blocks of the final state; none: no stacks."""


class BudgetSpentError(Exception):
    """The trace has the requested number of events: the snapshot is taken here, in the middle of the work."""


class Device:
    """One device and the program that runs on it; `steps` counts completed recorded steps.

    `context` is one of CONTEXTS. With `own_stacks` each allocation and free has a separate stack list, as torch writes
    it (frame dicts are still shared); without it, equal stacks are one list, and the pickle is half as large.
    """

    def __init__(
        self, allocator: Allocator, rng: random.Random, budget: int | None, context: str, own_stacks: bool
    ) -> None:
        self.allocator = allocator
        self.recorder: Recorder = allocator.recorder
        self.rng = rng
        self.budget = budget
        self.steps = 0
        self._alloc_stacks = context != "none"
        self._free_stacks = context == "all"
        self._own_stacks = own_stacks

    @property
    def index(self) -> int:
        """The device's number."""
        return self.allocator.device

    def alloc(self, size: float, stack: Frames, stream: int = 0) -> Block:
        """Allocate `size` bytes, rounded down and at least one.

        Raises BudgetSpentError before allocating, or OutOfMemoryError.
        """
        recorder = self.recorder
        if self.budget is not None and recorder.count >= self.budget:
            raise BudgetSpentError
        return self.allocator.malloc(int(size) or 1, stream, self._kept(stack, self._alloc_stacks))

    def free(self, block: Block, stack: Frames) -> None:
        """Free a block."""
        self.allocator.free(block, self._kept(stack, self._free_stacks))

    def free_all(self, blocks: Iterable[Block], stack: Frames) -> None:
        """Free several blocks, in order."""
        for block in blocks:
            self.free(block, stack)

    def empty_cache(self, stack: Frames) -> None:
        """torch.cuda.empty_cache()."""
        self.allocator.empty_cache(self._kept(stack, self._free_stacks))

    def annotation(self, name: str) -> AbstractContextManager[None]:
        """An external annotation around some work."""
        return self.recorder.annotation(name, self.index)

    def _kept(self, stack: Frames, wanted: bool) -> Frames | None:
        if not wanted or not self.recorder.recording:
            return None
        return stack.copy() if self._own_stacks else stack
