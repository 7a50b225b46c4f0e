"""In real Chromium: a report opens from its file, offline, and is useful even with scripts off."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import corpus
import oracle
import pytest
import strategies
from test_bad_input import GOOD
from test_opening import expected as expected_opening

import snapreport


def test_opens_offline_without_a_request_or_an_error(
    shown_path: Path, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """Watched by ``borrow_report``; the device of the worst failure or highest peak is shown first, and its picture: of
    its timeline, or of the segments of a final state, where no event was recorded.
    """
    opened = borrow_report(report_of(shown_path), is_new=True)
    devices = corpus.replayed(shown_path)
    assert opened.js("snapreport.devices()") == sorted(devices)
    with_data = [d for d in sorted(devices) if devices[d].events or devices[d].allocations]
    view = opened.view()
    start = expected_opening(devices)
    assert not start or view["device"] == sorted(devices)[start[0]]
    first = devices[view["device"]] if with_data else None
    pictures = opened.js("performance.getEntriesByName('snapreport:first-picture').length")
    is_still = first and not any(event["action"] == "oom" for event in first.events)
    if is_still and first.segments and all(a.origin == "ghost" for a in first.allocations):
        # A timeline would be one rectangle.
        assert view["view"] == "segments" and pictures == 0
        shown = opened.js("snapreport.debug.view()")["segments"]
        assert sorted((int(s["address"], 16), s["size"]) for s in shown if s["known"]) == sorted(
            (s["address"], s["total_size"]) for s in first.segments if s["total_size"]
        )
        # The timeline is a click away, and has its picture.
        opened.set_view(view="timeline")
        pictures = opened.js("performance.getEntriesByName('snapreport:first-picture').length")
    assert opened.view()["view"] == "timeline" and pictures == 1
    drawn = opened.js("snapreport.drawn()")
    assert drawn["pending"] == 0 and (not with_data or drawn["triangles"] > 0)


@pytest.mark.parametrize(
    "snapshot",
    [
        {"segments": [], "device_traces": []},
        {"segments": [], "device_traces": [[], []]},
        GOOD["segments"],
        GOOD,
        {"segments": [], "device_traces": [[{"action": "snapshot", "addr": 0, "size": 0, "stream": 0}]]},
    ],
    ids=["nothing", "empty devices", "segments alone", "one event", "no allocation"],
)
def test_opens_however_little_there_is(snapshot: Any, tmp_path: Path, open_report: Callable[..., Any]) -> None:
    path, out = tmp_path / "little.pickle", tmp_path / "little.html"
    path.write_bytes(pickle.dumps(snapshot))
    snapreport.write_report([snapreport.load(path)], out)
    opened = open_report(out)
    assert len(opened.js("snapreport.devices()")) == len(oracle.replay(snapshot))


def test_useful_with_scripts_off(
    shown_path: Path, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    """Numbers, the largest stacks at the peak, and a drawing with the peak marked, all without a script."""
    opened = open_report(report_of(shown_path), java_script_enabled=False)
    text = opened.page.locator("body").inner_text()
    assert shown_path.name in text
    devices = [d for d in corpus.replayed(shown_path).values() if d.events or d.allocations]
    for device in devices:
        if device.events:
            assert f"{len(device.events):,}" in text
        assert size_words(device.peak_bytes) in text and size_words(max(device.reserved)) in text
        if device.reconciliation_bytes:
            assert size_words(device.reconciliation_bytes) in text
        elif "Recorded without history" not in text:
            assert "The replay ends with exactly the blocks of the final state." in text
        for size, _, frames in device.top_stacks_at_peak()[:3]:
            assert size_words(size) in text
            named = [name for filename, _, name in frames if filename.endswith(".py")]
            assert not named or any(name in text for name in named), "a stack is named by a frame of its own"
    # The curve of a single event adds nothing to the numbers.
    assert opened.page.locator("svg").count() >= len([d for d in devices if len(d.events) > 1])
    assert opened.page.locator("#app").is_hidden()
    assert not re.search(r"undefined|NaN|None(?! of )|\{\{|\}\}", text)


def size_words(size: int) -> str:
    """Bytes as the report writes them: binary units, three digits, halves up."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1023.5:
        size /= 1024
        units.pop(0)
    digits = 0 if units[0] == "B" or size >= 99.95 else 1 if size >= 9.995 else 2
    # A fraction is exact: so is a binary float, and so is a half.
    whole = math.floor(Fraction(size) * 10**digits + Fraction(1, 2))
    text = f"{whole // 10**digits}.{whole % 10**digits:0{digits}d}" if digits else str(whole)
    return f"{text} {units[0]}"


def hostile(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """A report of a snapshot in which every text is an attack, and that raw snapshot."""
    path, out = tmp_path / "hostile.pickle", tmp_path / "hostile.html"
    nasty = [*strategies.NASTY, "<img src=x onerror=window.hacked=1>", "javascript:window.hacked=1"]
    events = [
        {
            "action": "alloc",
            "addr": 4096 * (i + 1),
            "size": 1 << 20,
            "stream": i,
            "time_us": i,
            "user_metadata": text,
            "compile_context": text,
            "frames": [{"filename": text, "line": i, "name": text}],
        }
        for i, text in enumerate(nasty)
    ]
    events += [{"action": text or "x", "addr": 1, "size": 2**53 - 1, "stream": 0, "time_us": 99} for text in nasty]
    snapshot = {
        "segments": [],
        "device_traces": [events],
        "allocator_settings": {text: text for text in nasty}
        | {"f": float("nan"), "g": float("inf"), "h": {"a": [1, None, True]}},
        "external_annotations": [{"name": text, "stage": "START", "device": 0, "time_us": 3} for text in nasty],
    }
    path.write_bytes(strategies.pickled(snapshot, 4))
    snapreport.write_report([snapreport.load(path)], out)
    return snapshot, out


def test_hostile_texts_are_only_text(tmp_path: Path, open_report: Callable[..., Any]) -> None:
    snapshot, out = hostile(tmp_path)
    opened = open_report(out)
    assert opened.js("window.hacked") is None and opened.page.locator("img").count() == 0
    for i, event in enumerate(snapshot["device_traces"][0][: len(strategies.NASTY)]):
        found = opened.js("id => snapreport.allocation(0, id)", i)
        want = oracle.text(event["frames"][0]["name"])
        assert opened.js("stack => snapreport.frames(0, stack)", found["stack"]) == [
            {"filename": want, "line": i, "name": want}
        ]
        assert (found["user_metadata"] or None) == oracle.text_or_none(event["user_metadata"])
        opened.set_view(select=i)
    assert opened.js("window.hacked") is None and opened.page.locator("img").count() == 0


def test_numbers_beyond_32_bits(tmp_path: Path, open_report: Callable[..., Any]) -> None:
    """Sizes to 2**50, differences of them in both directions, and addresses to 2**64 reach the page exactly."""
    path, out = tmp_path / "wide.pickle", tmp_path / "wide.html"
    sizes = [2**50 - 1, 1, 2**50 - 3, 2**40 + 1, 2, 2**50 - 7, 0, 2**49 + 5]
    events = [
        {"action": "alloc", "addr": 2**64 - 512 * (i + 1), "size": size, "stream": 2**47 + i, "time_us": 2**50 + i}
        for i, size in enumerate(sizes)
    ]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}))
    snapreport.write_report([snapreport.load(path)], out)
    found = open_report(out).js("[...Array(8).keys()].map(id => snapreport.allocation(0, id))")
    assert [f["size"] for f in found] == sizes
    assert [int(f["addr_hex"], 16) for f in found] == [e["addr"] for e in events]
    assert [int(f["stream"]) for f in found] == [e["stream"] for e in events]
    assert [f["alloc_us"] for f in found] == [e["time_us"] for e in events]


@pytest.mark.parametrize(
    "before",
    [
        "delete window.Worker",
        "window.Worker = class { constructor() { throw new Error('refused') } }",
        "delete window.DecompressionStream",
        "delete window.OffscreenCanvas",
    ],
)
def test_opens_where_the_browser_lacks_something(
    before: str, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    opened = open_report(report_of(corpus.path_of("small")), before=before)
    assert opened.js("snapreport.drawn()")["triangles"] > 0


def test_absent_views_and_bad_queries_say_so(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("small")))
    was = opened.view()
    for view in ("no such view", "diff", ""):
        assert opened.js("v => snapreport.setView({view: v}).then(() => null, e => String(e.message || e))", view), view
    assert opened.js(
        "Promise.resolve().then(() => snapreport.search(0, 'size>lots')).then(() => null, e => String(e.message || e))"
    )
    assert opened.view() == was


def test_unreadable_report_says_so(report_of: Callable[..., Path], tmp_path: Path, chromium: Any) -> None:
    """A file truncated in its data tells the user so, in words on the page."""
    html = report_of(corpus.path_of("small")).read_text(encoding="utf-8")
    start = html.index('data-blob="main"')
    path = tmp_path / "cut.html"
    path.write_text(html[: start + 400] + html[start + 500 :], encoding="utf-8")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("snapreport.ready.then(() => 'opened', () => 'refused')") == "refused"
    assert re.search(r"damaged|cut|cannot|could not|unreadable", page.locator("body").inner_text(), re.I)
    context.close()
