"""What the page replays equals what the library replays, on every real file."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import planted_trace
import pytest
import recorded

import snapreport
from snapreport.allocator.document import Question, answer, limits
from snapreport.allocator.settings import DEFAULT, both_readings, parse_settings
from snapreport.allocator.whatif import WhatIf
from snapreport.allocator_facts import TRIED_SETTINGS, sentence
from snapreport.contracts.whatif import ReplayRun

SETTINGS = [
    "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:[256:1,512:2,>:4]",
    "garbage_collection_threshold:0.8", "large_segment_size_mb:64",
]  # fmt: skip
GENERATED = ["fragmentation", "oom", "expandable", "pools", "multi-gpu", "layout-2.1"]
SEARCHED = 6_000
"""Events up to which the minimum memory is searched in both: some 70 replays."""
# Runs under several settings, and the traces that are hardest to replay; of one PyTorch, since the library alone reads
# those of both.
PAIRS = [
    name for name in recorded.names()
    if not name.startswith("t29_") and not name.endswith("_observer")
    and any(word in name for word in ("varlen", "oom_fra", "streams", "mempool", "graphs", "empty_cache"))
]  # fmt: skip
ASK = """async ([device, settings, start, memory]) => {
    const answer = await snapreport.whatIf(device, { settings, start, memory })
    const { exact, allocations, sameAllocations, segmentEvents, settings: own } = answer.check
    return {
        check: [exact, allocations, sameAllocations, segmentEvents, own.tieBreak],
        reason: answer.check.reason, limits: answer.limits, residual: answer.residual, placements: answer.placements,
        runs: answer.runs.map(run => ({
            peak: run.peakReserved, low: run.low, high: run.high, retries: run.retries, oom: run.oomEvent,
            avoided: run.avoided, hasNote: run.note !== '', events: Array.from(run.events),
            reserved: Array.from(run.reserved),
        })),
    }
}"""


def expected(whatif: WhatIf, run: ReplayRun) -> dict[str, Any]:
    """With the curve of the first of the replays, if there are any."""
    is_replayed = run.peak_reserved_bytes is not None or run.oom_event is not None
    done = whatif.replay(parse_settings([DEFAULT, run.settings], whatif.own)) if is_replayed else None
    return {
        "peak": run.peak_reserved_bytes, "low": run.low_bytes, "high": run.high_bytes, "retries": run.retries,
        "oom": run.oom_event, "avoided": run.avoided_oom_events, "hasNote": run.note is not None,
        "events": [] if done is None else done.events.tolist(),
        "reserved": [] if done is None else done.reserved.tolist(),
    }  # fmt: skip


def agree(opened: Any, path: Path, numbers: list[int] | None = None) -> None:
    """Self-check, every run with its curve and error bar, minimum memory and cards: page and library agree.

    ``numbers``: of the snapshot's devices in a report of several files.
    """
    snapshot = snapreport.load(path)
    for device, number in zip(snapshot.devices, numbers or snapshot.devices, strict=True):
        timeline = snapshot.timeline(device)
        if timeline.kind != "cuda" or not len(timeline.events):
            continue
        memory = int(timeline.reserved.max()) * 95 // 100
        for start, capacity in (("fresh", None), ("recorded", None), ("fresh", memory)):
            whatif = WhatIf(timeline, capacity=capacity, start=start)
            check = whatif.check
            got = opened.page.evaluate(ASK, [number, SETTINGS, start, capacity])
            assert (got["check"][0], got["reason"]) == (check.exact, check.reason)
            if not check.exact:
                assert got["runs"] == []
                continue
            same = [check.allocations, check.same_allocations, check.segment_events, check.settings.tie_break]
            assert got["check"][1:] == same
            assert got["limits"] == limits(whatif)
            assert (got["placements"], got["residual"]) == (whatif.placements, whatif.residual)
            wanted = [
                (sentence("notes", note, settings=text) if note else text, settings)
                for text in SETTINGS
                for note, settings in both_readings([text], whatif.own).items()
            ]
            runs = [whatif.baseline]
            runs += [whatif.run(s, None, text) for text, s in wanted if s != whatif.own or text not in TRIED_SETTINGS]
            for want, run in zip(runs, got["runs"], strict=True):
                assert run == expected(whatif, want), want.name
        if WhatIf(timeline).check.exact and len(timeline.events) <= SEARCHED:
            question = Question(settings=["roundup_power2_divisions:8"])
            least = answer(timeline, question, lambda device, query: np.zeros(0, bool))
            got = opened.page.evaluate(
                "device => snapreport.leastMemory(device, { settings: 'roundup_power2_divisions:8' })", number
            )
            fits = {found.settings.text(): [] for found in least.least}
            for card in least.cards:
                fits[card.settings].append(card.fits)
            for one, found in zip(got, least.least, strict=True):
                assert (one["memory"], one["retries"], one["monotone"], one["unlimited"]) == (
                    found.memory, found.retries if found.memory is not None else 0, found.monotone, found.unlimited,
                )  # fmt: skip
                assert one["fits"] == fits[found.settings.text()]


@pytest.mark.parametrize("name", [*GENERATED, *corpus.varied_names()])
def test_page_and_library_agree(report_of: Callable[..., Path], borrow_report: Callable[..., Any], name: str) -> None:
    path = corpus.path_of(name)
    agree(borrow_report(report_of(path)), path)


@pytest.mark.skipif(not PAIRS, reason=recorded.NONE)
def test_page_and_library_agree_on_recordings(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """All in one report: to open one for each takes longer than what is compared."""
    paths = [recorded.ROOT / f"{name}.pickle" for name in PAIRS]
    opened = open_report(report_of(*paths))
    numbers = iter(opened.js("snapreport.devices()"))
    for path in paths:
        agree(opened, path, [next(numbers) for _ in snapreport.load(path).devices])
    assert next(numbers, None) is None


def test_page_and_library_agree_on_full_devices(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    """Failures in private pools, and a capacity that is a range: with seed 3 rounded sizes fail at its lower end."""
    record = planted_trace.Recording(1024 * planted_trace.MIB)
    planted_trace.peak_reserved(record, planted_trace.mixed_sizes(3))
    paths = []
    for name, raw in (
        ("failures-in-private-pools", planted_trace.failures_in_private_pools()), ("range", record.snapshot())
    ):  # fmt: skip
        paths.append(corpus.scratch() / f"{name}.pickle")
        paths[-1].write_bytes(pickle.dumps(raw, 4))
    opened = open_report(report_of(*paths))
    for number, path in enumerate(paths):
        agree(opened, path, [opened.js("snapreport.devices()")[number]])


def test_page_and_library_agree_on_the_age_of_blocks(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """Of PyTorch 2.12, where it decides between free blocks of equal size."""
    path = Path(__file__).parent / "recordings" / "allocator" / "torch-2.12.pickle.xz"
    agree(borrow_report(report_of(path)), path)


def test_without_a_query(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("fragmentation")
    opened = borrow_report(report_of(path))
    runs = snapreport.load(path).whatif(without=["size>64MiB"], cards=False)["devices"][0]["runs"]
    peak = opened.js(
        "snapreport.whatIf(0, {without: 'size>64MiB'}).then(answer => answer.runs.map(run => run.peakReserved))"
    )
    assert peak == [runs[0]["peak_reserved_bytes"], runs[1]["peak_reserved_bytes"]]


def test_bad_settings_are_refused(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("fragmentation")))
    said = opened.js("snapreport.whatIf(0, {settings: ['max_split_size_mb:2']}).catch(error => error.message)")
    assert "must be at least 2" in said


def test_the_panel_shows_the_replays_and_draws_the_chosen_one(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    path = corpus.path_of("fragmentation")
    opened = borrow_report(report_of(path))
    opened.set_view(view="reserved")
    opened.page.get_by_role("button", name="What if").click()
    opened.until("snapreport.debug.view().whatIf.rows.length === 7")
    shown = opened.js("snapreport.debug.view().whatIf")
    runs = {run["name"]: run for run in snapreport.load(path).whatif(cards=False)["devices"][0]["runs"]}
    cured = runs["expandable_segments:True"]
    assert shown["curvePeak"] == cured["peak_reserved_bytes"]
    rows = {row[0]: row for row in shown["rows"]}
    assert rows["expandable_segments:True"][5] == "no" and rows["recorded settings, replayed"][5] == "event 7,593"
    assert "is exact" in shown["words"]
    opened.page.get_by_role("combobox", name="Settings").fill("max_split_size_mb:2")
    opened.page.get_by_role("button", name="Replay", exact=True).click()
    opened.until("snapreport.debug.view().whatIf.words.includes('must be at least 2')")
    opened.page.get_by_role("combobox", name="Settings").fill("")
    opened.page.get_by_role("textbox", name="Without allocations that match").fill("size>64MiB")
    opened.page.get_by_role("button", name="Replay", exact=True).click()
    opened.until("snapreport.debug.view().whatIf.words.includes('Peak allocated without them')")
    opened.page.get_by_role("button", name="What if").click()
    opened.until("snapreport.debug.view().whatIf === null")


def test_a_card_is_chosen_and_the_request_that_fails_is_a_link(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    path = corpus.path_of("training")
    opened = open_report(report_of(path), "#view=reserved&reserved.whatif=", viewport={"width": 1400, "height": 900})
    opened.until("snapreport.debug.view().whatIf?.busy === false")
    card = opened.page.get_by_role("combobox", name="Card")
    assert not opened.page.get_by_label("Memory for the allocator in GiB").is_visible()
    card.select_option("other")
    memory = opened.page.get_by_label("Memory for the allocator in GiB")
    memory.fill("8")
    opened.page.get_by_role("button", name="Replay", exact=True).click()
    opened.until("snapreport.debug.view().whatIf.rows.some(row => row[5].startsWith('event'))")
    own = snapreport.load(path).whatif(memory=8 << 30, cards=False)["devices"][0]["runs"][0]
    link = opened.page.locator(".what-if tbody tr").nth(1).locator("td button")
    assert link.text_content() == f"event {own['oom_event']:,}"
    card.select_option(label="24 GB (RTX 4090)")
    opened.until("snapreport.getView().options['reserved.memory'] !== '8'")
    opened.until("snapreport.debug.view().whatIf.rows.every(row => !row[5].startsWith('event'))")
    card.select_option("other")
    memory.fill("8")
    opened.page.get_by_role("button", name="Replay", exact=True).click()
    opened.until("snapreport.debug.view().whatIf.rows.some(row => row[5].startsWith('event'))")
    link.click()
    opened.until(f"snapreport.getView().at === {own['oom_event']}")
    assert opened.view()["view"] == "timeline" and opened.view()["stack"] is not None


def test_the_panel_starts_a_late_trace_fresh_or_from_here_on(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    path = corpus.path_of("layout-2.1")
    opened = borrow_report(report_of(path))
    opened.set_view(view="reserved")
    opened.page.get_by_role("button", name="What if").click()
    snapshot = snapreport.load(path)
    for choice, start in (("fresh", "fresh"), ("from here on", "recorded")):
        opened.page.get_by_role("combobox", name="Start of the replay").select_option(label=choice)
        opened.page.get_by_role("button", name="Replay", exact=True).click()
        runs = snapshot.whatif(start=start, cards=False)["devices"][0]["runs"]
        opened.until(f"snapreport.debug.view().whatIf.limits.toLowerCase().startsWith('{choice}')")
        peak = opened.js(f"snapreport.debug.format.bytes({runs[0]['peak_reserved_bytes']})")
        assert opened.js("snapreport.debug.view().whatIf.rows[1][1]") == peak
    opened.page.get_by_role("button", name="What if").click()


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
    assert opened.js(f"snapreport.debug.format.bytes({runs[1]['peak_reserved_bytes']})") == rows[2][1]


# Opens the panel and cancels as soon as the button is there: the replays of a small trace end within a few frames.
CANCEL = """async () => {
    const named = text => [...document.querySelectorAll('button')].find(one => one.textContent === text)
    named('What if').click()
    // Within the task that shows the button, before any answer of the worker is read.
    await new Promise(done => {
        const look = () => { if (named('Cancel')?.hidden === false) done() }
        new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true })
        look()
    })
    const button = named('Cancel')
    button.click()
    return [document.querySelector('.what-if [role=status]').textContent, button.hidden]
}"""


def test_a_replay_is_cancelled_and_another_begins(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    # A new page: a panel that was open before still has its answers.
    opened = open_report(report_of(corpus.path_of("fragmentation")))
    opened.set_view(view="reserved")
    assert opened.page.evaluate(CANCEL) == ["Cancelled.", True]
    opened.js("snapreport.whatIf(0, {}).then(() => null)")  # replays asked for later end later
    assert opened.js("snapreport.debug.view().whatIf.rows.length") == 0, "nothing arrives after it"
    opened.page.get_by_role("button", name="Replay", exact=True).click()
    opened.until("snapreport.debug.view().whatIf.rows.length === 7")
    opened.until("snapreport.debug.view().whatIf.minimums.length === 2")
    opened.page.get_by_role("button", name="What if").click()


WHILE_REPLAYING = """async () => {
    const settings = Array.from({ length: 4000 }, (_, n) => `max_split_size_mb:${21 + n}`)
    let done = false
    snapreport.whatIf(0, { settings }).then(() => (done = true))
    const seen = []
    for (const x of [[0, 400], [1000, 1200], [3000, 5000]]) {
        await snapreport.setView({ view: 'timeline', x })
        seen.push(done)
    }
    return seen
}"""


def test_tiles_are_drawn_while_replays_run(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """Views settle before some 20,000 replays end, which they would not if one worker did both in turn."""
    opened = open_report(report_of(corpus.path_of("fragmentation")))  # a page of its own: the replays go with it
    opened.js("snapreport.whatIf(0, {}).then(() => null)")
    assert opened.page.evaluate(WHILE_REPLAYING) == [False, False, False]


def test_the_flame_graph_and_the_table_lead_to_the_replay(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """Each shows the new peak at once, of all below the focused frame or of the row, and replays without them."""
    path = corpus.path_of("fragmentation")
    opened = borrow_report(report_of(path))
    snapshot = snapreport.load(path)
    top = opened.js("snapreport.stats(0).top_stacks_at_peak[0].stack")
    query = f"stack:{top}"
    runs = snapshot.whatif(without=[query], cards=False)["devices"][0]["runs"]
    allocated = opened.js(f"snapreport.debug.format.bytes({runs[1]['peak_allocated_bytes']})")
    reserved = opened.js(f"snapreport.debug.format.bytes({runs[1]['peak_reserved_bytes']})")
    shown = "document.querySelector('.without:not([hidden])')"
    for hash_text in (f"#view=table&query={query}&table.group=stack", f"#view=flame&flame.focus={top}.0"):
        opened.page.evaluate("hash => { location.hash = hash }", hash_text)
        opened.until(f"{shown}?.textContent.includes('peak allocated')")
        assert allocated in opened.js(f"{shown}.textContent")
        opened.page.locator(".without:not([hidden]) button").first.click()
        opened.until("snapreport.getView().view === 'reserved'")
        opened.until("(snapreport.debug.view().whatIf?.rows ?? []).length === 8")
        assert opened.js("snapreport.debug.view().whatIf.rows[2][1]") == reserved
        assert allocated in opened.js("snapreport.debug.view().whatIf.words")
        opened.page.get_by_role("button", name="What if").click()
        opened.until("snapreport.debug.view().whatIf === null")
