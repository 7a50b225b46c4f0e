"""What-if: how exactly real traces are replayed under their own settings, and how long a replay takes."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import snapreport
from snapreport.allocator.settings import parse_settings
from snapreport.allocator.whatif import STANDARD, WhatIf

WITHIN = 0.01
"""A curve that is this close, as a share of peak reserved memory, counts as within 1%."""
SAMPLES = ("small:22000", "small:920183")
CONFIGURATIONS = STANDARD[:4]


def measure(real: Sequence[Path], generated: Sequence[Path], runs: int) -> dict[str, Any]:
    """Self-checks of all devices of ``real``, and seconds a setting of ``generated``."""
    return {
        "checks": [row for path in real for row in _checks(path)],
        "times": [_times(path, runs) for path in generated],
    }


def _checks(path: Path) -> list[dict[str, Any]]:
    snapshot = snapreport.load(path)
    rows = []
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        if timeline.kind != "cuda" or not len(timeline.events):
            continue
        whatif = WhatIf(timeline, start="recorded")
        check = whatif.check
        row = {
            "name": path.name,
            "device": device,
            "events": len(timeline.events),
            "result": "exact" if check.exact else "within 1%" if check.curve_error <= WITHIN else "worse",
            "same_allocations": f"{check.same_allocations} of {check.allocations}",
            "reason": check.reason,
        }
        if check.exact:
            base = whatif.baseline
            row["spread"] = ((base.high or 0) - (base.low or 0)) / max(whatif.trace.peak_reserved, 1)
            row["residual"] = whatif.residual / max(whatif.trace.peak_reserved, 1)
        rows.append(row)
    return rows


def _times(path: Path, runs: int) -> dict[str, Any]:
    timeline = snapreport.load(path).timeline(0)
    whatif = WhatIf(timeline)
    row: dict[str, Any] = {"name": path.name, "events": len(timeline.events), "placements": whatif.placements}
    gc.disable()
    for name in ("trace", "state", "check"):
        began = time.perf_counter()
        getattr(whatif, name)
        row[f"{name}_s"] = time.perf_counter() - began
    assert whatif.check.exact
    for text in CONFIGURATIONS:
        settings = parse_settings([text], whatif.own)
        took, cpu = [], []
        for _ in range(runs):
            began, busy = time.perf_counter(), time.process_time()
            whatif.replay(settings)
            took.append(time.perf_counter() - began)
            cpu.append(time.process_time() - busy)
        row[text] = {"seconds": statistics.median(took), "cpu_seconds": statistics.median(cpu)}
    gc.enable()
    return row


def table(document: dict[str, Any]) -> str:
    """As text: a line per device, the counts, a line per sample."""
    lines = ["| file | device | events | self-check | spread | why |", "|---|---|---|---|---|---|"]
    for row in document["checks"]:
        spread = f"{row['spread']:.1%}" if "spread" in row else ""
        lines.append(
            f"| {row['name']} | {row['device']} | {row['events']:,} | {row['result']} | {spread} | {row['reason']} |"
        )
    counts = {
        result: sum(r["result"] == result for r in document["checks"]) for result in ("exact", "within 1%", "worse")
    }
    lines += ["", ", ".join(f"{count} {result}" for result, count in counts.items()), ""]
    for row in document["times"]:
        per = ", ".join(
            f"{text} {row[text]['seconds']:.2f} s (CPU {row[text]['cpu_seconds']:.2f})" for text in CONFIGURATIONS
        )
        lines.append(f"{row['name']}: {row['events']:,} events, self-check {row['check_s']:.2f} s; one replay: {per}")
    return "\n".join(lines)
