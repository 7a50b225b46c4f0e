"""Makes the pictures in the README and the guide from samples, in the browser that the tests use.

``python docs/make_pictures.py``, with the test extra installed.
"""

from __future__ import annotations

import io
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import snapreport
from snapreport.samples import make, write

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
# picture → (committed sample or preset, height in pixels, what setView shows)
PICTURES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "report.png": ("training.pickle.gz", 780, {"colour": "category"}),
    "segments.png": ("fragmentation.pickle.gz", 700, {"view": "segments"}),
    "summary.png": ("fragmentation.pickle.gz", 700, {"view": "summary"}),
    "guide-demand.png": ("oom", 700, {}),
    "guide-fragmentation.png": (
        "fragmentation.pickle.gz",
        700,
        {"view": "segments", "query": "func:keep_prediction"},
    ),
    "guide-leak.png": ("leak", 600, {"view": "table", "query": "func:log_step"}),
}


ZOOM_FRAMES = 16


def main() -> None:
    """Writes every picture, 1,200 pixels wide and in the light theme."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import launched

    with tempfile.TemporaryDirectory() as scratch, launched() as browser:
        for name, (sample, height, view) in PICTURES.items():
            report = Path(scratch, f"{name}.html")
            snapreport.write_report([snapreport.load(_snapshot(sample, Path(scratch)))], report)
            page = browser.new_page(viewport={"width": 1200, "height": height}, color_scheme="light")
            page.goto(report.as_uri())
            page.evaluate("async (view) => { await snapreport.ready; await snapreport.setView(view) }", view)
            page.wait_for_timeout(500)  # tiles sharpen after the first frame
            page.screenshot(path=DOCS / name)
        _zoom(browser, Path(scratch))


def _zoom(browser: Any, scratch: Path) -> None:
    """zoom.gif: from a million allocations and frees to the single ones at the peak of a step."""
    path, report = scratch / "million.pickle", scratch / "million.html"
    write(path, "training", events=1_000_000, seed=3)
    snapshot = snapreport.load(path)
    snapreport.write_report([snapshot], report)
    page = browser.new_page(viewport={"width": 960, "height": 600}, color_scheme="light")
    page.goto(report.as_uri())
    page.evaluate("async () => { await snapreport.ready }")
    last = len(snapshot.events(0))
    allocated = snapshot.curve(0)["allocated"].to_numpy()[last // 2 :][:5_000]
    peak = last // 2 + int(allocated.argmax())  # of a step in the middle
    frames = []
    for share in np.geomspace(1, 300 / last, ZOOM_FRAMES):
        width = int(last * share)
        first = int(peak * (1 - share))  # from the whole trace to the peak, which stays where it is
        page.evaluate("async (x) => { await snapreport.setView({ x }) }", [first, first + width])
        page.wait_for_timeout(400)
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("P", palette=Image.Palette.ADAPTIVE, colors=48))
    frames[0].save(
        DOCS / "zoom.gif", save_all=True, append_images=frames[1:], duration=[900, *[260] * (len(frames) - 2), 1800],
        loop=0, optimize=True,
    )  # fmt: skip


def _snapshot(sample: str, scratch: Path) -> Path:
    """The committed sample of that name, else one generated from the preset."""
    if "." in sample:
        return ROOT / "sample_reports" / sample
    path = scratch / f"{sample}.pickle"
    path.write_bytes(pickle.dumps(make(sample), 4))
    return path


if __name__ == "__main__":
    main()
