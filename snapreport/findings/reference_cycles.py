"""Reference cycles: stacks that pile up over several repetitions and are then freed all at once.

Python frees most tensors the moment nothing refers to them. What is part of a reference cycle waits for the garbage
collector, which frees many of them together.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec.structs import replace

from snapreport.contracts.finding import Evidence, Link
from snapreport.findings.allocation_growth import min_growth_bytes
from snapreport.findings.basis import basis_of
from snapreport.findings.live import Names
from snapreport.findings.model import Finding
from snapreport.findings.repetition import Repetitions
from snapreport.findings.selection import stack_term
from snapreport.integers import is_among, stable_order
from snapreport.number_format import plural, share_text
from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import stacks_with
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import allocates

MOST = 10
_MIN_BURST_SHARE = 0.7
"""The share of what a stack frees that goes in bursts."""
_MIN_REPETITIONS = 3
_MIN_DISTANCE = 32
"""Events between two frees of one burst, at most: each free is up to two events, and a cycle holds more than one
tensor.
"""
_MIN_SINGLE_TENSORS = 8
"""Repetitions that a burst spans at least, where it is the only one."""
_SINGLE_SHARE = 0.1
"""Of the peak, for a burst that is the only one."""
_MIN_ALONE_SHARE = 0.7
"""Of the frees between two allocations, for the only burst: what goes with much else goes with the function or the
program that held it all.
"""
_COLLECTOR = r"(?i)\bgc_?collect|garbage_?collect|collect_garbage|^gc_(main|collect)"


class CycleEvidence(Evidence):
    """Memory that waits for the garbage collector: ``bursts`` of frees, the largest of ``burst_bytes``."""

    bursts: int
    burst_bytes: int
    burst_count: int
    share_of_bytes: float


def cycle_findings(
    timeline: DeviceTimeline, names: Names, repetitions: Repetitions | None, leaking: set[int]
) -> list[Finding]:
    """Hints of reference cycles, most bytes first. ``leaking``: stacks that are reported as leaks."""
    if repetitions is None:
        return []
    end = len(timeline.events) + 1  # what the collector frees after the loop counts as well
    repetitions = replace(repetitions, bounds=np.append(repetitions.bounds[:-1], end))
    table = _outliving(timeline, repetitions)
    bursts = _bursts(table, timeline)
    found = []
    for row in _suspects(bursts, timeline, leaking).rows(named=True):
        mine = table.filter(pl.col("stack") == row["stack"])
        in_bursts = int(bursts.filter(pl.col("stack") == row["stack"])["bytes"].sum())
        if in_bursts >= _MIN_BURST_SHARE * int(mine["size"].sum()):
            share = in_bursts / int(mine["size"].sum())
            found.append(_finding(timeline, names.place(row["stack"]), repetitions, row, share))
    return found[:MOST]


def _outliving(timeline: DeviceTimeline, repetitions: Repetitions) -> pl.DataFrame:
    """Freed allocations of the stacks of which any outlives its repetition: ``stack``, ``size``, ``alloc_event``,
    ``free_event``, ``free_stack``, ``born`` and ``died`` (repetitions).

    Most allocations are freed in the step that made them: the other stacks are few.
    """
    allocations = timeline.allocations
    birth, death, stack = (allocations[name].to_numpy() for name in ("alloc_event", "free_event", "stack"))
    born, died = repetitions.of(birth), repetitions.of(death)
    freed = (birth >= 0) & (death >= 0)
    rows = np.flatnonzero(freed & (born >= 0) & is_among(stack, np.unique(stack[freed & (died > born)])))
    rows = rows[stable_order(stack[rows], death[rows])]
    table = allocations.select("stack", "size", "alloc_event", "free_event", "free_stack")[rows]
    return table.with_columns(born=pl.Series(born[rows]), died=pl.Series(died[rows]))


def _bursts(table: pl.DataFrame, timeline: DeviceTimeline) -> pl.DataFrame:
    """Frees of one stack that follow each other closely, of allocations from several repetitions."""
    stack, freed, size = (table[name].to_numpy() for name in ("stack", "free_event", "size"))
    begins = np.flatnonzero((freed - np.roll(freed, 1) > _MIN_DISTANCE) | (np.diff(stack, prepend=-1) != 0))
    # Most are short: without them, the numbers below take a fifth of the time.
    lengths = np.diff(begins, append=len(table))
    large = (lengths >= _MIN_REPETITIONS) & (np.add.reduceat(size, begins) >= min_growth_bytes(timeline))
    burst = np.repeat(np.where(large, np.arange(len(begins)), -1), lengths)
    table = table.with_columns(burst=burst).filter(pl.col("burst") >= 0)
    table = table.with_columns(together=_freed_together(timeline, table["free_event"].to_numpy()))
    return (
        table.group_by("stack", "burst")
        .agg(
            bytes=pl.col("size").sum(),
            count=pl.len(),
            free_stack=pl.col("free_stack").mode().min(),
            first=pl.col("free_event").min(),
            died=pl.col("died").max(),
            oldest=pl.col("born").min(),
            births=pl.col("born").n_unique(),
            youngest=pl.col("alloc_event").max(),
            in_order=(pl.col("alloc_event").diff() > 0).fill_null(value=True).mean(),
            alone=pl.len() / pl.col("together").first(),
        )
        .filter(
            (pl.col("died") - pl.col("oldest") >= _MIN_REPETITIONS - 1)
            # One generation that a later one replaces piles up nothing: the best weights so far, copied anew.
            & (pl.col("births") >= 2)
            & (pl.col("youngest") < pl.col("first"))  # all of it was live at once
        )
        .with_columns(collected=pl.col("free_stack").is_in(_collecting(timeline.recording).implode()))
    )


def _freed_together(timeline: DeviceTimeline, freed: np.ndarray) -> pl.Series:
    """Int64 per event of ``freed``: how many allocations are freed without an allocation between them and it."""
    run = np.cumsum(allocates(timeline.events))
    ends = timeline.allocations["free_event"].to_numpy()
    counts = np.bincount(run[ends[ends >= 0]], minlength=int(run[-1]) + 1)
    return pl.Series(counts[run[freed]])


def _suspects(bursts: pl.DataFrame, timeline: DeviceTimeline, leaking: set[int]) -> pl.DataFrame:
    """A row per stack whose bursts look like the collector's, most bytes first."""
    stacks = bursts.group_by("stack").agg(
        bursts=pl.len(),
        bytes=pl.col("bytes").max(),
        count=pl.col("count").max(),
        span=(pl.col("died") - pl.col("oldest")).max(),
        event=pl.col("first").sort_by(["bytes", "first"], descending=[True, False]).first(),
        collected=pl.col("collected").mean(),
        places=pl.col("free_stack").n_unique(),
        in_order=pl.col("in_order").min(),
        alone=pl.col("alone").min(),
        births=pl.col("births").max(),
    )
    # The collector's own frame proves it. Without C++ frames it runs wherever an allocation triggers it, so that no two
    # bursts are freed at the same place: what one place frees again and again is the program's own doing.
    named = (pl.col("bursts") >= 2) & (pl.col("collected") > 0.5)
    anywhere = (pl.col("bursts") >= 3) & (pl.col("places") == pl.col("bursts"))
    # Where one place frees them all, the order is the hint: the collector frees the oldest first, a list that is
    # dropped the newest first.
    ordered = (pl.col("bursts") >= 2) & (pl.col("in_order") == 1)
    single = (
        (pl.col("bursts") == 1)
        & (pl.col("in_order") == 1)
        & (pl.col("count") >= _MIN_SINGLE_TENSORS)
        & (pl.col("alone") >= _MIN_ALONE_SHARE)
        & (pl.col("span") >= _MIN_SINGLE_TENSORS - 1)
        # State is made in the first steps and stays; cycles pile up until they are collected.
        & (2 * pl.col("births") >= pl.col("span"))
        & (pl.col("bytes") >= _SINGLE_SHARE * timeline.peak_bytes)
    )
    known = pl.col("stack").is_in(pl.Series(sorted(leaking), dtype=pl.Int32).implode())
    return stacks.filter((named | anywhere | ordered | single) & ~known).sort(
        ["bytes", "stack"], descending=[True, False]
    )


def _finding(
    timeline: DeviceTimeline, place: str, repetitions: Repetitions, row: dict[str, int], share: float
) -> Finding:
    """``share``: of what the stack frees, in bursts."""
    before = row["event"] - 1  # the position before the first free of the greatest burst
    part = "All that" if share == 1 else sentence("{share} of what", share=share_text(round(share * 1e9), 10**9))
    how = "together" if row["bursts"] == 1 else sentence("in {}", plural(row["bursts"], "burst"))
    bursts = sentence("{part} this line allocates is freed {how}.", part=part, how=how)
    likely = row["collected"] > 0.5
    return Finding(
        kind="leak",
        device=timeline.device,
        severity="info",
        title=sentence(
            "{}: {place} piles up to {} over {} and is then freed at once",
            "Reference cycle" if likely else "Possible reference cycle",
            bytes_part(row["bytes"]),
            plural(row["span"], repetitions.unit),
            place=place,
        ),
        detail=[
            bursts,
            "Tensors in a reference cycle wait for Python's garbage collector: break the cycle or use weak references.",
        ],
        bytes=row["bytes"],
        event=before,
        stack=row["stack"],
        evidence=CycleEvidence(
            bursts=row["bursts"],
            burst_bytes=row["bytes"],
            burst_count=row["count"],
            share_of_bytes=round(share, 4),
        ),
        basis=basis_of(timeline),
        confidence="inferred" if likely else "estimate",
        link=Link(view="timeline", at=before, query=stack_term(row["stack"])),
    )


def _collecting(recording: Recording) -> pl.Series:
    """Int32: stacks with a frame of Python's garbage collector."""
    hit = recording.frames["name"].str.contains(_COLLECTOR).to_numpy()
    return pl.Series(np.flatnonzero(stacks_with(recording, hit)).astype(np.int32))
