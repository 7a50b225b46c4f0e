"""Decodes the unpickled object of any known layout to a :class:`Recording`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl

from snapreport.errors import SnapshotError, one_line
from snapreport.reading.entry_tokens import Unusual
from snapreport.reading.events import EventReader
from snapreport.reading.fields import INT64, Characters, clean, integer, plain, shown, text
from snapreport.reading.recorder_metadata import KEY, read_metadata
from snapreport.reading.recording import ACTIONS, HOST, DeviceRecord, Recording
from snapreport.reading.segments import SegmentReader
from snapreport.reading.trace_collector import TraceCollector, TraceCollectors

TOP_KEYS = {
    "segments", "device_traces", "allocator_settings", "external_annotations", "host_traces", "host_segments", KEY,
}  # fmt: skip
_WHAT = "a memory snapshot is a dict with 'segments' and 'device_traces', or a list of segments"
MAX_DEVICES = 256  # PyTorch's own limit is 128 (c10/cuda/CUDAMacros.h), and even an empty one takes time
# Limits on the characters of distinct frames: a pickle of 4 MB has some 5,000 frames of 100 characters.
_CHARACTERS, _CHARACTERS_PER_BYTE = 1 << 24, 20


def decode(
    raw: Any, *, name: str, path: str, file_bytes: int, pickle_bytes: int, collectors: TraceCollectors | None = None
) -> Recording:
    """Columns of an unpickled snapshot. Consumes ``raw``: it is empty afterwards.

    ``pickle_bytes``: size of the pickle, which bounds the rows of a genuine snapshot. ``collectors``: received traces
    while the pickle was read; raises :class:`Unusual` unless each takes the place of one trace. Raises
    :class:`SnapshotError` with the place of an error.
    """
    if type(raw) is list:
        raw = {"segments": raw}
    elif type(raw) is not dict:
        raise SnapshotError(f"holds {shown(raw)}, not a memory snapshot ({_WHAT})")
    elif not any(key in raw for key in TOP_KEYS):
        raise SnapshotError(f"holds a dict with {_some_keys(raw)}, not a memory snapshot ({_WHAT})")
    return _Decoder(raw, pickle_bytes, collectors or TraceCollectors()).recording(name, path, file_bytes)


class _Decoder:
    def __init__(self, raw: dict[Any, Any], pickle_bytes: int, collectors: TraceCollectors) -> None:
        self.raw = raw
        self.most_characters = _CHARACTERS + _CHARACTERS_PER_BYTE * pickle_bytes
        self.characters = Characters(self.most_characters)
        self.codes = collectors.codes
        self.unknown_keys = self.codes.unknown_keys
        self.unknown_states: Counter[str] = Counter()
        for key in raw:
            if type(key) is not str or key not in TOP_KEYS:
                self.unknown_keys[clean(key) if type(key) is str else shown(key)] += 1
        self.segments = self._list("segments", needed=True)
        self.traces = self._traces("device_traces")
        self.host_traces = self._host_traces()
        self.host_segments = self._list("host_segments")
        every = [*self.traces, *self.host_traces]
        if not collectors.are_all_in(every):
            raise Unusual("a collector stands where no trace belongs")
        self._refuse_multiplied(pickle_bytes)

    def _list(self, key: str, *, needed: bool = False) -> list[Any]:
        value = self.raw.get(key)
        if value is None and not needed:
            return []
        if type(value) is not list:
            raise SnapshotError(
                f"no {key!r} ({_WHAT})" if key not in self.raw else f"{key}: {shown(value)}, not a list"
            )
        return value

    def _traces(self, key: str) -> list[list[Any] | TraceCollector]:
        traces = self._list(key)
        for i, trace in enumerate(traces):
            if type(trace) not in (list, TraceCollector):
                raise SnapshotError(f"{key}[{i}]: {shown(trace)}, not a list of trace entries")
        if len(traces) > MAX_DEVICES:
            raise SnapshotError(f"{key}: {len(traces)} devices, more than {MAX_DEVICES}")
        return traces

    def _host_traces(self) -> list[list[Any] | TraceCollector]:
        """Host traces: one list per device's pinned memory, or one plain list of entries."""
        if type(self.raw.get("host_traces")) is TraceCollector:
            return [self.raw["host_traces"]]
        entries = self._list("host_traces")
        return [entries] if entries and type(entries[0]) is dict else self._traces("host_traces")

    def _refuse_multiplied(self, pickle_bytes: int) -> None:
        """Refuse a file that references one object a million times: an entry takes a byte or more."""
        rows = sum(map(len, self.traces)) + sum(map(len, self.host_traces))
        for segment in (*self.segments, *self.host_segments):
            if type(segment) is dict and type(segment.get("blocks")) in (list, tuple):
                rows += len(segment["blocks"])
        if rows > pickle_bytes:
            raise SnapshotError(
                f"{rows} events and blocks in a pickle of {pickle_bytes} bytes: not recorded by any program"
            )

    def recording(self, name: str, path: str, file_bytes: int) -> Recording:
        events, segments = self._read_events(), self._read_segments()
        annotations = self._annotations()
        table = self.codes.stacks.finish(self.most_characters)
        # All back ends write the same layout; only the name of the configuring variable distinguishes them.
        kind = next((kind for kind in ("xpu", "mtia") if any(kind.upper() in key for key in self._settings)), "cuda")
        devices = {}
        for device in sorted({*events, *segments}):
            reader = segments.get(device) or self._segment_reader()
            devices[device] = DeviceRecord(
                device,
                "host" if device == HOST else kind,
                (events.get(device) or self._event_reader()).table(table.renumber),
                *reader.tables(table.renumber),
            )
        return Recording(
            name, path, file_bytes, self._settings, table.frames, table.offsets, table.stack_frames, annotations,
            devices, read_metadata(self.raw.get(KEY)), self._notes(devices),
        )  # fmt: skip

    def _event_reader(self) -> EventReader:
        return EventReader(self.codes)

    def _segment_reader(self) -> SegmentReader:
        return SegmentReader(self.codes.stacks, self.unknown_keys, self.unknown_states, self.characters)

    def _read_events(self) -> dict[int, EventReader]:
        readers = {}
        # A list that is used for two traces must be intact for the second.
        every = [*self.traces, *self.host_traces]
        release = len({id(trace) for trace in every}) == len(every)
        for device, trace in enumerate(self.traces):
            readers[device] = self._event_reader()
            self._read_trace(readers[device], trace, f"device_traces[{device}]", release)
        if self.host_traces or self.host_segments:
            readers[HOST] = self._event_reader()
            for i, trace in enumerate(self.host_traces):
                place = "host_traces" if trace is self.raw["host_traces"] else f"host_traces[{i}]"
                self._read_trace(readers[HOST], trace, place, release)
        return readers

    @staticmethod
    def _read_trace(reader: EventReader, trace: list[Any] | TraceCollector, place: str, release: bool) -> None:
        if isinstance(trace, TraceCollector):
            reader.append(trace.reader)
        else:
            reader.read(trace, place, release=release)

    def _read_segments(self) -> dict[int, SegmentReader]:
        readers: dict[int, SegmentReader] = {}
        for key, segments in (("segments", self.segments), ("host_segments", self.host_segments)):
            for i, segment in enumerate(segments):
                place = f"{key}[{i}]"
                if type(segment) is not dict:
                    raise SnapshotError(f"{place}: {shown(segment)}, not a segment (a dict)")
                if "address" not in segment and "blocks" not in segment:
                    raise SnapshotError(f"{place}: no 'address', no 'blocks': not a segment of a memory snapshot")
                device = HOST
                if key == "segments":
                    device = integer(segment.get("device", 0), place, "device", INT64)
                    if not 0 <= device < MAX_DEVICES:
                        raise SnapshotError(f"{place}: device {device}, not one of at most {MAX_DEVICES}")
                if device not in readers:
                    readers[device] = self._segment_reader()
                readers[device].read(segment, place, is_host=device == HOST)
        for reader in readers.values():
            reader.finish()
        return readers

    def _annotations(self) -> pl.DataFrame:
        rows = []
        for i, entry in enumerate(self._list("external_annotations")):
            place = f"external_annotations[{i}]"
            if type(entry) is not dict:
                raise SnapshotError(f"{place}: {shown(entry)}, not an annotation (a dict)")
            time = entry.get("time_us")
            rows.append((
                integer(entry.get("device", 0), place, "device", INT64),
                self.characters.take(text(entry.get("name", ""), place, "name"), place),
                self.characters.take(text(entry.get("stage", ""), place, "stage"), place),
                None if time is None else integer(time, place, "time_us", INT64),
            ))  # fmt: skip
        columns = {"device": pl.Int64, "name": pl.String, "stage": pl.String, "time_us": pl.Int64}
        return pl.DataFrame(rows, schema=columns, orient="row")

    @property
    def _settings(self) -> dict[str, Any]:
        value = self.raw.get("allocator_settings")
        if value is None:
            return {}
        if type(value) is not dict:
            raise SnapshotError(f"allocator_settings: {shown(value)}, not a dict")
        settings: dict[str, Any] = plain(value)
        return settings

    def _notes(self, devices: dict[int, DeviceRecord]) -> dict[str, Any]:
        notes: dict[str, Any] = {}
        unknown: Counter[str] = Counter()
        if len(self.codes.actions) > len(ACTIONS):
            for record in devices.values():
                counts = record.events["action"].value_counts()
                unknown.update({str(a): c for a, c in counts.iter_rows() if a not in ACTIONS})
        for key, counter in (
            ("unknown_actions", unknown), ("unknown_keys", self.unknown_keys),
            ("unknown_block_states", self.unknown_states),
        ):  # fmt: skip
            if counter:
                notes[key] = {one_line(name, 200): count for name, count in counter.items()}
        return notes


def _some_keys(raw: dict[Any, Any]) -> str:
    names = [one_line(repr(key[:30])) if type(key) is str else shown(key) for key in list(raw)[:5]]
    return f"the keys {', '.join(names)}{', …' if len(raw) > 5 else ''}" if names else "no keys"
