"""Modules of the steps that a recorder did not note: those of a noted step with the same requests."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.reading.recorder_metadata import RecorderMetadata


class _Step(Struct, frozen=True):
    """A step's allocations. rows: Int64, in order of birth; stacks: Int32 of each; is_noted."""

    rows: np.ndarray
    stacks: np.ndarray
    is_noted: bool


def noted_before(
    metadata: RecorderMetadata,
    times: np.ndarray,
    allocations: pl.DataFrame,
    *,
    column: str = "module",
    noted_us: np.ndarray | None = None,
) -> np.ndarray:
    """Int64 per allocation: one of a noted step that stands at the same place of an equal sequence of requests, -1 if
    there is none, or if noted steps that are equal so far differ in the ``column`` there.

    times: µs of each allocation's birth. allocations: with ``stack``, ``size``, ``alloc_event`` and ``column``, as
    noted. noted_us: in the steps with one of these times something was noted; None: in all without a pause. Requests
    are equal if they have the same stack trace; the same size, too, if a noted step has it.
    """
    found = np.full(len(allocations), -1)
    if not len(metadata.pauses) and noted_us is None:
        return found
    stack, size = allocations["stack"].to_numpy(), allocations["size"].to_numpy()
    value = allocations[column].fill_null("").rank("dense").to_numpy()
    born = np.flatnonzero(allocations["alloc_event"].to_numpy() >= 0)
    steps = _steps(metadata, times, born, stack, noted_us)
    noted = [step for step in steps if step.is_noted and len(np.unique(value[step.rows])) > 1]
    for step in steps:
        if step.is_noted:
            continue
        pairs = [pair for other in noted if (pair := _aligned(step, other)) is not None]
        same_size = [pair for pair in pairs if (size[pair[0]] == size[pair[1]]).all()]
        alike = same_size or pairs
        if not alike:
            continue
        rows, source = max(alike, key=lambda pair: len(pair[0]))
        found[rows] = source
        for mine, other in alike:
            at = found[mine] >= 0
            differs = value[found[mine[at]]] != value[other[at]]
            found[mine[at][differs]] = -1
    return found


def _steps(
    metadata: RecorderMetadata, times: np.ndarray, born: np.ndarray, stack: np.ndarray, noted_us: np.ndarray | None
) -> list[_Step]:
    ends = metadata.steps["time_us"].to_numpy()
    number = np.searchsorted(ends, times[born], "left")
    begins, finishes = metadata.pauses["begin_us"].to_numpy(), metadata.pauses["end_us"].to_numpy()
    pause = np.searchsorted(begins, times[born], "left") - 1
    if noted_us is None:
        paused = (pause >= 0) & (times[born] <= finishes[pause])
    else:
        paused = ~np.isin(number, np.searchsorted(ends, noted_us, "left"))
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    return [
        _Step(rows, stack[rows], not bool(is_paused.any()))
        for rows, is_paused in zip(np.split(born, starts[1:]), np.split(paused, starts[1:]), strict=True)
        if len(rows)
    ]


def _aligned(step: _Step, noted: _Step) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows of ``step`` and of ``noted`` that stand at the same place: all of them, those before the trace or the
    program ends within a step, or those of the stacks that occur equally often.
    """
    count = min(len(step.rows), len(noted.rows))
    for part in (slice(0, count), slice(-count, None)):
        is_whole = count == len(step.rows)
        if is_whole and (step.stacks[part] == noted.stacks[part]).all():
            return step.rows[part], noted.rows[part]
    mine, other = (np.lexsort((one.rows, one.stacks)) for one in (step, noted))
    stacks, counts = np.unique(step.stacks, return_counts=True)
    other_stacks, other_counts = np.unique(noted.stacks, return_counts=True)
    at = np.searchsorted(other_stacks, stacks).clip(max=len(other_stacks) - 1)
    # Without a stack trace, equal numbers say nothing.
    equal = stacks[(other_stacks[at] == stacks) & (other_counts[at] == counts) & (stacks > 0)]
    pair = step.rows[mine[np.isin(step.stacks[mine], equal)]], noted.rows[other[np.isin(noted.stacks[other], equal)]]
    return pair if len(equal) else None
