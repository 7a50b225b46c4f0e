"""A Chrome trace of ``torch.profiler`` with memory events, as a :class:`Recording`.

It has allocations and frees of any device with their stacks, and the profiler's own total. It has no segments, streams
or pools, and only the total of earlier allocations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from snapreport.reading.event_columns import enum_series
from snapreport.reading.fields import MAX_SIZE
from snapreport.reading.profiler_columns import Event, Instants, ProfilerColumns, columns_of, frame_table
from snapreport.reading.profiler_mapped_files import with_mapped_files
from snapreport.reading.profiler_stacks import CallTree, call_tree, chains, forward_of
from snapreport.reading.recorder_metadata import read_metadata
from snapreport.reading.recording import ACTIONS, PROFILER, DeviceRecord, Recording
from snapreport.reading.segments import empty_tables
from snapreport.reading.stack_table import StackTable, stack_table

# c10::DeviceType (c10/core/DeviceType.h) by number; other types are named by their number.
_KINDS = {0: "cpu", 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}
CPU = -1
_ALLOC, _FREE = ACTIONS.index("alloc"), ACTIONS.index("free_completed")
_UNKNOWN_STATE = "active_allocated"


def profiler_recording(
    events: list[Event], base_ns: int, own: Any, *, name: str, path: str, file_bytes: int
) -> Recording:
    """Builds the recording from the events of a trace; empties ``events``. ``own``: our recorder's metadata, if any.
    Raises :class:`SnapshotError`.
    """
    columns = columns_of(events, base_ns)
    events.clear()
    table, stack = _stacks(columns)
    devices = _devices(columns.instants, table.renumber[stack])
    return Recording(
        name=name, path=path, file_bytes=file_bytes, settings={}, frames=table.frames, stack_offsets=table.offsets,
        stack_frames=table.stack_frames, annotations=_annotations(columns, list(devices)), devices=devices,
        recorder=read_metadata(own), source=PROFILER,
    )  # fmt: skip


def _stacks(columns: ProfilerColumns) -> tuple[StackTable, np.ndarray]:
    """The table of stacks, and the provisional stack of each memory event.

    A backward pass run by the engine has no Python frames beyond ``backward()``. Its stack continues with that of the
    forward operator that created the node, if the trace has it.
    """
    tree = call_tree(columns.intervals, columns.instants)
    forward = forward_of(columns, tree)
    inside = tree.inside
    bridged = _at(forward, inside)
    node, onward = _at(tree.node, inside), _at(tree.node, bridged)
    cut = np.where(bridged >= 0, _outermost(tree, forward, inside), -1)
    keys, stack = np.unique(np.stack((node, cut, onward), axis=1), axis=0, return_inverse=True)
    own, own_lengths = chains(tree, keys[:, 0])
    outer_lengths = chains(tree, keys[:, 1])[1]
    joined, joined_lengths = chains(tree, keys[:, 2])
    # The innermost part of its own chain, down to the node of the backward pass, then the forward operator's chain.
    own_part = np.where(keys[:, 2] >= 0, own_lengths - np.maximum(outer_lengths - 1, 0), own_lengths)
    flat = _spliced(own, own_lengths, own_part, joined, joined_lengths)
    frames = frame_table(columns.intervals.labels)
    table = stack_table(frames, flat, own_part + joined_lengths)
    return table, stack.reshape(-1)


def _at(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``column`` at ``rows``; -1 where a row is -1."""
    result: np.ndarray = np.where(rows >= 0, column[rows], -1) if len(column) else np.full(len(rows), -1)
    return result


def _outermost(tree: CallTree, forward: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Int64 tree node of the outermost interval of the same backward node around each memory event."""
    top = np.arange(len(forward))
    for here in tree.levels[1:]:
        around = tree.enclosing[here]
        same = (forward[here] >= 0) & (forward[around] == forward[here])
        top[here[same]] = top[around[same]]
    return _at(tree.node, _at(top, inside))


def _spliced(
    own: np.ndarray, own_lengths: np.ndarray, own_part: np.ndarray, joined: np.ndarray, joined_lengths: np.ndarray
) -> np.ndarray:
    """For each stack: the first ``own_part`` labels of its own chain, then all of the joined chain."""
    starts = np.cumsum(own_lengths) - own_lengths
    place = np.arange(len(own)) - np.repeat(starts, own_lengths)
    first = own[place < np.repeat(own_part, own_lengths)]
    stack = np.concatenate(
        (np.repeat(np.arange(len(own_part)), own_part), np.repeat(np.arange(len(own_part)), joined_lengths))
    )
    order = np.argsort(stack, kind="stable")
    result: np.ndarray = np.concatenate((first, joined))[order]
    return result


def _devices(instants: Instants, stack: np.ndarray) -> dict[int, DeviceRecord]:
    devices = {}
    keys = instants.device_type * (1 << 20) + instants.device
    for key in np.unique(keys).tolist():
        rows = np.flatnonzero(keys == key)
        kind, number = int(instants.device_type[rows[0]]), int(instants.device[rows[0]])
        device = CPU if kind == 0 else max(number, 0)
        while device in devices:  # accelerators of two kinds in one program
            device += 1
        devices[device] = _device(device, _KINDS.get(kind, f"device type {kind}"), instants, rows, stack[rows])
    return dict(sorted(devices.items()))


def _device(device: int, kind: str, instants: Instants, rows: np.ndarray, stack: np.ndarray) -> DeviceRecord:
    size = instants.size[rows]
    n = len(rows)
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, n)
    events = pl.DataFrame([
        enum_series("action", np.where(size > 0, _ALLOC, _FREE), list(ACTIONS)),
        pl.Series("addr", instants.address[rows]),
        pl.Series("size", np.abs(size)),
        pl.Series("stream", np.zeros(n, np.int64)),
        nothing.alias("pool"),
        pl.Series("time_us", instants.time[rows] // 1000),
        pl.Series("stack", stack.astype(np.int32)),
        pl.Series("forward_stack", np.zeros(n, np.int32)),
        *(nothing.alias(key) for key in ("compile_context", "user_metadata", "category")),
        pl.Series("device_free", [None], dtype=pl.Int64).new_from_index(0, n),
    ])  # fmt: skip
    allocated, reserved = instants.allocated[rows], instants.reserved[rows]
    if device == CPU:
        allocated, reserved = with_mapped_files(instants.address[rows], size, allocated, reserved)
    counted = allocated if (allocated >= 0).all() else None
    segments, blocks = empty_tables()
    older = 0 if counted is None else _older_bytes(instants.address[rows], size, counted)
    if older:
        blocks = blocks.extend(_older_block(older))
    return DeviceRecord(
        device, kind, events, segments, blocks,
        counted_allocated=counted, counted_reserved=reserved if (reserved >= 0).all() else None,
    )  # fmt: skip


def _older_bytes(address: np.ndarray, size: np.ndarray, counted: np.ndarray) -> int:
    """Bytes allocated before the trace that outlive it: the profiler's total at the start, less the bytes that the
    trace frees without having allocated them.
    """
    before = int(counted[0] - size[0])
    order = np.lexsort((np.arange(len(size)), address))
    by_address, is_free = address[order], size[order] < 0
    begins = np.ones(len(order), bool)
    begins[1:] = by_address[1:] != by_address[:-1]
    previous_frees = np.append(False, is_free[:-1])
    unmatched = is_free & (begins | previous_frees)
    rest = before + int(size[order][unmatched].sum())
    return rest if 0 < rest <= MAX_SIZE else 0


def _older_block(size: int) -> pl.DataFrame:
    row: dict[str, Any] = {
        "segment": 0, "address": 0, "size": size, "requested_size": size, "state": _UNKNOWN_STATE, "stack": 0,
    }  # fmt: skip
    return pl.DataFrame(row, schema=empty_tables()[1].schema)


def _annotations(columns: ProfilerColumns, devices: list[int]) -> pl.DataFrame:
    """The program's regions; they belong to threads, not devices, so every device gets all of them."""
    intervals = columns.intervals
    rows = np.flatnonzero(intervals.is_region)
    names = pl.Series([intervals.labels[label] for label in intervals.label[rows].tolist()], dtype=pl.String)
    parts = [
        pl.DataFrame({
            "device": pl.Series([device], dtype=pl.Int64).new_from_index(0, len(rows)),
            "name": names,
            "stage": pl.Series([stage], dtype=pl.String).new_from_index(0, len(rows)),
            "time_us": pl.Series(when[rows] // 1000 + shift, dtype=pl.Int64),
        })
        for device in devices
        for stage, when, shift in (("START", intervals.begin, 0), ("END", intervals.end, 0))
    ]  # fmt: skip
    return pl.concat(parts).sort("time_us", maintain_order=True)
