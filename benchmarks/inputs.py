"""What is measured: real snapshots where there are any, and generated ones, the same for everyone by seed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REAL = ROOT.parent / "shared" / "snapshots"


def real() -> list[Path]:
    return sorted(REAL.glob("*.pickle"))


def generated(folder: Path, presets: list[str]) -> list[Path]:
    """Write samples by preset, or by preset:events (``large:920183``)."""
    from snapreport import samples

    paths = []
    for given in presets:
        preset, _, events = given.partition(":")
        paths.append(folder / f"{given.replace(':', '-')}.pickle")
        samples.write(paths[-1], preset, **({"events": int(events)} if events else {}))
    return paths
