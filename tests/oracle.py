"""What a snapshot means, computed independently: slowly, event by event, with dictionaries and lists.

Written from the project's definitions alone, without snapreport, numpy or polars, so that it does not share their
mistakes. Takes the raw object that ``pickle`` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

ACTIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")
HOST = -1

Frames = tuple[tuple[str, int, str], ...]


@dataclass
class Allocation:
    """One lifetime of an address. Events are indices, -1 where there is none; stacks are tuples of frames."""

    addr: int
    size: int
    origin: str
    alloc_event: int = -1
    free_requested_event: int = -1
    free_event: int = -1
    alloc_us: int | None = None
    free_us: int | None = None
    stream: int | None = None
    stack: Frames = ()
    free_stack: Frames = ()
    own_category: str | None = None
    # The product's, filled in by the corpus for oracles that build on it.
    category: str = "unknown"
    module: str = ""
    compile_context: str | None = None
    user_metadata: str | None = None

    def lives_at(self, position: int) -> bool:
        return self.alloc_event <= position and (self.free_event == -1 or self.free_event > position)


@dataclass
class Device:
    """One device's replay. ``allocated[i + 1]`` and ``reserved[i + 1]`` are bytes at position i (-1 … n-1).

    The peak is computed on first use, after the replay: it is read once for every allocation.
    """

    device: int
    events: list[dict[str, Any]]
    segments: list[dict[str, Any]]
    blocks: list[dict[str, Any]]
    allocations: list[Allocation]
    allocated: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    other_events: list[int] = field(default_factory=list)
    # What other oracles cache here.
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def peak_bytes(self) -> int:
        return max(self.allocated)

    @cached_property
    def peak_event(self) -> int:
        return self.allocated.index(self.peak_bytes) - 1

    @property
    def reconciliation_bytes(self) -> int:
        return self.allocated[-1] - sum(b["requested"] for b in self.blocks if b["state"] in ACTIVE)

    def live_at(self, position: int) -> list[int]:
        """Ids of the allocations live at a position, in birth order: the stack from bottom to top."""
        # ``lives_at`` inlined: it is evaluated for every allocation at thousands of positions.
        return [
            i
            for i, a in enumerate(self.allocations)
            if a.alloc_event <= position and (a.free_event == -1 or a.free_event > position)
        ]

    def offset(self, allocation: int, position: int) -> int:
        """Bytes below an allocation in the stack at a position."""
        return sum(a.size for a in self.allocations[:allocation] if a.lives_at(position))

    def pick(self, position: int, byte: int) -> int | None:
        """The allocation whose band covers a byte of the stack at a position; None above the stack."""
        base = 0
        for i in self.live_at(position):
            if base <= byte < base + self.allocations[i].size:
                return i
            base += self.allocations[i].size
        return None

    def stats(self) -> dict[str, Any]:
        traced = sum(a.origin == "traced" for a in self.allocations)
        return {
            "device": self.device,
            "events": len(self.events),
            "allocations": len(self.allocations),
            "preexisting_allocations": len(self.allocations) - traced,
            "live_at_end": sum(a.free_event == -1 for a in self.allocations),
            "segments": len(self.segments),
            "start_allocated_bytes": self.allocated[0],
            "end_allocated_bytes": self.allocated[-1],
            "peak_allocated_bytes": self.peak_bytes,
            "peak_event": self.peak_event,
            "reconciliation_bytes": self.reconciliation_bytes,
            "start_reserved_bytes": self.reserved[0],
            "end_reserved_bytes": self.reserved[-1],
            "peak_reserved_bytes": max(self.reserved),
            "oom_events": [i for i, e in enumerate(self.events) if e["action"] == "oom"],
        }

    def top_stacks_at_peak(self) -> list[tuple[int, int, Frames]]:
        """(bytes, count, stack) of every stack live at the peak, most bytes first."""
        held: dict[Frames, list[int]] = {}
        for i in self.live_at(self.peak_event):
            entry = held.setdefault(self.allocations[i].stack, [0, 0])
            entry[0] += self.allocations[i].size
            entry[1] += 1
        return sorted(((b, c, s) for s, (b, c) in held.items()), key=lambda row: -row[0])


def text(value: str) -> str:
    """Text as the product returns it: exact, except for lone surrogates, which UTF-8 cannot encode and which are
    escaped.
    """
    return value.encode("utf-8", "backslashreplace").decode()


@lru_cache(maxsize=50_000)
def frame(filename: str, line: int, name: str) -> tuple[str, int, str]:
    """A line may be recorded as an unsigned -1: it means none, and is returned as -1. Cached: there are few frames, in
    many stacks.
    """
    return text(filename), line if line < 2**63 else line - 2**64, text(name)


def frames_of(holder: dict[str, Any]) -> Frames:
    return tuple(frame(f["filename"], f["line"], f["name"]) for f in holder.get("frames") or ())


def text_or_none(value: Any) -> str | None:
    return None if value in (None, "", "N/A") else text(value)


def replay(snapshot: Any) -> dict[int, Device]:
    """Replays every device of a snapshot, host memory as device -1."""
    if isinstance(snapshot, list):
        snapshot = {"segments": snapshot}
    traces = dict(enumerate(snapshot.get("device_traces") or []))
    segments: dict[int, list[dict[str, Any]]] = {}
    for segment in snapshot.get("segments") or []:
        segments.setdefault(segment.get("device", 0), []).append(segment)
    if snapshot.get("host_traces") or snapshot.get("host_segments"):
        traces[HOST] = [e for trace in snapshot.get("host_traces") or [] for e in trace]
        segments[HOST] = list(snapshot.get("host_segments") or [])
    devices = {d: replay_device(d, traces.get(d, []), segments.get(d, [])) for d in sorted({*traces, *segments})}
    for device in devices.values():
        name_tensors(device, snapshot.get("snapreport") or {})
    return devices


def name_tensors(device: Device, recorder: dict[str, Any]) -> None:
    """Gives allocations the names that ``snapreport record`` noted: the last for an address while it was live."""
    marks = recorder.get("marks") or []
    noted = []
    for mark in marks:
        for time in (mark["time_us"], *mark.get("again_us", ())):
            position = len(device.events) - 1 if time == marks[-1]["time_us"] else position_at(device.events, time)
            noted += [(position, row[1], row[3]) for row in mark["tensors"] if row[0] == device.device]
    named: dict[int, str] = {}
    at: dict[int, list[int]] = {}
    for i, a in enumerate(device.allocations):
        at.setdefault(a.addr, []).append(i)
    for position, address, name in sorted(noted, key=lambda one: one[0]):
        for i in at.get(address, ()) if position >= -1 else ():
            if device.allocations[i].lives_at(position):
                named[i] = name
    for i, name in named.items():
        device.allocations[i].user_metadata = device.allocations[i].user_metadata or name


def position_at(events: list[dict[str, Any]], time_us: int) -> int:
    """The last event at or before a time; -2 before the first."""
    found, clock = -2, 0
    for i, event in enumerate(events):
        clock = max(clock, event["time_us"])
        if clock > time_us:
            break
        found = i
    return found


def final_blocks(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of the final state, all layouts normalised: address, size, requested, state, stream, stack."""
    blocks = []
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            old = "frames" not in block and block.get("history")
            first = block["history"][0] if old else {}
            blocks.append(
                {
                    "address": block.get("address", address),
                    "size": block["size"],
                    "requested": first["real_size"] if old else block.get("requested_size", block["size"]),
                    "state": block["state"],
                    "stream": segment.get("stream"),
                    "stack": frames_of(first if old else block),
                }
            )
            address += block["size"]
    return blocks


def replay_device(device: int, events: list[dict[str, Any]], segments: list[dict[str, Any]]) -> Device:
    blocks = final_blocks(segments)
    waiting = {b["address"] for b in blocks if b["state"] in ACTIVE and b["state"] != "active_allocated"}
    traced, freed, live, taken = pair(events, waiting)
    # The stack of a free is its allocation's only where every pair in the trace has equal stacks, and there is one.
    pairs = [a for a in traced if a.free_requested_event >= 0 or events[a.free_event]["action"].startswith("free")]
    pairs = [a for a in pairs if a.free_requested_event >= 0 or a.free_event >= 0]
    if not pairs or any(a.stack != a.free_stack for a in pairs):
        for a in freed:
            a.stack = ()
    ghosts = []
    for block in blocks:
        if block["state"] not in ACTIVE:
            continue
        a = live.get(block["address"])
        if a is not None and a.origin == "traced":
            continue
        ghost = Allocation(block["address"], block["requested"], "ghost", stream=block["stream"], stack=block["stack"])
        if a is not None:  # a free that was requested in the trace and not completed: the block is this lifetime
            freed.remove(a)
            ghost.free_requested_event, ghost.free_stack = a.free_requested_event, a.free_stack
        ghosts.append(ghost)
    freed.sort(key=lambda a: a.free_event if a.free_event >= 0 else len(events) + a.free_requested_event, reverse=True)
    result = Device(device, events, segments, blocks, ghosts + freed + traced)
    result.allocated = curve(result.allocations, len(events))
    result.reserved = reserved_curve(events, segments)
    result.other_events = [i for i in range(len(events)) if i not in taken]
    return result


def pair(
    events: list[dict[str, Any]], waiting: set[int]
) -> tuple[list[Allocation], list[Allocation], dict[int, Allocation], set[int]]:
    """Matches allocs with frees: (traced, freed, still live by address, events that are part of a lifetime).
    ``waiting``: addresses of the blocks whose free is pending at the end: where no completion is recorded, the last
    request for one of them has not freed it.
    """
    completes = any(e["action"] == "free_completed" for e in events)
    last = {
        e.get("addr"): i for i, e in enumerate(events) if e["action"] in ("alloc", "free_requested", "free_completed")
    }
    traced: list[Allocation] = []
    freed: list[Allocation] = []
    live: dict[int, Allocation] = {}
    taken: set[int] = set()
    called: dict[int, list[str]] = {}

    def end(i: int, event: dict[str, Any], addr: int) -> None:
        a = live.pop(addr)
        a.free_event, a.free_us = i, event.get("time_us")

    for i, event in enumerate(events):
        action, addr = event["action"], event.get("addr")
        if action == "alloc":
            taken.add(i)
            if addr in live:
                end(i, event, addr)
            a = Allocation(
                addr,
                event["size"],
                "traced",
                i,
                alloc_us=event.get("time_us"),
                stream=event.get("stream"),
                stack=frames_of(event),
                own_category=event.get("category"),
                compile_context=text_or_none(event.get("compile_context")),
                user_metadata=text_or_none(event.get("user_metadata")),
            )
            live[addr] = a
            traced.append(a)
        elif action in ("free_requested", "free_completed"):
            is_waiting = addr in waiting and last[addr] == i
            ends = action == "free_completed" or not (completes or is_waiting)
            a = live.get(addr)
            if a is None:
                a = Allocation(addr, event["size"], "freed", stream=event.get("stream"), stack=frames_of(event))
                live[addr] = a
                freed.append(a)
            elif a.free_requested_event >= 0 and action == "free_requested":
                continue  # requested a second time: no new information
            taken.add(i)
            if action == "free_requested":
                a.free_requested_event = i
            if action == "free_requested" or not a.free_stack:
                a.free_stack = frames_of(event)
            if ends:
                end(i, event, addr)
        elif action == "annotate" and addr in live and (name := text_or_none(event.get("user_metadata"))):
            a = live[addr]
            said = called.setdefault(id(a), [])
            if name not in said:
                said.append(name)
                a.user_metadata = f"{a.user_metadata}; {name}" if a.user_metadata else name
    return traced, freed, live, taken


def curve(allocations: list[Allocation], events: int) -> list[int]:
    steps = [0] * (events + 2)
    for a in allocations:
        steps[a.alloc_event + 1] += a.size
        if a.free_event >= 0:
            steps[a.free_event + 1] -= a.size
    return list(accumulate(steps[:-1]))


def reserved_curve(events: list[dict[str, Any]], segments: list[dict[str, Any]]) -> list[int]:
    """Backwards from the final segments: undoes every segment event, newest first."""
    reserved = [sum(s["total_size"] for s in segments)]
    for event in reversed(events):
        now = reserved[-1]
        if event["action"] in ("segment_alloc", "segment_map"):
            now -= event["size"]
        elif event["action"] in ("segment_free", "segment_unmap"):
            now += event["size"]
        reserved.append(now)
    return reserved[::-1]
