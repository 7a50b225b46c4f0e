"""Large snapshots, compared in one run: the bare load, torch's own viewer, and a report; then the report's frames. Or
the bare load and every format of ``export``.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from benchmarks.frames import browse
from benchmarks.measure import BARE_LOAD
from benchmarks.process import Cost, cost, median
from snapreport.commands.export import FORMATS


def tools(path: Path, folder: Path) -> dict[str, tuple[list[object], Path | None]]:
    """Name to (arguments of this Python, the file that it writes)."""
    report, page = folder / "report.html", folder / "trace_plot.html"
    found: dict[str, tuple[list[object], Path | None]] = {
        "bare load": (["-c", BARE_LOAD, path], None),
        "snapreport": (["-m", "snapreport", path, "-o", report], report),
    }
    if importlib.util.find_spec("torch") is not None:
        found["torch trace_plot"] = (["-m", "torch.cuda._memory_viz", "trace_plot", path, "-o", page], page)
    return found


def exports(path: Path, folder: Path) -> dict[str, tuple[list[object], Path | None]]:
    """As :func:`tools`: the bare load, the report and every export."""
    found = {name: tool for name, tool in tools(path, folder).items() if name != "torch trace_plot"}
    for name in FORMATS:
        out = folder / f"{name}.out"
        found[name] = (["-m", "snapreport", "export", path, "--to", name, "-o", out, "--force"], out)
    return found


def compare(
    path: Path, folder: Path, browser: Any, runs: int, found: dict[str, tuple[list[object], Path | None]]
) -> dict[str, Any]:
    """Figures of every tool on one file; tools take turns, so that a machine that slows down slows them all."""
    taken: dict[str, list[Cost]] = {name: [] for name in found}
    for _ in range(runs):
        for name, (arguments, _out) in found.items():
            taken[name].append(cost(*arguments))
    bare = median(taken["bare load"])
    rows = {}
    for name, (_arguments, out) in found.items():
        figures = median(taken[name])
        # Pair by pair: a run is compared with the load of the same turn.
        ratios = sorted(run.seconds / load.seconds for run, load in zip(taken[name], taken["bare load"], strict=True))
        rows[name] = {
            "seconds": figures.seconds,
            "processor": figures.processor,
            "times_bare": ratios[len(ratios) // 2],
            "memory": figures.memory,
            "memory_times_bare": figures.memory / bare.memory,
            "output": _size(out) if out else 0,
        }
    result: dict[str, Any] = {"file": path.name, "pickle": path.stat().st_size, "tools": rows}
    if browser:
        result["browser"] = browse(browser, folder / "report.html")
    return result


def _size(out: Path) -> int:
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) if out.is_dir() else out.stat().st_size


def table(results: list[dict[str, Any]]) -> str:
    lines = []
    for result in results:
        lines.append(f"{result['file']} ({result['pickle'] / 1e6:,.0f} MB)")
        lines.append(
            f"  {'tool':18} {'time':>8} {'x bare':>7} {'processor':>9} {'memory':>9} {'x bare':>7} {'output':>10}"
        )
        for name, row in result["tools"].items():
            lines.append(
                f"  {name:18} {row['seconds']:6.2f} s {row['times_bare']:7.2f} {row['processor']:7.2f} s "
                f"{row['memory'] / 2**20:5,.0f} MiB "
                f"{row['memory_times_bare']:7.2f} {row['output'] / 1e6:7.2f} MB"
            )
        for name, value in result.get("browser", {}).items():
            lines.append(f"  {name:32} {value:8.1f}")
    return "\n".join(lines)
