"""Builds timelines from a recording: the only entry point for everything based on lifetimes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.contracts.stats import DeviceStats
from snapreport.reading.event_columns import enum_series
from snapreport.reading.recording import ACTIONS, ACTIVE_STATES, DeviceRecord, Recording
from snapreport.timeline.activity import Activity, device_activity, program_activity
from snapreport.timeline.annotations import Annotated, annotated, annotated_names
from snapreport.timeline.blocks import Blocks, blocks_of
from snapreport.timeline.categories import StackCategories
from snapreport.timeline.categorise import categorise
from snapreport.timeline.curves import allocated_curve, reserved_curve
from snapreport.timeline.fragmentation import live_ids
from snapreport.timeline.inferred_layers import layer_paths
from snapreport.timeline.inferred_shapes import inferred_shapes
from snapreport.timeline.life_phases import recorded_pairs
from snapreport.timeline.lifetimes import FREED, GHOST, ORIGINS, Pairing, action_codes, pair
from snapreport.timeline.operators import called_operators
from snapreport.timeline.phases import stack_phases
from snapreport.timeline.recorded_modules import MODULE_SOURCES, NO_MODULES, recorded_modules
from snapreport.timeline.recorded_tensors import recorded_tensors
from snapreport.timeline.recording_gaps import Gap, find_gaps
from snapreport.timeline.segment_history import segment_history
from snapreport.timeline.segments import pools_of
from snapreport.timeline.stats import counted_stats, device_stats, stacks_at
from snapreport.timeline.steps import device_steps

_OF_BIRTHS = ("addr", "stream", "pool", "stack", "category", "user_metadata", "compile_context")


class DeviceTimeline(Struct, dict=True):
    """The history of one device's memory.

    events: the recording's, row = event index.
    allocations: a row per lifetime in birth order; ``id`` (= row) Int32, ``addr`` UInt64, ``size`` Int64 bytes
    requested,
      ``alloc_event``, ``free_requested_event``, ``free_event`` Int32 (-1: none), ``alloc_us``, ``free_us`` Int64 null,
      ``stream`` Int64, ``pool`` String null, ``stack``, ``free_stack`` Int32 (0: none; of the allocation and of the
      free, never mixed), ``category``, ``category_source`` Enum (``CATEGORIES``, ``CATEGORY_SOURCES``), ``origin``
      Enum, ``compile_context``, ``user_metadata`` String null (of the alloc event; then the names from ``annotate``
      events while it is live, in order: "first; second"), ``module``, ``shape``, ``dtype``, ``saved_by`` String null,
      see :func:`recorded_modules`, shapes that begin with ``*`` :func:`inferred_shapes`, ``module_source`` Enum null:
      recorded, or inferred by :func:`layer_paths`.
    allocated, reserved: Int64 bytes, ``events + 1`` values; index s is position s - 1.
    peak_event: the first position (-1 counts) with the maximum of allocated; peak_bytes: that maximum.
    oom_events: indices of ``oom`` events.
    reconciliation_bytes: allocated at the end less the requested bytes of the final active blocks; 0 if consistent.
    overflowed: whether the recorder's ring buffer lost events; None if unknown.
    other_events: Int32 indices of the events that are no allocation's alloc, request or free.
    """

    recording: Recording
    device: int
    kind: str
    events: pl.DataFrame
    allocations: pl.DataFrame
    allocated: np.ndarray
    reserved: np.ndarray
    oom_events: list[int]
    reconciliation_bytes: int
    overflowed: bool | None
    other_events: np.ndarray
    _others: Callable[[], list[DeviceTimeline]] = list
    _blocks_at: tuple[int, Blocks] | None = None

    @cached_property
    def peak_event(self) -> int:
        return int(np.argmax(self.allocated)) - 1

    @property
    def peak_bytes(self) -> int:
        return int(self.allocated[self.peak_event + 1])

    @cached_property
    def blocks(self) -> Blocks:
        """The block that the allocator reserved for each allocation, and the segments over time."""
        record = self.recording.devices[self.device]
        return blocks_of(record, self.recording.settings, self.allocations, segments=self.segment_history)

    def blocks_at(self, position: int) -> Blocks:
        """:attr:`blocks` of the live allocations at a position, in id order; takes a third of the time if
        :attr:`blocks` is not cached.
        """
        ids = live_ids(self, position)
        if "blocks" in self.__dict__:
            every = self.blocks
            return Blocks(
                every.size[ids], every.segment[ids], every.source[ids], every.pending_from[ids], every.segments
            )
        if self._blocks_at is None or self._blocks_at[0] != position:  # several queries concern the same position
            record = self.recording.devices[self.device]
            blocks = blocks_of(
                record, self.recording.settings, self.allocations, segments=self.segment_history, ids=ids
            )
            self._blocks_at = position, blocks
        return self._blocks_at[1]

    @cached_property
    def segment_history(self) -> pl.DataFrame:
        """The segments over time; see :func:`segment_history`."""
        return segment_history(self.recording.devices[self.device])

    @cached_property
    def max_memory_allocated(self) -> int:
        """Bytes that ``torch.cuda.max_memory_allocated()`` would have returned at the end, for the trace alone.

        It counts blocks, which are requests rounded up, from their allocation to the request of their free.
        """
        born, freed = (self.allocations[name].to_numpy().astype(np.int64) for name in ("alloc_event", "free_event"))
        if self.recording.is_profiled:  # the profiler counts what the allocator counts
            return self.peak_bytes
        blocks, never = self.blocks, len(self.events)
        # Its free was requested before the trace (-1), at an event, or never.
        ends = np.minimum(np.where(freed < 0, never, freed), blocks.pending_from)
        counts = ends >= 0
        change = np.bincount(born[counts] + 1, weights=blocks.size[counts], minlength=never + 2)
        change -= np.bincount(ends[counts] + 1, weights=blocks.size[counts], minlength=never + 2)
        return int(np.cumsum(change[: never + 1], out=change[: never + 1]).max())

    @cached_property
    def recording_gaps(self) -> list[Gap]:
        """Evidence that events are missing from the record; empty if there is none."""
        return find_gaps(self)

    @cached_property
    def stacks_at_peak(self) -> pl.DataFrame:
        """``stack`` Int32, ``bytes`` Int64, ``count``: live memory at the peak, most bytes first, then lowest stack."""
        return stacks_at(self.allocations, self.peak_event)

    @property
    def top_stacks(self) -> list[dict[str, int]]:
        """The ten stacks with the most bytes at the peak: ``stack``, ``bytes``, ``count``."""
        return self.stacks_at_peak.head(10).rows(named=True)

    @cached_property
    def peak_stackless_bytes(self) -> int:
        """Bytes at the peak whose allocation has no frames."""
        return int(self.stacks_at_peak.filter(pl.col("stack") == 0)["bytes"].sum())

    @cached_property
    def annotated(self) -> Annotated:
        """The spans that the program annotated, and how many annotations are broken."""
        return annotated(self.recording, self.device, self.events, self.allocations)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """Training steps: ``step``, ``name``, ``first_event``, ``last_event``, ``source``; see ``steps.py``."""
        return device_steps(self.recording, self.events, self.annotated.spans)

    @cached_property
    def activity(self) -> Activity:
        """Whether the program trains, infers, or drops the graphs of its forward passes; see ``activity.py``."""
        own = self.own_activity
        return own if own.trains else program_activity(own, [other.own_activity for other in self._others()])

    @property
    def of_file(self) -> list[DeviceTimeline]:
        """The timelines of all devices of the file, this one first."""
        return [self, *self._others()]

    @cached_property
    def own_activity(self) -> Activity:
        """:attr:`activity` from this device's events alone."""
        return device_activity(self.events, self.allocations, stack_phases(self.recording))

    @cached_property
    def stats(self) -> DeviceStats:
        """The numbers of the trace."""
        return device_stats(self)

    @property
    def counted_stats(self) -> DeviceStats:
        """The device's entry in ``snapreport stats --json``: with PyTorch's own peaks, where the trace lost them."""
        return counted_stats(self, self.stats)


def build_timeline(
    recording: Recording, record: DeviceRecord, categories: StackCategories, *, inference: bool = True
) -> DeviceTimeline:
    """Everything about one device that follows from its events and final segments."""
    events = record.events
    pairing = pair(record)
    allocated = allocated_curve(pairing.alloc_event, pairing.free_event, _sizes(record, pairing), len(events))
    action, overflowed = action_codes(events), recording.settings.get("trace_alloc_overflowed")
    reserved = _reserved(record, action)
    allocations = _allocations(recording, record, pairing, allocated, int(reserved[0]), categories, inference=inference)
    return DeviceTimeline(
        recording=recording,
        device=record.device,
        kind=record.kind,
        events=events,
        allocations=allocations,
        allocated=allocated,
        reserved=reserved,
        oom_events=np.flatnonzero(action == ACTIONS.index("oom")).tolist(),
        reconciliation_bytes=int(allocated[-1]) - _final_bytes(recording, record, allocated),
        overflowed=overflowed if isinstance(overflowed, bool) else None,
        other_events=np.flatnonzero(~pairing.used).astype(np.int32),
    )


def _reserved(record: DeviceRecord, action: np.ndarray) -> np.ndarray:
    """Bytes reserved at every position: replayed, or the profiler's count, which starts with its first value."""
    if record.counted_reserved is not None and len(record.counted_reserved):
        return np.append(record.counted_reserved[:1], record.counted_reserved)
    return reserved_curve(action, record.events["size"].to_numpy(), int(record.segments["total_size"].sum()))


def _final_bytes(recording: Recording, record: DeviceRecord, allocated: np.ndarray) -> int:
    """Bytes allocated at the end, counted independently of the replay: the final blocks, or the profiler's total."""
    if recording.is_profiled:
        counted = record.counted_allocated
        return int(allocated[-1] if counted is None or not len(counted) else counted[-1])
    return int(record.blocks.filter(pl.col("state").is_in(ACTIVE_STATES))["requested_size"].sum())


def _sizes(record: DeviceRecord, pairing: Pairing) -> np.ndarray:
    """Int64 requested bytes of each lifetime."""
    ghosts = int((pairing.origin == GHOST).sum())
    of_blocks = record.blocks["requested_size"].to_numpy()[pairing.source[:ghosts]]
    return np.concatenate((of_blocks, record.events["size"].to_numpy()[pairing.source[ghosts:]]))


def _allocations(
    recording: Recording,
    record: DeviceRecord,
    pairing: Pairing,
    allocated: np.ndarray,
    reserved_start: int,
    categories: StackCategories,
    *,
    inference: bool,
) -> pl.DataFrame:
    events, blocks, segments = record.events, record.blocks, record.segments
    ghosts = int((pairing.origin == GHOST).sum())
    event_rows, block_rows = pl.Series(pairing.source[ghosts:]), pairing.source[:ghosts]
    alloc, free, requested = pairing.alloc_event, pairing.free_event, pairing.free_requested_event
    segment_of = blocks["segment"][block_rows]
    if len(blocks) and not len(segments):  # a profiler trace: earlier memory has only a size
        segments = segments.clear(1).with_columns(stream=pl.lit(0, pl.Int64))

    # Not events[name], which would create 920,183 texts from a column with one value.
    of_events = events.select(pl.col(_OF_BIRTHS).gather(event_rows))

    def both(name: str, of_ghosts: pl.Series) -> pl.Series:
        return pl.concat([of_ghosts.alias(name), of_events[name]])

    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, ghosts)
    address = both("addr", blocks["address"][block_rows])
    own_pool = both("pool", segments["pool"][segment_of])
    stack = both("stack", blocks["stack"][block_rows]).to_numpy()
    free_stack = _free_stacks(events, requested, free)
    is_pair = recorded_pairs(events, alloc, requested, free)
    if not is_pair.any() or (stack[is_pair] != free_stack[is_pair]).any():
        # The stack that freed a block from before the trace did not allocate it.
        stack = np.where(pairing.origin == FREED, 0, stack).astype(np.int32)
    from_alloc = pl.Series(alloc < 0)
    recorded, user_metadata = both("category", nothing), both("user_metadata", nothing).set(from_alloc, None)
    if recording.recorder is not None:
        places = {"addr": address, "alloc_event": alloc, "free_event": free}
        tensors = recorded_tensors(recording.recorder, record.device, events, pl.DataFrame(places))
        recorded, user_metadata = tensors["category"].fill_null(recorded), user_metadata.fill_null(tensors["name"])
    table = pl.DataFrame([
        pl.Series("id", np.arange(len(alloc), dtype=np.int32)),
        address,
        pl.Series("size", _sizes(record, pairing)),
        pl.Series("alloc_event", alloc),
        pl.Series("free_requested_event", requested),
        pl.Series("free_event", free),
        _values_at(events["time_us"], alloc).alias("alloc_us"),
        _values_at(events["time_us"], free).alias("free_us"),
        both("stream", segments["stream"][segment_of]),
        pools_of(record, address.to_numpy(), own_pool).alias("pool"),
        pl.Series("stack", stack),
        pl.Series("free_stack", free_stack),
        enum_series("origin", pairing.origin, ORIGINS),
        both("compile_context", nothing).set(from_alloc, None),
        user_metadata.alias("user_metadata"),
    ])  # fmt: skip
    names = annotated_names(recording, events, table)
    if names.null_count() < len(names):
        both_names = table.select(pl.concat_str("user_metadata", names, separator="; ", ignore_nulls=True)).to_series()
        is_named = table["user_metadata"].is_not_null() | names.is_not_null()
        table = table.with_columns(both_names.set(~is_named, None).alias("user_metadata"))
    category, source = categorise(
        categories, events, table, allocated, recorded, reserved_start=reserved_start, inference=inference
    )
    table = table.insert_column(12, category).insert_column(13, source)
    if recording.recorder is None:
        table = table.with_columns(NO_MODULES)
    else:
        table = table.hstack(recorded_modules(recording.recorder, record.device, events, table, tensors))
    is_recorded = table["module"].null_count() < len(table)
    if inference:
        shapes = inferred_shapes(table, lambda: called_operators(recording))
        table = table.with_columns(table["shape"].fill_null(shapes))
        if not is_recorded:
            table = table.with_columns(layer_paths(recording, table))
    of = pl.lit(MODULE_SOURCES[0 if is_recorded else 1], pl.Enum(MODULE_SOURCES))
    return table.with_columns(pl.when(pl.col("module").is_not_null()).then(of).alias("module_source"))


def _values_at(column: pl.Series, event: np.ndarray) -> pl.Series:
    """``column`` at each event, null if the event is -1."""
    if not len(column):
        return pl.Series([None], dtype=column.dtype).new_from_index(0, len(event))
    missing = event < 0
    values: pl.Series = column[np.maximum(event, 0)]
    return values.set(pl.Series(missing), None) if missing.any() else values


def _free_stacks(events: pl.DataFrame, requested: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Int32 stack of the free's request, or of its completion; 0 if neither is recorded."""
    if not len(events):
        return np.zeros(len(free), np.int32)
    stack = events["stack"].to_numpy()
    is_free = action_codes(events) != 0  # an alloc that ends an older lifetime did not free it
    request_stack = np.where(requested >= 0, stack[requested], 0)
    done = np.where((free >= 0) & is_free[free], stack[free], 0)
    return np.where(request_stack > 0, request_stack, done).astype(np.int32)
