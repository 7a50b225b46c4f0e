"""Reserved bytes by the stack trace that made PyTorch ask the driver for them (``cudaMalloc``, ``cuMemMap``)."""

from __future__ import annotations

from bisect import bisect_left

import polars as pl

from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_FREED, IS_TRACED

_SEGMENT_ALLOCATIONS = ("segment_alloc", "segment_map")


def reserved_by_stack(timeline: DeviceTimeline, position: int) -> pl.DataFrame:
    """``stack`` Int32 (0: unknown, as of most memory from before the trace), ``bytes``, ``count`` of the ranges that
    are reserved after event ``position`` (-1: before the first), ``total_bytes``, ``total_count`` Int64 of all that
    the recording shows, those given back, too. A loop over segment events, each a driver call.
    """
    final = timeline.recording.devices[timeline.device].segments.select("address", stack=pl.col("stack").cast(pl.Int32))
    older = timeline.segment_history.filter(~IS_TRACED).join(
        final.unique("address"), on="address", how="left", maintain_order="left"
    )
    # What is freed in the trace and allocated there again by someone else is not the final one.
    stack = pl.when(~IS_FREED).then(pl.col("stack")).fill_null(0)
    older = older.select(addr="address", size="size", stack=stack)
    events = timeline.events.select("action", "addr", "size", "stack").with_row_index("event")
    events = events.filter(pl.col("action").cast(pl.String).str.starts_with("segment_")).with_columns(
        pl.col("addr").fill_null(0)
    )
    ranges = _Ranges()
    for address, size, stack in older.iter_rows():
        ranges.put(address, address + size, stack)
    for action, address, size, stack in events.filter(pl.col("event") <= position).drop("event").iter_rows():
        ranges.cut(address, address + size)
        if action in _SEGMENT_ALLOCATIONS:
            ranges.put(address, address + size, stack)
    rows = [(stack, end - start) for start, (end, stack) in ranges.at.items()]
    live = pl.DataFrame(rows, schema={"stack": pl.Int32, "bytes": pl.Int64}, orient="row")
    made = events.filter(pl.col("action").is_in(_SEGMENT_ALLOCATIONS)).select("size", pl.col("stack").cast(pl.Int32))
    every = pl.concat([older.select("size", "stack"), made])
    return (
        every.group_by("stack")
        .agg(total_bytes=pl.col("size").sum(), total_count=pl.len().cast(pl.Int64))
        .join(live.group_by("stack").agg(pl.col("bytes").sum(), count=pl.len().cast(pl.Int64)), on="stack", how="left")
        .select("stack", pl.col("bytes", "count").fill_null(0), "total_bytes", "total_count")
        .sort("stack")
    )


class _Ranges:
    """Reserved ranges that do not overlap: ``at`` has start → (end, stack), ``_starts`` the starts in order."""

    def __init__(self) -> None:
        self.at: dict[int, tuple[int, int]] = {}
        self._starts: list[int] = []

    def put(self, start: int, end: int, stack: int) -> None:
        if start < end and start not in self.at:
            self._starts.insert(bisect_left(self._starts, start), start)
            self.at[start] = end, stack

    def cut(self, start: int, end: int) -> None:
        """Remove what is reserved from ``start`` to ``end``."""
        first = max(bisect_left(self._starts, start) - 1, 0)
        for begin in self._starts[first : bisect_left(self._starts, end)]:
            until, stack = self.at[begin]
            if until <= start:
                continue
            self._starts.remove(begin)
            del self.at[begin]
            self.put(begin, start, stack)
            self.put(max(end, begin), until, stack)
