"""``python -m benchmarks``: times and sizes of the installed package on real and generated snapshots, as a table.

Real snapshots are taken from ``../shared/snapshots`` where there are any. The bare load, an unpickling of the same file
that refuses globals and keeps nothing, is measured in the same run: seconds mean little on a shared machine, their
relation more. Wall-clock medians of whole processes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, empty_report, measure

ROOT = Path(__file__).resolve().parent.parent
REAL = ROOT.parent / "shared" / "snapshots"
PRESETS = ("small", "training", "oom", "multi-gpu")


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


@contextlib.contextmanager
def chromium(wanted: bool) -> Iterator[Any]:
    """A running Chromium, found as the tests find it; None where none is wanted or playwright is not installed."""
    if not wanted or importlib.util.find_spec("playwright") is None:
        print(
            "first picture: not measured (no playwright)" if wanted else "first picture: not asked for", file=sys.stderr
        )
        yield None
        return
    sys.path.insert(0, str(ROOT / "tests"))
    import browser

    with browser.launched() as running:
        yield running


def table(rows: list[Row], empty: int) -> str:
    lines = [
        f"{'snapshot':34} {'pickle':>9} {'load':>7} {'report':>7} {'html':>9} {'data':>9} "
        f"{'xz -9':>9} {'ratio':>6} {'picture':>8}"
    ]
    for row in rows:
        picture = f"{row.picture:.2f} s" if row.picture is not None else "-"
        lines.append(
            f"{row.name:34} {row.pickle:9,} {row.load:5.2f} s {row.report:5.2f} s {row.html:9,} {row.data:9,} {row.xz:9,} "
            f"{row.ratio:6.2f} {picture:>8}"
        )
    return "\n".join([*lines, f"empty report: {empty:,} bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("snapshots", nargs="*", type=Path, help="files to measure instead of the real ones and samples")
    parser.add_argument(
        "--samples", nargs="*", default=list(PRESETS), metavar="PRESET[:EVENTS]", help="samples to generate and measure"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement (median); default 3")
    parser.add_argument("--no-browser", action="store_true", help="leave the first picture out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, chromium(not options.no_browser) as browser:
        folder = Path(scratch)
        empty = empty_report(folder)
        paths = options.snapshots or [*real(), *generated(folder, options.samples)]
        rows = [measure(path, folder, empty, browser, options.runs) for path in paths]
    print(table(rows, empty))
    if options.json:
        document = {"empty_html": empty, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
