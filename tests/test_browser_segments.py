"""The segments view: blocks at any moment equal a brute-force replay, the last ones those of the snapshot itself."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import block_oracle
import cli
import corpus
import oracle
import pytest

# Where the trace and the final segments contradict each other: the last state is not the final one.
BROKEN = {"trimmed_inconsistent.pickle", "synthetic_overlapping.pickle"}
# Live blocks overlap, so that the free ranges between them are meaningless; everything else is valid.
OVERLAPPING = {"synthetic_overlapping.pickle"}
# Random positions of each device, or all if there are no more. With them come segment events: their effects are the
# easiest to get wrong.
DRAWN, DRAWN_SEGMENT_EVENTS = 50, 5
# Every kind of trace and layout once; all of the real ones.
FINAL = ["small", "expandable", "pools", "multi-gpu", "oom", "truncated", "layout-2.1", "overlap", "serving.pickle.xz"]
REPLAYED = ["expandable", "pools", "truncated", "fragmentation.pickle.xz"]
# Opened directly on the view, and small: a state does not depend on the window, but the time to draw hundreds of them
# does.
SEGMENTS, SMALL = "#view=segments", {"width": 640, "height": 480}
# As one text: thousands of blocks as objects take ten times as long to leave the page as to be shown.
PLACES = """async places => {
  const seen = []
  for (const [device, at] of places) {
    await snapreport.setView({ view: 'segments', device, at })
    seen.push(snapreport.debug.view())
  }
  return JSON.stringify(seen)
}"""


def states(opened: Any, places: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return json.loads(opened.js(PLACES, places))


def ranges_of(segment: dict[str, Any]) -> list[tuple[int, int, int, bool]]:
    return [(int(b["address"], 16), b["size"], b["id"], b["pending"]) for b in segment["blocks"]]


def known(state: dict[str, Any]) -> list[tuple[int, int, list[tuple[int, int, int, bool]]]]:
    return [(int(s["address"], 16), s["size"], ranges_of(s)) for s in state["segments"] if s["known"]]


def outside(state: dict[str, Any]) -> list[tuple[int, int, int, bool]]:
    """The blocks that are shown in no segment; what lies between them is unknown."""
    return [r for s in state["segments"] if not s["known"] for r in ranges_of(s) if r[2] >= 0]


def settings_of(path: Path) -> dict[str, Any] | None:
    raw = corpus.raw(path)
    return raw.get("allocator_settings") if isinstance(raw, dict) else None


@pytest.mark.parametrize("name", [n for n in [*FINAL, *corpus.varied_names()] if n not in BROKEN])
def test_last_position_is_the_final_state(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any], name: str
) -> None:
    path = corpus.path_of(name)
    devices = corpus.replayed(path)
    opened = borrow_report(report_of(path), SEGMENTS, viewport=SMALL)
    numbers = opened.js("snapreport.devices()")
    used = [d for d in sorted(devices) if devices[d].segments or devices[d].events]
    for number, state in zip(
        used, states(opened, [(d, len(devices[d].events) - 1) for d in used if d in numbers]), strict=True
    ):
        device = devices[number]
        final = []
        for segment in device.segments:
            if not segment["total_size"]:
                continue
            blocks = oracle.final_blocks([segment])
            final.append(
                (
                    segment["address"],
                    segment["total_size"],
                    [
                        (b["address"], b["size"], b["state"] in oracle.ACTIVE, b["state"] in oracle.ACTIVE[1:])
                        for b in blocks
                    ],
                )
            )
        # The trace shows which active blocks have a pending free; for blocks from before it, only the final state does.
        traced = {i for i, a in enumerate(device.allocations) if a.free_requested_event >= 0}
        shown = [
            (address, size, [(a, b, i >= 0, i in traced) for a, b, i, _ in ranges])
            for address, size, ranges in known(state)
        ]
        strip = [(a, s, [r[:3] for r in ranges]) for a, s, ranges in shown]
        assert strip == sorted((a, s, [b[:3] for b in blocks]) for a, s, blocks in final)
        assert (state["totals"]["outside"] == 0 and state["doubts"] is None) or "before the trace" in state["doubts"]


def drawn(name: str, device: oracle.Device) -> list[int]:
    """Positions of one device, by seed; its last one is tested above."""
    draw = random.Random(f"{name} {device.device}")
    positions = range(-1, len(device.events))
    changed = [i for i, e in enumerate(device.events) if e["action"].startswith("segment_")]
    return [
        *draw.sample(positions, min(DRAWN, len(positions))),
        *draw.sample(changed, min(DRAWN_SEGMENT_EVENTS, len(changed))),
    ]


@pytest.mark.parametrize("name", [*REPLAYED, *corpus.varied_names()])
def test_any_position_equals_brute_force(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any], name: str
) -> None:
    path = corpus.path_of(name)
    devices = {d: device for d, device in corpus.replayed(path).items() if device.events}
    if not devices:
        pytest.skip("no trace: the one position there is, is the final state, and tested above")
    opened = borrow_report(report_of(path), SEGMENTS, viewport=SMALL)
    places = [(d, at) for d, device in devices.items() for at in drawn(name, device)]
    blocks = {d: block_oracle.Blocks(device, settings_of(path)) for d, device in devices.items()}
    for (d, at), state in zip(places, states(opened, places), strict=True):
        told = f"device {d}, event {at}"
        moment = blocks[d].at(at)
        expected = [(s.start, s.end - s.start, ranges) for s, ranges in moment.segments]
        assert state["position"] == at + 1
        assert known(state) == expected, told
        assert outside(state) == moment.outside, told
        totals = state["totals"]
        allocated, reserved = devices[d].allocated[at + 1], devices[d].reserved[at + 1]
        # The parts of what is reserved and not allocated; one of them is the remainder.
        split = reserved - allocated - moment.rounding - moment.free_segments
        assert split == moment.split or name in OVERLAPPING, told
        assert totals["allocated"] == allocated and totals["reserved"] == reserved, told
        assert totals["rounding"] == moment.rounding and totals["whollyFree"] == moment.free_segments, told
        assert totals["split"] == split and totals["largestFree"] == moment.largest_free, told
        assert totals["outside"] == len(moment.outside), told
        event = devices[d].events[at] if at >= 0 else {"action": "", "addr": 0}
        born = state["changed"]["born"]
        assert (born >= 0) == (event["action"] == "alloc"), told
        assert born < 0 or devices[d].allocations[born].addr == event["addr"], told


@pytest.mark.parametrize("name", [*corpus.varied_names(), "huge", "no-times"])
def test_every_snapshot_opens_and_says_what_it_lacks(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any], name: str
) -> None:
    path = corpus.path_of(name)
    opened = borrow_report(report_of(path), SEGMENTS, viewport=SMALL)
    for d in opened.js("snapreport.devices()"):
        for options in ({}, {"segments.mode": "time"}):
            opened.set_view(device=d, view="segments", at=None, options={"segments.mode": None, **options})
            state = opened.js("snapreport.debug.view()")
            device = corpus.replayed(path)[d]
            if not device.segments and not device.allocations:
                assert state["nothing"]
    if name in BROKEN:
        events = len(corpus.replayed(path)[0].events)
        assert any(state["doubts"] for state in states(opened, [(0, events * k // 8 - 1) for k in range(9)]))


def test_pending_free_is_shown_and_counted(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("two_devices.pickle.xz")
    device = corpus.replayed(path)[0]
    waiting = [
        (i, a.free_requested_event)
        for i, a in enumerate(device.allocations)
        if a.free_requested_event >= 0 and a.free_event > a.free_requested_event + 1
    ]
    assert waiting
    opened = borrow_report(report_of(path), SEGMENTS, viewport=SMALL)
    for (number, event), state in zip(waiting[:5], states(opened, [(0, e) for _, e in waiting[:5]]), strict=True):
        pending = {b["id"] for s in state["segments"] for b in s["blocks"] if b["pending"]}
        assert number in pending and state["changed"]["requested"] == number
        sizes = sum(device.allocations[i].size for i in pending)
        assert state["totals"]["pending"] == sizes, event


@pytest.fixture
def opened(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    page = borrow_report(report_of(corpus.path_of("training")))
    page.set_view(view="segments")
    return page


def test_click_selects_what_is_there(opened: Any) -> None:
    state = opened.js("snapreport.debug.view()")
    place = state["largest"]
    block = next(b for s in state["segments"] for b in s["blocks"] if b["id"] == place["id"])
    assert block["size"] == max(b["size"] for s in state["segments"] for b in s["blocks"] if b["id"] >= 0)
    opened.page.mouse.move(place["x"], place["y"])
    assert block["address"] in opened.page.locator(".moment-map .tooltip").inner_text()
    opened.page.mouse.click(place["x"], place["y"])
    opened.until(f"snapreport.getView().select === {place['id']}")


def test_over_time_click_selects_and_goes_to_the_moment(opened: Any) -> None:
    device = corpus.replayed(corpus.path_of("training"))[0]
    opened.set_view(options={"segments.mode": "time"})
    place = opened.js("snapreport.debug.view().largest")
    live = device.live_at(device.peak_event)
    assert device.allocations[place["id"]].size == max(device.allocations[i].size for i in live)
    opened.page.mouse.click(place["x"], place["y"])
    opened.until(f"snapreport.getView().select === {place['id']}")
    assert device.allocations[place["id"]].lives_at(opened.view()["at"])


def test_over_time_sees_every_allocation_in_its_window(opened: Any) -> None:
    device = corpus.replayed(corpus.path_of("training"))[0]
    opened.set_view(options={"segments.mode": "time"})
    assert opened.js("snapreport.debug.view().seen") == len(device.allocations)
    opened.set_view(x=[1000, 1100])
    begins = [(a.alloc_event, a.free_event if a.free_event >= 0 else len(device.events)) for a in device.allocations]
    inside = sum(begin < 1100 and end > 1000 for begin, end in begins)
    assert opened.js("snapreport.debug.view().seen") == inside


def test_keyboard_moves_between_blocks_and_in_time(opened: Any) -> None:
    state = opened.js("snapreport.debug.view()")
    blocks = [b for s in state["segments"] for b in s["blocks"]]
    first = next(i for i, b in enumerate(blocks) if b["id"] >= 0 and blocks[i + 1]["id"] >= 0)
    opened.set_view(select=blocks[first]["id"])
    opened.page.locator(".map-scroll").focus()
    opened.page.keyboard.press("ArrowDown")
    opened.until(f"snapreport.getView().select === {blocks[first + 1]['id']}")
    opened.page.keyboard.press("ArrowUp")
    opened.until(f"snapreport.getView().select === {blocks[first]['id']}")
    opened.set_view(at=100)
    opened.page.keyboard.press("ArrowRight")
    opened.until("snapreport.getView().at === 101")
    opened.page.keyboard.press("z")
    opened.until("'segments.focus' in snapreport.getView().options")
    opened.page.keyboard.press("z")
    opened.until("!('segments.focus' in snapreport.getView().options)")
    opened.page.keyboard.press("v")
    opened.until("snapreport.getView().options['segments.mode'] === 'time'")


def test_left_out_addresses_are_said(tmp_path: Path, open_report: Callable[..., Any]) -> None:
    report = tmp_path / "least.html"
    refused = cli.in_process(corpus.path_of("small"), "--max-size", "1KiB", "-o", report)
    # "… takes 223 KiB (227,931 bytes) …": the first number in full is the minimum.
    least = int(refused.err.split("(")[1].split(" bytes")[0].replace(",", "")) + 64
    assert cli.in_process(corpus.path_of("small"), "--max-size", least, "-o", report).code == 0
    opened = open_report(report)
    opened.set_view(view="segments")
    assert "leaves out" in opened.js("snapreport.debug.view().nothing")
    assert opened.page.get_by_text("This report leaves out").first.is_visible()
    opened.set_view(view="reserved")
    assert "leaves out" in opened.js("snapreport.debug.view().doubts")
    assert opened.js("snapreport.debug.view().parts") is None


@pytest.mark.parametrize("size", [(360, 640), (2200, 1300)])
@pytest.mark.parametrize("view", ["segments", "reserved"])
def test_any_window_size(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any], size: tuple[int, int], view: str
) -> None:
    viewport = {"width": size[0], "height": size[1]}
    opened = borrow_report(report_of(corpus.path_of("small")), viewport=viewport)
    opened.set_view(view=view)
    assert opened.js("document.documentElement.scrollWidth") <= size[0], "nothing hangs out to the side"
    opened.set_view(options={"segments.mode": "time"})
    assert opened.js("document.documentElement.scrollWidth") <= size[0]
    box = opened.page.locator(".segments-body").bounding_box()
    assert box["height"] >= 120 and box["width"] > 0.9 * size[0]


@pytest.mark.parametrize("name", ["training", "oom", "fragmentation", "pools"])
def test_lines_end_where_the_common_segments_do(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any], name: str
) -> None:
    """A line is the size that most of the large segments' memory is in, or twice, four times … as much."""
    opened = borrow_report(report_of(corpus.path_of(name)), SEGMENTS, viewport={"width": 1400, "height": 900})
    opened.settle()
    view = opened.js("snapreport.debug.view()")
    sizes = Counter[int]()
    for segment in view["segments"]:
        if segment["group"].startswith("Large"):
            sizes[segment["size"]] += segment["size"]
    ((common, _),) = sizes.most_common(1)
    ratio = view["lineBytes"][1] / common
    assert ratio >= 1 and (int(ratio) & (int(ratio) - 1)) == 0 and ratio == int(ratio)
