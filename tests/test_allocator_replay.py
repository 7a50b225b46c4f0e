"""Replays of a few requests whose outcome can be worked out by hand: the document of a what-if in full, cards, starts
in the middle of a trace, failed requests.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import generator
import numpy as np
import planted_trace
import pytest

import snapreport
from snapreport.allocator import replay as replaying
from snapreport.allocator.cards import CARDS
from snapreport.allocator.expandable import address_space
from snapreport.allocator.model import CachingAllocator
from snapreport.allocator.placement import SHIFT, TOTAL, UNLIMITED, Ascending, Descending, Recorded, Shuffled
from snapreport.allocator.settings import AllocatorSettings
from snapreport.allocator.whatif import WhatIf

MIB, GIB = 1 << 20, 1 << 30


def written(folder: Path, raw: dict[str, Any]) -> snapreport.Snapshot:
    path = folder / "trace.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    return snapreport.load(path)


def outgrown(factor: int = 1) -> planted_trace.Recording:
    """30 MiB are freed and too small for the 40 MiB that follow; 2 MiB stay."""
    record = planted_trace.Recording()
    first = record.request(30 * factor)
    record.request(2 * factor)
    record.drop(first)
    record.request(40 * factor)
    return record


def test_the_whole_document(tmp_path: Path) -> None:
    (device,) = written(tmp_path, outgrown().snapshot()).whatif()["devices"]
    cards = device.pop("cards")
    runs = device.pop("runs")
    least = device.pop("minimums")
    assert device == {
        "device": 0, "start": "recorded", "settings": "default", "recorded_peak_reserved_bytes": 90 * MIB,
        "capacity_bytes": None, "placements": 5, "limits": [], "minimum_memory_bytes": 60 * MIB, "minimum_retries": 1,
        "check": {
            "exact": True, "allocations": 3, "same_allocations": 3, "segment_events": 3, "same_segment_events": 3,
            "curve_error": 0.0, "reason": None,
        },
    }  # fmt: skip
    # Segments of 30, 20 and 40 MiB. In one that grows by 20 MiB, 2 MiB lie behind the 30, and 8 MiB of the next 40 are
    # mapped. Four divisions make 32 MiB of 30.
    peaks = {
        "recorded settings": 90, "expandable_segments:True": 80, "max_split_size_mb:128": 90,
        "max_split_size_mb:512": 90, "roundup_power2_divisions:4": 92,
    }  # fmt: skip
    common = {"without": None, "scale": None, "retries": 0, "oom_event": None, "avoided_oom_events": []}
    needs_memory = "does nothing without a memory fraction; give --memory to replay it with one"
    for run, (name, peak) in zip(runs, peaks.items(), strict=False):
        settings = "default" if name == "recorded settings" else name
        assert run == common | {
            "name": name, "settings": settings, "note": None, "peak_allocated_bytes": 42 * MIB,
            **dict.fromkeys(("peak_reserved_bytes", "low_bytes", "high_bytes"), peak * MIB),
        }  # fmt: skip
    (collected,) = runs[len(peaks) :]
    assert collected == common | {
        "name": "garbage_collection_threshold:0.8", "settings": "garbage_collection_threshold:0.8",
        "note": needs_memory, "peak_allocated_bytes": 42 * MIB,
        **dict.fromkeys(("peak_reserved_bytes", "low_bytes", "high_bytes")),
    }  # fmt: skip
    # A retry releases the 30 MiB, or unmaps the first 20 of them.
    assert least == [
        {
            "settings": settings, "memory_bytes": 60 * MIB, "retries": 1, "monotone": True,
            "unlimited_peak_reserved_bytes": peak * MIB,
        }
        for settings, peak in (("default", 90), ("expandable_segments:True", 80))
    ]  # fmt: skip
    assert [(card["card"], card["settings"]) for card in cards] == [
        (card.name, settings) for settings in ("default", "expandable_segments:True") for card in CARDS
    ]
    assert all(card["fits"] and card["spare_bytes"] == card["usable_bytes"] - 60 * MIB for card in cards)
    assert cards[0]["usable_bytes"] == int(14.56 * GIB) - GIB // 2


def test_cards_on_which_a_trace_just_runs(tmp_path: Path) -> None:
    """It reserves 36 GiB of any memory, and runs on 21 GiB by a retry."""
    (device,) = written(tmp_path, outgrown(512).snapshot()).whatif(settings=["max_split_size_mb:100000"])["devices"]
    own = {card["card"]: card["fits"] for card in device["cards"] if "expandable" not in card["settings"]}
    assert device["minimum_memory_bytes"] == 21 * GIB and len(own) == 9
    assert [name for name, fits in own.items() if not fits] == ["16 GB"]
    (spare,) = (card["spare_bytes"] for card in device["cards"][:1])
    assert spare == int(14.56 * GIB) - GIB // 2 - 21 * GIB
    small = snapreport.load(tmp_path / "trace.pickle").whatif(memory=20 * GIB, cards=False)["devices"][0]
    assert (small["capacity_bytes"], small["minimum_memory_bytes"], small["minimum_retries"]) == (20 * GIB, None, None)
    assert (small["cards"], small["minimums"]) == ([], [])
    assert [run["oom_event"] for run in small["runs"][:2]] == [7, 7]  # the last request
    assert [run["peak_reserved_bytes"] for run in small["runs"][:2]] == [None, None]


def test_what_changes_is_compared_with_the_recorded_settings(tmp_path: Path) -> None:
    """Without the 2 MiB, 20 MiB are not reserved; half of the 40 MiB fit in the 30 that are cached."""
    snapshot = written(tmp_path, outgrown().snapshot())
    (without,) = snapshot.whatif(without=["size:2MiB"], cards=False)["devices"]
    (halved,) = snapshot.whatif(scale=[("size:40MiB", 0.5), ("size:2MiB", 0.25)], cards=False)["devices"]
    own, changed = without["runs"][:2]
    assert (own["peak_reserved_bytes"], changed["peak_reserved_bytes"]) == (90 * MIB, 70 * MIB)
    assert (changed["name"], changed["without"], changed["scale"]) == ("recorded settings", "size:2MiB", None)
    changed = halved["runs"][1]
    # 30 MiB, and half a MiB in a segment of 2 MiB.
    assert (changed["peak_reserved_bytes"], changed["peak_allocated_bytes"]) == (32 * MIB, 30 * MIB + MIB // 2)
    assert (changed["without"], changed["scale"]) == (None, "size:40MiB:0.5, size:2MiB:0.25")


@pytest.mark.parametrize("preset", ["small", "expandable", "pools", "serving"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_trace_that_lost_its_beginning_goes_on_from_its_recorded_state(
    preset: str, share: float, tmp_path: Path
) -> None:
    """Cached and used blocks of before, as they follow from the final state, lead to every later address."""
    few = {"events": 800} if preset == "serving" else {"steps": 2, "layers": 2}
    raw = generator.make(preset, **few)
    number, trace = next((n, trace) for n, trace in enumerate(raw["device_traces"]) if trace)
    raw["device_traces"][number] = trace[int(share * len(trace)) :]
    whatif = WhatIf(written(tmp_path, raw).timeline(number), start="recorded")
    check = whatif.check
    if preset == "pools" and not check.exact:
        assert "private pools" in check.reason
        return
    assert (check.exact, check.reason) == (True, "")
    assert not whatif.trace.starts_empty and whatif.replay(whatif.own).contradictions == 0
    fresh = whatif.replay(whatif.own, memory=Ascending(), start="fresh")
    assert fresh.oom_event is None and fresh.peak_reserved >= whatif.timeline.allocated[0]
    assert whatif.replay(whatif.own, memory=Ascending(MIB), start="fresh").oom_event == -1
    assert whatif.residual == 0 and whatif.baseline.peak_reserved_bytes == whatif.trace.peak_reserved


def test_a_failed_request_has_the_use_of_what_its_stream_has_cached(tmp_path: Path) -> None:
    """Where the request of 450 MiB fits, it is freed at once: the next one fits as well, without a retry."""
    record = planted_trace.Recording()
    record.drop(record.request(600))
    for _ in range(2):
        record.event("oom", 0, 450 * MIB, 2, device_free=0, pool_id=(0, 0))
    whatif = WhatIf(written(tmp_path, record.snapshot()).timeline(0))
    done = whatif.replay(whatif.own, memory=Ascending(600 * MIB))
    assert (done.avoided, done.failed, done.retries) == (whatif.timeline.oom_events, [], 0)
    assert done.peak_reserved == 600 * MIB
    # In less memory the recorded request has failed before; nothing is known after that.
    less = whatif.replay(whatif.own, memory=Ascending(600 * MIB - 1))
    assert (less.oom_event, less.avoided, less.failed) == (1, [], [])


@pytest.mark.parametrize(("events", "is_pending"), [((0, 1), False), ((0, 2), True), ((None, 2), False)])
def test_a_free_that_waits_is_a_limit(events: tuple[int | None, int], is_pending: bool, tmp_path: Path) -> None:
    """Of a block that was live when the trace begins: freed at once, behind another request, or requested before."""
    record = outgrown()
    kept = record.request(4)
    requested = events[0]
    size = record.sizes[kept]
    record.trace = []
    for event in range(4):
        if event in events:
            action = "free_requested" if event == requested else "free_completed"
            record.event(action, kept, size, 1)
        else:
            record.request(1)
    record.free(kept)
    del record.sizes[kept]
    (device,) = written(tmp_path, record.snapshot()).whatif(cards=False)["devices"]
    assert any("waited for another stream" in text for text in device["limits"]) is is_pending


def test_allocations_have_the_pool_of_their_segment_where_only_segments_name_it(tmp_path: Path) -> None:
    """As older versions of PyTorch record them."""
    record = planted_trace.Recording()
    for mib in (30, 40):
        record.request(mib)
    segments = [event for event in record.trace if event["action"] == "segment_alloc"]
    for number, event in enumerate(segments):
        event["pool_id"] = (0, number)
    raw = record.snapshot()
    for number, segment in enumerate(raw["segments"]):
        segment["segment_pool_id"] = (0, number)
    trace = WhatIf(written(tmp_path, raw).timeline(0)).trace
    names = [trace.pools[index] for index in trace.pool.tolist()]
    assert dict(zip(trace.size.tolist(), names, strict=True)) == {30 * MIB: None, 40 * MIB: "(0, 1)"}


def test_recorded_retries_happen_where_they_were_recorded(tmp_path: Path) -> None:
    """Also on a device without a limit, where no request needs one."""
    whatif = WhatIf(written(tmp_path, planted_trace.full_device()).timeline(0))
    trace, peaks = whatif.trace, []
    for recorded_retries in (True, False):
        memory = Recorded(None, trace.segments_at)
        done = replaying.replay(trace, whatif.own, memory, start=None, recorded_retries=recorded_retries)
        peaks.append(done.peak_reserved)
        assert (done.retries, done.oom_event) == (0, None)
    assert peaks[0] == trace.peak_reserved <= 4 * GIB < peaks[1]


def test_operations_are_replayed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_BATCH", 2)
    whatif = WhatIf(written(tmp_path, outgrown(5).snapshot()).timeline(0))
    assert len(whatif.trace.kind) == 4  # three requests and a free
    assert whatif.replay(whatif.own, memory=Ascending()).peak_reserved == (150 + 10 + 200) * MIB
    assert whatif.replay(whatif.own, memory=Ascending(100 * MIB)).oom_event == 1


def test_new_segments_lie_where_nothing_was_recorded() -> None:
    """Above, below, or in a random order on both sides, never twice at one place, in what a double holds."""
    sizes = [2 * MIB, 20 * MIB, 3 * GIB, 65 * GIB, 2 << 40, 3 << 40, 2 * MIB + 1] * 40
    recorded = range(SHIFT, SHIFT + (1 << 48))
    for memory in (Ascending(), Descending(), Shuffled(None, 0), Shuffled(None, 7)):
        places = sorted((memory.reserve(size, True), size) for size in sizes)
        assert places[0][0] >= 0 and sum(places[-1]) < 1 << 53
        for (start, size), (following, _) in zip(places, [*places[1:], (1 << 53, 0)], strict=True):
            assert start + size <= following and start % (2 * MIB) == 0
            assert start + size <= recorded.start or start >= recorded.stop
        below = [start for start, _ in places if start < SHIFT]
        shares = {Ascending: 0.0, Descending: 1.0, Shuffled: 0.5}
        assert len(below) / len(places) == pytest.approx(shares[type(memory)], abs=0.2)


def test_random_places_are_those_of_xorshift32() -> None:
    """Drawn by NumPy's 32-bit integers until one is new. An odd draw lies above, an even one below; slots are 64 GiB,
    or 2 TiB.
    """
    memory = Shuffled(None, 2)
    state = np.uint32(3 * 0x9E3779B1 % (1 << 32))
    taken: set[int] = set()
    for size in (MIB, 65 * GIB) * 50:
        slot, first = (2 << 40, 1 << 49) if size > 64 * GIB else (64 * GIB, 0)
        place = memory.reserve(size, True)
        drawn = None
        while drawn is None or drawn in taken:
            for shift in (13, -17, 5):
                state ^= state << np.uint32(shift) if shift > 0 else state >> np.uint32(-shift)
            side = SHIFT + (1 << 49) if state % 2 else SHIFT - (1 << 50)
            drawn = side + first + int(state) // 2 % ((1 << 49) // slot) * slot
        taken.add(drawn)
        assert place == drawn


def test_places_that_were_released_are_used_again() -> None:
    """All wide slots but few are taken at a time, many more in the course."""
    memory = Shuffled(None, 1)
    top = SHIFT + (3 << 49)
    for _ in range(2000):
        start = memory.reserve(100 * GIB, True)
        assert start < top
        memory.release(start, 100 * GIB)
    kept = [memory.reserve(100 * GIB, True) for _ in range(400)]
    assert [start >= top for start in kept] == [False] * 257 + [True] * 143  # half of 512, and one


@pytest.mark.parametrize(
    ("total", "small", "granule", "length"),
    [(160, False, 20, 180), (161, False, 20, 200), (160, True, 2, 180), (161, True, 2, 182), (1, False, 20, 20),
     (0, True, 2, 2)],
)  # fmt: skip
def test_address_space_is_an_eighth_more_than_the_device(total: int, small: bool, granule: int, length: int) -> None:
    """In MiB, whole granules: of 2 in the small pool, of the setting's 20 in the large one."""
    memory = Ascending(total * MIB)
    allocator = CachingAllocator(memory, AllocatorSettings())
    assert address_space(allocator, small) == (granule * MIB, length * MIB)


def test_memory_is_a_budget() -> None:
    memory = Ascending(10)
    assert memory.take(7) and not memory.take(4) and memory.take(3)
    memory.give(2)
    assert not memory.take(3) and memory.take(2)
    assert (Ascending().capacity, Ascending().total) == (UNLIMITED, TOTAL)
    assert (Ascending(5).total, Ascending(TOTAL + 1).total) == (5, TOTAL)


def test_recorded_places_are_used_by_the_request_that_had_them() -> None:
    memory = Recorded(None, {4: [(100, 20 * MIB), (300, 0)], 5: [(500, 2 * MIB)]})
    elsewhere = memory.reserve(20 * MIB, True)
    memory.event = 4
    assert memory.reserve(2 * MIB, True) == elsewhere + 20 * MIB  # of another size
    assert memory.reserve(20 * MIB, True) == SHIFT + 100
    assert memory.reserve(GIB, False) == SHIFT + 300
    assert memory.reserve(20 * MIB, True) == elsewhere + 22 * MIB
