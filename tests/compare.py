"""Compares what snapreport computes from a snapshot with what the oracle computes, column by column."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import oracle

ORIGINS = ("traced", "freed", "ghost")


def stacks_of(snapshot: Any) -> list[oracle.Frames]:
    """Every stack of a loaded snapshot as (filename, line, name) frames, innermost first."""
    recording = snapshot.recording
    frames = recording.frames.select("filename", "line", "name").rows()
    bounds, flat = recording.stack_offsets.tolist(), recording.stack_frames.tolist()
    return [tuple(frames[i] for i in flat[a:b]) for a, b in pairwise(bounds)]


def assert_lists(name: str, got: list[Any], want: list[Any]) -> None:
    assert len(got) == len(want), f"{name}: {len(got)} rows, not {len(want)}"
    for row, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g == w, f"{name}[{row}] is {g!r}, not {w!r}"


def wanted(device: oracle.Device) -> dict[str, list[Any]]:
    """The oracle's allocations as columns, named as snapreport names them; stacks resolved to frames."""
    rows = device.allocations
    columns = {
        name: [getattr(a, name) for a in rows]
        for name in (
            "addr",
            "size",
            "origin",
            "alloc_event",
            "free_requested_event",
            "free_event",
            "alloc_us",
            "free_us",
            "stream",
            "compile_context",
            "user_metadata",
        )
    }
    return columns | {
        "stack": [a.stack for a in rows],
        "free_stack": [a.free_stack for a in rows],
        "id": list(range(len(rows))),
    }


def assert_same(snapshot: Any, devices: dict[int, oracle.Device]) -> None:
    """Everything that ``load`` returns equals the oracle's, for every device."""
    assert list(snapshot.devices) == sorted(devices)
    stacks = stacks_of(snapshot)
    assert stacks[0] == ()
    assert_numbering(frame_ids(snapshot))
    for number, device in devices.items():
        assert_device(snapshot, number, device, stacks)


def frame_ids(snapshot: Any) -> list[tuple[int, ...]]:
    bounds, flat = snapshot.recording.stack_offsets.tolist(), snapshot.recording.stack_frames.tolist()
    return [tuple(flat[a:b]) for a, b in pairwise(bounds)]


def assert_numbering(stacks: list[tuple[int, ...]]) -> None:
    """Stacks are distinct, frames numbered by first appearance, and stacks with the same outer frames adjacent."""
    assert len(set(stacks)) == len(stacks)
    outermost = [stack[::-1] for stack in stacks]
    appeared = list(dict.fromkeys(f for stack in outermost for f in stack))
    assert appeared == list(range(len(appeared)))
    new = 0
    for before, stack in zip([(), *outermost], outermost, strict=False):
        shared = next(
            (i for i, (a, b) in enumerate(zip(before, stack, strict=False)) if a != b), min(len(before), len(stack))
        )
        new += len(stack) - shared
    assert new == len({stack[: i + 1] for stack in outermost for i in range(len(stack))}), (
        "each beginning is written once"
    )


def assert_device(snapshot: Any, number: int, device: oracle.Device, stacks: list[oracle.Frames]) -> None:
    table, timeline = snapshot.allocations(number), snapshot.timeline(number)
    for name, values in wanted(device).items():
        got = table[name].to_list()
        assert_lists(f"device {number} {name}", [stacks[i] for i in got] if name.endswith("stack") else got, values)
    categories = table["category"].cast(str).to_list()
    assert all(categories)
    for a, category in zip(device.allocations, categories, strict=True):
        assert a.own_category in (None, category) or category == "unknown"
    assert timeline.allocated.tolist() == device.allocated
    assert timeline.reserved.tolist() == device.reserved
    assert (timeline.peak_event, timeline.peak_bytes) == (device.peak_event, device.peak_bytes)
    assert timeline.other_events.tolist() == device.other_events
    assert_live_sets(snapshot, number, device)


def some_positions(device: oracle.Device, count: int = 12) -> list[int]:
    """The first, the peak, the last, and others by a fixed seed."""
    last = len(device.events) - 1
    chosen = {-1, last, device.peak_event} | {random.Random(7 * i).randint(-1, last) for i in range(count)}
    return sorted(chosen)


def assert_live_sets(snapshot: Any, number: int, device: oracle.Device) -> None:
    """Live sets in birth order and the offset of each, at some positions: what is drawn lies in that order."""
    table = snapshot.allocations(number)
    born, freed, size = (table[name].to_numpy().astype(int) for name in ("alloc_event", "free_event", "size"))
    for position in some_positions(device):
        ids = np.flatnonzero((born <= position) & ((freed < 0) | (freed > position)))
        live = device.live_at(position)
        assert ids.tolist() == live, f"live set at {position}"
        assert int(size[ids].sum()) == device.allocated[position + 1]
        if live:
            middle = len(live) // 2
            assert int(size[ids[:middle]].sum()) == device.offset(live[middle], position)


def assert_stats(stats: dict[str, Any], device: oracle.Device, stacks: dict[str, Any] | None = None) -> None:
    """One device's entry of ``stats --json`` against the oracle's; ``stacks``: of --frames, else frames are in it."""
    for key, value in device.stats().items():
        assert stats[key] == value, f"{key} is {stats[key]}, not {value}"
    want = device.top_stacks_at_peak()
    got = stats["top_stacks_at_peak"]
    assert len(got) == min(10, len(want))
    by_frames = {frames: (size, count) for size, count, frames in want}
    for entry, (size, _, _) in zip(got, want, strict=False):
        assert entry["bytes"] == size, "most bytes first"
        frames = tuple(
            (f["filename"], f["line"], f["name"]) for f in (stacks[str(entry["stack"])] if stacks else entry["frames"])
        )
        assert by_frames.pop(frames) == (entry["bytes"], entry["count"])
