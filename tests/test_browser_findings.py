"""A finding's link opens the view that shows it: the device, the moment, the window and the query, also with several
files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import corpus
import pytest
from planted import path_of

import snapreport
from snapreport.findings.run import findings

SMALL = {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "batch": 4, "vocabulary": 4096}
REPORTS: dict[str, Callable[[], list[Path]]] = {
    "oom": lambda: [path_of("oom", **SMALL, memory=1 << 30)],
    "fragmentation": lambda: [path_of("fragmentation", **SMALL, memory=2 << 30)],
    "several devices": lambda: [path_of("training", **SMALL, steps=9, devices=3, leak=4 << 20)],
    "several files": lambda: [
        path_of("small"),
        path_of("leak", leak=5 << 20, steps=9),
        path_of("leak", leak=0, cycles=3),
        path_of("churn"),
        path_of("training", **SMALL, steps=6, devices=2, oom="demand", memory=1 << 30),
    ],
}
if "expandable_oom_3gpu.pickle" in corpus.real_names():
    REPORTS["real"] = lambda: [corpus.path_of("expandable_oom_3gpu.pickle")]


def fields(link: str) -> dict[str, str]:
    return {name: unquote(value) for name, value in (part.split("=", 1) for part in link[1:].split("&"))}


@pytest.mark.parametrize("name", REPORTS)
def test_show_it(name: str, report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(*REPORTS[name]()))
    start = {opened.view()["device"]: opened.view()["at"]}
    opened.set_view(view="summary")
    links = opened.page.locator("article.finding a.show")
    targets = [links.nth(i).get_attribute("href") for i in range(links.count())]
    assert targets
    for i, target in enumerate(targets):
        opened.set_view(view="summary")
        opened.until("location.hash.includes('view=summary')")
        links.nth(i).click()
        want = fields(target)
        opened.until("view => snapreport.getView().view === view", want["view"])
        opened.set_view()
        view = opened.view()
        assert view["device"] == int(want["device"])
        assert view["query"] == want.get("query", "")
        # A link without a moment shows the one that the report opens on, on that device.
        assert view["at"] == (int(want["at"]) if "at" in want else start.get(view["device"]))
        if "x" in want:
            low, high = map(float, want["x"].split(".."))
            assert view["x"] == pytest.approx([low, high], abs=1)
        if want.get("query"):
            found = opened.js(
                "async ([d, q]) => { const f = await snapreport.search(d, q); return f.count }",
                [int(want["device"]), want["query"]],
            )
            assert found > 0, f"{target} shows nothing"
        assert not opened.page.locator(".search .bad, .search [aria-invalid=true]").count()


def test_a_query_names_the_stack_of_its_own_file(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """Stacks are numbered across all files of a report: the leak of the second file is the leak that is shown."""
    paths = REPORTS["several files"]()
    opened = borrow_report(report_of(*paths))
    (leak,) = [f for f in findings(snapreport.load(paths[1])) if f.kind == "leak"]
    opened.set_view(view="summary")
    card = opened.page.locator("article.finding", has_text="keeps 5.00 MiB every step")
    want = fields(card.locator("a.show").get_attribute("href"))
    found = opened.js("([d, q]) => snapreport.search(d, q)", [int(want["device"]), want["query"]])
    assert (found["count"], found["bytes"]) == (leak.evidence["live_count"], leak.bytes)
    one = opened.js("([d, id]) => snapreport.allocation(d, id)", [int(want["device"]), found["ids"][0]])
    frames = opened.js("([d, s]) => snapreport.frames(d, s)", [int(want["device"]), one["stack"]])
    assert any(frame["name"] == "log_step" for frame in frames)


def test_the_moment_of_an_oom_is_the_moment_shown(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """What is live at the link's moment is what the finding says was allocated."""
    (path,) = REPORTS["oom"]()
    opened = borrow_report(report_of(path))
    (oom,) = [f for f in findings(snapreport.load(path)) if f.kind == "oom"]
    opened.set_view(view="summary")
    opened.page.locator("article.finding.error a.show").first.click()
    opened.until("snapreport.getView().query.startsWith('live:')")
    found = opened.js("q => snapreport.search(0, q)", opened.view()["query"])
    assert found["bytes"] == oom.evidence["allocated_bytes"]
