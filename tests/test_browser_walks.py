"""From opening a report to the culprit's whole stack, by real clicks: one where memory ran out, two at most on any
other report; in Chromium, and in the installed Firefox.

The culprit is the failed request, or else the largest recorded stack at the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import corpus
import firefox
import pytest
from planted import path_of

from snapreport import Snapshot
from snapreport.reading.noise import NOISE, recorded_flags

SMALL = {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "batch": 4, "vocabulary": 4096}
RECORDED = corpus.REAL.parent / "recorded"
SIZE = {"width": 1400, "height": 900}
# Where to click: the middle of the first line of a failure's link, else of the peak's.
LINK = """(() => {
    const link = document.querySelector('#top .chip.error a') ?? document.querySelector('#top .headline a')
    const box = link.getClientRects()[0]
    return [box.x + box.width / 2, box.y + box.height / 2]
})()"""
OPEN = "document.querySelector('.details:not([hidden]) :is(.frames, .soft)') !== null"
SHOWN = """(() => {
    const panel = document.querySelector('.details')
    const list = panel.querySelector('.frames')
    const bottom = panel.getBoundingClientRect().bottom
    const frames = list ? [...list.querySelectorAll('.frame')] : []
    const seen = frames.filter(frame => frame.offsetHeight > 0)
    const held = [...panel.querySelectorAll('[data-held=function] button')]
    const shown = {
        view: snapreport.getView(),
        text: panel.innerText,
        first: seen.length > 0 && seen[0].getBoundingClientRect().bottom <= Math.min(bottom, innerHeight),
        held: held.map(button => button.getBoundingClientRect().bottom <= Math.min(bottom, innerHeight)),
    }
    // What is folded is laid out when its count is clicked.
    for (const fold of panel.querySelectorAll('.fold')) fold.click()
    const names = list ? [...list.querySelectorAll('.frame .name')] : []
    return { ...shown, frames: names.map(name => name.textContent) }
})()"""


def reports() -> dict[str, Callable[[], Path]]:
    """Ten generated, committed and real snapshots, half of them with a failure."""
    made: dict[str, Callable[[], Path]] = {
        "demand": lambda: path_of("training", **SMALL, steps=6, devices=2, oom="demand", memory=1 << 30),
        "fragmentation": lambda: path_of("fragmentation", **SMALL, memory=2 << 30),
        "leak": lambda: corpus.path_of("leak"),
        "training": lambda: corpus.path_of("training"),
        "pools": lambda: corpus.path_of("pools"),
    }
    real = [
        *(corpus.REAL / f"{name}.pickle" for name in ("expandable_oom_3gpu", "lightning_oom", "train_22k_events")),
        *(corpus.REAL / f"{name}.pickle" for name in ("attention_97_events", "two_models_alive")),
        *(RECORDED / f"{name}.pickle" for name in ("oom_kv", "oom_backward", "gpt_bf16")),
    ]
    return made | {path.stem: (lambda path=path: path) for path in real if path.exists()}


REPORTS = reports()


def culprit(snapshot: Snapshot, device: int, oom: int | None) -> tuple[list[str], list[str]]:
    """Functions of the stack to be found, innermost first, and those that are not the runtime's; empty where none was
    recorded.
    """
    timeline = snapshot.timeline(device)
    if oom is not None:
        stack = int(timeline.events["stack"][oom])
    else:
        stack = next((row["stack"] for row in timeline.top_stacks if row["stack"]), 0)
    frames, flags = snapshot.recording.frames, recorded_flags(snapshot.recording)
    recorded = [(i, frames.row(i, named=True)["name"] or "(no name)") for i in snapshot.recording.stack(stack)]
    return [name for _, name in recorded], [name for i, name in recorded if not flags[i] & NOISE]


def is_within(some: list[str], whole: list[str]) -> bool:
    """Whether one list is the other with parts omitted."""
    rest = iter(whole)
    return all(name in rest for name in some)


def check(snapshot: Snapshot, shown: dict[str, Any], opened_at: dict[str, Any]) -> None:
    """One click has led to the culprit: the first own frame and what held the memory are visible without scrolling."""
    device = shown["view"]["device"]
    ooms = snapshot.timeline(device).oom_events
    if len(ooms):
        assert shown["view"]["oom"] == opened_at["at"] in list(ooms), "it opens on the failure, and shows it"
    expected, telling = culprit(snapshot, device, shown["view"]["oom"])
    if expected:
        assert is_within(telling, shown["frames"]) and is_within(shown["frames"], expected), (
            "every frame but the runtime's own is there, if behind a count"
        )
        assert shown["first"], "the stack begins in sight"
    else:
        assert "No stack trace was recorded" in shown["text"]
    if len(ooms) and shown["held"]:
        assert all(shown["held"][:2]), "the functions that hold most are in sight at a height of 900 pixels"


@pytest.mark.parametrize("name", REPORTS)
def test_one_click_in_chromium(name: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    path = REPORTS[name]()
    opened = open_report(report_of(path), viewport=SIZE)
    before = opened.view()
    opened.page.mouse.click(*opened.js(LINK))
    opened.until(OPEN)
    opened.settle()
    check(corpus.loaded(path), opened.js(SHOWN), before)


@pytest.fixture(scope="module")
def browser() -> Iterator[firefox.Page]:
    binary = firefox.find()
    if binary is None:
        pytest.skip(firefox.NONE)
    with firefox.launched(binary) as page:
        yield page


# Named differently from snapshots, so that they stay together: Firefox takes seconds to start.
@pytest.mark.parametrize("name", REPORTS, ids="report {}".format)
def test_one_click_in_firefox(name: str, report_of: Callable[..., Path], browser: firefox.Page) -> None:
    path = REPORTS[name]()
    browser.open(report_of(path).as_uri(), SIZE["width"], SIZE["height"])
    before = browser.js("snapreport.ready.then(() => snapreport.getView())")
    browser.click(*browser.js(LINK))
    browser.until(OPEN)
    check(corpus.loaded(path), browser.js(SHOWN), before)
