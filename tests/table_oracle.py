"""What the table and the list of events must show, from the oracle's replay and the raw events: one row at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oracle
import polars as pl

from snapreport.reading.noise import frame_flags

Frame = tuple[str, int, str]


@dataclass
class Sums:
    """The sums of a group. Lifetimes end with the trace at the latest; ``open``: those that begin or end outside it."""

    live: int = 0
    live_count: int = 0
    peak: int = 0
    count: int = 0
    total: int = 0
    events: int = 0
    us: int = 0
    open: int = 0


FLAGS: dict[Frame, int] = {}


def learn(frames: set[Frame]) -> None:
    """Looks up the flags of all frames at once. The rules themselves are tested in test_noise."""
    unknown = sorted(frame for frame in frames if frame not in FLAGS)
    if unknown:
        table = pl.DataFrame(unknown, schema={"filename": pl.String, "line": pl.Int64, "name": pl.String}, orient="row")
        FLAGS.update(zip(unknown, frame_flags(table).to_list(), strict=True))


def top(stack: oracle.Frames) -> Frame | None:
    """The frame that a stack is named by."""
    import name_oracle

    return name_oracle.named_frame(stack)


def tops(device: oracle.Device) -> list[Frame | None]:
    """The naming frame of each allocation; computed once and stored with the device, so that it is freed with it."""
    if "tops" not in device.kept:
        learn({frame for a in device.allocations for frame in a.stack})
        tops = {stack: top(stack) for stack in {a.stack for a in device.allocations}}
        device.kept["tops"] = [tops[a.stack] for a in device.allocations]
    return device.kept["tops"]


def short_path(path: str, files: Collection[str]) -> str:
    """As many of its last parts as no other file of the report ends in."""
    parts = re.split(r"[\\/]", path)
    ends = ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]
    others = {re.sub(r"\\", "/", file) for file in files if file != path}
    return next((end for end in ends if not any(f"/{other}".endswith(f"/{end}") for other in others)), ends[-1])


def frame_words(frame: Frame | None, files: Collection[str]) -> str:
    """A frame as the page writes it on one line."""
    if frame is None:
        return "–"
    file, line, name = frame
    return f"{name or '?'}  {short_path(file, files)}:{line}" if line > 0 or file else name or "?"


def time_of(device: oracle.Device, event: int) -> int | None:
    return device.events[event].get("time_us")


def lived_events(device: oracle.Device, a: oracle.Allocation) -> int:
    return (len(device.events) if a.free_event < 0 else a.free_event) - max(0, a.alloc_event)


def lived_us(device: oracle.Device, a: oracle.Allocation) -> int:
    last = len(device.events) - 1 if a.free_event < 0 else a.free_event
    return max(0, time_of(device, last) - time_of(device, max(0, a.alloc_event)))


def sums(
    device: oracle.Device, keys: list[Hashable], position: int, keep: Callable[[int], bool] = lambda _: True
) -> dict[Hashable, Sums]:
    """Every group's sums at a position of the design (the last event). ``keys``: one for each allocation."""
    has_times = bool(device.events) and time_of(device, 0) is not None
    found: dict[Hashable, Sums] = {}
    for i, (a, key) in enumerate(zip(device.allocations, keys, strict=True)):
        if not keep(i):
            continue
        group = found.setdefault(key, Sums())
        if a.lives_at(position):
            group.live += a.size
            group.live_count += 1
        if a.lives_at(device.peak_event):
            group.peak += a.size
        group.count += 1
        group.total += a.size
        group.events += lived_events(device, a)
        group.us += lived_us(device, a) if has_times else 0
        group.open += a.alloc_event < 0 or a.free_event < 0
    return found


def keys_of(path: Path, number: int, device: oracle.Device, grouping: str) -> list[Hashable]:
    """The group of each allocation, as the file writes it; a stack by its frames."""
    if grouping == "stack":
        return [a.stack for a in device.allocations]
    if grouping == "func":
        return [t[2] if t else "" for t in tops(device)]
    if grouping == "file":
        return [t[0] if t else "" for t in tops(device)]
    if grouping == "line":
        return [(f"{t[0]}:{t[1]}" if t[0] not in ("", "??") and t[1] > 0 else t[2]) if t else "" for t in tops(device)]
    if grouping == "size":
        return [str(a.size) for a in device.allocations]
    if grouping == "stream":
        return ["" if a.stream is None else str(a.stream) for a in device.allocations]
    import snapreport
    from snapreport.timeline.operators import called_operators

    snapshot = snapreport.load(path)  # separate rules: pools, categories, steps, operators are tested elsewhere
    if grouping == "step":
        steps = snapshot.steps(number).rows(named=True)
        return [
            next((s["name"] for s in steps if s["first_event"] <= a.alloc_event <= s["last_event"]), "")
            if a.alloc_event >= 0
            else ""
            for a in device.allocations
        ]
    if grouping == "operator":
        called = called_operators(snapshot.recording).to_list()
        return [called[stack] for stack in snapshot.timeline(number).allocations["stack"].to_list()]
    return ["" if value is None else str(value) for value in snapshot.allocations(number)[grouping].to_list()]


def event_row(device: oracle.Device, event: int) -> dict[str, Any]:
    """An event as recorded: values of the list's columns; None where it has none."""
    raw = device.events[event]
    first = time_of(device, 0)
    return {
        "event": event,
        "us": None if first is None else raw["time_us"] - first,
        "action": raw["action"],
        "size": raw.get("size", 0),
        "address": hex(raw["addr"]) if raw.get("addr") else None,
        "stream": None if raw.get("stream") is None else str(raw["stream"]),
        "allocated": device.allocated[event + 1],
        "frames": oracle.frames_of(raw),
        "device_free": raw.get("device_free"),
    }


def request_of(device: oracle.Device, event: int) -> int:
    """The event of the request that an allocation's completed free answers; -1 without one."""
    return next((a.free_requested_event for a in device.allocations if a.free_event == event), -1)
