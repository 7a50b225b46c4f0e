"""Measures one snapshot: times of whole processes, sizes of files, the first picture in a browser."""

from __future__ import annotations

import lzma
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EMPTY = {"segments": [], "device_traces": []}
# The minimum that any reader must do: unpickle with a class that refuses globals, in a process of its own.
BARE_LOAD = """
import gc, pickle, sys
gc.disable()
class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(name)
with open(sys.argv[1], "rb") as file:
    Plain(file).load()
"""


@dataclass
class Row:
    """Seconds and bytes of one snapshot; ``data``: the report minus an empty one; ``picture``: None without browser."""

    name: str
    pickle: int
    load: float
    report: float
    html: int
    data: int
    xz: int
    picture: float | None

    @property
    def ratio(self) -> float:
        """Data of the report over ``xz -9`` of the pickle: below 1 is smaller."""
        return self.data / self.xz


def seconds(runs: int, action: Callable[[], Any]) -> float:
    """Median wall time."""
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def command(*arguments: object) -> None:
    """Runs this Python quietly; its output is shown if it fails."""
    # -P: the installed package is measured, not the checkout that this runs in.
    done = subprocess.run([sys.executable, "-P", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")


def empty_report(folder: Path) -> int:
    """Bytes of the report of an empty snapshot: the page itself."""
    source, out = folder / "empty.pickle", folder / "empty.html"
    source.write_bytes(pickle.dumps(EMPTY))
    command("-m", "snapreport", source, "-o", out)
    return out.stat().st_size


def measure(path: Path, folder: Path, empty: int, browser: Any, runs: int) -> Row:
    """Measures a snapshot; ``browser`` is a running Chromium or None; the report is written to ``folder``."""
    out = folder / f"{path.name}.html"
    load = seconds(runs, lambda: command("-c", BARE_LOAD, path))
    report = seconds(runs, lambda: command("-m", "snapreport", path, "-o", out))
    html = out.stat().st_size
    picture = statistics.median(first_picture(browser, out) for _ in range(runs)) if browser else None
    content = path.read_bytes()
    return Row(
        path.name, len(content), load, report, html, html - empty, len(lzma.compress(content, preset=9)), picture
    )


def first_picture(browser: Any, report: Path) -> float:
    """Seconds from the start of navigation to the first frame painted from real data."""
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(report.as_uri())
    page.evaluate("snapreport.ready")
    marks = page.evaluate("performance.getEntriesByName('snapreport:first-picture').map(mark => mark.startTime)")
    context.close()
    return marks[0] / 1000 if marks else float("nan")
