"""What-if: how exactly real traces are replayed under their own settings, and how long a replay takes, in Python and in
the page.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import snapreport
from benchmarks.measure import command
from snapreport.allocator.settings import parse_settings
from snapreport.allocator.whatif import WhatIf
from snapreport.allocator_facts import TRIED_SETTINGS

WITHIN = 0.01
"""A curve that is this close, as a share of peak reserved memory, counts as within 1%."""
SAMPLES = ("small:22000", "small:920183")
CONFIGURATIONS = TRIED_SETTINGS[:4]
# From the request to the answer. The first has the self-check; each also replays the recorded settings, as a request
# without settings does: the difference is that of the setting's replays, one for each placement. For short traces the
# setting is replayed twenty times.
IN_PAGE = """async (configurations) => {
  const timed = async (settings) => {
    const began = performance.now()
    const answer = await snapreport.whatIf(0, { settings })
    return [(performance.now() - began) / 1000, answer]
  }
  await snapreport.ready
  const [first, { check, placements }] = await timed([])
  const [own] = await timed([])
  const seconds = { first, own: own / placements }
  const copies = own < 1 ? 20 : 1
  for (const text of configurations) {
    const [took] = await timed(Array(copies).fill(text))
    seconds[text] = (took - own) / placements / copies
  }
  return { exact: check.exact, seconds }
}"""


def measure(
    real: Sequence[Path], generated: Sequence[Path], runs: int, folder: Path, browser: Any = None
) -> dict[str, Any]:
    """Self-checks of all devices of ``real``; seconds per setting of ``generated``, in the page too where there is a
    browser.
    """
    return {
        "checks": [row for path in real for row in _checks(path)],
        "times": [_times(path, runs) for path in generated],
        "page": [_in_page(path, folder, browser, runs) for path in generated] if browser else [],
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


def _in_page(path: Path, folder: Path, browser: Any, runs: int) -> dict[str, Any]:
    """Medians over ``runs`` pages, each newly opened."""
    report = folder / f"{path.name}.html"
    command("-m", "snapreport", path, "-o", report)
    taken = []
    for _ in range(runs):
        context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
        page = context.new_page()
        page.set_default_timeout(600_000)
        page.goto(report.as_uri())
        figures = page.evaluate(IN_PAGE, list(CONFIGURATIONS))
        context.close()
        assert figures["exact"]
        taken.append(figures["seconds"])
    return {"name": path.name, **{key: statistics.median(one[key] for one in taken) for key in taken[0]}}


def table(document: dict[str, Any]) -> str:
    """The figures as text: a line per device, the counts, a line per sample."""
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
    for row in document["page"]:
        per = ", ".join(f"{text} {row[text]:.3f} s" for text in CONFIGURATIONS)
        lines.append(
            f"{row['name']} in the page: first answer with the self-check {row['first']:.2f} s; one replay: recorded "
            f"settings {row['own']:.3f} s, {per}"
        )
    return "\n".join(lines)
