"""Converts final segments and their blocks to columns, in all layouts since 2022."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.errors import SnapshotError
from snapreport.reading.fields import (
    INT64,
    MAX_SIZE,
    SIZE,
    UINT64,
    Characters,
    bad,
    int_column,
    integer,
    pool_name,
    shown,
    text,
)
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
_ALIKE = ("address", "size", "requested_size", "state", "frames")  # the keys since PyTorch 2.1
_KNOWN_STATES = {*ACTIVE_STATES, "inactive"}
_AT_ONCE = 4096  # blocks
_NO_STACKS = np.zeros(0, np.int32)


class _Blocks(Struct, frozen=True):
    """The blocks of a segment, a row of ``segments``, whose address and place in error messages are given."""

    blocks: Sequence[Any]
    segment: int
    address: int
    place: str


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
        self._frames: list[Any] = []
        self._places: list[str] = []
        self._segment_stacks = _NO_STACKS
        self._waiting: list[_Blocks] = []
        self._waiting_rows = 0
        self._blocks: list[pl.DataFrame] = []  # with provisional stack ids

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
        self._frames.append(segment.get("frames"))
        self._places.append(place)
        self._waiting.append(_Blocks(blocks, len(self._segments) - 1, address, place))
        self._waiting_rows += len(blocks)
        if self._waiting_rows >= _AT_ONCE:
            self._read_waiting()

    def finish(self) -> None:
        """Reads what is left to read at once, after the last segment."""
        if self._frames:
            self._segment_stacks = self._stacks.add(self._frames, self._places.__getitem__)
        self._read_waiting()

    def _read_waiting(self) -> None:
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        made = self._alike(waiting)
        self._blocks += [one for one in map(self._read_blocks, waiting) if len(one)] if made is None else [made]

    def _alike(self, waiting: list[_Blocks]) -> pl.DataFrame | None:
        """A row per block, a tenth of the time of :meth:`_read_blocks`; None unless all have the same keys and states
        that are known. An error is left to :meth:`_read_blocks`, which names its place.
        """
        blocks = list(chain.from_iterable(one.blocks for one in waiting))
        if not blocks or set(map(type, blocks)) != {dict} or set(map(len, blocks)) != {len(_ALIKE)}:
            return None
        try:
            address, size, requested, state, frames = (list(map(itemgetter(key), blocks)) for key in _ALIKE)
            if set(map(type, state)) != {str} or not set(state) <= _KNOWN_STATES:
                return None

            def nowhere(row: int) -> str:
                return ""

            numbers = [
                int_column(values, nowhere, key, bounds)
                for values, key, bounds in ((address, "address", UINT64), (size, "size", SIZE), (requested, "", SIZE))
            ]
            if any(nulls is not None for _, nulls in numbers):
                return None
            stacks = self._stacks.add(frames, nowhere)
        except (KeyError, SnapshotError):
            return None
        rows = [len(one.blocks) for one in waiting]
        segment = np.repeat(np.array([one.segment for one in waiting], np.int32), rows)
        columns: list[Any] = [segment, *(values for values, _ in numbers), state, stacks]
        names = (*_BLOCK_COLUMNS, "stack")
        return pl.DataFrame([pl.Series(name, values) for name, values in zip(names, columns, strict=True)])

    def _read_blocks(self, waiting: _Blocks) -> pl.DataFrame:
        address, rows, frames = waiting.address, [], []
        for i, block in enumerate(waiting.blocks):
            where = f"{waiting.place}.blocks[{i}]"
            if type(block) is not dict:
                raise SnapshotError(f"{where}: {shown(block)}, not a block (a dict)")
            _count_unknown(block, BLOCK_KEYS, "block", self._unknown_keys)
            size = _needed(block, where, "size", SIZE)
            if "state" not in block:
                raise SnapshotError(f"{where}: no 'state'")
            state = self._characters.take(text(block["state"], where, "state"), where)
            if state not in _KNOWN_STATES:
                self._unknown_states[state] += 1
            if block.get("address") is not None:
                address = integer(block["address"], where, "address", UINT64)
            elif address > UINT64[1]:
                raise SnapshotError(f"{where}: its address, counted from the segment's, is beyond 64 bits")
            requested, stack = _requested_and_frames(block, where, size)
            rows.append((waiting.segment, address, size, requested, state))
            frames.append(stack)
            address += size  # old layouts have no address: blocks follow each other
        stacks = self._stacks.add(frames, lambda row: f"{waiting.place}.blocks[{row}]") if frames else _NO_STACKS
        return _table(rows, _BLOCK_COLUMNS, stacks)

    def tables(self, renumber: np.ndarray) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(segments, blocks). ``renumber``: provisional → final stack ids.

        Raises :class:`SnapshotError` if sizes add up to more than a report can show exactly (2**53 bytes).
        """
        segments = _table(self._segments, _SEGMENT_COLUMNS, renumber[self._segment_stacks])
        blocks = pl.concat([_table([], _BLOCK_COLUMNS, _NO_STACKS), *self._blocks])
        blocks = blocks.with_columns(pl.Series("stack", renumber[blocks["stack"].to_numpy()]))
        for table, what in ((segments, "segments"), (blocks, "blocks")):
            for name in [name for name in table.columns if "size" in name]:
                total = float(table[name].cast(pl.Float64).sum())
                if total > MAX_SIZE:
                    raise SnapshotError(f"{name} of all {what} adds up to {total:.3g} bytes, more than any memory")
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
    return _table([], _SEGMENT_COLUMNS, _NO_STACKS), _table([], _BLOCK_COLUMNS, _NO_STACKS)


def _table(rows: list[tuple[Any, ...]], columns: dict[str, Any], stacks: np.ndarray) -> pl.DataFrame:
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    series = [pl.Series(name, list(v), dtype=dtype) for (name, dtype), v in zip(columns.items(), values, strict=True)]
    return pl.DataFrame([*series, pl.Series("stack", stacks)])


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
