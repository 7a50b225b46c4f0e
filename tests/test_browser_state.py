"""A link restores the same view; devices, axes, views and windows of any size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from pages import SIZE
from test_browser_input import WINDOW, at_rest, is_everything, near, span


@pytest.fixture
def opened(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    return borrow_report(report_of(corpus.path_of("training")))


def test_link_opens_on_the_same_place(
    opened: Any, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    opened.set_view(x=[1234, 2345.5], y=[1 << 20, 1 << 29], select=77)
    opened.until("location.hash.includes('select=77')")
    fragment, view = opened.js("location.hash"), opened.view()
    again = open_report(report_of(corpus.path_of("training")), fragment)
    assert again.view() == view
    again.js("location.hash = ''")
    again.until("snapreport.getView().select === null")


@pytest.mark.parametrize(
    "fragment",
    [
        "#device=99&x=a..b",
        "#x=5..1&select=-3&axis=sideways",
        "#%%%",
        "#view=<script>",
        "#x=1e999..2e999",
        "#select=99999999",
    ],
)
def test_any_link_opens(report_of: Callable[..., Path], open_report: Callable[..., Any], fragment: str) -> None:
    opened = open_report(report_of(corpus.path_of("small")), fragment)
    assert opened.js("snapreport.drawn()")["triangles"] > 0


def test_device_selector(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("multi-gpu")
    devices = corpus.replayed(path)
    opened = borrow_report(report_of(path))
    select = opened.page.get_by_role("combobox", name="Device")
    assert select.locator("option").count() == len(devices)
    for index, number in enumerate(sorted(devices)):
        select.select_option(index=index)
        view = at_rest(opened)
        assert view["device"] == number and is_everything(opened, devices[number], view)


def test_axis_switch(opened: Any) -> None:
    before = opened.set_view(x=WINDOW)
    opened.page.get_by_role("button", name="Time", exact=True).click()
    after = at_rest(opened)
    assert after["axis"] == "time"
    assert near(after["x"][0], before["x"][0], span(before)) and near(after["x"][1], before["x"][1], span(before)), (
        "the same events stay in view"
    )
    opened.page.keyboard.press("t")
    assert at_rest(opened)["axis"] == "event"


def test_no_time_axis_without_times(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("no-times")))
    assert opened.page.get_by_role("button", name="Time", exact=True).is_disabled()
    assert opened.js("snapreport.setView({axis: 'time'}).then(() => 'done', () => 'rejected')") == "rejected"


def test_summary_is_a_view(opened: Any) -> None:
    summary = opened.page.locator("#summary")
    opened.set_view(view="summary")
    assert summary.is_visible()
    opened.page.get_by_role("tab", name="Timeline").click()
    assert at_rest(opened)["view"] == "timeline"


@pytest.mark.parametrize(
    "size", [{"width": 360, "height": 640}, SIZE, {"width": 2200, "height": 1300}], ids=lambda s: str(s["width"])
)
def test_any_window_size(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any], size: dict[str, int]
) -> None:
    opened = borrow_report(report_of(corpus.path_of("small")), viewport=size)
    assert opened.js("document.documentElement.scrollWidth") <= size["width"], "nothing hangs out to the side"
    plot = opened.plot()
    assert plot["width"] > 0.5 * size["width"] and plot["height"] > 100
    opened.page.set_viewport_size({"width": size["width"] // 2 + 200, "height": 700})
    opened.settle()
    assert opened.js("snapreport.drawn()")["triangles"] > 0


def test_help_lists_the_keys(opened: Any) -> None:
    opened.page.keyboard.press("?")
    text = opened.page.locator("body").inner_text()
    assert "Zoom" in text and "Escape" in text
    opened.page.keyboard.press("Escape")
