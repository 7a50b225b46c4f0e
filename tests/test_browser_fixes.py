"""Remedies and settings in the page: any set of them leaves what Python's replay leaves."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import corpus
import numpy as np
import pytest

from snapreport.allocator.placement import Ascending
from snapreport.allocator.settings import parse_settings
from snapreport.allocator.whatif import FRESH, Change, WhatIf, scaled
from snapreport.findings.run import findings
from snapreport.findings.saving import peak_without
from snapreport.forecast.batch_growth import batch_growth
from snapreport.forecast.remedies import RemedySearch
from snapreport.forecast.size_laws import LINEAR, UNKNOWN

WITNESSES = Path(__file__).parent / "recordings" / "witnesses"
FIXES = "snapreport.debug.view().fixes"
SETTING = "expandable_segments:True"
# Replays are held back until `release()`.
HELD = """{
    const send = Worker.prototype.postMessage, held = []
    let isHeld = true
    Worker.prototype.postMessage = function (...message) {
        if (isHeld && message[0].kind === 'change') held.push(() => send.apply(this, message))
        else send.apply(this, message)
    }
    window.release = () => { isHeld = false; for (const one of held) one() }
}"""
PLACES = """[...document.querySelectorAll('#top .chip, .toolbar button, .side label, .side-findings')].map(element => {
    const { top, bottom } = element.getBoundingClientRect()
    return [element.textContent.split(' · fits')[0], top, bottom]
})"""


def choose(opened: Any, rules: tuple[str, ...], settings: str = "", **others: str) -> dict[str, Any]:
    """What the page shows for a set, opened by its address."""
    options = {"fix.on": ",".join(rules), "fix.settings": settings} | others
    hash_text = "#" + "&".join(f"{name}={quote(value)}" for name, value in options.items() if value)
    opened.page.evaluate("hash => { location.hash = hash }", hash_text)
    wanted = json.dumps({name: value for name, value in options.items() if value})
    opened.until(f"Object.entries({wanted}).every(([k, v]) => snapreport.getView().options[k] === v)")
    opened.settle()
    opened.until(f"!{FIXES}.busy")
    shown: dict[str, Any] = opened.js(
        f"(({{ peak, least, answer, text }}) => ({{ peak, least, answer, text }}))({FIXES})"
    )
    return shown


def test_a_wide_page_folds_the_effort_of_chips_but_not_that_they_are_estimates(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    opened = borrow_report(report_of(WITNESSES / "masks.pickle.xz"), viewport={"width": 1400, "height": 900})
    chips = opened.js(
        """[...document.querySelectorAll('#top > .verdict > .chip')].map(chip =>
        [chip.dataset.rule, ...['.certainty', 'small'].map(name => chip.querySelector(name)?.checkVisibility())])"""
    )
    assert chips == [
        ["expanded-mask", None, True], ["accumulation", None, False], ["mixed-precision", True, False]
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["masked_model", "masks", "stored", "zeroed"])
def test_any_set_is_what_python_replays(
    name: str, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    path = WITNESSES / f"{name}.pickle.xz"
    opened = borrow_report(report_of(path), viewport={"width": 1400, "height": 900})
    snapshot = corpus.loaded(path)
    search = RemedySearch(snapshot, WhatIf(snapshot.timeline(0)), parse_settings([], WhatIf(snapshot.timeline(0)).own))
    offered = opened.js("[...document.querySelectorAll('#remedies li')].map(each => each.dataset.rule)")
    given = [f for f in findings(snapshot) if f.kind == "advice" and f.evidence["saving"]]
    assert offered == [f.evidence["rule"] for f in given if f.evidence["saving"]["saves_bytes"] > 0]
    assert len(offered) > 1
    remedies = {remedy.rule: remedy for remedy in search.remedies}
    expandable = next(remedy for remedy in search.remedies if remedy.setting == SETTING)
    known = [rule for rule in offered if rule in remedies]
    sets = [chosen for count in (1, 2, len(known)) for chosen in itertools.combinations(known, count)]
    for number, chosen in enumerate(sets):
        with_setting = number % 3 == 0
        shown = choose(opened, chosen, SETTING if with_setting else "")
        python = [remedies[rule] for rule in chosen]
        assert shown["peak"] == search.peak_allocated(python), chosen
        everything = [*python, *([expandable] if with_setting else [])]
        assert shown["answer"]["unlimited"]["peakReserved"] == search.peak_reserved(everything), chosen


@pytest.mark.parametrize("name", ["masks", "stored"])
def test_another_batch_is_what_python_replays(
    name: str, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    """At twice and half the batch, from the least to the most that may grow."""
    path = WITNESSES / f"{name}.pickle.xz"
    opened = open_report(report_of(path), viewport={"width": 1400, "height": 900})
    whatif = WhatIf(corpus.loaded(path).timeline(0))
    kind = batch_growth(whatif.timeline, 1.0).kind
    peaks = []
    for factor in (2.0, 0.5):
        bounds = []
        for other in (max(1.0, factor), min(1.0, factor)):
            sizes = scaled(whatif.trace, [(kind == LINEAR, factor), (kind == UNKNOWN, other)])
            bounds.append(Change(None if sizes.all() else sizes == 0, sizes))
        shown = choose(opened, (), **{"fix.batch": f"{factor:g}"})
        assert [shown["peak"], shown["least"]] == [whatif.peak_allocated(change) for change in bounds]
        reserved = whatif.replay(whatif.own, bounds[0], memory=Ascending(None), start=FRESH).peak_reserved
        assert shown["answer"]["unlimited"]["peakReserved"] == reserved
        peaks.append(shown["peak"])
    opened.page.get_by_role("slider", name="Batch").scroll_into_view_if_needed()
    opened.until(f"{FIXES}.points.length === 12")
    points = {point["factor"]: point for point in opened.js(f"{FIXES}.points")}
    drawn = opened.page.locator(".batch-chart polyline.allocated").get_attribute("points").split()
    xs, ys = zip(*(map(float, point.split(",")) for point in drawn), strict=True)
    assert [(x - xs[0]) / (xs[-1] - xs[0]) for x in xs] == pytest.approx([(f - 0.125) / 7.875 for f in points])
    heights = [point["allocated"] for point in points.values()]
    assert [(y - ys[0]) / (ys[-1] - ys[0]) for y in ys] == pytest.approx(
        [(bytes_ - heights[0]) / (heights[-1] - heights[0]) for bytes_ in heights]
    )
    assert [points[factor]["allocated"] for factor in (2.0, 0.5)] == peaks
    assert points[0.5]["reserved"] == reserved
    assert opened.page.get_by_text("An estimate: snapreport fit").is_visible()
    slider = opened.page.get_by_role("slider", name="Batch")
    assert slider.get_attribute("aria-valuetext") == "0.5 times the recorded batch"
    for _ in range(3):
        slider.press("ArrowRight")
    opened.until("snapreport.getView().options['fix.batch'] === '1.25'")
    opened.until(f"!{FIXES}.busy")
    assert peaks[1] < opened.js(f"{FIXES}.peak") < peaks[0]
    opened.page.locator(".batch-chart svg").dispatch_event("click", {"clientX": 1})
    opened.until("snapreport.getView().options['fix.batch'] === '0.125'")


def test_choices_stay_where_they_are(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(WITNESSES / "masks.pickle.xz"), viewport={"width": 1400, "height": 900})
    top = "document.querySelector('.side .fixes').getBoundingClientRect().top"
    choose(opened, ())
    before = opened.js(top)
    for factor in ("2", "0.5"):
        choose(opened, (), **{"fix.batch": factor})
        assert opened.js(top) == before


def test_a_failed_request_counts_and_is_named(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """A single remedy leaves what its sentence says; without one, the request that fails is a link."""
    path = corpus.path_of("oom")
    opened = borrow_report(report_of(path), viewport={"width": 1400, "height": 900})
    given = [f for f in findings(corpus.loaded(path)) if f.kind == "advice" and f.evidence["saving"]]
    assert given
    for finding in given:
        saving = finding.evidence["saving"]
        assert choose(opened, (finding.evidence["rule"],))["peak"] == saving["peak_bytes"]
    shown = choose(opened, (), "roundup_power2_divisions:4")
    event = corpus.loaded(path).timeline(0).oom_events[0]
    assert shown["answer"]["failedEvent"] is not None and "Fails with" in shown["text"]
    opened.page.locator(".fix-fails button").click()
    opened.until(f"snapreport.getView().at === {shown['answer']['failedEvent']}")
    assert shown["answer"]["failedEvent"] <= event


def test_a_query_goes_and_a_bad_one_is_named(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = WITNESSES / "masks.pickle.xz"
    opened = borrow_report(report_of(path), viewport={"width": 1400, "height": 900})
    timeline = corpus.loaded(path).timeline(0)
    size = timeline.allocations["size"].to_numpy()
    rows = np.flatnonzero(size > 1 << 20)
    assert choose(opened, (), **{"fix.without": "size>1MiB"})["peak"] == peak_without(timeline, rows, size[rows])[0]
    assert choose(opened, (), **{"fix.without": "size>0"})["peak"] == 0
    opened.page.get_by_role("slider", name="Batch").scroll_into_view_if_needed()
    opened.until(f"{FIXES}.points.length === 12")  # a chart of nothing, and no error
    box = opened.page.locator(".side .fixes input").first
    box.check()
    opened.until("snapreport.getView().options['fix.on'] !== undefined")
    field = opened.page.get_by_label("Without allocations that match")
    field.fill("size>")
    field.press("Enter")
    opened.until("document.querySelector('.fix-result').textContent.includes('size')")
    assert box.is_checked()


def test_a_ticket_is_copied(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("oom")), viewport={"width": 1400, "height": 900})
    opened.page.evaluate("() => { navigator.clipboard.writeText = async text => { window.copied = text } }")
    opened.page.get_by_role("button", name="Ticket").click()
    opened.until("window.copied !== undefined")
    title, cause, *others = opened.js("window.copied").split("\n\n")
    assert title.startswith("## ") and "Out of memory" in cause
    assert others[-1] == opened.js("location.href")
    assert any(part.startswith("```") and ".py" in part for part in others), "the stack of the request"
    assert any(part.startswith("- ") and "replayed" in part for part in others), "remedies with their numbers"
    assert sum(part.startswith("- ") for part in others) == 2, "remedies, and the legend"


def test_nothing_moves_when_replays_arrive(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """Which card a chip's remedy fits, and the chart of the batch, are replayed after the report is ready."""
    opened = open_report(report_of(corpus.path_of("fragmentation")), before=HELD)
    opened.page.get_by_role("slider", name="Batch").scroll_into_view_if_needed()
    opened.settle()
    places = opened.js(PLACES)
    opened.js("release()")
    opened.until(f"{FIXES}.isFitted && {FIXES}.points.length === 12")
    opened.settle()
    assert "to spare" in opened.page.locator("#top .chip .fits").first.text_content()
    assert opened.page.locator(".batch-chart polyline").first.is_visible()
    assert opened.js(PLACES) == places


def test_a_finding_beside_the_timeline_leads_there(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """With the theme and the bookmarks, and with the focus where the link was hidden."""
    path = report_of(corpus.path_of("small"))
    marks = '[["mine","#view=table"]]'
    opened = borrow_report(path, f"#theme=dark&marks.list={quote(marks)}", viewport={"width": 1400, "height": 900})
    link = opened.page.locator(".side-findings a").first
    place = link.get_attribute("href")
    link.press("Enter")
    opened.settle()
    assert place.startswith("#view=flame") and opened.view()["view"] == "flame"
    assert opened.view()["options"]["marks.list"] == marks
    assert opened.js("getComputedStyle(document.documentElement).colorScheme") == "dark"
    assert opened.js("document.activeElement.className").startswith("flame-plot")
