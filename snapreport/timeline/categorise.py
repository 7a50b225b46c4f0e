"""The columns ``category`` and ``category_source`` of a device's allocations."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.event_columns import enum_series
from snapreport.timeline.activity import device_activity
from snapreport.timeline.categories import (
    INFERRED,
    RECORDED,
    SOURCE_UNKNOWN,
    StackCategories,
    apply_recorded,
    stack_and_free_categories,
)
from snapreport.timeline.inference import infer
from snapreport.timeline.life_phases import Evidence, life_phases
from snapreport.timeline.phases import LOADING
from snapreport.vocabulary import CATEGORIES, CATEGORY_SOURCES


def categorise(
    by_stack: StackCategories,
    events: pl.DataFrame,
    table: pl.DataFrame,
    allocated: np.ndarray,
    recorded: pl.Series,
    *,
    reserved_start: int = 0,
    inference: bool = True,
) -> tuple[pl.Series, pl.Series]:
    """``category`` and ``category_source`` of each allocation of ``table`` (see :class:`DeviceTimeline`, without these
    two columns).

    The recording takes precedence, then the stack, then how it was freed, then ``inference`` if enabled.
    allocated: Int64 bytes at each position. recorded: the categories stated in the recording, see
    :func:`apply_recorded`.
    reserved_start: bytes reserved when recording started.
    """
    lives = life_phases(events, table, by_stack.phases)
    codes, source = stack_and_free_categories(by_stack, table, lives)
    uncertain = np.flatnonzero(source == INFERRED)
    guess = codes[uncertain]
    codes[uncertain], source[uncertain] = SOURCE_UNKNOWN, SOURCE_UNKNOWN
    apply_recorded(codes, source, recorded)
    named = source == RECORDED
    if inference:
        activity = device_activity(events, table, by_stack.phases)
        columns = ("addr", "size", "alloc_event", "free_event", "stack")
        addr, size, alloc, free, stack = (table[name].to_numpy() for name in columns)
        probable = np.zeros(len(codes), np.uint8)
        probable[uncertain] = guess
        evidence = Evidence(
            addr, size, alloc, free, stack, codes, lives, allocated, activity.kind, reserved_start, probable, named,
            by_stack.phases.innermost[stack] == LOADING,
        )  # fmt: skip
        inferred, _ = infer(evidence)
        mine = (inferred > 0) & ~named
        codes[mine], source[mine] = inferred[mine], INFERRED
    return enum_series("category", codes, CATEGORIES), enum_series("category_source", source, CATEGORY_SOURCES)
