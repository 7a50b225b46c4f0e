"""The columns of a device's events, collected in parts and joined to one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# polars imports it for the first column. Among the unpickler's objects, its allocations would keep 40 otherwise unused
# arenas of 1 MiB alive, for a pickle of 107 MB.
import numpy.ma
import polars as pl

from snapreport.reading.fields import clean_all

Chunk = dict[str, tuple[np.ndarray, np.ndarray | None]]
"""Column → values and the mask of nulls, of some entries in a row."""
ALL_NULL = np.ones(1, bool)
"""The mask of a chunk without values."""
_NO_CONTEXT = ("", "N/A")
_TYPES = {np.dtype(np.int32): pl.Int32, np.dtype(np.int64): pl.Int64, np.dtype(np.uint64): pl.UInt64}


class EventColumns:
    """Chunks of events in order. ``actions`` and ``texts`` (by key): text → code."""

    def __init__(self, actions: dict[str, int], texts: Mapping[str, dict[str, int]]) -> None:
        self._actions = actions
        self._texts = texts
        self._parts: dict[str, list[tuple[np.ndarray, np.ndarray | None]]] = {}
        self._rows = 0

    def append(self, chunk: Chunk, n: int) -> None:
        """Append ``n`` events; every chunk has the same columns."""
        for key, (column, nulls) in chunk.items():
            self._put(key, column, nulls)
        self._rows += n

    def extend(self, other: EventColumns) -> None:
        """Append all chunks of ``other``, which shares the codes."""
        for key, parts in other._parts.items():
            self._parts.setdefault(key, []).extend(parts)
        self._rows += other._rows

    def _put(self, key: str, column: np.ndarray, nulls: np.ndarray | None) -> None:
        # A chunk with a single value (most chunks, in half of the columns) takes no memory per row.
        if column[0] == column[-1] and (column == column[0]).all():
            column = np.broadcast_to(column[:1].copy(), len(column))
        if nulls is not None and nulls.all():
            nulls = ALL_NULL
        self._parts.setdefault(key, []).append((column, nulls))

    def _column(self, key: str, dtype: Any) -> np.ndarray:
        """All parts as one array; if all values are equal, the rows share one item of memory (stride 0)."""
        parts = [column for column, _ in self._parts.pop(key, [])]
        if not parts:
            return np.zeros(0, dtype)
        first = parts[0][:1]
        if all((len(part) == 1 or part.strides == (0,)) and part[0] == first[0] for part in parts):
            return np.broadcast_to(first, self._rows)
        return np.concatenate(parts)

    def _nullable(self, key: str, dtype: Any) -> pl.Expr | pl.Series:
        parts = self._parts.get(key, [])
        if parts and all(mask is ALL_NULL for _, mask in parts):
            del self._parts[key]
            return pl.lit(None, _TYPES[np.dtype(dtype)]).alias(key)
        if all(mask is None or not (mask is ALL_NULL or mask.any()) for _, mask in parts):
            return _numbers(key, self._column(key, dtype))
        nulls = [
            np.broadcast_to(mask is ALL_NULL, len(column)) if mask is None or mask is ALL_NULL else mask
            for column, mask in parts
        ]
        column = np.ascontiguousarray(self._column(key, dtype))
        return pl.Series(key, column).set(pl.Series(np.concatenate(nulls)), None)

    def _texts_column(self, key: str) -> pl.Expr | pl.Series:
        codes, texts = self._column(key, np.int32), self._texts.get(key, {})
        # The recorder writes "N/A" if there was no context.
        absent = [-1, *(texts[name] for name in _NO_CONTEXT if name in texts)]
        if not len(codes) or len(texts) < len(absent):
            return pl.lit(None, pl.String).alias(key)
        names: list[str | None] = [*clean_all(list(texts)), None]
        if codes.strides == (0,) or (codes == codes[0]).all():
            code = int(codes[0])
            return pl.lit(None if code in absent else names[code], pl.String).alias(key)
        table = pl.Series(names, dtype=pl.String)
        return table.gather(np.where(np.isin(codes, absent), len(texts), codes)).alias(key)

    def table(self, renumber: np.ndarray) -> pl.DataFrame:
        """The columns of everything read so far. ``renumber``: provisional → final stack ids.

        Columns with a single value take no memory until taken out of the table: 29 instead of 115 bytes per event.
        """
        names = clean_all(list(self._actions))
        made: list[pl.Expr | pl.Series] = [
            enum_series("action", self._column("action", np.int32), distinct(names)),
            self._nullable("addr", np.uint64),
            _numbers("size", self._column("size", np.int64)),
            _numbers("stream", self._column("stream", np.int64)),
            self._texts_column("pool"),
            self._nullable("time_us", np.int64),
            _stacks("stack", self._column("stack", np.int32), renumber),
            _stacks("forward_stack", self._column("forward_stack", np.int32), renumber),
            self._texts_column("compile_context"),
            self._texts_column("user_metadata"),
            self._texts_column("category"),
            self._nullable("device_free", np.int64),
        ]
        return pl.DataFrame(made[:1]).with_columns(made[1:])


def _numbers(key: str, column: np.ndarray) -> pl.Expr | pl.Series:
    """A column, or a literal if all rows share one item."""
    if len(column) > 1 and column.strides == (0,):
        return pl.lit(int(column[0]), _TYPES[column.dtype]).alias(key)
    return pl.Series(key, np.ascontiguousarray(column))


def _stacks(key: str, column: np.ndarray, renumber: np.ndarray) -> pl.Expr | pl.Series:
    if len(column) > 1 and column.strides == (0,):
        return _numbers(key, np.broadcast_to(renumber[column[:1]], len(column)))
    return pl.Series(key, renumber[column])


def enum_series(name: str, codes: np.ndarray, categories: Sequence[str]) -> pl.Series:
    """An Enum column from codes."""
    return pl.Series(name, categories, dtype=pl.Enum(categories))[codes]  # gather() takes twice the time


def distinct(names: list[str]) -> list[str]:
    """``names``, with those that became equal by escaping made distinct again."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return made
