"""Recordings that end early, made from others: written during the run, or when memory ran out.

The last state of a snapshot is that of its segments and blocks: events after the cut are taken back, the last first.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

Raw = dict[str, Any]


def first(share: float, raw: Raw) -> Raw:
    """Written after so many of the events."""
    return _until(int(share * len(_trace(raw))), raw)


def out_of_memory(raw: Raw) -> Raw:
    """The device was as large as what was allocated before the highest allocation, which failed: where several are as
    high, the last.
    """
    live, highest, at = 0, 0, -1
    for number, event in enumerate(_trace(raw)):
        live += event["size"] * {"alloc": 1, "free_completed": -1}.get(event["action"], 0)
        if event["action"] == "alloc" and live >= highest:
            highest, at = live, number
    if at < 0:
        return raw
    failed = _trace(raw)[at]
    _until(at, raw)
    if len(_trace(raw)) == at:
        _trace(raw).append({**failed, "action": "oom", "device_free": 0, "addr": 0})
    return raw


def _device(raw: Raw) -> int:
    traces = raw["device_traces"]
    return max(range(len(traces)), key=lambda device: len(traces[device]), default=0)


def _trace(raw: Raw) -> list[Raw]:
    """Of the device with most events, the only one that is changed."""
    traces: list[list[Raw]] = raw["device_traces"]
    return traces[_device(raw)]


def _until(end: int, raw: Raw) -> Raw:
    """Without events from ``end`` on; as it is where segments grow, as expandable ones do."""
    device, trace = _device(raw), _trace(raw)
    if any(event["action"] in ("segment_map", "segment_unmap") for event in trace[end:]):
        return raw
    segments = {one["address"]: one for one in raw["segments"] if one.get("device", 0) == device}
    others = [one for one in raw["segments"] if one.get("device", 0) != device]
    blocks = {block["address"]: block for one in segments.values() for block in _in_use(one)}
    for event in reversed(trace[end:]):
        address, size = event.get("addr"), event["size"]
        match event["action"]:
            case "alloc":
                blocks.pop(address, None)
            case "free_completed":
                blocks[address] = {"address": address, "size": size, "state": "active_pending_free", "frames": []}
            case "free_requested":
                blocks.get(address, {})["state"] = "active_allocated"
            case "segment_alloc":
                segments.pop(address, None)
            case "segment_free":
                segments[address] = {
                    "device": device, "address": address, "total_size": size, "stream": event["stream"],
                    "segment_type": "small" if size <= 2 << 20 else "large", "frames": event.get("frames", []),
                }  # fmt: skip
    for event in trace[:end]:
        if event["action"] == "alloc" and event["addr"] in blocks:
            blocks[event["addr"]] |= {"requested_size": event["size"], "frames": event.get("frames", [])}
    starts = sorted(segments)
    for one in segments.values():
        one["blocks"] = []
    for address in sorted(blocks):
        segments[starts[bisect_right(starts, address) - 1]]["blocks"].append(blocks[address])
    for one in segments.values():
        _fill(one)
    raw["segments"] = [*others, *segments.values()]
    raw["device_traces"][device] = trace[:end]
    return raw


def _in_use(segment: Raw) -> list[Raw]:
    found, address = [], segment["address"]
    for block in segment["blocks"]:
        found.append({**block, "address": address})
        address += block["size"]
    return [block for block in found if block["state"] != "inactive"]


def _fill(segment: Raw) -> None:
    """Free blocks between those in use, which are multiples of 512 bytes; and the sums of the segment."""
    address, blocks = segment["address"], list[Raw]()
    end = address + segment["total_size"]
    for block in [*segment["blocks"], {"address": end, "size": 0}]:
        if block["address"] > address:
            free = {"address": address, "size": block["address"] - address, "requested_size": 0}
            blocks.append({**free, "state": "inactive", "frames": []})
        block["size"] = -(-block["size"] // 512) * 512
        block.setdefault("requested_size", block["size"])
        address = block["address"] + block["size"]
        blocks += [block] if block["size"] else []
    used = [block for block in blocks if block["state"] != "inactive"]
    segment["blocks"] = blocks
    segment["allocated_size"] = sum(block["size"] for block in used if block["state"] == "active_allocated")
    segment["active_size"] = sum(block["size"] for block in used)
    segment["requested_size"] = sum(block["requested_size"] for block in used)
