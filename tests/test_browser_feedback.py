"""What is asked stays in the address, what is wrong is said, and what was opened closes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus

PANEL = "snapreport.debug.view().whatIf"
ROWS = """() => {
    const list = document.querySelector('.legend ul'), box = list.getBoundingClientRect()
    const bottoms = [...list.children].map(item => item.getBoundingClientRect().bottom)
    return [bottoms.length, bottoms.filter(bottom => bottom <= box.bottom + 1).length]
}"""


def test_a_what_if_is_in_the_address(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    report = report_of(corpus.path_of("fragmentation"))
    opened = open_report(report)
    opened.set_view(view="reserved", options={"reserved.whatif": ""})
    opened.until(f"{PANEL}.rows.length > 1")
    page = opened.page
    page.get_by_label("Settings", exact=True).fill("max_split_size_mb:64")
    page.locator(".what-if").get_by_label("Card").select_option("other")
    page.get_by_label("Memory for the allocator in GiB").fill("100")
    without = page.get_by_label("Without allocations that match").and_(page.locator(":visible"))
    without.fill("func:no_such_function")
    # Enter is heard while the minimum memory of the first question may still be searched.
    without.press("Enter")
    opened.until(f"{PANEL}.rows.some(([name]) => name.startsWith('max_split_size_mb:64'))")
    opened.until(f"{PANEL}.words.startsWith('No allocation matches the query, so nothing is left out.')")
    opened.until("location.hash.includes('reserved.memory=100')")
    again = open_report(report, opened.js("location.hash"))
    again.until(f"{PANEL}?.words.startsWith('No allocation matches')")
    values = [
        again.page.get_by_label(label, exact=True).and_(again.page.locator(":visible")).input_value()
        for label in ("Settings", "Without allocations that match")
    ]
    assert values == ["max_split_size_mb:64", "func:no_such_function"]
    assert again.page.get_by_label("Memory for the allocator in GiB").input_value() == "100"


def test_enter_interrupts_a_search(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("fragmentation")), "#view=reserved&reserved.whatif=")
    opened.until(f"{PANEL}?.rows.length > 1")
    settings = opened.page.get_by_label("Settings", exact=True)
    settings.fill("garbage_collection_threshold:0.7")
    # Both in one task: the search that the first Enter begins cannot have ended.
    settings.evaluate("""input => {
        input.form.requestSubmit()
        input.value = 'max_split_size_mb:200'
        input.form.querySelector('[type=submit]').click()
    }""")
    opened.until(f"{PANEL}.rows.some(([name]) => name.startsWith('max_split_size_mb:200'))")


def test_search_help_and_status(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("small")))
    page = opened.page
    help_list = page.locator("#search-help")
    button = page.get_by_role("button", name="What can be searched")
    button.click()
    assert help_list.is_visible()
    page.keyboard.press("Escape")
    assert not help_list.is_visible()
    button.click()
    page.mouse.click(5, 5)
    assert not help_list.is_visible()
    search = page.get_by_role("combobox", name="Search allocations")
    search.fill("size>0")
    status = page.locator("#search-status")
    opened.until("document.getElementById('search-status').textContent !== ''")
    search.fill("size>0 size>x")
    opened.until("document.getElementById('search-status').textContent === ''")
    search.fill("size>0")
    opened.until("document.getElementById('search-status').textContent !== ''")
    assert "match" in status.inner_text()


def test_legend_and_tooltip(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("oom")), "#colour=stack")
    for width in (1400, 1000):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.settle()
        listed, seen = opened.js(ROWS)
        words = opened.page.locator(".legend-more").inner_text()
        counted = re.search(r"the (\d+) that hold most", words)
        assert listed == seen and (counted is None or int(counted[1]) == seen), words
    plot = opened.plot()
    tooltip = opened.page.locator(".timeline .tooltip").first
    middle = (plot["left"] + plot["width"] / 2, plot["top"] + plot["height"] - 5)
    opened.page.mouse.move(*middle)
    tooltip.wait_for(state="visible")
    opened.page.keyboard.press("Escape")
    opened.settle()
    assert not tooltip.is_visible()
    opened.page.mouse.move(middle[0] + 9, middle[1])
    tooltip.wait_for(state="visible")
    # The window loses the focus, and no event of the pointer says that it is elsewhere.
    opened.js("window.dispatchEvent(new Event('blur'))")
    assert not tooltip.is_visible()
