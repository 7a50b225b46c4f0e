"""The recorder of one device: a clock, the ring buffer of trace entries, the annotations.

Models PyTorch's `alloc_buffer` (a `RingBuffer<TraceEntry>` in c10/cuda/CUDACachingAllocator.cpp). Entries are stored as
tuples while the workload runs and converted to dicts once, at the end: the ring may have dropped most of them by then.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from snapreport.allocator.model import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP

Frames = list[dict[str, Any]]
"""A stack as torch records it: frame dicts (name, filename, line), innermost first."""

ALLOC = "alloc"
FREE_REQUESTED = "free_requested"
FREE_COMPLETED = "free_completed"
OOM = "oom"
SNAPSHOT = "snapshot"

_DRIVER_CALL_US = {SEGMENT_ALLOC: 450, SEGMENT_MAP: 800, SEGMENT_FREE: 300, SEGMENT_UNMAP: 500}
"""Microseconds for cudaMalloc, cuMemCreate + cuMemMap, cudaFree and cuMemUnmap, which stall a program."""

_GAP_MASK = 4095


class Recorder:
    """Records the trace entries of one device, in order, with times.

    `now_us` is the clock (microseconds since 1970, never decreasing), `count` the number of entries since recording
    began, including those that the ring has dropped. Nothing is recorded while `recording` is false.
    """

    def __init__(self, start_us: int, rng: random.Random, max_entries: int | None = None) -> None:
        self.now_us = start_us
        self.count = 0
        self.recording = True
        self.max_entries = max_entries
        self.rows: deque[tuple[Any, ...]] = deque(maxlen=max_entries)
        self.annotations: list[dict[str, Any]] = []
        self.compile_context = "N/A"
        self.user_metadata = ""
        # Entries are a few microseconds apart, occasionally with a longer wait (a kernel, Python).
        self._gaps = [min(int(rng.expovariate(0.22)), 900) + (rng.random() < 0.01) * 120 for _ in range(_GAP_MASK + 1)]
        self._clock = 0

    @property
    def overflowed(self) -> bool:
        """Whether the ring dropped entries."""
        return self.count > len(self.rows)

    def record(
        self, action: str, addr: int, size: int, stream: int, pool_id: tuple[int, int], frames: Frames | None
    ) -> None:
        """Append one entry; `addr` is the free bytes of the device for an oom."""
        self._clock = clock = self._clock + 1
        if action is FREE_COMPLETED:
            self.now_us = now = self.now_us + (clock & 1)
        else:
            self.now_us = now = self.now_us + self._gaps[clock & _GAP_MASK] + _DRIVER_CALL_US.get(action, 0)
        if self.recording:
            self.count += 1
            self.rows.append(
                (action, addr, size, stream, now, self.compile_context, self.user_metadata, pool_id, frames)
            )

    @contextmanager
    def annotation(self, name: str, device: int) -> Iterator[None]:
        """An external annotation (`record_function` of the profiler or the optimizer) around a piece of work."""
        self._annotate("START", name, device)
        yield
        self._annotate("END", name, device)

    def _annotate(self, stage: str, name: str, device: int) -> None:
        if self.recording:
            self.annotations.append({"stage": stage, "name": name, "device": device, "time_us": self.now_us})
