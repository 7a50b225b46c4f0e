"""The reserved view: its curves equal summing blocks by brute force, and the drawing preserves every extreme."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import block_oracle
import corpus
import pytest
from PIL import Image
from test_browser_segments import BROKEN, OVERLAPPING, settings_of

REPLAYED = ["expandable", "pools", "two_devices.pickle.xz", "truncated"]


@pytest.mark.parametrize("name", [*REPLAYED, *corpus.varied_names()])
def test_curves_equal_brute_force(report_of: Callable[..., Path], borrow_report: Callable[..., Any], name: str) -> None:
    path = corpus.path_of(name)
    opened = borrow_report(report_of(path))
    draw = random.Random(name)
    for d, device in corpus.replayed(path).items():
        if not device.events:
            continue
        blocks = block_oracle.Blocks(device, settings_of(path))
        opened.set_view(view="reserved", device=d, options={"reserved.base": "none"})
        state = opened.js("snapreport.debug.view()")
        curves = state["curves"]
        assert curves["reserved"] == device.reserved and curves["allocated"] == device.allocated
        for s in draw.sample(range(len(device.events) + 1), min(60, len(device.events))):
            moment = blocks.at(s - 1)
            assert curves["rounding"][s] == moment.rounding, s
            assert curves["whollyFree"][s] == moment.free_segments, s
            assert curves["largestFree"][s] == moment.largest_free, s
            rest = curves["reserved"][s] - curves["allocated"][s] - curves["rounding"][s] - curves["whollyFree"][s]
            assert rest == moment.split or name in OVERLAPPING, s
        lost = [r - a for r, a in zip(device.reserved, device.allocated, strict=True)]
        stuck = [one - free for one, free in zip(lost, curves["whollyFree"], strict=True)]
        counted = [s for s in range(len(lost)) if not stands_before_its_alloc(device, s)]
        assert state["worst"] == {
            "fragmentation": max(counted, key=lambda s: (lost[s], -s)),
            "stuck": max(counted, key=lambda s: (stuck[s], -s)),
        }


def stands_before_its_alloc(device: Any, position: int) -> bool:
    """Whether a position lies between a segment that was just reserved and the alloc that it was reserved for."""
    following = range(max(0, position - 1), len(device.events))
    for grown, event in enumerate(following):  # read no further than necessary: there are 22,000 events
        action = device.events[event]["action"]
        if action not in ("segment_alloc", "segment_map"):
            return position > 0 and grown > 0 and action == "alloc"
    return False


@pytest.fixture
def opened(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    page = borrow_report(report_of(corpus.path_of("training")))
    page.set_view(view="reserved")
    return page


@pytest.mark.parametrize("base", [None, "none"])
def test_columns_keep_every_extreme(opened: Any, base: str | None) -> None:
    device = corpus.replayed(corpus.path_of("training"))[0]
    opened.set_view(options={"reserved.base": base})
    columns = opened.js("snapreport.debug.view().columns")
    lost = [r - a for r, a in zip(device.reserved, device.allocated, strict=True)]
    assert columns == sorted(columns)
    shown = lost if base else device.reserved
    assert max(shown[s] for s in columns) == max(shown)


def test_worst_moment_by_button_and_key(opened: Any) -> None:
    worst = opened.js("snapreport.debug.view().worst")
    opened.page.get_by_role("button", name="Worst fragmentation").click()
    opened.until(f"snapreport.getView().at === {worst['fragmentation'] - 1}")
    assert "Worst fragmentation" in opened.page.locator(".reserved-view .segments-change[role=status]").inner_text()
    opened.page.locator(".reserved-view .time-plot").focus()
    opened.page.keyboard.press("g")
    opened.until(f"snapreport.getView().at === {worst['stuck'] - 1}")


def test_clicks_go_to_the_moment_and_to_the_segment(opened: Any) -> None:
    state = opened.js("snapreport.debug.view()")
    box = state["boxes"]["parts"]
    opened.page.mouse.click(box["left"] + box["width"] * 0.7, box["top"] + box["height"] * 0.5)
    opened.until("snapreport.getView().at !== null")
    device = corpus.replayed(corpus.path_of("training"))[0]
    assert abs(opened.view()["at"] - 0.7 * len(device.events)) < 0.01 * len(device.events)
    box = opened.js("snapreport.debug.view().boxes.segments")
    opened.page.mouse.click(box["left"] + box["width"] * 0.5, box["top"] + box["height"] - 12)
    opened.until("snapreport.getView().view === 'segments'")
    focus = int(opened.view()["options"]["segments.focus"], 16)
    held = opened.js("snapreport.debug.view().segments")
    assert any(int(s["address"], 16) <= focus < int(s["address"], 16) + s["size"] for s in held)


def test_hover_tells_the_numbers(opened: Any) -> None:
    box = opened.js("snapreport.debug.view().boxes.segments")
    opened.page.mouse.move(box["left"] + box["width"] * 0.4, box["top"] + box["height"] - 12)
    opened.until("!document.querySelector('.reserved-view .tooltip').hidden")
    text = opened.page.locator(".reserved-view .tooltip").inner_text()
    for word in (
        "segment of",
        "reserved",
        "allocated",
        "rounding",
        "inactive split",
        "unused segments",
        "largest free",
        "event",
    ):
        assert word in text, word


def test_zoom_is_shared_with_the_timeline(opened: Any) -> None:
    opened.page.locator(".reserved-view .time-plot").focus()
    opened.page.keyboard.press("w")
    opened.page.keyboard.press("w")
    x = opened.view()["x"]
    device = corpus.replayed(corpus.path_of("training"))[0]
    assert 0.5 < (x[1] - x[0]) / (len(device.events) + 1) < 0.6
    assert opened.set_view(view="timeline")["x"] == pytest.approx(x)


@pytest.mark.parametrize("name", [*corpus.varied_names(), "no-times"])
def test_every_snapshot_opens(report_of: Callable[..., Path], borrow_report: Callable[..., Any], name: str) -> None:
    path = corpus.path_of(name)
    opened = borrow_report(report_of(path))
    for d in opened.js("snapreport.devices()"):
        opened.set_view(device=d, view="reserved")
        state = opened.js("snapreport.debug.view()")
        device = corpus.replayed(path)[d]
        assert bool(state["nothing"]) == (max(map(abs, device.reserved)) == 0)
        if device.segments and not device.events:
            assert "without history" in state["doubts"]
        if name in BROKEN and any(a > r for a, r in zip(device.allocated, device.reserved, strict=True)):
            assert state["doubts"]


def test_the_largest_free_range_is_a_line(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """Above the allocated memory, at its bytes, in the colour of the legend."""
    opened = open_report(report_of(corpus.path_of("fragmentation")))
    opened.set_view(view="reserved", options={"reserved.base": "none", "reserved.show": "parts"})
    state = opened.js("snapreport.debug.view()")
    box, largest, positions = state["boxes"]["parts"], state["curves"]["largestFree"], state["columns"]
    swatch = opened.page.locator(".reserved-view .segments-legend li", has_text="Largest free range").locator(".swatch")
    wanted = tuple(
        int(part) for part in re.findall(r"\d+", swatch.evaluate("e => getComputedStyle(e).backgroundColor"))[:3]
    )
    image = Image.open(io.BytesIO(opened.page.screenshot())).convert("RGB")
    found = 0
    for column in range(20, len(positions) - 20, 25):
        near = {largest[positions[at]] for at in range(column - 2, column + 3)}
        if len(near) > 1:
            continue  # a vertical line may be there
        x = round(box["left"] + (column + 0.5) * box["width"] / len(positions))
        y = box["top"] + box["height"] * (1 - near.pop() / state["boxes"]["partsTop"])
        assert wanted in {image.getpixel((x, round(y) + d)) for d in (-1, 0, 1)}, column
        found += 1
    assert found > 20
