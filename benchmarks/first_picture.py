"""The first picture with and without a stored tile: its bytes, and how soon it and the finished page are on screen."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.measure import command

SAMPLES = ("training:22000", "large:100000", "large:300000", "large", "huge")
# Raster rows of the stored tile; 0: none is stored.
ROWS = (0, 256, 1024)
MARKS = ("first-picture", "on-screen", "ready")
WRITE = """
import sys
from snapreport.mesh import levels
from snapreport.cli import main
rows = int(sys.argv[1])
levels.STORED_ABOVE = 0 if rows else 1 << 62
levels.STORED_ROWS = rows
levels.STORED_SPANS = 1 << 30
main(sys.argv[2:])
"""


def measure(path: Path, folder: Path, browser: Any, runs: int) -> dict[str, Any]:
    """Bytes of each report, and median and minimum ms from navigation to each mark. Reports take turns, so that a slow
    moment of the machine slows all of them.
    """
    reports = {rows: folder / f"{path.name}.{rows}.html" for rows in ROWS}
    for rows, report in reports.items():
        command("-c", WRITE, rows, path, "-o", report)
    opened: dict[int, list[dict[str, float]]] = {rows: [] for rows in ROWS}
    for _ in range(runs):
        for rows, report in reports.items():
            opened[rows].append(marks_of(browser, report))
    variants = [
        {
            "name": str(rows),
            "bytes": report.stat().st_size,
            **{f"{mark} ms": statistics.median(run[mark] for run in opened[rows]) for mark in MARKS},
            **{f"least {mark} ms": min(run[mark] for run in opened[rows]) for mark in MARKS},
        }
        for rows, report in reports.items()
    ]
    return {"file": path.name, "variants": variants}


def marks_of(browser: Any, report: Path) -> dict[str, float]:
    """Milliseconds from navigation to each mark, in a new page."""
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(report.as_uri())
    page.evaluate("snapreport.ready")
    page.wait_for_function("performance.getEntriesByName('snapreport:on-screen').length > 0")
    entries = page.evaluate("performance.getEntriesByType('mark').map(mark => [mark.name, mark.startTime])")
    context.close()
    first: dict[str, float] = {}
    for name, time in entries:
        first.setdefault(name.removeprefix("snapreport:"), time)
    return first


def table(measured: list[dict[str, Any]]) -> str:
    lines = []
    for result in measured:
        lines.append(f"{result['file']}: ms from navigation, medians (least)")
        lines.append(f"  {'rows':>5} {'bytes':>11}" + "".join(f"{mark:>20}" for mark in MARKS))
        for row in result["variants"]:
            times = (f"{row[f'{mark} ms']:,.0f} ({row[f'least {mark} ms']:,.0f})" for mark in MARKS)
            lines.append(f"  {row['name']:>5} {row['bytes']:11,}" + "".join(f"{text:>20}" for text in times))
    return "\n".join(lines)
