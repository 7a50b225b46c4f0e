"""Converts final segments and their blocks to columns, in all layouts since 2022."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from snapreport.errors import SnapshotError
from snapreport.reading.fields import INT64, MAX_SIZE, SIZE, UINT64, Characters, bad, integer, pool_name, shown, text
from snapreport.reading.recording import ACTIVE_STATES
from snapreport.reading.stacks import StackInterner

SEGMENT_KEYS = {
    "device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
    "segment_pool_id", "pool_id", "is_expandable", "frames", "blocks",
}  # fmt: skip
BLOCK_KEYS = {"address", "size", "requested_size", "state", "frames", "history"}
_SEGMENT_COLUMNS = {
    "address": pl.UInt64, "total_size": pl.Int64, "allocated_size": pl.Int64, "active_size": pl.Int64,
    "requested_size": pl.Int64, "stream": pl.Int64, "segment_type": pl.String, "pool": pl.String,
    "is_expandable": pl.Boolean,
}  # fmt: skip
_BLOCK_COLUMNS = {
    "segment": pl.Int32, "address": pl.UInt64, "size": pl.Int64, "requested_size": pl.Int64, "state": pl.String,
}  # fmt: skip


class SegmentReader:
    """Reads the final segments of one device, in order."""

    def __init__(
        self,
        stacks: StackInterner,
        unknown_keys: Counter[str],
        unknown_states: Counter[str],
        characters: Characters,
    ) -> None:
        self._characters = characters
        self._stacks = stacks
        self._unknown_keys = unknown_keys
        self._unknown_states = unknown_states
        self._segments: list[tuple[Any, ...]] = []
        self._blocks: list[tuple[Any, ...]] = []
        self._segment_stacks: list[np.ndarray] = []
        self._block_stacks: list[np.ndarray] = []

    def read(self, segment: dict[Any, Any], place: str, *, is_host: bool = False) -> None:
        """Append a segment; ``place`` names it in errors. ``is_host``: a segment of pinned memory, which is a single
        block if it lists no blocks.
        """
        _count_unknown(segment, SEGMENT_KEYS, "segment", self._unknown_keys)
        kind = segment.get("segment_type")
        pool = segment.get("segment_pool_id", segment.get("pool_id"))
        expandable = segment.get("is_expandable", False)
        if type(expandable) is not bool:
            raise bad(place, "is_expandable", expandable, "true or false")
        blocks = segment.get("blocks")
        if blocks is None and is_host:
            blocks = _whole(segment, place)
        if not isinstance(blocks, (list, tuple)):
            raise SnapshotError(
                f"{place}: no 'blocks'" if blocks is None else f"{place}.blocks: {shown(blocks)}, not a list"
            )
        # torch's own conversion of a profile writes None as the address for a device without memory.
        nowhere = not blocks and "address" in segment and segment["address"] is None
        address = 0 if nowhere else _needed(segment, place, "address", UINT64)
        self._segments.append((
            address,
            _needed(segment, place, "total_size", SIZE),
            *(_optional(segment, place, key, SIZE, 0) for key in ("allocated_size", "active_size", "requested_size")),
            _optional(segment, place, "stream", INT64, 0),
            None if kind is None else self._characters.take(text(kind, place, "segment_type"), place),
            pool_name(pool, place, "segment_pool_id"),
            expandable,
        ))  # fmt: skip
        self._segment_stacks.append(self._stacks.add([segment.get("frames")], lambda row: place))
        self._read_blocks(blocks, address, place)

    def _read_blocks(self, blocks: Sequence[Any], address: int, place: str) -> None:
        number = len(self._segments) - 1
        frames = []
        for i, block in enumerate(blocks):
            where = f"{place}.blocks[{i}]"
            if type(block) is not dict:
                raise SnapshotError(f"{where}: {shown(block)}, not a block (a dict)")
            _count_unknown(block, BLOCK_KEYS, "block", self._unknown_keys)
            size = _needed(block, where, "size", SIZE)
            if "state" not in block:
                raise SnapshotError(f"{where}: no 'state'")
            state = self._characters.take(text(block["state"], where, "state"), where)
            if state not in ACTIVE_STATES and state != "inactive":
                self._unknown_states[state] += 1
            if block.get("address") is not None:
                address = integer(block["address"], where, "address", UINT64)
            elif address > UINT64[1]:
                raise SnapshotError(f"{where}: its address, counted from the segment's, is beyond 64 bits")
            requested, stack = _requested_and_frames(block, where, size)
            self._blocks.append((number, address, size, requested, state))
            frames.append(stack)
            address += size  # old layouts have no address: blocks follow each other
        if frames:
            self._block_stacks.append(self._stacks.add(frames, lambda row: f"{place}.blocks[{row}]"))

    def tables(self, renumber: np.ndarray) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(segments, blocks). ``renumber``: provisional → final stack ids.

        Raises :class:`SnapshotError` if sizes add up to more than a report can show exactly (2**53 bytes).
        """
        segments = _table(self._segments, _SEGMENT_COLUMNS, self._segment_stacks, renumber)
        blocks = _table(self._blocks, _BLOCK_COLUMNS, self._block_stacks, renumber)
        for table, what in ((segments, "segments"), (blocks, "blocks")):
            for column in table.select(cs.contains("size")):
                total = float(column.cast(pl.Float64).sum())
                if total > MAX_SIZE:
                    raise SnapshotError(
                        f"{column.name} of all {what} adds up to {total:.3g} bytes, more than any memory"
                    )
        return segments, blocks


def _whole(segment: dict[Any, Any], place: str) -> list[dict[str, Any]]:
    """The single block of a host segment that is written flat: the host allocator never splits."""
    size = _needed(segment, place, "total_size", SIZE)
    active = _optional(segment, place, "active_size", SIZE, 0)
    used = _optional(segment, place, "allocated_size", SIZE, active)
    state = "active_allocated" if used else "active_pending_free" if active else "inactive"
    requested = _optional(segment, place, "requested_size", SIZE, size)
    return [{"size": size, "requested_size": requested if active or used else 0, "state": state,
             "frames": segment.get("frames")}]  # fmt: skip


def empty_tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    """(segments, blocks) of a recording that has none."""
    nothing = np.zeros(0, np.int32)
    return _table([], _SEGMENT_COLUMNS, [], nothing), _table([], _BLOCK_COLUMNS, [], nothing)


def _table(
    rows: list[tuple[Any, ...]], columns: dict[str, Any], stacks: list[np.ndarray], renumber: np.ndarray
) -> pl.DataFrame:
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    series = [pl.Series(name, list(v), dtype=dtype) for (name, dtype), v in zip(columns.items(), values, strict=True)]
    stack = np.concatenate(stacks) if stacks else np.zeros(0, np.int32)
    return pl.DataFrame([*series, pl.Series("stack", renumber[stack])])


def _requested_and_frames(block: dict[Any, Any], where: str, size: int) -> tuple[int, Any]:
    """(requested bytes, frames value). The 2022 layout has both in the newest entry of ``history``."""
    history = block.get("history")
    if "frames" not in block and history is not None:
        if type(history) is not list:
            raise bad(where, "history", history, "a list")
        if history:
            if type(history[0]) is not dict:
                raise SnapshotError(f"{where}.history[0]: {shown(history[0])}, not a dict")
            return _needed(history[0], f"{where}.history[0]", "real_size", SIZE), history[0].get("frames")
    return _optional(block, where, "requested_size", SIZE, size), block.get("frames")


def _needed(mapping: dict[Any, Any], where: str, key: str, bounds: tuple[int, int]) -> int:
    if key not in mapping:
        raise SnapshotError(f"{where}: no {key!r}")
    return integer(mapping[key], where, key, bounds)


def _optional(mapping: dict[Any, Any], where: str, key: str, bounds: tuple[int, int], default: int) -> int:
    value = mapping.get(key)
    return default if value is None else integer(value, where, key, bounds)


def _count_unknown(mapping: dict[Any, Any], known: set[str], kind: str, counts: Counter[str]) -> None:
    if not mapping.keys() <= known:
        for key in mapping:
            if type(key) is not str:
                counts[f"{kind} {shown(key)}"] += 1
            elif key not in known:
                counts[f"{kind} {key}"] += 1
