"""axe-core (the rules behind most accessibility checkers) finds nothing in any view, in either theme, in forced
colours, and in a small window with its menu open; and every target is at least 24 pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from job_documents import planted_job
from planted import path_of

import snapreport
from snapreport.findings.diff import diff
from snapreport.report.build import write_diff

# tests/run.py names the one that it has installed; in development it is where `npm ci` puts it.
AXE = corpus.NODE_MODULES / "axe-core" / "axe.min.js"
VIEWS = ("timeline", "segments", "reserved", "flame", "xray", "table", "events", "summary")
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced": {"forced_colors": "active"},
    "small": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
}
RUN = """async () => {
    const { violations } = await axe.run(document, {
        rules: { 'target-size': { enabled: true } }, resultTypes: ['violations'],
    })
    return violations.map(({ id, nodes }) => `${id}: ` + nodes.slice(0, 4).map(node =>
        `${node.target.join(' ')} (${node.any.concat(node.all, node.none).map(check => check.message)[0]})`).join('; '))
}"""

OVERLAPS = """(() => {
    const all = [...document.querySelectorAll('#app .toolbar :is(button, select, .search-field, .search-status)')]
        .filter(each => each.checkVisibility() && !each.closest('.search-field > *'))
        .map(each => [each.textContent, each.getBoundingClientRect()])
    return all.flatMap(([one, a], n) => all.slice(n + 1)
        .filter(([, b]) => a.left + 2 < b.right && b.left + 2 < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
        .map(([other]) => `${one} and ${other}`))
})()"""


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing(look: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `npm ci` in static/")
    opened = open_report(report_of(corpus.path_of("oom")), **LOOKS[look])
    opened.js(AXE.read_text(encoding="utf-8") + "; void 0")
    found = {}
    for view in VIEWS:
        opened.set_view(view=view)
        opened.settle()
        if look == "small":
            opened.js("document.querySelector('.toolbar').classList.add('menu-open')")
        found[view] = opened.js(RUN)
    opened.set_view(view="timeline", oom=opened.js("snapreport.stats(0).oom_events[0]"))
    opened.page.locator("#top .verdict a").first.click()
    opened.settle()
    found["details"] = opened.js(RUN)
    assert not {view: violations for view, violations in found.items() if violations}


def test_what_a_search_finds_covers_no_button(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """The first link of a failure searches for what was live: its two numbers and a button stand beside the tools."""
    opened = open_report(report_of(corpus.path_of("oom")))
    opened.set_view(view="timeline", query="live:13812")
    for width in (960, 1100, 1180, 1240, 1300, 1366, 1440, 1600):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.settle()
        assert opened.js(OVERLAPS) == [], width


@pytest.mark.parametrize("look", ["light", "dark", "small"])
def test_axe_finds_nothing_in_what_opens(
    look: str, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    """A selected range, its sums in the table, a story, callers and callees, and menus of a right click."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `npm ci` in static/")
    opened = open_report(report_of(corpus.path_of("oom")), **LOOKS[look])
    opened.js(AXE.read_text(encoding="utf-8") + "; void 0")
    found = {}
    for name, view, options in (
        ("range", "timeline", {"timeline.range": "3..40"}),
        ("sums", "table", {"timeline.range": "3..40", "table.range": "window"}),
        ("story", "timeline", {"story.step": "2"}),
        ("flame", "flame", {}),
    ):
        opened.set_view(view=view, options=options)
        opened.settle()
        found[name] = opened.js(RUN)
    page = opened.page
    opened.set_view(view="table", options={})
    opened.settle()
    page.locator(".table .list-body > .list-row").first.click(button="right", position={"x": 30, "y": 12})
    assert page.locator(".context-menu").count() == 1
    found["table's menu"] = opened.js(RUN)
    page.keyboard.press("Escape")
    opened.set_view(view="flame", options={"flame.chains": "none"})
    opened.settle()
    page.locator(".flame-plot").focus()
    for key in ("Home", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    # The key for menus, which playwright cannot press.
    opened.js(
        "document.querySelector('.flame-plot').dispatchEvent("
        "new MouseEvent('contextmenu', {bubbles: true, cancelable: true}))"
    )
    found["flame graph's menu"] = opened.js(RUN)
    page.locator(".context-menu [role=menuitem]").first.click()
    opened.settle()
    assert "flame.middle" in opened.view()["options"]
    found["callers and callees"] = opened.js(RUN)
    assert not {name: violations for name, violations in found.items() if violations}


@pytest.mark.parametrize("name", ["job", "diff"])
def test_axe_finds_nothing_in_jobs_and_differences(name: str, tmp_path: Path, open_report: Callable[..., Any]) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `npm ci` in static/")
    path = tmp_path / "report.html"
    if name == "job":
        path.write_bytes(planted_job(24).document)
    else:
        before, after = (snapreport.load(path_of("small", regression=factor)) for factor in (1.0, 1.5))
        write_diff([diff(before, after)], path)
    opened = open_report(path)
    opened.js(AXE.read_text(encoding="utf-8") + "; void 0")
    tabs = ("groups", "findings", "stacks", "rank") if name == "job" else ("",)
    found = {}
    for tab in tabs:
        if tab:
            opened.set_view(options={"job.tab": tab, "job.rank": "3"})
        found[tab] = opened.js(RUN)
    opened.set_view(view="summary")
    found["summary"] = opened.js(RUN)
    assert not {tab: violations for tab, violations in found.items() if violations}
