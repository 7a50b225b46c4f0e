"""A replay buffer: thousands of long-lived allocations stacked above ones that are freed early.

Entries leave in first-in, first-out order, so every free is at the bottom of the stacked view and everything above it
moves down: the worst case for a layout that moves allocations one by one.
"""

from __future__ import annotations

from collections import deque

from generator.blocks import Block
from generator.device import Device
from generator.options import MIB, Options
from generator.stacks import APP, StackBook


class Overlap:
    """The program on one device: `setup` fills the buffer with `window` entries, each `step` replaces 256 of them."""

    def __init__(self, device: Device, options: Options, book: StackBook) -> None:
        self.device = device
        self.window = options.window
        self._buffer: deque[Block] = deque()
        loop = book.program(APP + "collect.py", 98).call(APP + "collect.py", 71, "collect")
        self.place = loop
        self._stores = [
            loop.call(APP + "replay.py", 40 + 3 * kind, "append").stack("aten::clone") for kind in range(24)
        ]
        self._evict = loop.call(APP + "replay.py", 31, "evict").release()
        act = loop.call(APP + "policy.py", 55, "act")
        self._act, self._act_free = act.stack("aten::linear"), act.release()

    def setup(self) -> None:
        """Fill the buffer."""
        for _ in range(self.window):
            self._store()

    def step(self, number: int) -> None:
        """Collect 256 new entries; each evicts the oldest."""
        for _ in range(256):
            scratch = self.device.alloc(2 * MIB, self._act)
            self._store()
            self.device.free(scratch, self._act_free)
            self.device.free(self._buffer.popleft(), self._evict)

    def outgrow(self) -> None:
        """Not supported by this workload."""
        raise NotImplementedError

    def _store(self) -> None:
        rng = self.device.rng
        kind = rng.randrange(len(self._stores))
        self._buffer.append(self.device.alloc(4096 * (1 + kind) + 64 * rng.randrange(64), self._stores[kind]))
