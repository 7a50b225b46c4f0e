"""How long a switch to each view takes: the first at the moment the report is ready, in a page just opened, and a later
one.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.measure import command

VIEWS = ("segments", "reserved", "flame", "table", "events", "summary")
SAMPLES = ("training:22000", "large")
# From the call to the frame that shows it; the longest task of the page's main thread meanwhile.
FIRST = """async (view) => {
  const tasks = []
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries()))
  observer.observe({ entryTypes: ['longtask'] })
  const frame = () => new Promise(requestAnimationFrame)
  const rest = () => new Promise((resolve) => setTimeout(resolve, 300))
  const switched = async () => {
    const began = performance.now()
    await snapreport.setView({ view })
    await frame()
    return [began, performance.now()]
  }
  await snapreport.ready
  const [began, ended] = await switched()
  await rest()
  const during = tasks.filter((task) => task.startTime + task.duration > began && task.startTime < ended)
  await snapreport.setView({ view: 'timeline' })
  await rest()
  const [again, done] = await switched()
  const longest = Math.max(0, ...during.map((task) => task.duration))
  return { first: ended - began, later: done - again, 'longest task': longest }
}"""


def measure(path: Path, folder: Path, browser: Any, runs: int) -> dict[str, Any]:
    """Medians in ms by view. The browser does not report tasks below 50 ms: 0 stands for them."""
    report = folder / f"{path.name}.html"
    command("-m", "snapreport", path, "-o", report)
    rows = []
    for view in VIEWS:
        taken = [switch(browser, report, view) for _ in range(runs)]
        medians = {f"{name} ms": statistics.median(run[name] for run in taken) for name in taken[0]}
        rows.append({"name": view, **medians, "least first ms": min(run["first"] for run in taken)})
    return {"file": path.name, "views": rows}


def switch(browser: Any, report: Path, view: str) -> dict[str, float]:
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(report.as_uri())
    figures = page.evaluate(FIRST, view)
    context.close()
    return figures


def table(measured: list[dict[str, Any]]) -> str:
    lines = []
    for result in measured:
        lines.append(f"{result['file']}: ms to switch to a view")
        lines.append(f"  {'view':10} {'first':>8} {'least':>8} {'later':>8} {'longest task':>14}")
        lines += [
            f"  {row['name']:10} {row['first ms']:8.0f} {row['least first ms']:8.0f} {row['later ms']:8.0f} "
            f"{row['longest task ms']:14.0f}"
            for row in result["views"]
        ]
    return "\n".join(lines)
