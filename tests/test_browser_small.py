"""Small windows, fingers and trackpads: controls fold into a menu, the culprit's sentence is whole, the picture has
half of the height; a pinch zooms, a long press shows the tooltip, and one skip link leads to the picture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest

VIEWS = ("timeline", "segments", "reserved", "flame", "table", "events")
PICTURE = """() => Math.max(...[
    '.timeline', '.segments-body', '.flame-plot', '.list',
].map(name => document.querySelector(`#app .workspace ${name}`)?.offsetHeight ?? 0))"""
# Sentences that are cut or covered: another element lies on the middle of a line.
CUT = """() => [...document.querySelectorAll('#top .chip:first-child > a')].filter(sentence =>
    [...sentence.getClientRects()].some(line => {
        const found = document.elementFromPoint(line.x + line.width / 2, line.y + line.height / 2)
        return !found || !(sentence.contains(found) || found.contains(sentence))
    }) || sentence.getClientRects().length === 0).map(sentence => sentence.textContent)"""
PINCH = """([selector, scale]) => {
    const plot = document.querySelector(selector), box = plot.getBoundingClientRect()
    const send = (type, scale) => {
        const event = new MouseEvent(type, {
            bubbles: true, cancelable: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2,
        })
        Object.defineProperty(event, 'scale', { value: scale })
        plot.dispatchEvent(event)
        return event.defaultPrevented
    }
    return [send('gesturestart', 1), send('gesturechange', Math.sqrt(scale)), send('gesturechange', scale)]
}"""
FINGER = """([selector, type, x, y]) => document.querySelector(selector).dispatchEvent(new PointerEvent(type, {
    bubbles: true, cancelable: true, pointerId: 7, pointerType: 'touch', isPrimary: true, clientX: x, clientY: y,
    buttons: type === 'pointerup' ? 0 : 1,
}))"""
# A pointer simulated by a script cannot be captured.
UNCAPTURED = "Element.prototype.setPointerCapture = () => {}"


@pytest.fixture
def oom(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **context: open_report(report_of(corpus.path_of("oom")), **context)


# A phone, 1400 × 900 at 200%, and 1280 × 800 at 200%.
@pytest.mark.parametrize("size", [(360, 740), (700, 450), (640, 400)], ids=str)
def test_the_picture_has_half(oom: Callable[..., Any], size: tuple[int, int]) -> None:
    opened = oom(viewport={"width": size[0], "height": size[1]})
    for view in VIEWS:
        opened.set_view(view=view)
        opened.settle()
        assert opened.js(PICTURE) >= 0.5 * size[1], view
        assert opened.js("document.documentElement.scrollWidth") <= size[0], view
        assert opened.js(CUT) == [], view
        for legend in ("segments-legend", "legend"):
            boxes = opened.js(
                "name => [...document.querySelectorAll(`#app .workspace .${name}`)].filter(e => e.offsetHeight)"
                ".map(e => [e, e.parentElement.querySelector('.segments-body, .flame-plot, .stage, .timeline')])"
                ".map(([e, picture]) => [picture.getBoundingClientRect().bottom, e.getBoundingClientRect().top])",
                legend,
            )
            assert all(picture <= legend + 0.5 for picture, legend in boxes), f"{view}: the {legend} covers the picture"


def test_the_menu_holds_the_controls(oom: Callable[..., Any]) -> None:
    opened = oom(viewport={"width": 360, "height": 740})
    page = opened.page
    menu = page.get_by_role("button", name="Menu")
    box_zoom = page.get_by_role("button", name="Box zoom")
    assert menu.get_attribute("aria-expanded") == "false" and not box_zoom.is_visible()
    menu.click()
    assert menu.get_attribute("aria-expanded") == "true" and box_zoom.is_visible()
    box_zoom.click()
    assert box_zoom.get_attribute("aria-pressed") == "true", "it stays open: choices come in twos"
    page.keyboard.press("Escape")
    assert not box_zoom.is_visible() and opened.js("document.activeElement.classList.contains('menu-button')")
    menu.click()
    opened.js("document.activeElement.blur()")
    page.keyboard.press("Escape")
    assert not box_zoom.is_visible(), "wherever the focus is"
    menu.click()
    page.mouse.click(180, 600)
    assert not box_zoom.is_visible(), "a press outside closes it"
    page.set_viewport_size({"width": 1300, "height": 900})
    assert not menu.is_visible() and box_zoom.is_visible()


def test_details_are_whole_in_a_short_window(oom: Callable[..., Any]) -> None:
    """The picture above needs more than what is left: it does not cover the button that closes them."""
    opened = oom(viewport={"width": 600, "height": 400})
    opened.set_view(select=0)
    opened.page.get_by_role("button", name="Close details").click()
    assert opened.view()["select"] is None


def test_a_map_of_a_short_window_does_not_cover_the_legend(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    opened = borrow_report(
        report_of(corpus.path_of("serving")), "#view=segments", viewport={"width": 701, "height": 601}
    )
    toggle = opened.page.get_by_role("button", name="Category")
    for state in ("true", "false"):
        toggle.click()
        assert toggle.get_attribute("aria-expanded") == state


@pytest.mark.parametrize(("view", "plot"), [("timeline", ".plot"), ("reserved", ".reserved-view .time-plot")])
def test_a_trackpad_pinch_of_safari_zooms(oom: Callable[..., Any], view: str, plot: str) -> None:
    opened = oom()
    opened.set_view(view=view)
    x0, x1 = opened.view()["x"]
    assert opened.js(PINCH, [plot, 4]) == [True, True, True], "the page itself does not zoom"
    opened.settle()
    got0, got1 = opened.view()["x"]
    assert got1 - got0 == pytest.approx(
        (x1 - x0) / 4, rel=0.1
    )  # room after the last event is the timeline's own and x0 < got0 < got1 < x1


@pytest.mark.parametrize(
    ("view", "plot"),
    [
        ("timeline", ".plot"),
        ("segments", ".map-scroll"),
        ("reserved", ".reserved-view .time-plot"),
        ("flame", ".flame-plot"),
    ],
)
def test_a_long_press_shows_the_tooltip(oom: Callable[..., Any], view: str, plot: str) -> None:
    opened = oom(before=UNCAPTURED)
    opened.set_view(view=view)
    opened.settle()
    box = opened.page.locator(plot).bounding_box()
    # Left of the failure, at the bottom of the stack or in the first rows of the others.
    down = 0.85 if view == "timeline" else 0.4 if view == "reserved" else 0
    x, y = box["x"] + 0.3 * box["width"], box["y"] + (down * box["height"] or 48)
    if view == "segments":
        x, y = opened.js("(({ x, y }) => [x, y])(snapreport.debug.view().largest)")
    tooltip = "[...document.querySelectorAll('.tooltip')].some(tip => tip.offsetHeight > 0)"
    opened.js(FINGER, [plot, "pointerdown", x, y])
    assert not opened.js(tooltip), "a tap is no long press"
    opened.until(tooltip)
    opened.js(FINGER, [plot, "pointerup", x, y])
    opened.js(FINGER, [plot, "pointerleave", x, y])
    assert opened.js(tooltip), "it stays when the finger leaves"
    assert opened.view()["select"] is None, "and selects nothing"
    opened.js(FINGER, [plot, "pointerdown", x, y])
    opened.until(f"!({tooltip})")  # from the next frame on, until the finger has rested again


def test_one_skip_link_leads_to_the_picture(oom: Callable[..., Any]) -> None:
    opened = oom()
    opened.page.keyboard.press("Tab")
    assert opened.js("document.activeElement.textContent") == "Skip to the picture", "the first stop of the page"
    for view, picture in zip(
        VIEWS, ("plot", "map-scroll", "time-plot", "flame-plot", "list table", "list events"), strict=True
    ):
        opened.set_view(view=view)
        opened.page.locator(".skip").focus()
        opened.page.keyboard.press("Enter")
        assert opened.js("document.activeElement.className").startswith(picture), view
    assert opened.js("location.hash").count("#app") == 0
