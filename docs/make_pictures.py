"""Makes the pictures in the README and the guide from samples, in the browser that the tests use.

``python docs/make_pictures.py``, with the test extra installed.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import snapreport
from snapreport.samples import make

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


def _snapshot(sample: str, scratch: Path) -> Path:
    """The committed sample of that name, else one generated from the preset."""
    if "." in sample:
        return ROOT / "sample_reports" / sample
    path = scratch / f"{sample}.pickle"
    path.write_bytes(pickle.dumps(make(sample), 4))
    return path


if __name__ == "__main__":
    main()
