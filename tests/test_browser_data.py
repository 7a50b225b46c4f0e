"""The page's answers are exact: picks, allocations, stacks and numbers equal the oracle's."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare
import corpus
import oracle
import strategies
from hypothesis import Phase, given, settings

import snapreport

POINTS = 150
PICKS = "([d, points]) => JSON.stringify(points.map(([event, byte]) => snapreport.pick(d, event, byte)))"
USED = """([d, ids]) => {
    const found = ids.map(id => snapreport.allocation(d, id)), stacks = {}
    for (const a of found) for (const s of [a.stack, a.free_stack]) stacks[s] = snapreport.frames(d, s)
    return JSON.stringify({found, stacks})
}"""


def points(device: oracle.Device, seed: int, count: int = POINTS) -> list[tuple[int, int]]:
    """(event, byte): random ones inside and just above the stack, and the edges of bands at the peak."""
    dice, last = random.Random(seed), len(device.events) - 1
    chosen = []
    for _ in range(count):
        event = dice.randint(-1, last)
        chosen.append((event, dice.randint(0, int(device.allocated[event + 1] * 1.1) + 1)))
    base = 0
    for i in device.live_at(device.peak_event)[:40]:
        chosen += [(device.peak_event, base), (device.peak_event, max(0, base - 1))]
        base += device.allocations[i].size
    return [*chosen, (-1, 0), (last, 0), (last, device.allocated[-1]), (device.peak_event, device.peak_bytes)]


def assert_allocation(found: dict[str, Any], device: oracle.Device, stacks: list[Any]) -> None:
    """Compares an allocation from the page with the oracle's."""
    a = device.allocations[found["id"]]
    timeless = all(e.get("time_us") is None for e in device.events)
    for key in ("size", "alloc_event", "free_requested_event", "free_event", "origin", "alloc_us", "free_us"):
        if (
            key.endswith("_us")
            and getattr(a, key) is None
            and not timeless
            and getattr(a, key.replace("_us", "_event")) >= 0
        ):
            continue  # a single event without a time among others: the page gives it the previous event's time
        assert found[key] == getattr(a, key), f"{key} of {found['id']} is {found[key]!r}, not {getattr(a, key)!r}"
    assert int(found["addr_hex"], 16) == a.addr
    assert a.stream is None or int(found["stream"]) == a.stream
    assert (found["compile_context"] or None, found["user_metadata"] or None) == (a.compile_context, a.user_metadata)
    assert stacks[found["stack"]] == a.stack and stacks[found["free_stack"]] == a.free_stack


def assert_page(opened: Any, devices: dict[int, oracle.Device], count: int = POINTS) -> None:
    for number, device in devices.items():
        given = points(device, number, count)
        picks = json.loads(opened.js(PICKS, [number, given]))
        ids = [p and p["id"] for p in picks]
        assert ids == [device.pick(*point) for point in given], f"device {number}"
        some = sorted({i for i in ids if i is not None})
        used = json.loads(opened.js(USED, [number, some]))
        stacks = {
            int(s): tuple((f["filename"], f["line"], f["name"]) for f in frames) for s, frames in used["stacks"].items()
        }
        assert [a for a in picks if a] == [next(f for f in used["found"] if f["id"] == p["id"]) for p in picks if p]
        for found in used["found"]:
            assert_allocation(found, device, stacks)
        compare.assert_stats(opened.js("d => snapreport.stats(d)", number), device)


def test_page_equals_the_oracle(
    shown_path: Path, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    assert_page(borrow_report(report_of(shown_path)), corpus.replayed(shown_path))


@settings(max_examples=4, phases=[Phase.generate])  # shrinking through a browser takes minutes
@given(snapshot=strategies.snapshots)
def test_random_traces(snapshot: Any, chromium: Any) -> None:
    import pages

    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "random.pickle", Path(folder) / "random.html"
        path.write_bytes(strategies.pickled(snapshot, 5))
        snapreport.write_report([snapreport.load(path)], out)
        opened = pages.open_report(chromium, out)
        try:
            assert_page(opened, oracle.replay(snapshot), 30)
        finally:
            opened.page.context.close()
        opened.check()


def test_pick_is_exact_at_every_zoom(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    """Picks are computed from the columns, not from what happens to be drawn."""
    path = corpus.path_of("training")
    device = corpus.replayed(path)[0]
    opened = borrow_report(report_of(path))
    given = points(device, 5)
    want = [device.pick(*point) for point in given]
    for window in ({}, {"x": [100, 140]}, {"x": [5000, 5400], "y": [0, 1 << 20]}):
        opened.set_view(**window)
        found = opened.js("points => points.map(([event, byte]) => snapreport.pick(0, event, byte)?.id ?? null)", given)
        assert found == want


def test_several_files_in_one_report(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    paths = [corpus.path_of("small"), corpus.path_of("multi-gpu")]
    opened = open_report(report_of(*paths))
    replayed = [device for path in paths for _, device in sorted(corpus.replayed(path).items())]
    numbers = opened.js("snapreport.devices()")
    assert len(set(numbers)) == len(replayed), "every device of every file can be named"
    for number, device in zip(numbers, replayed, strict=True):
        assert opened.js("d => snapreport.stats(d).peak_allocated_bytes", number) == device.peak_bytes
        given = points(device, 3, 30)
        found = opened.js(
            "([d, points]) => points.map(([event, byte]) => snapreport.pick(d, event, byte)?.id ?? null)",
            [number, given],
        )
        assert found == [device.pick(*point) for point in given]
