"""Random reports opened in turn in one browser, and one view driven for a long time: memory must not grow, and nothing
may go wrong. ``python -m benchmarks soak``.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fuzz_cases import Cases

EVERY = 5  # reports between two figures
VIEWS = ("timeline", "segments", "reserved", "flame", "table", "events", "summary")
QUERIES = ("", "size>1MiB", "live:peak", "func:forward", "-file:torch OR size<1KiB", "stream:0 lifetime>10")
# Early allocations stay: compiled code, font caches. The second half is compared with the second quarter.
GROWTH, SLACK = 0.10, 4 << 20
FEWEST = 8  # figures needed to detect growth
SETTLED = """async () => {
  const frame = () => new Promise(requestAnimationFrame)
  const end = performance.now() + 20000
  await snapreport.ready
  await frame(); await frame()
  while (snapreport.drawn().pending !== 0 && performance.now() < end) await frame()
}"""


@dataclass
class Course:
    """``heap``: bytes of JavaScript after a collection; ``resident``: of all processes of the browser."""

    what: str
    steps: int = 0
    heap: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def grows(self, values: list[int]) -> bool:
        """Whether the second half's median exceeds the second quarter's by more than noise."""
        if len(values) < FEWEST:
            return False
        before = statistics.median(values[len(values) // 4 : len(values) // 2])
        return statistics.median(values[len(values) // 2 :]) > before * (1 + GROWTH) + SLACK

    def line(self) -> str:
        shown = []
        for name, values in (("heap", self.heap), ("resident", self.resident)):
            if values:
                middle = statistics.median(values[len(values) // 4 : len(values) // 2] or values)
                late = statistics.median(values[len(values) // 2 :])
                grown = " GROWS" if self.grows(values) else ""
                shown.append(f"{name} {middle / 1e6:.1f} MB early, {late / 1e6:.1f} MB late{grown}")
        return f"{self.what}: {self.steps:,} steps, {len(self.errors)} errors; {'; '.join(shown)}"


def random_reports(count: int, folder: Path, seed: int = 0) -> Iterator[Path]:
    """Reports of those of the fuzzer's files that can be read, and of generated snapshots."""
    from generator.build import write
    from generator.options import PRESETS

    import snapreport

    cases, rng, number, made = Cases(seed, real=False), random.Random(seed), 0, 0
    path, report = folder / "soak.pickle", folder / "soak.html"
    presets = sorted(set(PRESETS) - {"large", "huge"})
    while made < count:
        number += 1
        if made % 2:
            write(path, rng.choice(presets), seed=number, events=rng.choice((30, 500, 3000)), oom="none")
        else:
            case = cases.case(number)
            if case.kind != "object":
                continue
            path.write_bytes(case.content)
        try:
            snapreport.write_report(snapreport.load(path), report)
        except snapreport.SnapshotError:
            continue
        made += 1
        yield report


def open_in_turn(browser: Any, count: int, folder: Path, seed: int = 0) -> Course:
    """One page, one report after the other, each shown in every view."""
    course = Course(f"{count} reports in one page")
    page, session = _page(browser, course)
    for number, report in enumerate(random_reports(count, folder, seed)):
        page.goto(report.as_uri())
        page.evaluate(SETTLED)
        for view in VIEWS:
            page.evaluate("view => snapreport.setView({ view })", view)
        page.evaluate(SETTLED)
        course.steps += 1
        if number % EVERY == EVERY - 1 or count < 40:
            _measure(session, course)
    page.context.close()
    return course


def drive(browser: Any, report: Path, steps: int, seed: int = 0) -> Course:
    """One report, with its views switched, moved, searched and clicked without a pause; measured up to 400 times."""
    course, rng = Course("one report driven"), random.Random(seed)
    page, session = _page(browser, course)
    page.goto(report.as_uri())
    page.evaluate(SETTLED)
    events = page.evaluate("snapreport.stats(snapreport.devices()[0]).events")
    measured_every = max(1, steps // 400, min(steps // FEWEST, 20))
    while course.steps < steps:
        course.steps += 1
        how = rng.randrange(5)
        if how == 0:
            page.evaluate("view => snapreport.setView({ view })", rng.choice(VIEWS))
        elif how == 1:
            first = rng.random() * events
            x = [first, first + max(1.0, rng.random() ** 3 * (events - first))]
            page.evaluate("x => snapreport.setView({ x })", x)
        elif how == 2:
            page.evaluate("query => snapreport.setView({ query })", rng.choice(QUERIES))
        elif how == 3:
            page.evaluate(
                "([event, byte]) => { const d = snapreport.devices()[0]; const a = snapreport.pick(d, event, byte);"
                " return snapreport.setView({ select: a ? a.id : null }) }",
                [rng.randrange(max(1, events)), rng.random() ** 2 * 1e9],
            )
        else:
            page.mouse.move(rng.randrange(50, 1200), rng.randrange(150, 800))
            page.mouse.wheel(0, rng.choice((-300, 300)))
            page.keyboard.press(rng.choice(("ArrowLeft", "ArrowRight", "Escape", "Tab", "+", "-")))
        if course.steps % measured_every == 0:
            page.evaluate("() => snapreport.setView({ view: 'timeline', query: '', select: null })")
            page.evaluate(SETTLED)
            _measure(session, course)
    page.context.close()
    return course


def _page(browser: Any, course: Course) -> tuple[Any, Any]:
    context = browser.new_context(offline=True, viewport={"width": 1300, "height": 900})
    page = context.new_page()
    page.on("pageerror", lambda error: course.errors.append(str(error)))
    page.on("console", lambda m: course.errors.append(m.text) if m.type == "error" else None)
    page.on("crash", lambda _: course.errors.append("the page crashed"))
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    return page, session


def _measure(session: Any, course: Course) -> None:
    session.send("HeapProfiler.collectGarbage")
    figures = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    course.heap.append(int(figures["JSHeapUsedSize"]))
    if resident := _resident_of_browser():
        course.resident.append(resident)


def _resident_of_browser() -> int:
    """Private memory of every process below this one whose program is a Chromium; 0 where /proc does not say."""
    total, todo = 0, [os.getpid()]
    while todo:
        number = todo.pop()
        try:
            tasks = list(Path(f"/proc/{number}/task").iterdir())
            todo += [int(child) for task in tasks for child in (task / "children").read_text().split()]
            if (
                "chrom" in Path(f"/proc/{number}/comm").read_text()
                or "headless" in Path(f"/proc/{number}/comm").read_text()
            ):
                _, resident, shared = Path(f"/proc/{number}/statm").read_text().split()[:3]
                total += (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            continue
    return total


def table(courses: list[Course]) -> str:
    return "\n".join([course.line() for course in courses] + [e for course in courses for e in course.errors[:10]])
