"""How fast a report of a million events or more responds, in Chromium's software renderer, beside the targets.

Each gesture runs inside the page, so that no driver's round trip is counted: a slider, a wheel and a pointer send one
event in every frame, and a frame's time is the time between two animation frames; a key, a click on a column header and
a switch of the view are timed from the call to the first task after the frame that shows them. "Steady" zoom and pan
send an event in every second frame, as a wheel or a hand does. The heap is that of the page's main thread with its
typed arrays, after a garbage collection.

Reports of more than 1.5 million events have their own targets and are not measured at a quarter of the speed.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.measure import command

SAMPLES = ("large",)  # 920,183 events
SLOWDOWN = 4
MOST_SLOW_MS = 250
"""What nothing may take at a quarter of the processor's speed, but for those of ``SLOW_TARGETS``."""
VIEWS = ("segments", "events", "reserved", "flame", "table")
# name → (what is compared, ms or MB)
TARGETS: dict[str, tuple[str, float]] = {
    "slider": ("p95", 80),
    "key": ("p95", 50),
    "sort": ("p95", 100),
    "hover": ("p95", 20),
    "pick": ("p95", 10),
    "zoom in": ("p95", 33),
    "zoom out": ("p95", 33),
    **{f"first {view}": ("p50", 100) for view in VIEWS},
}
SLOW_TARGETS = {
    "zoom in": ("p95", 80),
    "zoom out": ("p95", 80),
    **{f"first {view}": ("p50", 400) for view in VIEWS},
}
STEADY = ("steady zoom", "steady pan")
# For reports with at most so many events, in ascending order.
TARGETS_BY_EVENTS: list[tuple[float, dict[str, tuple[str, float]]]] = [
    (1_500_000, TARGETS),
    (4_000_000, {**dict.fromkeys(STEADY, ("p95", 33)), "ready": ("p50", 1500), "heap MB": ("p50", 150)}),
    (float("inf"), dict.fromkeys(STEADY, ("p95", 50))),
]
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
WHEEL = """
      const box = plot().getBoundingClientRect()
      const wheel = by => pointer('wheel', plot(), box.x + box.width * 0.6, box.y + box.height * 0.6, { deltaY: by })
"""
STEADY_GESTURES = {
    "steady zoom": f"""async () => {{
      await snapreport.setView({{ view: 'timeline', x: [-1, snapreport.stats(0).events] }})
      await rest(500)
      {WHEEL}
      const times = await frames(120, i => i % 2 || wheel(-120))
      return [...times, ...await frames(120, i => i % 2 || wheel(120))]
    }}""",
    "steady pan": """async () => {
      const { events } = snapreport.stats(0)
      await snapreport.setView({ view: 'timeline', x: [events * 0.4, events * 0.5] })
      await rest(500)
      const box = plot().getBoundingClientRect()
      const at = i => [plot(), box.x + box.width * 0.8 - 6 * i, box.y + box.height * 0.5, { buttons: 1, button: 0 }]
      plot().setPointerCapture = () => {}  // no real pointer is down
      pointer('pointerdown', ...at(0))
      const times = await frames(120, i => i % 2 || pointer('pointermove', ...at(i)))
      pointer('pointerup', ...at(120))
      return times
    }""",
}
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
    "zoom in": f"""async () => {{
      await snapreport.setView({{ view: 'timeline', x: [-1, snapreport.stats(0).events] }})
      await rest(500)
      {WHEEL}
      return frames(60, () => wheel(-120))
    }}""",
    # From where "zoom in" ended: some ten events.
    "zoom out": f"""async () => {{
      await rest(300)
      {WHEEL}
      return frames(60, () => wheel(120))
    }}""",
    "pick": """async () => {
      const { events, peak_allocated_bytes } = snapreport.stats(0)
      const times = []
      for (let i = 1; i <= 200; i++) {
        const place = [Math.floor(events * (i * 0.618 % 1)), peak_allocated_bytes * (i * 0.755 % 1)]
        const began = performance.now()
        snapreport.pick(0, ...place)
        times.push(performance.now() - began)
      }
      return times
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
    found = gestures(browser, report, runs, 1)
    events = found.pop("events")
    result = {"file": path.name, "events": events, "gestures": [row(*each) for each in found["times"].items()]}
    if events <= TARGETS_BY_EVENTS[0][0]:
        slow = gestures(browser, report, 1, SLOWDOWN)["times"]
        result[f"gestures at 1/{SLOWDOWN}"] = [row(*each) for each in slow.items() if each[0] in TARGETS]
    return result


def gestures(browser: Any, report: Path, runs: int, slowdown: int) -> dict[str, Any]:
    """``events`` of the report's first device and ``times`` in ms by gesture; ``heap MB`` is not a time."""
    times: dict[str, list[float]] = {name: [] for name in (*TARGETS, *STEADY, "ready", "heap MB")}
    events = 0
    for _ in range(runs):
        for view in VIEWS:
            page, began = opened(browser, report, slowdown)
            times["ready"].append(began)
            times[f"first {view}"].append(page.evaluate(f"async view => {{ {TOOLS}; return ({FIRST})(view) }}", view))
            page.context.close()
        for each in (STEADY_GESTURES, GESTURES):
            page, began = opened(browser, report, slowdown)
            times["ready"].append(began)
            for name, gesture in each.items():
                times[name] += page.evaluate(f"async () => {{ {TOOLS}; return ({gesture})() }}")
            if each is STEADY_GESTURES:
                times["heap MB"].append(heap(page))
            events = page.evaluate("snapreport.stats(0).events")
            page.context.close()
    return {"events": events, "times": times}


def heap(page: Any) -> float:
    """MB of the page's main thread: objects, and the contents of typed arrays."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    return float(usage["usedSize"] + usage.get("backingStorageSize", 0)) / 1e6


def opened(browser: Any, report: Path, slowdown: int) -> tuple[Any, float]:
    """A page shortly after it became ready, and how many ms that took."""
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
    """Figures beside the targets: met, or by how much they miss."""
    lines = []
    for result in measured:
        for key, slow in (("gestures", False), (f"gestures at 1/{SLOWDOWN}", True)):
            if key not in result:
                continue
            speed = f", at 1/{SLOWDOWN} of the processor" if slow else ""
            lines.append(f"{result['file']}, {result['events']:,} events{speed}: ms")
            lines.append(f"  {'':16} {'p50':>8} {'p95':>8} {'longest':>8} {'least':>8}   target")
            for each in result[key]:
                figures = " ".join(f"{each[f'{figure} ms']:8.0f}" for figure in ("p50", "p95", "longest", "least"))
                lines.append(f"  {each['name']:16} {figures}   {verdict(each, result['events'], slow)}")
    return "\n".join(lines)


def verdict(each: dict[str, Any], events: int, slow: bool) -> str:
    targets = next(targets for most, targets in TARGETS_BY_EVENTS if events <= most)
    if each["name"] not in targets:
        return ""
    figure, target = targets[each["name"]]
    if slow:
        figure, target = SLOW_TARGETS.get(each["name"], ("longest", MOST_SLOW_MS))
    found = each[f"{figure} ms"]
    return f"{figure} {target:.0f}: {'met' if found <= target else f'not met ({found / target:.1f} x)'}"
