"""All views together: each can be reached on any snapshot, shares one state, and is readable for everybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest

VIEWS = ("timeline", "segments", "reserved", "flame", "xray", "table", "events", "summary")
# Text with too low a contrast to its background. Canvas text is left to the views; disabled controls and what is off
# the screen need none (WCAG 1.4.3).
LOW_CONTRAST = """() => {
  const parse = (css) => { const m = css.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m }
  const linear = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]))
  const behind = (element) => {
    const layers = []
    for (let e = element; e; e = e.parentElement) {
      const css = getComputedStyle(e).backgroundColor
      if (!/^rgba?\\(/.test(css)) return null
      layers.push(parse(css))
      if (layers.at(-1)[3] === 1) break
    }
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255])
  }
  const found = []
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim())
    if (!own || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue
    if (element.closest(':disabled, .offscreen, svg, noscript')) continue
    const style = getComputedStyle(element)
    const ground = behind(element)
    if (!ground || !/^rgba?\\(/.test(style.color)) continue
    const colour = over(parse(style.color), ground)
    const [a, b] = [light(colour), light(ground)].sort((x, y) => y - x)
    const ratio = (a + 0.05) / (b + 0.05)
    const big = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700)
    const text = element.textContent.trim().slice(0, 40)
    if (ratio < (big ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${text}`)
  }
  return found
}"""


@pytest.mark.parametrize(
    "name", [*corpus.varied_names(), "small", "multi-gpu", "pools", "no-stacks", "no-times", "overlap"]
)
def test_every_view_of_every_device(
    name: str, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """Nothing throws, nothing is logged, and no view is blank: it shows something or says why not."""
    opened = borrow_report(report_of(corpus.path_of(name)))
    for device in opened.js("snapreport.devices()"):
        for view in VIEWS:
            if not opened.page.locator(f"#tab-{view}").count():
                assert (view, corpus.loaded(corpus.path_of(name)).modules(device).is_empty()) == ("xray", True)
                continue
            assert opened.set_view(view=view, device=device)["view"] == view
            shown = opened.js("document.querySelector('main').innerText.trim().length")
            assert shown > 20, f"{view} of device {device} is blank"
    opened.check()


@pytest.mark.parametrize("view", VIEWS)
def test_a_link_opens_on_any_view(view: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    fragment = f"#view={view}&at=300&colour=category&query=size%3E1MiB&select=12&flame.root=leaf&table.group=category"
    opened = open_report(report_of(corpus.path_of("training")), fragment)
    state = opened.view()
    assert (state["view"], state["at"], state["colour"], state["query"], state["select"]) == (
        view, 300, "category", "size>1MiB", 12,
    )  # fmt: skip
    assert state["options"] == {"flame.root": "leaf", "table.group": "category"}
    selected = opened.page.locator("[role=tab][aria-selected=true]")
    assert selected.count() == 1
    assert selected.get_attribute("id") == f"tab-{view}"


def test_a_selection_is_one_for_all_views(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("training")))
    size = opened.js("snapreport.allocation(0, 500).size")
    opened.set_view(select=500)
    for view in VIEWS[:-1]:
        assert opened.set_view(view=view)["select"] == 500
        details = opened.page.locator(".details")
        assert details.is_visible()
        assert f"{size:,} B" in details.inner_text()
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("Escape")
    opened.until("snapreport.getView().select === null")


def test_the_keyboard_reaches_every_view(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("small")))
    opened.page.locator(".plot").focus()
    for number, view in enumerate(VIEWS, 1):
        opened.page.keyboard.press(str(number))
        opened.until("v => snapreport.getView().view === v", view)
    # From tab to tab with the arrows, which wrap around.
    opened.page.locator("#tab-summary").focus()
    opened.page.keyboard.press("ArrowRight")
    opened.until("snapreport.getView().view === 'timeline'")
    # Everything that can be clicked can be reached: only tabs that are not selected have a negative tabindex.
    opened.set_view(view="table")
    lost = opened.js(
        "[...document.querySelectorAll('#app button, #app select, #app input')]"
        ".filter(e => e.checkVisibility() && e.tabIndex < 0 && e.getAttribute('role') !== 'tab').map(e => e.outerHTML)"
    )
    assert lost == []


def test_controls_have_names(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("training")))
    for view in VIEWS:
        opened.set_view(view=view)
        nameless = opened.js(
            "[...document.querySelectorAll('#app button, #app select, #app input, #app canvas, #app [role]')]"
            ".filter(e => e.checkVisibility() && !e.textContent.trim() && !e.getAttribute('aria-label') && !e.title "
            "&& !e.labels?.length"
            " && e.getAttribute('aria-hidden') !== 'true' && !e.closest('[aria-hidden=true]')"
            " && !(e.tagName === 'CANVAS' && e.closest('[aria-label]')) && !['row', 'rowgroup', 'gridcell', "
            "'columnheader', 'presentation', 'tooltip', 'status', 'treeitem', 'alert', "
            "'listbox'].includes(e.getAttribute('role')))"
            ".map(e => e.outerHTML.slice(0, 120))"
        )
        assert nameless == [], view


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(theme: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("fragmentation")), color_scheme=theme)
    for view in VIEWS:
        opened.set_view(
            view=view, select=None if view == "summary" else 40, query="" if view == "table" else "size>1MiB"
        )
        assert opened.js(LOW_CONTRAST) == [], f"{view} in the {theme} theme"


@pytest.mark.parametrize(("width", "height", "ratio"), [(360, 640, 3), (800, 600, 1.25), (3840, 2160, 1)])
def test_any_screen(
    width: int, height: int, ratio: float, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    opened = open_report(
        report_of(corpus.path_of("training")), viewport={"width": width, "height": height}, device_scale_factor=ratio
    )
    for view in VIEWS:
        opened.set_view(view=view)
        assert opened.js("document.documentElement.scrollWidth") <= width, view
        tab = opened.page.locator(f"#tab-{view}").bounding_box()
        assert tab["x"] >= 0
        assert tab["x"] + tab["width"] <= width + 1, f"the tab of {view} is out of sight"


def test_nothing_moves_by_itself(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("training")), reduced_motion="reduce")
    for view in VIEWS:
        opened.set_view(view=view)
        assert opened.js("document.getAnimations().filter(a => a.playState === 'running').length") == 0
