"""Requests that failed, counted as if they had been served: the program needs them, and may need more after them."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec.structs import replace

from snapreport.memoize import memoize
from snapreport.reading.recording import ACTIONS, Recording
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import IS_TRACED, action_codes, allocates
from snapreport.timeline.phases import BACKWARD, FORWARD, INITIALISATION, LOADING, OPTIMIZER_STEP, stack_phases

_BY_PHASE = {
    FORWARD: "activation",
    BACKWARD: "temporary",
    OPTIMIZER_STEP: "optimizer state",
    INITIALISATION: "parameter",
    LOADING: "parameter",
}
"""What a line allocates that has not allocated before."""


def failures(events: pl.DataFrame) -> list[int]:
    """The ``oom`` events after which the same line does not allocate next: cuDNN catches the failure of a workspace,
    and takes a smaller one.
    """
    stack, births = events["stack"].to_numpy(), np.flatnonzero(allocates(events))
    ooms = np.flatnonzero(action_codes(events) == ACTIONS.index("oom"))
    following = np.searchsorted(births, ooms)
    goes_on = np.zeros(len(ooms), bool)
    known = following < len(births)
    goes_on[known] = stack[births[following[known]]] == stack[ooms[known]]
    return [int(event) for event in ooms[~goes_on]]


@memoize
def ends_in_failure(recording: Recording) -> bool:
    """Whether a request failed on some device: what any device needed after it is not recorded."""
    return any(failures(record.events) for record in recording.devices.values())


def with_failed_requests(timeline: DeviceTimeline) -> DeviceTimeline:
    """The same history, in which each failed request is an allocation that is alive at its ``oom`` event alone: the
    last rows of ``allocations``. ``timeline`` itself where none failed.
    """
    failed = np.array(failures(timeline.events), np.int64)
    if not len(failed):
        return timeline
    events, table = timeline.events, timeline.allocations
    size, stack = (events[name].to_numpy()[failed] for name in ("size", "stack"))
    ends = np.where(failed + 1 < len(events), failed + 1, -1)
    rows = pl.DataFrame(
        {
            "id": len(table) + np.arange(len(failed)),
            "size": size,
            "alloc_event": failed,
            "free_requested_event": ends,
            "free_event": ends,
            "stream": events["stream"].gather(failed),
            "stack": stack,
            "free_stack": np.zeros(len(failed), np.int32),
            "category": [_category(timeline, int(s), int(n)) for s, n in zip(stack, size, strict=True)],
            "category_source": ["inferred"] * len(failed),
            "origin": ["traced"] * len(failed),
        }
    )
    missing = [pl.lit(None, kind).alias(name) for name, kind in table.schema.items() if name not in rows.columns]
    rows = rows.with_columns(missing).select(table.columns).cast(table.schema)
    allocated = timeline.allocated.copy()
    allocated[failed + 1] += size
    return replace(timeline, allocations=pl.concat([table, rows]), allocated=allocated)


def _category(timeline: DeviceTimeline, stack: int, size: int) -> str:
    """The category of most bytes that the same line allocated, as large ones first; else what its phase allocates."""
    table = timeline.allocations.filter((pl.col("stack") == stack) & IS_TRACED)
    alike = table.filter(pl.col("size") == size)
    known = (alike if len(alike) else table if stack else table.clear()).group_by("category").agg(pl.col("size").sum())
    known = known.filter(pl.col("category") != "unknown").sort("size", "category", descending=True)
    if len(known):
        return str(known["category"][0])
    phases = stack_phases(timeline.recording)
    return _BY_PHASE.get(int(phases.innermost[stack]), "temporary" if stack == 0 else "unknown")
