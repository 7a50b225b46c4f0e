"""Memory over time as a Perfetto trace and as a Chrome trace, written as it is made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO

from snapreport.exporting.time_trace import TimeTrace, time_traces
from snapreport.snapshot import Snapshot

_SEQUENCE = 1  # of the packets; one writer, so there is one


def _all(snapshots: Sequence[Snapshot]) -> list[tuple[str, TimeTrace]]:
    several = len(snapshots) > 1
    return [
        (f"{snapshot.recording.name} {trace.name}" if several else trace.name, trace)
        for snapshot in snapshots
        for trace in time_traces(snapshot)
    ]


def without_times(snapshots: Sequence[Snapshot]) -> list[str]:
    """The names of the snapshots of which a device has no recorded times."""
    names = []
    for snapshot in snapshots:
        events = [snapshot.events(device)["time_us"] for device in snapshot.devices]
        if any(len(times) and times.null_count() == len(times) for times in events):
            names.append(snapshot.recording.name)
    return names


def write_chrome_trace(snapshots: Sequence[Snapshot], file: BinaryIO) -> None:
    """The JSON of chrome://tracing ("Trace Event Format"): C, X and i events, µs; one process per device."""
    file.write(b'{"displayTimeUnit": "ms", "traceEvents": [\n')
    comma = b""

    def put(event: dict[str, Any]) -> None:
        nonlocal comma
        file.write(comma + json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))
        comma = b",\n"

    for pid, (name, trace) in enumerate(_all(snapshots), 1):
        put({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}})
        put({"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}})
        for counter in trace.counters:
            for at, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
                put({"ph": "C", "pid": pid, "name": counter.name, "ts": at, "args": {"bytes": value}})
        lanes: dict[tuple[str, int], int] = {}
        for one in trace.slices:
            lane = (one.group, one.lane)
            if lane not in lanes:
                lanes[lane] = tid = len(lanes) + 1
                put({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": one.group}})
                put({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
            put(
                {
                    "ph": "X", "pid": pid, "tid": lanes[lane], "name": one.name, "ts": one.start,
                    "dur": one.end - one.start, "args": one.facts,
                }
            )  # fmt: skip
        for what, at, facts in trace.instants:
            put({"ph": "i", "s": "p", "pid": pid, "tid": 0, "name": what, "ts": at, "args": facts})
    file.write(b"\n]}\n")


def write_perfetto(snapshots: Sequence[Snapshot], file: BinaryIO) -> None:
    """Perfetto's protobuf trace: packets one after the other, so that a million need no memory."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

    event = proto.TrackEvent
    uuids = iter(range(1, 1 << 62))

    def put(packet: Any) -> None:
        packet.trusted_packet_sequence_id = _SEQUENCE
        # Packets are the repeated field 1 of a trace: serialised alone they can be concatenated.
        file.write(proto.Trace(packet=[packet]).SerializeToString())

    def track(name: str, rank: int, parent: int = 0, *, is_counter: bool = False) -> int:
        uuid = next(uuids)
        packet = proto.TracePacket()
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.name, descriptor.sibling_order_rank = uuid, name, rank
        descriptor.child_ordering = descriptor.EXPLICIT  # by name otherwise
        if parent:
            descriptor.parent_uuid = parent
        if is_counter:
            descriptor.counter.unit = proto.CounterDescriptor.UNIT_SIZE_BYTES
            descriptor.counter.y_axis_share_key = "bytes"
        put(packet)
        return uuid

    def moment(at: int, kind: Any, uuid: int, name: str = "", facts: dict[str, str | int] | None = None) -> Any:
        packet = proto.TracePacket(timestamp=at * 1000)
        packet.track_event.type = kind
        packet.track_event.track_uuid = uuid
        if name:
            packet.track_event.name = name
        for key, value in (facts or {}).items():
            note = packet.track_event.debug_annotations.add(name=key)
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = value
        return packet

    for place, (name, trace) in enumerate(_all(snapshots)):
        device = track(name, place)
        for rank, counter in enumerate(trace.counters, 3):
            uuid = track(counter.name, rank, device, is_counter=True)
            for at, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
                packet = moment(at, event.TYPE_COUNTER, uuid)
                packet.track_event.counter_value = value
                put(packet)
        ranks = {"steps": 0, "spans": 1, "allocations": len(trace.counters) + 3}
        lanes: dict[tuple[str, int], int] = {}
        for one in trace.slices:
            lane = (one.group, one.lane)
            if lane not in lanes:
                # Lanes of one name are one track to Perfetto's page, as high as they are many.
                lanes[lane] = track(one.group, ranks[one.group], device)
            put(moment(one.start, event.TYPE_SLICE_BEGIN, lanes[lane], one.name, one.facts))
            put(moment(one.end, event.TYPE_SLICE_END, lanes[lane]))
        failures = track("out of memory", 2, device) if trace.instants else 0
        for what, at, facts in trace.instants:
            put(moment(at, event.TYPE_INSTANT, failures, what, facts))
