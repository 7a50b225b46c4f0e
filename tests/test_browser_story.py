"""The story of a report: its numbers are the snapshot's, each step has an address, and arrow keys go through them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import corpus
import pytest

from snapreport.number_format import bytes_text

STORY = "snapreport.debug.view().story"


@pytest.mark.parametrize("name", ["oom", "leak", "training", "fragmentation"])
def test_what_the_steps_say_is_true(
    name: str, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    path = corpus.path_of(name)
    snapshot = corpus.loaded(path)
    timeline = snapshot.timeline(0)
    allocated = snapshot.curve(0)["allocated"].to_list()
    opened = borrow_report(report_of(path), viewport={"width": 1400, "height": 900})
    steps = opened.js(STORY)
    moment = timeline.oom_events[-1] if timeline.oom_events else timeline.peak_event
    rise, holder, *others = steps
    found = re.fullmatch(
        r"(?:At most (.+) are allocated up to event ([\d,]+)\. )?"
        r"Memory rises from (.+) (?:at event ([\d,]+)|before the first event) to (.+) at event ([\d,]+)\.",
        rise["text"],
    )
    assert found, rise
    most, flat, low, begin, top, end = found.groups()
    event = int(begin.replace(",", "")) if begin else -1
    assert int(end.replace(",", "")) == moment and top == bytes_text(allocated[moment + 1])
    assert low == bytes_text(allocated[event + 1])
    if flat:
        assert most == bytes_text(max(allocated[: event + 2])) and int(flat.replace(",", "")) == event
    # What holds most is matched by the step's query, and no line holds more.
    query = parse_qs(holder["hash"].removeprefix("#"))["query"][0]
    bytes_held = snapshot.query(query, device=0)["size"].sum()
    assert bytes_text(bytes_held) in holder["text"] and f"At event {moment:,} one line holds most" in holder["text"]
    assert len(others) >= 2
    offered = opened.js("[...document.querySelectorAll('#remedies > li')].slice(0, 3).map(r => r.dataset.rule)")
    helps = [step for step in others if step["text"].startswith("What would help: ")]
    assert [unquote(parse_qs(step["hash"][1:])["fix.on"][0]) for step in helps] == offered


def test_the_arrow_keys_go_through_it_and_addresses_keep_it(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    report = report_of(corpus.path_of("oom"))
    opened = open_report(report, viewport={"width": 1400, "height": 900})
    count = len(opened.js(STORY))
    opened.page.get_by_role("button", name="Step through").or_(
        opened.page.get_by_role("button", name="Story", exact=True)
    ).first.click()
    text = opened.page.locator(".story-text")
    assert text.text_content().startswith(f"1 of {count} ")
    opened.page.locator(".plot").focus()
    for step in range(1, count):
        opened.page.keyboard.press("ArrowRight")
        opened.until(f"snapreport.getView().options['story.step'] === '{step}'")
        opened.settle()
        assert text.text_content().startswith(f"{step + 1} of {count} ")
    opened.page.keyboard.press("ArrowRight")
    assert text.text_content().startswith(f"{count} of {count} ")
    opened.page.keyboard.press("ArrowLeft")
    opened.until(f"location.hash.includes('story.step={count - 2}')")
    other = open_report(report, opened.js("location.hash"), viewport={"width": 1400, "height": 900})
    assert other.page.locator(".story-text").text_content() == text.text_content()
    assert other.view() == opened.view()
    opened.page.keyboard.press("Escape")
    opened.until("snapreport.getView().options['story.step'] === undefined")
    assert not opened.page.locator(".story").is_visible()
