"""Small snapshots: time of the whole process, the report's data against a compressed pickle, the first picture."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import measure

PRESETS = ("small", "training", "oom", "multi-gpu")


def rows(paths: list[Path], folder: Path, empty: int, browser: Any, runs: int) -> list[dict[str, Any]]:
    measured = [measure(path, folder, empty, browser, runs) for path in paths]
    return [asdict(row) | {"ratio": row.ratio} for row in measured]


def table(measured: list[dict[str, Any]], empty: int) -> str:
    lines = [
        f"{'snapshot':34} {'pickle':>9} {'load':>7} {'report':>7} {'html':>9} {'data':>9} "
        f"{'xz -9':>9} {'ratio':>6} {'picture':>8}"
    ]
    for row in measured:
        picture = f"{row['picture']:.2f} s" if row["picture"] is not None else "-"
        lines.append(
            f"{row['name']:34} {row['pickle']:9,} {row['load']:5.2f} s {row['report']:5.2f} s {row['html']:9,} "
            f"{row['data']:9,} {row['xz']:9,} {row['ratio']:6.2f} {picture:>8}"
        )
    return "\n".join([*lines, f"empty report: {empty:,} bytes"])
