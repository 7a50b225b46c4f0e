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
        for counter in trace.counters:
            for at, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
                put({"ph": "C", "pid": pid, "name": counter.name, "ts": at, "args": {"bytes": value}})
        lanes: dict[str, int] = {}
        for one in trace.slices:
            if one.lane not in lanes:
                lanes[one.lane] = len(lanes) + 1
                put({"ph": "M", "pid": pid, "tid": lanes[one.lane], "name": "thread_name", "args": {"name": one.lane}})
            put(
                {
                    "ph": "X", "pid": pid, "tid": lanes[one.lane], "name": one.name, "ts": one.start,
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

    def track(name: str, parent: int, **kind: Any) -> int:
        uuid = next(uuids)
        packet = proto.TracePacket()
        descriptor = packet.track_descriptor
        descriptor.uuid = uuid
        if parent:
            descriptor.parent_uuid = parent
        if "pid" in kind:
            descriptor.process.pid = kind["pid"]
            descriptor.process.process_name = name
        else:
            descriptor.name = name
        if kind.get("counter"):
            descriptor.counter.unit = proto.CounterDescriptor.UNIT_SIZE_BYTES
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

    for pid, (name, trace) in enumerate(_all(snapshots), 1):
        device = track(name, 0, pid=pid)
        for counter in trace.counters:
            uuid = track(counter.name, device, counter=True)
            for at, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
                packet = moment(at, event.TYPE_COUNTER, uuid)
                packet.track_event.counter_value = value
                put(packet)
        lanes: dict[str, int] = {}
        for one in trace.slices:
            if one.lane not in lanes:
                lanes[one.lane] = track(one.lane, device)
            put(moment(one.start, event.TYPE_SLICE_BEGIN, lanes[one.lane], one.name, one.facts))
            put(moment(one.end, event.TYPE_SLICE_END, lanes[one.lane]))
        failures = track("out of memory", device) if trace.instants else 0
        for what, at, facts in trace.instants:
            put(moment(at, event.TYPE_INSTANT, failures, what, facts))
