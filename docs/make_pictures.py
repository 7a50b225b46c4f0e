"""Makes the pictures in the README from the samples, in the browser that the tests use.

``python docs/make_pictures.py``, with the test extra installed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import snapreport

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
# picture → (sample, height in pixels, what setView shows)
PICTURES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "report.png": ("training.pickle.gz", 780, {"colour": "category"}),
    "segments.png": ("fragmentation.pickle.gz", 700, {"view": "segments"}),
    "summary.png": ("fragmentation.pickle.gz", 700, {"view": "summary"}),
}


def main() -> None:
    """Write every picture, 1,200 pixels wide and in the light theme."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import launched

    with tempfile.TemporaryDirectory() as scratch, launched() as browser:
        for name, (sample, height, view) in PICTURES.items():
            report = Path(scratch, f"{name}.html")
            snapreport.write_report([snapreport.load(ROOT / "sample_reports" / sample)], report)
            page = browser.new_page(viewport={"width": 1200, "height": height}, color_scheme="light")
            page.goto(report.as_uri())
            page.evaluate("async (view) => { await snapreport.ready; await snapreport.setView(view) }", view)
            page.wait_for_timeout(500)  # tiles sharpen after the first frame
            page.screenshot(path=DOCS / name)


if __name__ == "__main__":
    main()
