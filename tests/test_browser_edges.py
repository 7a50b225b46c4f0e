"""The page at its limits: a large trace whose times are read on demand, windows of one event, lost contexts, hardly any
data.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import generator
import pytest

import snapreport

EVENTS = 300_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    """Events and the report of a trace long enough for its times to be read on first use."""
    folder = tmp_path_factory.mktemp("large")
    path, out = folder / "large.pickle", folder / "large.html"
    generator.write(path, "large", events=EVENTS)
    snapreport.write_report([snapreport.load(path)], out)
    return pickle.loads(path.read_bytes())["device_traces"][0], out


def plot_image(opened: Any) -> bytes:
    """Pixels of the plot alone, once everything requested is drawn."""
    opened.settle()
    still = opened.still()
    left, top = still.plot["left"], still.plot["top"]
    return still.image.crop((left, top, left + still.plot["width"], top + still.plot["height"])).tobytes()


def to_place(opened: Any, x: float, byte: float) -> None:
    opened.page.mouse.move(*opened.pixel_of(x, byte))


def test_times_are_there_as_soon_as_they_are_asked_for(
    large: tuple[list[dict[str, Any]], Path], open_report: Callable[..., Any]
) -> None:
    events, report = large
    opened = open_report(report)
    for key in range(0, 5000, 97):
        found = opened.js("id => snapreport.allocation(0, id)", key)
        for name in ("alloc", "free"):
            event = found[f"{name}_event"]
            assert found[f"{name}_us"] == (None if event < 0 else events[event]["time_us"])


def test_tooltip_and_details_show_times_once_read(
    large: tuple[list[dict[str, Any]], Path], open_report: Callable[..., Any]
) -> None:
    events, report = large
    opened = open_report(report)
    tip = opened.page.locator(".plot .tooltip")
    to_place(opened, len(events) / 2, 1 << 28)
    opened.until("/ [mnµ]?s/.test(document.querySelector('.plot .tooltip').innerText)")
    assert "event" in tip.inner_text()
    other = open_report(report)
    other.set_view(select=1234)
    other.until("/\\+[\\d.,]+ [mnµ]?s/.test(document.querySelector('aside.details').innerText)")


def test_time_axis_of_a_large_trace(large: tuple[list[dict[str, Any]], Path], open_report: Callable[..., Any]) -> None:
    """Opened on it, or switched to it, the same window is shown; its tiles are complete."""
    _, report = large
    opened = open_report(report)
    opened.set_view(axis="time", x=[1000, 2000])
    turned = opened.view()
    assert turned["axis"] == "time" and turned["x"] == pytest.approx([1000, 2000], abs=1)
    image = plot_image(opened)
    again = open_report(report, "#axis=time&x=1000..2000")
    assert again.view()["axis"] == "time"
    assert again.js("snapreport.drawn()")["pending"] == 0
    assert plot_image(again) == image


def test_pointer_and_selection_leave_no_trace(
    large: tuple[list[dict[str, Any]], Path], borrow_report: Callable[..., Any]
) -> None:
    """What follows the pointer is drawn over a cached picture, which is restored to the pixel."""
    events, report = large
    opened = borrow_report(report)
    opened.page.mouse.move(5, 5)
    before = plot_image(opened)
    seen = set()
    for step in range(12):
        to_place(opened, len(events) * (0.2 + step / 20), (1 << 28) * (1 + step % 3))
        opened.settle()
        seen.add(plot_image(opened))
    assert len(seen) > 6, "the pointer shows something"
    opened.page.mouse.move(5, 5)
    assert plot_image(opened) == before
    opened.page.keyboard.press("Escape")
    window = opened.view()
    opened.set_view(x=[5000, 9000])
    to_place(opened, 7000, 1 << 28)
    opened.settle()
    opened.page.mouse.move(5, 5)
    opened.set_view(x=window["x"], y=window["y"])
    opened.settle()
    assert plot_image(opened) == before


def test_a_lost_context_of_a_large_report_comes_back(
    large: tuple[list[dict[str, Any]], Path], open_report: Callable[..., Any]
) -> None:
    _, report = large
    opened = open_report(report)
    opened.page.mouse.move(5, 5)
    for window in ([100_000, 103_000], [-1, EVENTS]):
        opened.set_view(x=window)
        opened.settle()
        before = plot_image(opened)
        opened.lose_context()
        assert plot_image(opened) == before


@pytest.mark.parametrize("event", [0, 150_000, -1])
def test_a_window_of_one_event(
    event: int, large: tuple[list[dict[str, Any]], Path], borrow_report: Callable[..., Any]
) -> None:
    """Sharp and exact, and what it shows at its height is what the columns say; -1: the last one."""
    events, report = large
    event = event % len(events)
    opened = borrow_report(report)
    view = opened.set_view(x=[event, event + 1])
    assert view["x"][0] <= event and view["x"][1] >= event + 1 and view["x"][1] - view["x"][0] <= 8
    drawn = opened.js("snapreport.drawn()")
    assert drawn["exact"] and drawn["pending"] == 0
    to_place(opened, event + 0.5, sum(view["y"]) / 2)
    opened.until("!document.querySelector('.plot .tooltip').hidden")
    assert f"event {event:,}" in opened.page.locator(".plot .tooltip").inner_text()


def test_a_device_of_segments_alone_beside_one_with_a_trace(tmp_path: Path, open_report: Callable[..., Any]) -> None:
    """The first has one block in its segment and no events; each is shown when selected."""
    block = {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": []}
    segment = {
        "device": 1, "address": 4096, "total_size": 2 << 20, "allocated_size": 512, "active_size": 512, "stream": 0,
        "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [block],
    }  # fmt: skip
    event = {"action": "alloc", "addr": 1 << 30, "size": 1024, "stream": 0, "time_us": 7, "frames": []}
    path, out = tmp_path / "two.pickle", tmp_path / "two.html"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[event], []]}))
    snapreport.write_report([snapreport.load(path)], out)
    opened = open_report(out)
    assert opened.js("snapreport.devices()") == [0, 1]
    assert opened.js("snapreport.pick(0, 0, 5)")["size"] == 1024
    assert opened.set_view(device=1)["device"] == 1
    assert opened.js("snapreport.pick(1, -1, 5)")["size"] == 500
    assert opened.set_view(device=0)["device"] == 0
    drawn = opened.js("snapreport.drawn()")
    assert drawn["pending"] == 0 and drawn["triangles"] > 0
