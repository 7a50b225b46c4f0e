"""One device's tables as columns of the file, and its entry in the manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from snapreport.allocator.settings import read_since_2_10
from snapreport.contracts import plain
from snapreport.findings.peak import counted_by_torch
from snapreport.integers import interned
from snapreport.packing.columns import Column
from snapreport.process_memory import trim
from snapreport.report.activity_columns import activity_columns
from snapreport.report.oom_entries import oom_entries
from snapreport.report.span_columns import span_entries
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.device_use import device_use
from snapreport.timeline.lifetimes import FREE_COMPLETED, FREE_REQUESTED, action_codes, is_live_at
from snapreport.timeline.recording_gaps import lost_peaks
from snapreport.vocabulary import CATEGORIES, CATEGORY_SOURCES


class DeviceTables(Struct, frozen=True):
    """``manifest``: the device's entry; ``rows``: events plus allocations plus segments."""

    manifest: dict[str, object]
    rows: int


class _Names(Struct):
    """Strings numbered by first appearance; number 0 is the empty string."""

    values: list[str]

    def index(self, column: pl.Series) -> np.ndarray:
        """The number of each value's text, uint32; null is the empty text."""
        # Most columns hold one value: finding that out takes a tenth of the time of looking for others.
        if column.null_count() in (0, len(column)) and column.min() == column.max():
            return np.broadcast_to(self._numbers(column.head(1).cast(pl.String).to_list()), len(column))
        texts, rows = interned(column.cast(pl.String).fill_null(""))
        return self._numbers(texts)[rows]

    def _numbers(self, texts: Sequence[str | None]) -> np.ndarray:
        known = {text: number for number, text in enumerate(self.values)}
        numbers = np.array([known.setdefault(text or "", len(known)) for text in texts], np.uint32)
        self.values = list(known)
        return numbers


# Columns that only some recordings have, and the lists of names that they index.
_NAMED = {"module": "modules", "shape": "shapes", "dtype": "dtypes", "saved_by": "grad_fns"}


def device_tables(
    snapshot: Snapshot,
    number: int,
    device: int,
    *,
    prefix: str,
    stack_base: int,
    add: Callable[[str, list[Column]], None],
) -> DeviceTables:
    """The data in the file for ``device`` of ``snapshot``, the ``number``-th of the report.

    ``prefix`` begins every column's name; ``stack_base`` is added to stack numbers (stack 0 of every snapshot is the
    empty one). ``add`` takes the name of a section and its columns as soon as they exist, to have few in memory at a
    time.
    """
    timeline = snapshot.timeline(device)
    names = {key: _Names([""]) for key in ("streams", "pools", "contexts", "metadata", *_NAMED.values())}
    columns = _Columns(prefix, add)
    # First what takes most memory (blocks, annotations), while no columns wait to be encoded.
    stats = plain(replace(timeline.stats, device_use=device_use(timeline)))
    _ = timeline.steps
    trim()
    _add_allocations(columns, timeline, names, stack_base)
    trim()
    actions = _add_other_events(columns, timeline, names, stack_base)
    segments = _add_segments(columns, snapshot.recording.devices[device].segments, names, stack_base)
    events = timeline.events
    time0, activities = None, None
    if len(events) and events["time_us"].null_count() < len(events):
        times = events["time_us"]
        if times.null_count():
            times = times.fill_null(strategy="forward").fill_null(strategy="backward")
        time = times.to_numpy().astype(np.int64)
        time0 = int(time[0])
        add(f"{prefix}.times", [Column(f"{prefix}.time", time - time0, "f64")])
        activities = activity_columns(timeline, time0, int(time.max()), f"{prefix}.activity")
        if activities:
            add(f"{prefix}.activities", activities.columns)
    origin = timeline.allocations["origin"]
    stats["top_stacks_at_peak"] = [
        {"bytes": row["bytes"], "count": row["count"], "stack": row["stack"] + stack_base}
        for row in timeline.top_stacks
    ]
    counted = counted_by_torch(timeline)
    manifest = {
        "snapshot": number,
        "device": device,
        "kind": timeline.kind,
        "section": prefix,
        "events": len(events),
        "allocations": len(timeline.allocations),
        "start_reserved": 0 if snapshot.recording.is_profiled else int(timeline.reserved[0]),
        "peak_bytes": timeline.peak_bytes,
        "peak_event": timeline.peak_event,
        "named_bytes": _named_bytes(timeline),
        "ghosts": int((origin == "ghost").sum()),
        "freed": int((origin == "freed").sum()),
        "time0": time0,
        "actions": actions,
        "categories": list(CATEGORIES),
        "category_sources": list(CATEGORY_SOURCES),
        **{key: value.values for key, value in names.items() if key not in _NAMED.values() or len(value.values) > 1},
        "stats": stats,
        **({"ooms": oom_entries(timeline)} if timeline.oom_events else {}),
        **span_entries(timeline, time0),
        **({"activities": activities.entry} if activities else {}),
        **({"lost_peak_bytes": lost.allocated} if (lost := lost_peaks(timeline)) else {}),
        **({} if counted is None or lost else {"counted_bytes": counted}),
        **({"names_only": True} if _names_only(timeline) else {}),
        **({"profiled": True} if snapshot.recording.is_profiled else {}),
        **({} if (since := read_since_2_10(snapshot.recording)) is None else {"settings_since_2_10": since}),
        **({"completions_differ": True} if _completions_differ(events) else {}),
    }
    return DeviceTables(manifest, len(events) + len(timeline.allocations) + segments)


def _named_bytes(timeline: DeviceTimeline) -> int:
    """Bytes at the peak whose category is known."""
    is_named = pl.col("category") != "unknown"
    return int(timeline.allocations.filter(is_live_at(timeline.peak_event) & is_named)["size"].sum())


def _completions_differ(events: pl.DataFrame) -> bool:
    """Whether a ``free_completed`` right after its request has another stack: only the request's is stored."""
    action, stack, addr = action_codes(events), events["stack"].to_numpy(), events["addr"].to_numpy()
    pairs = (action[:-1] == FREE_REQUESTED) & (action[1:] == FREE_COMPLETED) & (addr[1:] == addr[:-1])
    return bool((stack[1:] != stack[:-1])[pairs].any())


def _names_only(timeline: DeviceTimeline) -> bool:
    """Whether the metadata of allocations are only names from our recorder, not the program's."""
    own = timeline.events["user_metadata"]
    return timeline.recording.recorder is not None and own.null_count() == len(own)


def _without_nulls(numbers: pl.Series, null: int = 0) -> np.ndarray:
    """With ``null`` for null. To fill a column takes half a millisecond, which 64 devices have 400 times."""
    nulls = numbers.null_count()
    if nulls and nulls == len(numbers):
        return np.full(nulls, null)
    return (numbers.fill_null(null) if nulls else numbers).to_numpy()


class _Columns:
    """Names the columns of one section and passes them on."""

    def __init__(self, prefix: str, add: Callable[[str, list[Column]], None]) -> None:
        self._prefix = prefix
        self._add = add

    def add(self, name: str, values: object, dtype: str) -> None:
        self._add(self._prefix, [Column(f"{self._prefix}.{name}", values, dtype)])

    def add_address(self, name: str, addresses: pl.Series) -> None:
        """64-bit addresses as two halves: the page's numbers are exact only to 2**53."""
        halves = np.ascontiguousarray(_without_nulls(addresses).astype("<u8", copy=False)).view("<u4")
        self.add(f"{name}_hi", halves[1::2], "u32")
        self.add(f"{name}_lo", halves[::2], "u32")

    def add_names(self, name: str, names: _Names, strings: pl.Series, dtype: str = "u16") -> None:
        """Indices into a list of strings; ``dtype`` widens if a file has more strings than fit."""
        index = names.index(strings)
        self.add(name, index, dtype if len(names.values) <= np.iinfo(dtype.replace("u", "uint")).max else "u32")

    def add_stack(self, name: str, stacks: pl.Series, base: int) -> None:
        numbers = _without_nulls(stacks)
        self.add(name, numbers + np.int32(base) if base else numbers, "u32")


def _add_allocations(columns: _Columns, timeline: DeviceTimeline, names: dict[str, _Names], stack_base: int) -> None:
    table = timeline.allocations
    # Columns wait to be encoded, so they use the narrowest type: 40 MB less for 300,000 allocations.
    alloc, requested, free = (table[name].to_numpy() for name in ("alloc_event", "free_requested_event", "free_event"))
    columns.add("alloc_event", alloc[alloc >= 0], "i32")
    columns.add("lifetime", np.where(free >= 0, free - alloc, 0), "u32")
    lag = np.where(free >= 0, free - requested + 1, -requested - 1)
    columns.add("requested", np.where(requested >= 0, lag, 0), "i32")
    columns.add("size", table["size"].to_numpy(), "f64")
    columns.add_address("addr", table["addr"])
    columns.add_names("stream", names["streams"], table["stream"])
    columns.add_names("pool", names["pools"], table["pool"])
    columns.add_stack("stack", table["stack"], stack_base)
    columns.add_stack("free_stack", table["free_stack"], stack_base)
    columns.add("category", table["category"].to_physical().to_numpy(), "u8")
    columns.add("source", table["category_source"].to_physical().to_numpy(), "u8")
    columns.add("context", names["contexts"].index(table["compile_context"]), "u32")
    columns.add("metadata", names["metadata"].index(table["user_metadata"]), "u32")
    for name, plural in _NAMED.items():
        if table[name].null_count() < len(table):
            columns.add(name, names[plural].index(table[name]), "u32")


def _add_other_events(
    columns: _Columns, timeline: DeviceTimeline, names: dict[str, _Names], stack_base: int
) -> list[str]:
    """Segment operations, oom, snapshots, unknown actions: every event that neither begins nor ends an allocation."""
    rows = timeline.other_events
    table = timeline.events[rows]
    actions = _Names([])
    columns.add("other_event", rows, "i32")
    columns.add_names("other_action", actions, table["action"], "u8")
    columns.add("other_size", _without_nulls(table["size"]), "f64")
    columns.add_address("other_addr", table["addr"])
    columns.add_stack("other_stack", table["stack"], stack_base)
    columns.add_names("other_stream", names["streams"], table["stream"])
    columns.add_names("other_pool", names["pools"], table["pool"])
    columns.add("other_free", _without_nulls(table["device_free"], -1) + 1, "f64")
    return actions.values


def _add_segments(columns: _Columns, table: pl.DataFrame, names: dict[str, _Names], stack_base: int) -> int:
    columns.add_address("seg_addr", table["address"])
    columns.add("seg_size", table["total_size"].to_numpy(), "f64")
    columns.add_names("seg_stream", names["streams"], table["stream"])
    columns.add_names("seg_pool", names["pools"], table["pool"])
    columns.add("seg_large", (table["segment_type"] == "large").fill_null(False).to_numpy(), "u8")
    columns.add("seg_expandable", table["is_expandable"].fill_null(False).to_numpy(), "u8")
    columns.add_stack("seg_stack", table["stack"], stack_base)
    return len(table)
