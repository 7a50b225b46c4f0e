"""A report in a browser: how soon it opens, its frame times while it is zoomed, dragged and hovered, and its heap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Time between frames as the page itself sees it.
RECORD = """() => {
  window.frameTimes = []
  let last = performance.now()
  const tick = (now) => { window.frameTimes.push(now - last); last = now; requestAnimationFrame(tick) }
  requestAnimationFrame(tick)
}"""


def browse(browser: Any, report: Path) -> dict[str, float]:
    """Milliseconds from navigation to each mark, frame times (p50, p95) of each gesture in ms, JS heap in MB."""
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(report.as_uri())
    page.evaluate("snapreport.ready")
    marks = page.evaluate("performance.getEntriesByType('mark').map(mark => [mark.name, mark.startTime])")
    figures = {f"{name.removeprefix('snapreport:')} ms": time for name, time in marks if name.startswith("snapreport:")}
    page.wait_for_timeout(500)
    page.evaluate(RECORD)
    page.mouse.move(800, 500)
    for name, gesture in GESTURES.items():
        page.wait_for_timeout(200)
        page.evaluate("window.frameTimes = []")
        gesture(page)
        times = sorted(page.evaluate("window.frameTimes"))
        figures[f"{name} frame p50 ms"] = times[len(times) // 2]
        figures[f"{name} frame p95 ms"] = times[int(len(times) * 0.95)]
    figures["heap MB"] = page.evaluate("performance.memory ? performance.memory.usedJSHeapSize / 1e6 : NaN")
    context.close()
    return figures


def zoom_in(page: Any) -> None:
    """Zooms from the whole trace to single events."""
    for _ in range(60):
        page.mouse.wheel(0, -120)
        page.wait_for_timeout(20)


def zoom_out(page: Any) -> None:
    for _ in range(60):
        page.mouse.wheel(0, 120)
        page.wait_for_timeout(20)


def pan(page: Any) -> None:
    page.mouse.down()
    for step in range(40):
        page.mouse.move(800 - 8 * step, 500)
        page.wait_for_timeout(20)
    page.mouse.up()


def hover(page: Any) -> None:
    for step in range(40):
        page.mouse.move(300 + 20 * step, 600 - 5 * step)
        page.wait_for_timeout(20)


GESTURES = {"zoom in": zoom_in, "pan": pan, "zoom out": zoom_out, "hover": hover}
