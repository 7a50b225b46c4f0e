"""Leaks: stacks whose live bytes rise stretch by stretch, and hints of reference cycles.

A stack leaks when, step after step, it allocates something that is never freed *and* its least live bytes within each
step rise with it. What only looks so is told apart by shape: optimizer state is born in one step; a cache that levels
off gets nothing in the later ones; a working set that is replaced piece by piece does not rise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from snapreport.findings.basis import basis_of
from snapreport.findings.model import Finding
from snapreport.findings.slices import FEWEST, Slices
from snapreport.number_format import bytes_text, count_text, plural, share_text
from snapreport.reading.recording import Recording
from snapreport.timeline.build import DeviceTimeline, Snapshot
from snapreport.timeline.own_code import own_functions

MOST = 10
_LEAST_BYTES = 1 << 20
_LEAST_SHARE = 0.001
"""Of the peak, for the growth of one stack over the whole trace."""
_SPREAD = 0.8
"""The share of the later steps in which a leaking stack keeps something."""
_LATER = 0.35
"""The share of its growth that falls into the later half; a steady leak has half of it there, a levelling cache
nothing.
"""
_RISE = 0.6
"""How much of what is kept must show as a rise of the stack's least live bytes."""
_PAIRED = 64
_BURST = 0.7
_BURST_STEPS = 3
_APART = 32
"""Events between two frees of one burst, at most: each free is up to two events, and a cycle holds more than one
tensor.
"""


@dataclass(frozen=True)
class Growth:
    """One stack's growth. ``staircase``: its least live bytes in each stretch; ``per_slice``: bytes kept in a stretch,
    the median.
    """

    stack: int
    kept: int
    count: int
    staircase: np.ndarray
    per_slice: float


def leak_findings(snapshot: Snapshot, timeline: DeviceTimeline, slices: Slices) -> list[Finding]:
    """The leaks of one device, greatest first, then hints of reference cycles. ``slices``: what repeats."""
    names = own_functions(snapshot.recording)
    growths = growing_stacks(timeline, slices)
    found = [_leak(timeline, slices, growth, names[growth.stack], growths) for growth in growths[:MOST]]
    leaking = {growth.stack for growth in growths}
    return found + _cycle_findings(timeline, slices, names, leaking)


def least_bytes(timeline: DeviceTimeline) -> float:
    """What is left behind, or piles up, over a whole trace is not worth a word below this."""
    return max(_LEAST_BYTES, _LEAST_SHARE * timeline.peak_bytes)


def growing_stacks(timeline: DeviceTimeline, slices: Slices) -> list[Growth]:
    """Stacks that grow over the whole trace, most bytes a stretch first."""
    allocations = timeline.allocations
    kept = allocations.filter((pl.col("free_event") < 0) & (pl.col("alloc_event") >= 0))
    least = least_bytes(timeline)
    stacks = (
        kept.group_by("stack")
        .agg(bytes=pl.col("size").sum(), count=pl.len())
        .filter(pl.col("bytes") >= least)
        .sort("stack")
    )["stack"]
    if not len(stacks):
        return []
    numbers = stacks.to_numpy()
    births = _births(kept.filter(pl.col("stack").is_in(stacks.implode())), numbers, slices)
    floors = least_live(allocations, numbers, slices.bounds)
    # The first repetition warms up: what it leaves behind is there to stay. The last may have been cut short.
    growths = []
    for row, stack in enumerate(numbers.tolist()):
        per = births[row, 1:]
        if not _is_steady(per):
            continue
        stairs = floors[row]
        rise = float(stairs[-1] - stairs[1]) if len(stairs) > 2 else 0.0
        if rise < _RISE * float(per[:-1].sum()) * (len(per) - 2) / max(1, len(per) - 1):
            continue
        if float(np.median(_slopes(stairs[1:]))) <= 0:
            continue
        # What is kept tells the size of a step better than the stairs do: an allocation at the very end of a stretch,
        # as of a logger, stands in its stairs only from the next one on.
        per_slice = float(np.median(_complete(per)))
        growths.append(Growth(stack, int(births[row].sum()), int((kept["stack"] == stack).sum()), stairs, per_slice))
    return sorted(growths, key=lambda growth: (-growth.per_slice, growth.stack))


def _is_steady(per: np.ndarray) -> bool:
    """Whether something is kept in nearly every stretch, and no less towards the end. ``per``: bytes by stretch,
    without the first.
    """
    complete = _complete(per)
    later = complete[len(complete) // 2 :]
    total = float(complete.sum())
    if total <= 0 or np.count_nonzero(later) < _SPREAD * len(later) or np.count_nonzero(complete) < 0.6 * len(complete):
        return False
    return float(later.sum()) >= _LATER * total


def _complete(per: np.ndarray) -> np.ndarray:
    """Without the last stretch, which may have been cut short, where enough others are left."""
    return per[:-1] if len(per) > FEWEST else per


def _births(kept: pl.DataFrame, stacks: np.ndarray, slices: Slices) -> np.ndarray:
    """Float64 (stacks, stretches): bytes born in each and never freed."""
    row = np.searchsorted(stacks, kept["stack"].to_numpy())
    column = slices.of(kept["alloc_event"].to_numpy().astype(np.int64) + 1)
    inside = (column >= 0) & (column < slices.count)
    cell = row[inside] * slices.count + column[inside]
    sums = np.bincount(cell, weights=kept["size"].to_numpy()[inside], minlength=len(stacks) * slices.count)
    return sums.reshape(len(stacks), slices.count)


def least_live(allocations: pl.DataFrame, stacks: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Int64 (stacks, stretches): the least bytes of each stack that are live at once within ``[bounds[k], bounds[k +
    1])``.

    ``stacks``: ascending. O(E log E) for E births and deaths of those stacks.
    """
    table = allocations.filter(pl.col("stack").is_in(pl.Series(stacks).implode())).select(
        "stack", "size", "alloc_event", "free_event"
    )
    row = np.searchsorted(stacks, table["stack"].to_numpy())
    size, birth, death = (table[name].to_numpy().astype(np.int64) for name in ("size", "alloc_event", "free_event"))
    freed = death >= 0
    owner = np.concatenate((row, row[freed]))
    position = np.concatenate((birth + 1, death[freed] + 1))
    change = np.concatenate((size, -size[freed]))
    span = int(bounds[-1]) + 1
    key = owner * span + np.minimum(position, span - 1)
    order = np.argsort(key, kind="stable")
    key, total = key[order], np.cumsum(change[order])
    last = np.append(key[1:] != key[:-1], True)  # of several changes at one position the last one counts
    key, total = key[last], total[last]
    # Totals run on from stack to stack; each stack's begin where the one before ends.
    ends = np.searchsorted(key, (np.arange(len(stacks)) + 1) * span) - 1
    base = np.concatenate(([0], np.where(ends >= 0, total[ends], 0)))[:-1]
    total = total - base[key // span]

    slices, owner, position = len(bounds) - 1, key // span, key % span
    entry = np.searchsorted(key, (np.arange(len(stacks))[:, None] * span + bounds[:-1]).ravel(), "right") - 1
    own = (entry >= 0) & (owner[np.maximum(entry, 0)] == np.repeat(np.arange(len(stacks)), slices))
    result = np.where(own, total[np.maximum(entry, 0)], 0)
    column = np.searchsorted(bounds, position, "right") - 1
    inside = (column >= 0) & (column < slices)
    cell = (owner * slices + column)[inside]  # ascending, as the keys are
    if len(cell):
        starts = np.flatnonzero(np.append(True, cell[1:] != cell[:-1]))
        at = cell[starts]
        result[at] = np.minimum(result[at], np.minimum.reduceat(total[inside], starts))
    return result.reshape(len(stacks), slices)


def _slopes(stairs: np.ndarray) -> np.ndarray:
    """Slopes between all pairs, whose median no single step can pull away (Theil and Sen). Of many steps, some tens
    evenly apart.
    """
    at = np.unique(np.linspace(0, len(stairs) - 1, min(_PAIRED, len(stairs))).astype(np.int64))
    first, second = np.triu_indices(len(at), 1)
    slopes: np.ndarray = (stairs[at[second]] - stairs[at[first]]) / (at[second] - at[first])
    return slopes


def _leak(timeline: DeviceTimeline, slices: Slices, growth: Growth, name: str, all_growths: list[Growth]) -> Finding:
    unit, per = slices.unit, round(growth.per_slice)
    details = [
        f"{plural(growth.count, 'allocation')} of it, {bytes_text(growth.kept)}, were made within the trace and never "
        "freed.",
        f"Its least live bytes rose from {bytes_text(int(growth.staircase[1]))} in the second {unit} to "
        f"{bytes_text(int(growth.staircase[-1]))} in the last of {slices.count}.",
    ]
    everything = sum(g.per_slice for g in all_growths)
    limit, source = device_limit(timeline)
    if limit:
        free = limit - timeline.peak_bytes
        if free > 0:
            details.append(
                f"At {bytes_text(int(everything))} a {unit} in all, the peak reaches the {bytes_text(limit)} that "
                f"{source} after {count_text(int(free // max(1.0, everything)))} more {unit}s."
            )
    else:
        details.append(
            "The size of the device's memory was not recorded, so that it cannot be told when it would be full."
        )
    return Finding(
        kind="leak",
        device=timeline.device,
        severity="warning",
        title=f"{name or 'Allocations without frames'} leaks {bytes_text(per)} a {unit}, {bytes_text(growth.kept)} by "
        f"the end of the trace ({share_text(growth.kept, int(timeline.allocated[-1]))} of what is live then)",
        detail=details,
        bytes=growth.kept,
        event=len(timeline.events) - 1,
        stack=growth.stack,
        evidence={
            "bytes_per_step": per,
            "kept_bytes": growth.kept,
            "kept_count": growth.count,
            "unit": unit,
            "steps": slices.count,
            "staircase": growth.staircase.tolist(),
            "bounds": (slices.bounds - 1).tolist(),  # events: each stretch begins at one, and the last ends before one
            "device_limit": limit,
        },
        basis=[f"{plural(slices.count, unit)}: {slices.source}.", *basis_of(timeline)],
        confidence="likely" if slices.count >= 2 * FEWEST else "guess",
        link={"view": "timeline", "query": f"stack:{growth.stack} live:end"},
    )


def device_limit(timeline: DeviceTimeline) -> tuple[int, str]:
    """(bytes, how it is known) that the device can give: reserved plus free at an out-of-memory; (0, "") where none was
    recorded.
    """
    best = 0
    for event in timeline.oom_events:
        free = timeline.events["device_free"][event]
        if free is not None:
            best = max(best, int(timeline.reserved[event + 1]) + int(free))
    return (best, "was reserved and free at the out-of-memory") if best else (0, "")


def _collecting(recording: Recording) -> pl.Series:
    """Int32: stacks that Python's garbage collector is in."""
    hit = np.flatnonzero(
        recording.frames["name"]
        .str.contains(r"(?i)\bgc_?collect|garbage_?collect|collect_garbage|^gc_(main|collect)")
        .to_numpy()
    )
    place = np.flatnonzero(np.isin(recording.stack_frames, hit))
    return pl.Series(np.unique(np.searchsorted(recording.stack_offsets, place, "right") - 1).astype(np.int32))


def _cycle_findings(timeline: DeviceTimeline, slices: Slices, names: pl.Series, leaking: set[int]) -> list[Finding]:
    """Stacks that pile up over several stretches and then go all at once: reference cycles wait for Python's
    collector.
    """
    allocations = timeline.allocations
    birth, death, stack = (allocations[name].to_numpy() for name in ("alloc_event", "free_event", "stack"))
    # Most allocations die in the step they are born in: stacks with none that outlives it are looked at no further.
    old = np.flatnonzero((birth >= 0) & (death - birth > int(np.diff(slices.bounds).min())))
    old = old[slices.of(death[old] + 1) > slices.of(birth[old] + 1)]
    if not len(old):
        return []
    kept = np.zeros(int(stack.max()) + 1, bool)
    kept[stack[old]] = True
    rows = np.flatnonzero(kept[stack] & (birth >= 0) & (death >= 0))
    table = allocations.select("stack", "size", "free_event", "free_stack")[rows].with_columns(
        born=pl.Series(slices.of(birth[rows] + 1)), died=pl.Series(slices.of(death[rows] + 1))
    )
    table = table.filter((pl.col("born") >= 0) & (pl.col("died") < slices.count))
    least = least_bytes(timeline)
    # One burst: frees that follow each other closely, of things born in several stretches.
    table = table.sort("stack", "free_event").with_columns(
        burst=((pl.col("free_event").diff() > _APART) | (pl.col("stack").diff() != 0)).fill_null(value=True).cum_sum()
    )
    bursts = (
        table.group_by("stack", "burst")
        .agg(
            bytes=pl.col("size").sum(),
            count=pl.len(),
            free_stack=pl.col("free_stack").mode().min(),
            first=pl.col("free_event").min(),
            died=pl.col("died").max(),
            oldest=pl.col("born").min(),
        )
        .filter(
            (pl.col("count") >= _BURST_STEPS)
            & (pl.col("died") - pl.col("oldest") >= _BURST_STEPS - 1)
            & (pl.col("bytes") >= least)
        )
        .with_columns(collected=pl.col("free_stack").is_in(_collecting(timeline.recording).implode()))
    )
    # The collector in the stacks of the frees says it; without C++ frames it runs wherever an allocation wakes it, so
    # that no two bursts are freed at the same place. What one place frees again and again is the program's own doing.
    by_collector = (pl.col("bursts") >= 2) & (pl.col("collected") > 0.5)
    anywhere = (pl.col("bursts") >= 3) & (pl.col("places") == pl.col("bursts"))
    stacks = (
        bursts.group_by("stack")
        .agg(
            bursts=pl.len(),
            bytes=pl.col("bytes").max(),
            count=pl.col("count").max(),
            span=(pl.col("died") - pl.col("oldest")).max(),
            event=pl.col("first").sort_by(["bytes", "first"], descending=[True, False]).first(),
            collected=pl.col("collected").mean(),
            places=pl.col("free_stack").n_unique(),
        )
        .filter(by_collector | anywhere)
        .filter(~pl.col("stack").is_in(pl.Series(sorted(leaking), dtype=pl.Int32).implode()))
    )
    found = []
    for row in stacks.sort(["bytes", "stack"], descending=[True, False]).head(MOST).rows(named=True):
        piled_up = row["event"] - 1  # the position before the first free of the greatest burst
        total = int(table.filter(pl.col("stack") == row["stack"])["size"].sum())
        share = int(bursts.filter(pl.col("stack") == row["stack"])["bytes"].sum()) / max(1, total)
        if share < _BURST:
            continue
        name = names[row["stack"]] or "Allocations without frames"
        found.append(
            Finding(
                kind="leak",
                device=timeline.device,
                severity="info",
                title=f"{name} piles up over {plural(row['span'], slices.unit)} and is freed in bursts of up to "
                f"{bytes_text(row['bytes'])}: perhaps a reference cycle that waits for Python's garbage collector",
                detail=[
                    f"{plural(row['bursts'], 'burst')} free {share_text(int(share * total), total)} of its bytes.",
                    "Breaking the cycle, or weak references, would free each of them at once.",
                ],
                bytes=row["bytes"],
                event=piled_up,
                stack=row["stack"],
                evidence={
                    "bursts": row["bursts"],
                    "burst_bytes": row["bytes"],
                    "burst_count": row["count"],
                    "share_of_bytes": round(share, 4),
                },
                basis=basis_of(timeline),
                confidence="likely" if row["collected"] > 0.5 else "guess",
                link={"view": "timeline", "at": piled_up, "query": f"stack:{row['stack']}"},
            )
        )
    return found
