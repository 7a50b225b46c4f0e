"""A page that tests share is as good as a new one, whatever was done to it, or it is not reused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pool
import pytest
from PIL import ImageChops
from pool import LOOKS, Pool

VIEWS = ("segments", "reserved", "flame", "table", "events", "summary", "timeline")


@pytest.fixture
def own(chromium: Any) -> Any:
    kept = Pool(chromium)
    yield kept
    kept.close()


def use(opened: Any) -> None:
    """Leaves traces in every view, in the address, in the search box and where the pointer and the focus are."""
    opened.set_view(
        x=[1000, 2000], y=[0, 1 << 28], select=70, at=300, colour="category", query="size>1MiB", axis="time"
    )
    for view in VIEWS:
        opened.set_view(view=view, options={f"{view}.choice": "other", "legend.open": "no"})
        opened.page.mouse.wheel(0, 300)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("stream:0")
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("b")
    opened.page.set_viewport_size({"width": 900, "height": 500})
    opened.page.mouse.move(400, 300)
    opened.page.mouse.wheel(0, -240)
    opened.settle()
    opened.page.get_by_role("button", name="theme").click()
    opened.settle()


def test_a_page_handed_on_is_as_new(own: Pool, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """By its view, by everything that is visible in it, and by its pixels, compared with those of a new page."""
    report = report_of(corpus.path_of("training"))
    new = open_report(report)
    new.page.mouse.move(0, 0)
    new.settle()
    first = own.lend(report)
    use(first.opened)
    assert first.opened.view() != new.view() and first.opened.js(LOOKS) != new.js(LOOKS)
    own.take_back(first)
    second = own.lend(report)
    assert second is first
    assert second.opened.view() == new.view() and second.opened.js(LOOKS) == new.js(LOOKS)
    # Letters that have faded may differ by a shade.
    differences = ImageChops.difference(second.opened.still().image, new.still().image)
    assert max(high for _, high in differences.getextrema()) <= 3
    for view in VIEWS:
        assert second.opened.set_view(view=view) == new.set_view(view=view)
    second.opened.check()


def test_a_page_with_a_trace_is_not_handed_on(own: Pool, report_of: Callable[..., Path]) -> None:
    report = report_of(corpus.path_of("small"))
    first = own.lend(report)
    first.opened.js("document.querySelector('#app').append('a trace')")
    own.take_back(first)
    second = own.lend(report)
    assert second is not first and "a trace" not in second.opened.page.locator("body").inner_text()
    assert first.opened.page.is_closed()


def test_a_link_and_a_size_are_followed(
    own: Pool, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    report, size = report_of(corpus.path_of("small")), {"width": 640, "height": 480}
    own.take_back(own.lend(report))
    page = own.lend(report, "#view=segments&at=50&select=3", viewport=size)
    assert page.opened.page.viewport_size == size
    assert page.opened.view() == open_report(report, "#view=segments&at=50&select=3", viewport=size).view()
    own.take_back(page)
    assert own.lend(report).opened.view() == open_report(report).view()


def test_few_pages_are_kept(own: Pool, report_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST", 2)
    report = report_of(corpus.path_of("small"))
    lent = [
        own.lend(report, color_scheme=scheme, device_scale_factor=ratio)
        for scheme, ratio in (("light", 1), ("light", 2), ("dark", 2))
    ]
    for page in lent:
        own.take_back(page)
    assert [page.opened.page.is_closed() for page in lent] == [True, False, False]
    assert own.lend(report, is_new=True, color_scheme="dark", device_scale_factor=2) not in lent
