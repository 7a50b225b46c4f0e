"""Cost by number of events, in two families: training, and many long-lived allocations above early frees."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from benchmarks.inputs import generated
from benchmarks.measure import BARE_LOAD
from benchmarks.process import cost

EVENTS = (10_000, 100_000, 1_000_000, 3_000_000, 5_000_000)
OFF_THE_LINE = 1.25  # of the memory per event that the two sizes before added
FAMILIES = ("large", "overlap")


def grow(folder: Path, empty: int, most: int) -> list[dict[str, Any]]:
    """A row for each family and number of events up to ``most``: one run each, ratios to the bare load of the same
    file.
    """
    rows = []
    for family in FAMILIES:
        for events in (count for count in EVENTS if count <= most):
            (path,) = generated(folder, [f"{family}:{events}"])
            out = folder / "growth.html"
            bare, ours = cost("-c", BARE_LOAD, path), cost("-m", "snapreport", path, "-o", out)
            rows.append(
                {
                    "family": family,
                    "events": events,
                    "seconds": ours.seconds,
                    "times_bare": ours.seconds / bare.seconds,
                    "memory": ours.memory,
                    "microseconds_per_event": ours.seconds / events * 1e6,
                    "memory_per_event": ours.memory / events,
                    "data_per_event": (out.stat().st_size - empty) / events,
                }
            )
            path.unlink()
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{'family':8} {'events':>10} {'time':>8} {'x bare':>7} {'memory':>9} {'us/event':>9} {'B mem/event':>12} "
        f"{'B file/event':>13}"
    ]
    lines += [
        f"{row['family']:8} {row['events']:10,} {row['seconds']:6.2f} s {row['times_bare']:7.2f} "
        f"{row['memory'] / 2**20:5,.0f} MiB "
        f"{row['microseconds_per_event']:9.2f} {row['memory_per_event']:12,.0f} {row['data_per_event']:13.2f}"
        for row in rows
    ]
    lines += [f"{family}: {knee(rows, family)}" for family in dict.fromkeys(row["family"] for row in rows)]
    return "\n".join(lines)


def knee(rows: list[dict[str, Any]], family: str) -> str:
    """Where memory leaves the line: the first size from which an event adds a quarter more than before."""
    mine = [row for row in rows if row["family"] == family]
    added = [
        (after["events"], (after["memory"] - before["memory"]) / (after["events"] - before["events"]))
        for before, after in itertools.pairwise(mine)
    ]
    for (_, slope), (events, steeper) in itertools.pairwise(added):
        if steeper > OFF_THE_LINE * slope:
            return f"memory leaves the line before {events:,} events: {slope:,.0f} bytes an event, then {steeper:,.0f}"
    slopes = ", ".join(f"{slope:,.0f} to {events:,}" for events, slope in added)
    return f"memory grows no faster than the events (bytes an event: {slopes})" if added else "one size only"
