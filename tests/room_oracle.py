"""Free memory by whether a request could use it, at a failure and where more was taken from the device.

Built on the block oracle, with plain loops over the segments and blocks of one moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import block_oracle
import held_oracle
import oracle
from held_oracle import Row

MIB = 1 << 20
TAKES = ("segment_alloc", "segment_map")


@dataclass
class Room:
    """One device's segments and blocks at any moment. ``settings``: the allocator's."""

    device: oracle.Device
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        self.blocks = block_oracle.Blocks(self.device, self.settings)
        self._taking = [i for i, e in enumerate(self.device.events) if e["action"] in TAKES]
        self._moments: dict[int, block_oracle.Moment] = {}

    def at(self, position: int) -> block_oracle.Moment:
        if position not in self._moments:
            self._moments[position] = self.blocks.at(position)
        return self._moments[position]

    def parts(self, position: int) -> Row:
        moment = self.at(position)
        return {
            "rounding_bytes": moment.rounding,
            "inactive_split_bytes": moment.split,
            "free_segment_bytes": moment.free_segments,
        }

    def pool(self, segment: block_oracle.Segment, position: int) -> Any:
        """A segment's pool as recorded: where it was allocated before the position, else in the final state."""
        told = None
        for i in self._taking:
            event = self.device.events[i]
            if i <= position and segment.start <= event["addr"] < segment.end:
                told = event.get("pool_id", told)
        for final in self.device.segments:
            if segment.start <= final["address"] < segment.end:
                told = final.get("segment_pool_id", told)
        return None if told is None else tuple(told)

    def reach(self, request: Row, position: int, *, occupied_only: bool = False) -> Row:
        """Bytes in holes by why a request cannot use them, and the largest hole that it can use and of all."""
        found = {"own": 0, "other_pool": 0, "other_stream": 0, "other_size": 0, "largest_own": 0, "largest": 0}
        pool = tuple(request.get("pool_id") or (0, 0))
        for segment, ranges in self.at(position).segments:
            used = [r for r in ranges if r[2] >= 0]
            if occupied_only and not used:
                continue
            why = self.why_not(segment, ranges, request, pool, position)
            for _, size, allocation, _ in ranges:
                if allocation >= 0:
                    continue
                found["largest"] = max(found["largest"], size)
                if why == "own":
                    found["largest_own"] = max(found["largest_own"], size)
                found[why] += size
        return found

    def joined(self, request: Row, position: int) -> int:
        """The largest free range if the segments that serve a request were adjacent: a block in use ends one."""
        pool, most, run = tuple(request.get("pool_id") or (0, 0)), 0, 0
        for segment, ranges in sorted(self.at(position).segments, key=lambda pair: pair[0].start):
            if self.why_not(segment, ranges, request, pool, position) != "own":
                continue
            for _, size, allocation, _ in ranges:
                run = 0 if allocation >= 0 else run + size
                most = max(most, run)
        return most

    def why_not(self, segment: Any, ranges: Any, request: Row, pool: Any, position: int) -> str:
        """Why a request cannot use a segment's free memory; "own" where it can."""
        used = [r for r in ranges if r[2] >= 0]
        if segment.expandable:
            small = bool(used) and all(size <= MIB for _, size, _, _ in used)
        else:
            small = segment.end - segment.start <= 2 * MIB
        if (self.pool(segment, position) or pool) != pool:
            return "other_pool"
        if segment.stream != request["stream"]:
            return "other_stream"
        return "own" if small == (request["size"] <= MIB) else "other_size"

    def pins(self, position: int) -> list[Row]:
        """Stacks whose blocks alone keep a segment with free memory in use, most of it first."""
        found: dict[oracle.Frames, Row] = {}
        for _, ranges in self.at(position).segments:
            used = [r for r in ranges if r[2] >= 0]
            free = sum(r[1] for r in ranges if r[2] < 0)
            stacks = {self.device.allocations[r[2]].stack for r in used}
            if len(stacks) == 1 and free:
                row = found.setdefault(stacks.pop(), {"segments": 0, "free_bytes": 0, "allocated_bytes": 0})
                row["segments"] += 1
                row["free_bytes"] += free
                row["allocated_bytes"] += sum(r[1] for r in used)
        rows = [
            {"stack": s, "function": held_oracle.function(s) or held_oracle.NO_FRAMES, **row}
            for s, row in found.items()
        ]
        return sorted(rows, key=lambda row: -row["free_bytes"])

    def emptiest(self, position: int) -> list[Row]:
        """Segments in use that have free memory, most of it first."""
        found = []
        for segment, ranges in self.at(position).segments:
            used, free = ([r[1] for r in ranges if (r[2] >= 0) is kind] for kind in (True, False))
            if used and free:
                row = {
                    "address": segment.start,
                    "size": segment.end - segment.start,
                    "used": sum(used),
                    "free": sum(free),
                }
                found.append({**row, "largest_free": max(free), "blocks": len(used)})
        return sorted(found, key=lambda row: (-row["free"], -row["address"]))

    def records(self) -> list[int]:
        """Events that took memory from the device and raised reserved above every earlier value."""
        device, most, found = self.device, self.device.reserved[0], []
        for i, event in enumerate(device.events):
            if event["action"] in TAKES and device.reserved[i + 1] > most:
                found.append(i)
            most = max(most, device.reserved[i + 1])
        return found

    def request_behind(self, event: int) -> Row:
        later = [e for e in self.device.events[event : event + 64] if e["action"] in ("alloc", "oom")]
        return (later or [self.device.events[event]])[0]

    def worst_growth(self) -> tuple[int, int] | None:
        """(event, bytes in holes that the request could have used) of the worst, where it deserves a warning."""
        device = self.device
        least = max(64 * MIB, 0.25 * max(device.reserved))
        bad = [
            (self.at(event - 1).split, -event)
            for event in self.records()
            if device.reserved[event] - device.allocated[event] >= least
        ]
        for split, event in sorted(bad, reverse=True)[:8]:
            request = self.request_behind(-event)
            holes = self.reach(request, -event - 1, occupied_only=True)["own"]
            if split >= least and holes >= max(least, request["size"]):
                return -event, holes
        return None


def fragmentation(room: Room) -> Row | None:
    """The evidence of the finding, with all rows; None where there is none."""
    device = room.device
    worst = room.worst_growth()
    if worst is None:
        most = max(device.reserved)
        idle = most - device.peak_bytes
        if idle < max(64 * MIB, 0.33 * most) or device.reserved[0] == most:
            return None
        # A segment that was just allocated is empty: what counts is the state after the allocation that it is for.
        made = device.reserved.index(most) - 1
        at = next((i for i in range(made, len(device.events)) if device.events[i]["action"] in ("alloc", "oom")), made)
        if at - made >= 64:
            at = made
        if device.reserved[at + 1] < most:
            return None
        return {"bytes": idle, "event": at, "reserved_bytes": most, "peak_bytes": device.peak_bytes, **room.parts(at)}
    event, holes = worst
    request = room.request_behind(event)
    return {
        "bytes": holes,
        "event": event,
        "requested_bytes": request["size"],
        "reserved_bytes": device.reserved[event],
        "allocated_bytes": device.allocated[event],
        **room.parts(event - 1),
        "usable_free_bytes": holes,
        "largest_free_bytes": room.reach(request, event - 1, occupied_only=True)["largest_own"],
        "segments": room.emptiest(event - 1),
        "pinning_stacks": room.pins(event - 1),
        "joined_bytes": room.joined(request, event - 1),
    }


def failures(device: oracle.Device) -> list[list[int]]:
    """``oom`` events; those at nearly the same moment are one group."""
    groups: list[list[int]] = []
    for i, event in enumerate(device.events):
        if event["action"] != "oom":
            continue
        last = groups[-1][-1] if groups else None
        near = last is not None and i - last <= 1000
        if near and event.get("time_us") is not None:
            near = event["time_us"] - device.events[last]["time_us"] <= 1_000_000
        if near:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def piece(asked: int, expandable: bool) -> int:
    """The size that the allocator takes from the device at once."""
    unit = 20 * MIB if asked > MIB and (expandable or asked < 10 * MIB) else 2 * MIB
    whole = 0
    while whole < asked:
        whole += unit
    return max(whole, 2 * MIB)


def locked_of(reach: Row) -> int:
    return reach["other_pool"] + reach["other_stream"] + reach["other_size"]


def in_pieces(asked: int, taken: int, device_free: int, reach: Row, pending: int) -> bool:
    """Whether the request would have fitted into one hole of all that was free for it, alone or with the rest."""
    if device_free >= max(asked, taken) or reach["largest_own"] >= asked:
        return False
    segment = max(asked, taken)

    def fits(cached: int) -> bool:
        return cached >= asked or cached + device_free >= segment

    if fits(reach["own"]):
        return True
    return not fits(locked_of(reach)) and fits(reach["own"] + locked_of(reach) + pending)


def oom(room: Room, group: list[int]) -> Row:
    """The evidence of a failure, with all rows."""
    device, event = room.device, group[0]
    request = device.events[event]
    expandable = room.settings.get("expandable_segments", any(s.expandable for s, _ in room.at(event).segments))
    reach, moment, live = room.reach(request, event), room.at(event), held_oracle.live_at(device, event)
    pending = sum(size for _, ranges in moment.segments for _, size, i, waits in ranges if i >= 0 and waits)
    free = request.get("device_free")
    own, locked, asked = reach["own"], locked_of(reach), request["size"]
    return {
        "bytes": asked,
        "events": group,
        "requested": [device.events[e]["size"] for e in group],
        "requested_bytes": asked,
        "device_free_bytes": free,
        "new_segment_bytes": piece(asked, bool(expandable)),
        "segment_bytes": piece(asked, False),
        "reserved_bytes": sum(s.end - s.start for s, _ in moment.segments),
        "allocated_bytes": sum(a.size for a in live),
        "unused_bytes": own + locked + moment.rounding,
        "rounding_bytes": moment.rounding,
        "usable_free_bytes": own,
        "other_stream_bytes": reach["other_stream"],
        "other_pool_bytes": reach["other_pool"],
        "other_size_bytes": reach["other_size"],
        "free_segment_bytes": moment.free_segments,
        "pending_free_bytes": pending,
        "largest_usable_free_bytes": reach["largest_own"],
        "largest_free_bytes": reach["largest"],
        "stack": oracle.frames_of(request),
        "categories": held_oracle.by_category(live),
        "stacks": held_oracle.by_stack(live),
        "pinning_stacks": room.pins(event)
        if in_pieces(asked, piece(asked, bool(expandable)), free or 0, reach, pending)
        else [],
    }
