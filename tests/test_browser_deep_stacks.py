"""A stack trace of 50,000 frames beside hundreds of 300: every view limits what it lays out at once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import snapreport

DEEP = 50_000  # a layout that grew with it would create ten times the elements
MOST_ELEMENTS = 3000
VIEWS = ("timeline", "segments", "reserved", "flame", "table", "events", "summary")
CLICK = "text => [...document.querySelectorAll('.details button')].find(b => b.textContent.includes(text)).click()"
FRAMES_PASSED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def deep_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def stack(depth: int, seed: int) -> list[dict[str, Any]]:
        return [
            {"filename": f"/src/m{(i + seed) % 7}.py", "line": i % 900 + 1, "name": f"f{(i * 13 + seed) % 1000}"}
            for i in range(depth)
        ]

    deep = stack(DEEP, 0)
    events = [
        {"action": "alloc", "addr": (i + 1) << 21, "size": 1 << 20, "stream": 0, "time_us": i}
        | {"frames": stack(300, i) if i % 50 else deep}
        for i in range(120)
    ]
    folder = tmp_path_factory.mktemp("deep")
    (folder / "deep.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}))
    snapreport.write_report([snapreport.load(folder / "deep.pickle")], folder / "deep.html")
    return folder / "deep.html"


def test_every_view_lays_out_a_bounded_part_of_a_deep_stack(deep_report: Path, open_report: Callable[..., Any]) -> None:
    opened = open_report(deep_report)
    assert opened.js("snapreport.frames(0, snapreport.allocation(0, 0).stack).length") == DEEP

    def check(what: str) -> None:
        count, text = opened.js("[document.querySelectorAll('*').length, document.body.innerText.length]")
        assert count < MOST_ELEMENTS, f"{what}: {count} elements"
        assert text < 40_000, f"{what}: {text} characters"

    for view in VIEWS:
        opened.set_view(view=view, select=0)
        check(view)
        opened.page.mouse.move(500, 500)
        opened.js(FRAMES_PASSED)
        check(f"a tooltip in {view}")
    opened.set_view(view="timeline", select=0)
    for button in ("own frames", "more frames"):
        opened.js(CLICK, button)
        opened.js(FRAMES_PASSED)
        check(f"{button} of the details")
    opened.set_view(view="flame", query="f5")
    check("flame with a query")
