"""Recordings with something beside what they show that should change nothing that is said of them."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20
Raw = dict[str, Any]


def an_idle_device(raw: Raw) -> Raw:
    """The recording of a program that ran on the second device, with a few KiB on the first one."""
    (trace,) = raw["device_traces"]
    address, frames = 1 << 45, [{"filename": "/app/launch.py", "name": "main", "line": 3}]
    event = {"stream": 0, "frames": frames, "addr": address, **{k: v for k, v in trace[0].items() if k == "time_us"}}
    size, whole = 4096, 2 * MIB
    blocks = [
        {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames},
        {"address": address + size, "size": whole - size, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    used = dict.fromkeys(("allocated_size", "active_size", "requested_size"), size)
    segment = {"device": 0, "address": address, "total_size": whole, "stream": 0, "segment_type": "small", **used}
    raw["segments"] = [
        {**segment, "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames, "blocks": blocks},
        *({**one, "device": 1} for one in raw["segments"]),
    ]
    events = [{**event, "action": "segment_alloc", "size": whole}, {**event, "action": "alloc", "size": size}]
    raw["device_traces"] = [events, trace]
    raw["external_annotations"] = [{**one, "device": 1} for one in raw.get("external_annotations", [])]
    return raw


def a_thread(raw: Raw, gap: int = 97) -> Raw:
    """A thread that fetches a batch of a MiB each ``gap`` events, and holds two of them, in a segment of its own."""
    started = [{"filename": "/usr/lib/python3.11/threading.py", "name": "_bootstrap", "line": 1002}]
    frames = [{"filename": "/app/prefetch.py", "name": "copy", "line": 12}, *started]
    for device, trace in enumerate(raw["device_traces"]):
        start, held, events = (1 << 46) + (device << 40), list[int](), list[Raw]()
        common = {"stream": 0, "frames": frames}
        for number, event in enumerate(trace):
            here = {**common, **{key: value for key, value in event.items() if key == "time_us"}}
            if not number:
                events.append({**here, "action": "segment_alloc", "addr": start, "size": 20 * MIB})
            events.append(event)
            if number % gap == gap - 1:
                if len(held) == 2:
                    freed = {**here, "addr": held.pop(0), "size": MIB}
                    events += [{**freed, "action": action} for action in ("free_requested", "free_completed")]
                held.append(start + number // gap % 3 * MIB)
                events.append({**here, "action": "alloc", "addr": held[-1], "size": MIB})
        if trace:
            raw["device_traces"][device] = events
            raw["segments"].append(_segment(device, start, held, frames))
    return raw


def _segment(device: int, start: int, held: list[int], frames: list[Raw]) -> Raw:
    blocks = [
        {"address": address, "size": MIB, "requested_size": MIB, "state": "active_allocated", "frames": frames}
        if address in held
        else {"address": address, "size": MIB, "requested_size": 0, "state": "inactive", "frames": []}
        for address in (start + number * MIB for number in range(20))
    ]
    used = dict.fromkeys(("allocated_size", "active_size", "requested_size"), len(held) * MIB)
    segment = {"device": device, "address": start, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", **used}
    return {**segment, "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}
