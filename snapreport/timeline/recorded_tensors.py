"""Allocations that a recorder named: parameters, gradients and optimizer state, by address and time."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.recorder_metadata import RecorderMetadata
from snapreport.timeline.annotations import clock_of

# The recorder's names → ours. Buffers are used like parameters and live as long.
CATEGORY_OF = {"buffer": "parameter"}


def recorded_tensors(
    metadata: RecorderMetadata, device: int, events: pl.DataFrame, addr: pl.Series, alloc: np.ndarray, free: np.ndarray
) -> tuple[pl.Series, pl.Series]:
    """(category, name) String of each allocation, null if the recorder did not name it.

    addr UInt64, alloc, free Int32: of the device's allocations; free is -1 for allocations live at the end. An
    allocation gets the recorder's name for its address at a time when it is live. Times outside the trace are ignored:
    the address may have belonged to another allocation. The latest time wins.
    """
    category = pl.Series("category", [None], pl.String).new_from_index(0, len(addr))
    name = pl.Series("name", [None], pl.String).new_from_index(0, len(addr))
    known = metadata.tensors.filter(pl.col("device") == device)
    clock = clock_of(events) if len(events) else None
    for (time,), tensors in known.group_by("time_us", maintain_order=True):
        position = _position(int(str(time)), clock, metadata, len(events))
        if position is None:
            continue
        live = np.flatnonzero((alloc <= position) & ((free < 0) | (free > position)))
        rows = pl.DataFrame({"row": live, "address": addr.gather(live)})
        found = rows.join(tensors.unique("address", keep="first"), on="address", how="inner", maintain_order="left")
        named = found["category"].cast(pl.String).replace(CATEGORY_OF)
        category = category.scatter(found["row"].to_numpy(), named.to_numpy())
        name = name.scatter(found["row"].to_numpy(), found["name"].to_numpy())
    return category, name


def _position(time: int, clock: np.ndarray | None, metadata: RecorderMetadata, events: int) -> int | None:
    """The last event at or before ``time``; None if that is outside the trace."""
    is_dump = time == metadata.tensors["time_us"].max()  # the recorder's last names are of the state in the file
    if is_dump:
        return events - 1
    if clock is None or time < clock[0]:
        return None
    return int(np.searchsorted(clock, time, "right")) - 1
