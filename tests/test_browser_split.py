"""Split by keys and clicks: two devices and moments in the installed Firefox, two ranks in Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import firefox
import pytest
from waiting import wait_until

WIDTH, HEIGHT = 1400, 900
SECOND = """(() => {
    const { second, view } = snapreport.getView()
    const box = document.querySelector('.pane.second .plot').getBoundingClientRect()
    return { second, view, box: box.toJSON(), words: document.querySelector('.pane.second .pane-head').innerText }
})()"""
# Margins of the timeline's plot in CSS pixels: left, right, top, bottom.
ROOM = (78, 16, 24, 28)


def place_in_second(js: Callable[[str], Any], device: int, event: int, byte: float) -> tuple[float, float]:
    """Where an event and a byte of the second timeline are on the screen."""
    shown = js(SECOND)
    (x0, x1), (y0, y1), box = shown["second"]["x"], shown["second"]["y"], shown["box"]
    left, right, top, bottom = (
        ROOM[0] if box["width"] >= 560 else 66,
        ROOM[1] if box["width"] >= 560 else 8,
        *ROOM[2:],
    )
    width, height = box["width"] - left - right, box["height"] - top - bottom
    # A position lies between its event and the next.
    x = box["x"] + left + (event + 0.5 - x0) / (x1 - x0) * width
    return x, box["y"] + top + height - (byte - y0) / (y1 - y0) * height


def largest_live(js: Callable[[str], Any], device: int, event: int) -> tuple[dict[str, Any], float]:
    """The allocation that is hit most often on the way up the stack at an event, and a byte inside it."""
    top = js(f"snapreport.stats({device}).peak_allocated_bytes")
    found = js(f"Array.from({{ length: 64 }}, (_, i) => snapreport.pick({device}, {event}, ({top} * (i + 0.5)) / 64))")
    met: dict[int, list[int]] = {}
    for row, hit in enumerate(found):
        if hit is not None:
            met.setdefault(hit["id"], []).append(row)
    rows = max(met.values(), key=len)
    middle = rows[len(rows) // 2]
    return found[middle], top * (middle + 0.5) / 64


def set_view(js: Callable[[str], Any], **patch: Any) -> dict[str, Any]:
    return js(f"snapreport.setView({json.dumps(patch)}).then(() => snapreport.getView())")


def check_pick(js: Callable[[str], Any], click: Callable[[float, float], None], device: int) -> None:
    """A click in the second timeline selects what lies there on its device."""
    event = js(f"snapreport.stats({device}).peak_event")
    # So close that each column of the picture is one event.
    set_view(js, view="timeline", second={"device": device, "x": [event - 10, event + 10]})
    hit, byte = largest_live(js, device, event)
    click(*place_in_second(js, device, event, byte))
    selected = "(snapreport.getView().second?.select ?? null)"
    wait_until(lambda: js(selected) is not None, "something is selected")
    assert js(selected) == hit["id"]


@pytest.fixture(scope="module")
def page() -> Any:
    binary = firefox.find()
    if binary is None:
        pytest.skip(firefox.NONE)
    with firefox.launched(binary) as running:
        yield running


def test_keys_legend_and_picks_in_firefox(report_of: Callable[..., Path], page: firefox.Page) -> None:
    page.open(report_of(corpus.path_of("two_devices.pickle.xz")).as_uri(), WIDTH, HEIGHT)
    page.js("snapreport.ready.then(() => null)")
    set_view(page.js, device=0, view="timeline")
    page.press("l")
    page.until("snapreport.getView().second !== null && document.querySelectorAll('.pane').length === 2")
    set_view(page.js, second={"device": 1})
    assert page.js("document.querySelector('.legend-more').innerText").startswith("First pane, ")
    # Two devices.
    check_pick(page.js, page.click, 1)
    # Two moments: the map of each is that of its moment alone, in its own half.
    set_view(page.js, device=0, view="segments", at=800, second={"device": 0, "at": 200, "select": None})
    wanted = page.js("snapreport.debug.view().largest")
    lefts = page.js("[...document.querySelectorAll('.pane')].map(pane => pane.getBoundingClientRect().x)")
    set_view(page.js, at=200, second={"at": 800})
    page.click(wanted["x"] + lefts[1] - lefts[0], wanted["y"])
    page.until(f"snapreport.getView().second.select === {wanted['id']}")
    assert page.js("snapreport.getView().select") is None
    page.press("l")
    page.until("snapreport.getView().second === null")


def test_two_ranks_in_one_report(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """Two files of one device each, as ``--separate`` puts them into one report."""
    files = [corpus.path_of("training"), corpus.path_of("leak")]
    opened = open_report(report_of(*files), viewport={"width": WIDTH, "height": HEIGHT})
    assert opened.js("snapreport.devices()") == [0, 1]
    state = opened.set_view(device=0, view="timeline", second={"device": 1})
    assert state["second"]["device"] == 1
    heads = opened.js("[...document.querySelectorAll('.pane-head select')].map(s => s.selectedOptions[0].textContent)")
    assert files[1].name in heads[-1], "the second pane says of which rank it is"
    assert state["y"] == state["second"]["y"], "one scale"
    check_pick(opened.js, opened.page.mouse.click, 1)
    for view in ("segments", "reserved", "flame", "table", "events"):
        opened.set_view(view=view)
        assert opened.page.locator(".pane:visible").count() == 2
