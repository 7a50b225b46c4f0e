"""What is measured: real snapshots where there are any, and generated ones, the same for everyone by seed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.process import cost

ROOT = Path(__file__).resolve().parent.parent
REAL = ROOT.parent / "shared" / "snapshots"


def real() -> list[Path]:
    return sorted(REAL.glob("*.pickle"))


def generated(folder: Path, presets: list[str]) -> list[Path]:
    """Write samples by preset, or by preset:events (``large:920183``).

    Each by a process of its own: what this one holds counts as memory of every process that it starts from then on.
    """
    paths = []
    for given in presets:
        preset, _, events = given.partition(":")
        path = folder / f"{given.replace(':', '-')}.pickle"
        cost("-m", "snapreport", "sample", "--preset", preset, *(["--events", events] if events else []), "-o", path)
        paths.append(path)
    return paths
