"""Makes the pictures in the README and the guide from samples, in the browser that the tests use.

``python docs/make_pictures.py [MILLION]``, with the test extra installed. MILLION is a recording of a million events,
for zoom.webp: ``python train.py --fused --steps 780 --dump million.pickle`` in ``sample_programs``.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import snapreport
from snapreport.samples import recordings

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
# picture → (sample, height in pixels, what setView shows)
PICTURES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "report.png": ("training", 780, {"colour": "category"}),
    "segments.png": ("fragmentation", 700, {"view": "segments"}),
    "summary.png": ("fragmentation", 700, {"view": "summary"}),
    "guide-demand.png": ("training", 700, {}),
    "guide-fragmentation.png": ("fragmentation", 700, {"view": "segments", "query": "func:keep_prediction"}),
    "guide-leak.png": ("leak", 600, {"view": "table", "query": "func:log_step"}),
}
# Remedies that fix.webp takes one after another.
FIXES = ("", "fused-attention", "fused-attention,checkpointing")


ZOOM_FRAMES = 12


def main() -> None:
    """Writes every picture, 1,200 pixels wide and in the light theme."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import launched

    with tempfile.TemporaryDirectory() as scratch, launched() as browser:
        for name, (sample, height, view) in PICTURES.items():
            page = _opened(browser, recordings(sample)[0], Path(scratch), 1200, height)
            page.evaluate("async (view) => { await snapreport.setView(view) }", view)
            page.wait_for_timeout(500)  # tiles sharpen after the first frame
            page.screenshot(path=DOCS / name)
        page = _opened(browser, recordings("training")[0], Path(scratch), 1200, 700)
        views: list[dict[str, Any]] = [{"colour": "category", "options": {"fix.on": rules}} for rules in FIXES]
        _animate(page, views, DOCS / "fix.webp", 1800)
        if sys.argv[1:]:
            _zoom(browser, Path(sys.argv[1]), Path(scratch))


def _zoom(browser: Any, path: Path, scratch: Path) -> None:
    """zoom.webp: from a million allocations and frees to the single ones at the peak of a step."""
    page = _opened(browser, path, scratch, 960, 560)
    snapshot = snapreport.load(path)
    last = len(snapshot.events(0))
    allocated = snapshot.curve(0)["allocated"].to_numpy()[last // 2 :][:5_000]
    peak = last // 2 + int(allocated.argmax())  # of a step in the middle
    shares = np.geomspace(1, 300 / last, ZOOM_FRAMES)
    starts = [int(peak * (1 - share)) for share in shares]  # from the whole trace to the peak, which stays where it is
    views = [{"x": [start, start + int(last * share)]} for start, share in zip(starts, shares, strict=True)]
    _animate(page, views, DOCS / "zoom.webp", 260)


def _opened(browser: Any, path: Path, scratch: Path, width: int, height: int) -> Any:
    report = scratch / "report.html"
    snapreport.write_report([snapreport.load(path)], report)
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    page.goto(report.as_uri())
    page.evaluate("async () => { await snapreport.ready }")
    return page


def _animate(page: Any, views: list[dict[str, Any]], target: Path, milliseconds: int) -> None:
    """A moving picture of a page in these views, one after another."""
    frames = []
    for view in views:
        page.evaluate("async (view) => { await snapreport.setView(view) }", view)
        page.wait_for_timeout(600)
        shot = Image.open(io.BytesIO(page.screenshot()))
        frames.append(shot.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).convert("RGB"))  # half of the bytes
    times = [1800, *[milliseconds] * (len(frames) - 2), 1800]
    frames[0].save(
        target, save_all=True, append_images=frames[1:], duration=times, loop=0, lossless=True, method=6,
        minimize_size=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
