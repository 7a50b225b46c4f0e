"""How fast a report of a million events answers a reader, in Chromium's software renderer, beside the targets.

Each gesture runs inside the page, so that no driver's round trip is counted: a slider, a wheel and a pointer send one
event in every frame, and a frame's time is the time between two animation frames; a key, a click on a column's head and
a switch of the view are timed from the call to the first task after the frame that shows them.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.measure import command

SAMPLES = ("large",)  # 920,183 events
SLOWDOWN = 4
MOST_SLOW_MS = 250
"""What nothing may take at a quarter of the processor's speed."""
VIEWS = ("segments", "events", "reserved", "flame", "table")
# name → (what is compared, ms)
TARGETS: dict[str, tuple[str, float]] = {
    "slider": ("p95", 80),
    "key": ("p95", 50),
    "sort": ("p95", 100),
    "hover": ("p95", 20),
    "zoom": ("p95", 33),
    **{f"first {view}": ("p50", 200) for view in VIEWS},
}
TOOLS = """
  const next = () => new Promise(requestAnimationFrame)
  const shown = async () => { await next(); await new Promise(done => {
    const { port1, port2 } = new MessageChannel(); port1.onmessage = done; port2.postMessage(0) }) }
  const rest = ms => new Promise(done => setTimeout(done, ms))
  const timed = async act => {
    const began = performance.now()
    await act()
    await shown()
    return performance.now() - began
  }
  const frames = async (count, act) => {
    const times = []
    let last = await next()
    for (let i = 0; i < count; i++) {
      act(i)
      await next()
      const now = performance.now()
      times.push(now - last)
      last = now
    }
    return times
  }
  const plot = () => document.querySelector('.plot')
  const pointer = (type, target, x, y, more = {}) => {
    const kind = type === 'wheel' ? WheelEvent : PointerEvent
    const place = { clientX: x, clientY: y, pointerId: 1, pointerType: 'mouse' }
    target.dispatchEvent(new kind(type, { bubbles: true, cancelable: true, ...place, ...more }))
  }
"""
GESTURES = {
    "slider": """async () => {
      await snapreport.setView({ view: 'segments' })
      await rest(500)
      const slider = document.querySelector('.moment input[type=range], input[type=range]')
      const last = Number(slider.max)
      return frames(60, i => { slider.value = String(Math.round(last * (0.2 + 0.01 * i)))
        slider.dispatchEvent(new Event('input', { bubbles: true })) })
    }""",
    "key": """async () => {
      await snapreport.setView({ view: 'timeline' })
      await rest(500)
      const field = document.querySelector('.search-input')
      const times = []
      for (const text of ['attention', 'size>1MiB live:peak']) {
        field.focus()
        for (let n = 1; n <= text.length; n++) {
          times.push(await timed(() => { field.value = text.slice(0, n)
            field.dispatchEvent(new InputEvent('input', { bubbles: true })) }))
          await rest(120)
        }
        await snapreport.setView({ query: '' })
        await rest(200)
      }
      field.blur()
      return times
    }""",
    "sort": """async () => {
      await snapreport.setView({ view: 'table', options: { 'table.group': 'allocation' } })
      await rest(500)
      const times = []
      const columns = document.querySelectorAll('[role=columnheader] button, th button').length
      for (let i = 0; i < columns; i++) for (const _ of [0, 1]) {
        const heads = document.querySelectorAll('[role=columnheader] button, th button')
        times.push(await timed(() => heads[i].click()))
        await rest(100)
      }
      return times
    }""",
    "zoom": """async () => {
      await snapreport.setView({ view: 'timeline', x: [-1, snapreport.stats(0).events] })
      await rest(500)
      const box = plot().getBoundingClientRect()
      const wheel = by => pointer('wheel', plot(), box.x + box.width * 0.6, box.y + box.height * 0.6, { deltaY: by })
      const times = await frames(60, () => wheel(-120))
      await rest(300)
      return [...times, ...await frames(60, () => wheel(120))]
    }""",
    "hover": """async () => {
      await snapreport.setView({ view: 'timeline' })
      await rest(500)
      const box = plot().getBoundingClientRect()
      return frames(60, i => pointer('pointermove', plot(), box.x + 60 + i * (box.width - 80) / 60,
        box.y + box.height * (0.8 - 0.004 * i)))
    }""",
}
FIRST = "async view => timed(() => snapreport.setView({ view }))"


def measure(path: Path, folder: Path, browser: Any, runs: int) -> dict[str, Any]:
    """Times in ms of every gesture, at the processor's speed and at a quarter of it."""
    report = path if path.suffix == ".html" else folder / f"{path.name}.html"
    if report is not path:
        command("-m", "snapreport", path, "-o", report)
    return {
        "file": path.name,
        "gestures": gestures(browser, report, runs, 1),
        f"gestures at 1/{SLOWDOWN}": gestures(browser, report, 1, SLOWDOWN),
    }


def gestures(browser: Any, report: Path, runs: int, slowdown: int) -> list[dict[str, Any]]:
    times: dict[str, list[float]] = {name: [] for name in TARGETS}
    ready = []
    for _ in range(runs):
        for view in VIEWS:
            page, began = opened(browser, report, slowdown)
            ready.append(began)
            times[f"first {view}"].append(page.evaluate(f"async view => {{ {TOOLS}; return ({FIRST})(view) }}", view))
            page.context.close()
        page, _ = opened(browser, report, slowdown)
        for name, gesture in GESTURES.items():
            times[name] += page.evaluate(f"async () => {{ {TOOLS}; return ({gesture})() }}")
        page.context.close()
    rows = [row(name, found) for name, found in times.items()]
    return [*rows, row("ready", ready)]


def opened(browser: Any, report: Path, slowdown: int) -> tuple[Any, float]:
    """A page at the moment it is ready and for a little longer, and how many ms that took."""
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(report.as_uri())
    page.evaluate("snapreport.ready")
    ready = page.evaluate("performance.getEntriesByName('snapreport:ready')[0].startTime")
    page.wait_for_timeout(1000)
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
    return page, ready


def row(name: str, times: list[float]) -> dict[str, Any]:
    found = sorted(times)
    return {
        "name": name,
        "p50 ms": statistics.median(found),
        "p95 ms": found[min(len(found) - 1, int(len(found) * 0.95))],
        "longest ms": found[-1],
        "least ms": found[0],
    }


def table(measured: list[dict[str, Any]]) -> str:
    """Figures beside the targets: met, or by how much not."""
    lines = []
    for result in measured:
        for key, slow in (("gestures", False), (f"gestures at 1/{SLOWDOWN}", True)):
            lines.append(f"{result['file']}{f', at 1/{SLOWDOWN} of the processor' if slow else ''}: ms")
            lines.append(f"  {'':16} {'p50':>8} {'p95':>8} {'longest':>8} {'least':>8}   target")
            for each in result[key]:
                figures = " ".join(f"{each[f'{figure} ms']:8.0f}" for figure in ("p50", "p95", "longest", "least"))
                lines.append(f"  {each['name']:16} {figures}   {verdict(each, slow)}")
    return "\n".join(lines)


def verdict(each: dict[str, Any], slow: bool) -> str:
    if each["name"] not in TARGETS:
        return ""
    figure, target = ("longest", MOST_SLOW_MS) if slow else TARGETS[each["name"]]
    found = each[f"{figure} ms"]
    return f"{figure} {target:.0f}: {'met' if found <= target else f'not met ({found / target:.1f} x)'}"
