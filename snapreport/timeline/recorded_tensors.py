"""Which allocations a recorder knew by name: parameters, gradients and optimizer state, by address at a moment."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.recorder_metadata import RecorderMetadata
from snapreport.timeline.annotations import clock_of

# The names that the recorder gives → ours. Buffers live and are used as parameters are.
CATEGORY_OF = {"buffer": "parameter"}


def recorded_tensors(
    metadata: RecorderMetadata, device: int, events: pl.DataFrame, addr: pl.Series, alloc: np.ndarray, free: np.ndarray
) -> tuple[pl.Series, pl.Series]:
    """(category, name) String of each allocation, null where the recorder did not know it.

    addr UInt64, alloc, free Int32: of the device's allocations; free is -1 for what lives at the end. An allocation is
    what the recorder says of its address at a moment at which it is live. Moments outside the trace are left out: the
    address may have been another's then. The last word is that of the latest moment.
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
    """The event after which the moment ``time`` comes; None where it is outside the trace."""
    is_dump = time == metadata.tensors["time_us"].max()  # the recorder's last look is at the state that the file holds
    if is_dump:
        return events - 1
    if clock is None or time < clock[0]:
        return None
    return int(np.searchsorted(clock, time, "right")) - 1
