"""What a ``torch.profiler`` trace says of time: operators, calls of the CUDA runtime, kernels and copies.

Its times are ``baseTimeNanoseconds`` plus ``ts`` (µs), in ns since 1970 (``ChromeTraceBaseTime`` of libkineto,
which PyTorch links). The memory recorder's ``time_us`` come from the same counter of the processor by the
same conversion, ``c10::ApproximateClockToUnixTimeConverter``, with readings of its own (``clock_alignment.py``).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct, structs

from snapreport.reading.profiler_columns import MEMORY, OPERATORS, PYTHON, Event, integers, nanoseconds

# Categories of libkineto's activities (libkineto/src/ActivityType.cpp).
OPERATOR, RUNTIME, KERNEL, COPY, SAVE = "operator", "runtime", "kernel", "copy", "save"
# Python functions that write a checkpoint, where the trace has Python's (``with_stack=True``).
_SAVE = re.compile(r"torch/(serialization|distributed/checkpoint/\w+)\.py\(\d+\): (save|async_save)$")
_KINDS = {
    **dict.fromkeys(OPERATORS, OPERATOR), "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "runtime": RUNTIME,
    "kernel": KERNEL, "gpu_memset": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY,
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "kind": pl.Enum((OPERATOR, RUNTIME, KERNEL, COPY, SAVE)), "name": pl.String, "begin": pl.Int64, "end": pl.Int64,
    "thread": pl.Int32, "is_forward": pl.Boolean, "correlation": pl.Int64,
    "device": pl.Int32, "stream": pl.Int64, "bytes": pl.Int64,
}  # fmt: skip
_CUDA = 1  # c10::DeviceType


class ActivityTrace(Struct, frozen=True, eq=False):
    """intervals: a row per activity: ``begin``, ``end`` ns since 1970; ``is_forward``: an operator that creates a node
    of the graph; ``correlation`` of a call and of the kernel that it starts, -1: none;
    ``device``, ``stream`` of kernels and copies, -1: none; ``bytes`` of copies, 0: unknown. allocations: ``time`` ns,
    ``addr`` UInt64 of the CUDA allocations that the profiler has seen, in order of time.
    """

    name: str
    intervals: pl.DataFrame
    allocations: pl.DataFrame

    def moved(self, shift_ns: int) -> ActivityTrace:
        """All of it so much later."""
        return structs.replace(
            self,
            intervals=self.intervals.with_columns(pl.col("begin", "end") + shift_ns),
            allocations=self.allocations.with_columns(pl.col("time") + shift_ns),
        )


def activity_trace(events: list[Event], base_ns: int, name: str) -> ActivityTrace:
    """Raises :class:`SnapshotError` for an event whose time or number is none."""
    used = [event for event in events if event.ph == "X" and _kind(event)]
    threads: dict[tuple[object, object], int] = {}
    begin = nanoseconds([event.ts for event in used], base_ns)
    sequence = integers([event.args and event.args.sequence for event in used], "Sequence number", -1)
    forward_thread = integers([event.args and event.args.forward_thread for event in used], "Fwd thread id", 0)
    intervals = pl.DataFrame(
        {
            "kind": [_kind(event) for event in used],
            "name": [str(event.name) for event in used],
            "begin": begin,
            "end": begin + np.maximum(nanoseconds([event.dur for event in used], 0), 0),
            "thread": [threads.setdefault((event.pid, event.tid), len(threads)) for event in used],
            "is_forward": (sequence >= 0) & (forward_thread == 0),
            "correlation": integers([event.args and event.args.correlation for event in used], "correlation", -1),
            "device": integers([event.args and event.args.ordinal for event in used], "device", -1),
            "stream": integers([event.args and event.args.stream for event in used], "stream", -1),
            "bytes": integers([event.args and event.args.copied for event in used], "bytes", 0),
        },
        SCHEMA,
    )
    memory = [e for e in events if e.name == MEMORY and e.args is not None and e.args.address is not None]
    size = integers([e.args and e.args.size for e in memory], "Bytes", 0)
    device = integers([e.args and e.args.device_type for e in memory], "Device Type", 0)
    allocations = pl.DataFrame({
        "time": nanoseconds([event.ts for event in memory], base_ns),
        "addr": integers([e.args and e.args.address for e in memory], "Addr", 0, np.uint64),
    }).filter(pl.Series((size > 0) & (device == _CUDA), dtype=pl.Boolean))  # fmt: skip
    return ActivityTrace(name, intervals.sort("begin", maintain_order=True), allocations.sort("time"))


def _kind(event: Event) -> str | None:
    category = (event.cat or "").lower()
    if category == PYTHON:
        return SAVE if _SAVE.search(str(event.name)) else None
    return _KINDS.get(category)
