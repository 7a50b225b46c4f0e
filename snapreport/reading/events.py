"""Converts trace entries (lists of dicts) to columns.

Works in chunks that fit into the processor's cache; the raw dicts of a chunk are released once its columns are made.
All entries of a recorder have the same keys, so a chunk is one flat list of values from which every column is a slice;
chunks with different keys (an ``oom`` has others) take a slower path.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl

from snapreport import progress
from snapreport.errors import SnapshotError
from snapreport.reading.entry_layouts import POOL_KEYS
from snapreport.reading.event_columns import ALL_NULL, Chunk, EventColumns
from snapreport.reading.fields import (
    INT64,
    SIZE,
    UINT64,
    Where,
    all_same,
    are_pools,
    clean,
    int_column,
    is_pool,
    numbering,
    pool_name,
    shown,
    text_codes,
)
from snapreport.reading.forward import ForwardFrames
from snapreport.reading.parsed_entries import ParsedEntries
from snapreport.reading.recording import ACTIONS
from snapreport.reading.stacks import StackInterner

CHUNK = 2_048
KEYS = {
    "action", "addr", "size", "stream", "time_us", "frames", "compile_context", "user_metadata", "category",
    "device_free",
    "pool_id", "segment_pool_id", "forward_frames",
}  # fmt: skip
# Without address and size these mean nothing.
_PLACED = np.array([a in ACTIONS[:7] for a in ACTIONS])
_INTEGERS = (("addr", UINT64), ("size", SIZE), ("stream", INT64), ("time_us", INT64), ("device_free", INT64))
_ABSENT = object()
_TEXTS = ("compile_context", "user_metadata", "category")


class Codes:
    """Codes of values that recur in all traces of a recording: actions, texts by key, stacks. Counts unknown keys."""

    def __init__(self) -> None:
        self.actions = numbering(ACTIONS)
        self.texts: defaultdict[str, defaultdict[str, int]] = defaultdict(numbering)
        self.stacks = StackInterner()
        self.unknown_keys: Counter[str] = Counter()


class EventReader:
    """Reads traces of one device to columns."""

    def __init__(self, codes: Codes) -> None:
        self._actions = codes.actions
        self._stacks = codes.stacks
        self._unknown_keys = codes.unknown_keys
        self._texts = codes.texts
        self._forward = ForwardFrames()
        self._columns = EventColumns(codes.actions, codes.texts)

    def read(self, trace: list[Any], place: str, *, release: bool) -> None:
        """Append a trace. ``place`` names it in errors. ``release``: drop raw entries once they are read."""
        with progress.stage("decoding", len(trace), "events") as bar:
            for start in range(0, len(trace), CHUNK):
                entries = trace[start : start + CHUNK]
                if release:
                    trace[start : start + CHUNK] = [None] * len(entries)
                self.read_chunk(entries, place, start)
                bar.advance(len(entries))

    def append(self, other: EventReader) -> None:
        """Append what ``other`` has read. Both share their codes."""
        self._columns.extend(other._columns)

    def read_chunk(self, entries: list[Any], place: str, start: int, *, release: bool = False) -> None:
        """Append ``entries``, at least one, which begin at index ``start`` of the trace.

        ``release``: also empty their long lists of frames, except for a mark
        (:class:`~snapreport.reading.frame_table.StackMark`).
        """
        where = _where(place, start)
        chunk = self._chunk(self._by_key(entries, where), where, len(entries), release=release)
        self._append(chunk, len(entries), where)

    def read_parsed(self, parsed: ParsedEntries, dicts: list[Any], start: int) -> None:
        """Append a part of a trace of which ``dicts`` were unpickled. Otherwise as :meth:`read_chunk`."""
        where = _where("trace", start)
        self._count_unknown({key: count for key, count in parsed.unknown_keys.items() if count})
        chunk = self._parsed_chunk(parsed)
        chunk["stack"] = parsed.stacks, None
        if dicts:
            made = self._chunk(self._by_key(dicts, where), where, len(dicts), release=True)
            replaces = parsed.replaced >= 0
            made["stack"][0][replaces] = parsed.replaced[replaces]
            is_dict = np.zeros(parsed.rows, bool)
            is_dict[parsed.unpickled] = True
            chunk = {key: _merged(chunk[key], made[key], is_dict) for key in made}
        self._append(chunk, parsed.rows, where)

    def _parsed_chunk(self, parsed: ParsedEntries) -> Chunk:
        n = len(parsed.stacks)
        chunk: Chunk = {"forward_stack": (np.zeros(n, np.int32), None)}
        for key, bounds in _INTEGERS:
            dtype = np.uint64 if bounds is UINT64 else np.int64
            values, nulls = parsed.columns.get(key, (np.zeros(n, np.int64), ALL_NULL))
            chunk[key] = values.astype(dtype, copy=False), nulls if nulls is ALL_NULL or nulls.any() else None
        for key in ("action", *_TEXTS, *POOL_KEYS):
            codes, nulls = parsed.columns.get(key, (np.full(n, -1, np.int32), ALL_NULL))
            chunk[key] = (codes if nulls is ALL_NULL else np.where(nulls, np.int32(-1), codes)), None
        pools = [chunk.pop(key)[0] for key in POOL_KEYS]
        chunk["pool"] = np.where(pools[0] < 0, pools[1], pools[0]), None
        return chunk

    def _chunk(self, columns: dict[str, list[Any]], where: Where, n: int, *, release: bool) -> Chunk:
        if "action" not in columns:
            raise SnapshotError(f"{where(0)}: no 'action'")
        action = text_codes(columns["action"], where, "action", self._actions)
        if (action < 0).any():
            raise SnapshotError(f"{where(int(np.argmax(action < 0)))}: no 'action'")
        chunk: Chunk = {"action": (action, None)}
        for key, bounds in _INTEGERS:
            chunk[key] = self._ints(columns, key, bounds, n, where)
        for key in _TEXTS:
            chunk[key] = self._text(columns, key, n, where), None
        chunk["pool"] = self._pools(columns, n, where), None
        for key, frames in (("stack", columns.get("frames")), ("forward_stack", columns.get("forward_frames"))):
            codes = np.zeros(n, np.int32)
            if frames is not None and key == "stack":
                codes = self._stacks.add(frames, where, release=release)
            elif frames is not None:
                codes = self._stacks.add(self._forward.lists(frames, where), where)
            chunk[key] = codes, None
        return chunk

    def _append(self, chunk: Chunk, n: int, where: Where) -> None:
        action = chunk["action"][0]
        placed = _PLACED[np.minimum(action, len(_PLACED) - 1)] & (action < len(_PLACED))
        for key in ("addr", "size"):
            nulls = chunk[key][1]
            if nulls is not None and (nulls & placed).any():
                row = int(np.argmax(nulls & placed))
                raise SnapshotError(f"{where(row)}: no {key!r} in this {list(self._actions)[action[row]]!r}")
        self._columns.append(chunk, n)

    def table(self, renumber: np.ndarray) -> pl.DataFrame:
        """The columns of everything read so far. ``renumber``: provisional → final stack ids.

        Columns with a single value take no memory until taken out of the table: 29 instead of 115 bytes per event.
        """
        return self._columns.table(renumber)

    def _by_key(self, entries: list[Any], where: Any) -> dict[str, list[Any]]:
        """Known key → values (None where absent). Keys that no entry has are absent."""
        if set(map(type, entries)) != {dict}:
            row = next(i for i, entry in enumerate(entries) if type(entry) is not dict)
            raise SnapshotError(f"{where(row)}: {shown(entries[row])}, not a trace entry (a dict)")
        n, lengths = len(entries), list(map(len, entries))
        keys = list(entries[0])
        if lengths.count(len(keys)) == n and set(map(type, keys)) == {str}:
            try:
                # The same number of keys, and each one present: the same keys.
                columns = {key: list(map(itemgetter(key), entries)) for key in keys}
            except KeyError:
                pass
            else:
                self._count_unknown({key: n for key in keys if key not in KEYS})
                return columns
        # Entries without a stack trace have no key for it, and an ``oom`` has a key of its own.
        columns, known = {}, 0
        for key in KEYS:
            values = list(map(dict.get, entries, repeat(key), repeat(_ABSENT)))
            absent = values.count(_ABSENT)
            if absent < n:
                columns[key] = [None if value is _ABSENT else value for value in values] if absent else values
            known += n - absent
        if known < sum(lengths):
            self._count_unknown(_unknown_keys(entries))
        return columns

    def _count_unknown(self, counts: dict[Any, int]) -> None:
        for key, count in counts.items():
            self._unknown_keys[f"event {_key_name(key)}"] += count

    def _ints(self, columns: dict[str, list[Any]], key: str, bounds: Any, n: int, where: Any) -> Any:
        if key not in columns:
            return np.zeros(n, np.uint64 if bounds is UINT64 else np.int64), ALL_NULL
        return int_column(columns[key], where, key, bounds)

    def _text(self, columns: dict[str, list[Any]], key: str, n: int, where: Any) -> np.ndarray:
        if key not in columns:
            return np.full(n, -1, np.int32)
        return text_codes(columns[key], where, key, self._texts[key])

    def _pools(self, columns: dict[str, list[Any]], n: int, where: Any) -> np.ndarray:
        """Int32 codes of each entry's ``pool_id``, or of its ``segment_pool_id`` if it has none."""
        codes = [self._pool_codes(columns[key], key, where) for key in POOL_KEYS if key in columns]
        if len(codes) == 2:
            return np.where(codes[0] < 0, codes[1], codes[0])
        return codes[0] if codes else np.full(n, -1, np.int32)

    def _pool_codes(self, values: list[Any], key: str, where: Where) -> np.ndarray:
        n = len(values)
        if is_pool(values[0]) and all_same(values):  # there is usually only one pool
            values = values[:1]
        elif set(map(type, values)) == {list} and set(map(len, values)) == {2}:  # of a file that was JSON
            values = list(map(tuple, values))
        if not are_pools(values):
            values = [tuple(value) if type(value) is list else value for value in values]
            for row, value in enumerate(values):
                pool_name(value, where(row), key)
        names = {value: pool_name(value, where(0), key) for value in dict.fromkeys(values)}
        codes = self._texts["pool"]
        coded = {value: -1 if name is None else codes[name] for value, name in names.items()}
        column = np.fromiter(map(coded.__getitem__, values), np.int32, len(values))
        return column if len(column) == n else np.full(n, column[0], np.int32)


def _unknown_keys(entries: list[dict[Any, Any]]) -> Counter[str]:
    names = list(chain.from_iterable(entries))
    if set(map(type, names)) != {str}:
        names = list(map(_key_name, names))
    return Counter({key: count for key, count in Counter(names).items() if key not in KEYS})


def _merged(
    parsed: tuple[np.ndarray, np.ndarray | None], dicts: tuple[np.ndarray, np.ndarray | None], is_dict: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Values and nulls of all rows from those of the parsed and of the unpickled ones."""
    values = np.empty(len(is_dict), dicts[0].dtype)
    values[is_dict], values[~is_dict] = dicts[0], parsed[0]
    if parsed[1] is None and dicts[1] is None:
        return values, None
    nulls = np.zeros(len(is_dict), bool)
    for rows, mask in ((is_dict, dicts[1]), (~is_dict, parsed[1])):
        if mask is not None:
            nulls[rows] = mask
    return values, nulls


def _where(place: str, start: int) -> Where:
    return lambda row: f"{place}[{start + row}]"


def _key_name(key: Any) -> str:
    return clean(key) if type(key) is str else shown(key)
