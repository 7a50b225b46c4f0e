"""The snapshots to measure: real ones where there are any, and generated ones, the same everywhere by seed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.process import cost

ROOT = Path(__file__).resolve().parent.parent
REAL = ROOT.parent / "shared" / "snapshots"


def real() -> list[Path]:
    return sorted(REAL.glob("*.pickle"))


def generated(folder: Path, presets: list[str]) -> list[Path]:
    """Writes samples by preset, or by preset:events (``large:920183``).

    Each is written by its own process: memory that this process holds would count towards every process that it starts
    later.
    """
    paths = []
    for given in presets:
        preset, _, events = given.partition(":")
        path = folder / f"{given.replace(':', '-')}.pickle"
        options = f", events={int(events)}" if events else ""
        made = f"generator.write(pathlib.Path({str(path)!r}), {preset!r}{options})"
        cost("-c", f"import pathlib, sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import generator; {made}")
        paths.append(path)
    return paths
