"""How far the times of a snapshot, of a profiler's trace and of the program lie apart: a program that allocates
(``tests/fakecuda/programs/clocks.py``) alone and beside busy loops, over the driver of tests/fakecuda and on the CPU.

The program reads the time of day before and after each allocation. A recorder's time outside of the two is an error of
its clock; both recorders' times of one allocation also differ by what the thread waits between them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inputs import ROOT
from benchmarks.recording import pythons

PROGRAM = ROOT / "tests" / "fakecuda" / "programs" / "clocks.py"
SECONDS = 20
BUSY = "while True: pass"
NARROW_NS = 5_000
"""Between the two readings, where the thread did not wait."""


def measure(folder: Path) -> list[dict[str, Any]]:
    """For each Python and load: counts, and distances in µs."""
    on_cpu = [(sys.executable, "cpu")] if importlib.util.find_spec("torch") else []
    rows = []
    for python, device in [*((one, "cuda") for one in pythons()), *on_cpu]:
        for loops in (0, os.cpu_count() or 1):
            with _busy(loops):
                command = [python, str(PROGRAM), str(folder / "run"), str(SECONDS), device]
                subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
            truth = json.loads((folder / "run.truth.json").read_text())
            rows.append({"name": python, "device": device, "loops": loops, **_distances(truth)})
    return rows


@contextmanager
def _busy(loops: int) -> Iterator[None]:
    """While ``loops`` processes keep the processors busy."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(loops)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def _distances(truth: dict[str, list[int]]) -> dict[str, Any]:
    before, after, recorded, profiled = (np.array(truth[key]) for key in ("before", "after", "recorded", "profiled"))
    narrow = after - before <= NARROW_NS
    outside = [np.maximum(np.maximum(before - one, one - after), 0)[narrow].max() for one in (recorded, profiled)]
    apart = np.abs(profiled - recorded)
    return {
        "allocations": len(before), "narrow": int(narrow.sum()),
        "recorder_us": float(outside[0]) / 1000, "profiler_us": float(outside[1]) / 1000,
        "join_us": float(apart[narrow].max()) / 1000, "median_us": float(np.median(apart)) / 1000,
        "most_us": float(apart.max()) / 1000,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        lines.append(
            f"{row['name']} ({row['device']}), {row['loops']} busy loops: {row['allocations']:,} allocations, "
            f"{row['narrow']:,} of them within {NARROW_NS // 1000} µs; outside of the program's readings: "
            f"profiler {row['profiler_us']:.2f} µs at most"
        )
        if row["device"] == "cuda":
            lines[-1] += f", recorder {row['recorder_us']:.2f} µs"
            lines.append(
                f"  one allocation in both: {row['join_us']:.2f} µs apart at most; with the waits of the thread "
                f"{row['median_us']:.2f} µs in the median, {row['most_us']:.1f} µs at most"
            )
    return "\n".join(lines)
