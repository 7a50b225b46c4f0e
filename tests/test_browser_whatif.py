"""What the page replays equals what the library replays, on every real file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest

import snapreport
from snapreport.allocator.settings import parse_settings
from snapreport.allocator.whatif import WhatIf

SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:[256:1,512:2,>:4]"]
GENERATED = ["fragmentation", "oom", "expandable", "pools", "multi-gpu", "layout-2.1"]
ASK = """async ([device, settings, start, memory]) => {
    const answer = await snapreport.whatIf(device, { settings, start, memory })
    const { exact, allocations, sameAllocations, segmentEvents, settings: own } = answer.check
    return {
        check: [exact, allocations, sameAllocations, segmentEvents, own.oldestFirst],
        runs: answer.runs.map(run => [
            run.peakReserved, run.retries, run.oomEvent, run.avoided, Array.from(run.events), Array.from(run.reserved),
        ]),
    }
}"""


@pytest.mark.parametrize("name", [*GENERATED, *corpus.real_names()])
def test_page_and_library_agree(report_of: Callable[..., Path], borrow_report: Callable[..., Any], name: str) -> None:
    path = corpus.path_of(name)
    opened = borrow_report(report_of(path))
    snapshot = snapreport.load(path)
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        if timeline.kind != "cuda" or not len(timeline.events):
            continue
        memory = int(timeline.reserved.max()) * 95 // 100
        for start, capacity in (("fresh", None), ("recorded", None), ("fresh", memory)):
            whatif = WhatIf(timeline, capacity=capacity, start=start)
            check = whatif.check
            got = opened.page.evaluate(ASK, [device, SETTINGS, start, capacity])
            assert got["check"][0] == check.exact
            if not check.exact:
                assert got["runs"] == []
                continue
            same = [check.allocations, check.same_allocations, check.segment_events, check.settings.oldest_first]
            assert got["check"][1:] == same
            for text, run in zip(SETTINGS, got["runs"], strict=True):
                done = whatif.replay(parse_settings([text] if text else [], whatif.own))
                known = done.oom_event is None
                oom = done.oom_event if not known else done.failed[0] if done.failed else None
                curve = [done.events.tolist(), done.reserved.tolist()]
                assert run == [done.peak_reserved if known else None, done.retries, oom, done.avoided, *curve], text


def test_without_a_query(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("fragmentation")
    opened = borrow_report(report_of(path))
    runs = snapreport.load(path).whatif(without=["size>64MiB"], cards=False)["devices"][0]["runs"]
    peak = opened.js("snapreport.whatIf(0, {without: 'size>64MiB'}).then(answer => answer.runs[0].peakReserved)")
    assert peak == runs[1]["peak_reserved_bytes"]


def test_bad_settings_are_refused(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("fragmentation")))
    said = opened.js("snapreport.whatIf(0, {settings: ['max_split_size_mb:2']}).catch(error => error.message)")
    assert "must be greater than 20" in said


def test_the_panel_shows_the_replays_and_draws_the_chosen_one(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    path = corpus.path_of("fragmentation")
    opened = borrow_report(report_of(path))
    opened.set_view(view="reserved")
    opened.page.get_by_role("button", name="What if").click()
    opened.until("snapreport.debug.view().whatIf.rows.length === 6")
    shown = opened.js("snapreport.debug.view().whatIf")
    runs = {run["name"]: run for run in snapreport.load(path).whatif(cards=False)["devices"][0]["runs"]}
    cured = runs["expandable_segments:True"]
    assert shown["curvePeak"] == cured["peak_reserved_bytes"]
    rows = {row[0]: row for row in shown["rows"]}
    assert rows["expandable_segments:True"][4] == "no" and rows["recorded settings"][4] == "event 7,593"
    assert "is exact" in shown["words"]
    opened.page.get_by_role("textbox", name="Settings").fill("max_split_size_mb:2")
    opened.page.get_by_role("button", name="Replay").click()
    opened.until("snapreport.debug.view().whatIf.words.includes('must be greater than 20')")
    opened.page.get_by_role("textbox", name="Settings").fill("")
    opened.page.get_by_role("textbox", name="Without allocations that match").fill("size>64MiB")
    opened.page.get_by_role("button", name="Replay").click()
    opened.until("snapreport.debug.view().whatIf.words.includes('Peak allocated without them')")
    opened.page.get_by_role("button", name="What if").click()
    opened.until("snapreport.debug.view().whatIf === null")


def test_without_this_stack_leads_from_the_details_to_the_replay(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    path = corpus.path_of("fragmentation")
    opened = borrow_report(report_of(path))
    stack = snapreport.load(path).timeline(0).top_stacks[0]["stack"]
    top = opened.js("snapreport.stats(0).top_stacks_at_peak[0].stack")
    opened.page.evaluate("hash => { location.hash = hash }", f"#view=flame&stack={top}")
    opened.page.get_by_role("button", name="Without this stack").click()
    opened.until("snapreport.getView().view === 'reserved'")
    opened.until("(snapreport.debug.view().whatIf?.words ?? '').includes('Peak allocated without them')")
    runs = snapreport.load(path).whatif(without=[f"stack:{stack}"], cards=False)["devices"][0]["runs"]
    rows = opened.js("snapreport.debug.view().whatIf.rows")
    assert opened.js(f"snapreport.debug.format.bytes({runs[1]['peak_reserved_bytes']})") == rows[0][1]
