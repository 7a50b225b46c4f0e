"""Objects that replace the traces of a snapshot while its pickle is read, and turn their entries into columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any

from snapreport.reading.events import Codes, EventReader
from snapreport.reading.trace_stream import Unusual

# Number of items to turn into columns at once: the 1,000 entries that the unpickler appends at a time, which are still
# in the processor's cache. With 8,000 entries, reading took a fifth longer.
_ENOUGH = 8_000
_MOST_DICTS = 8  # dicts flattened to make a batch uniform


class TraceCollector:
    """Replaces one trace's list. The unpickler appends to it; afterwards the entries are empty.

    It receives dicts, and entries without one: a None, then keys and values in turn (see ``trace_stream.py``). The
    unpickler's memo refers to every dict and every list of frames until the end, so they are emptied, not dropped.
    """

    def __init__(self, codes: Codes) -> None:
        self.reader = EventReader(codes)
        self.nones = 0  # entries without a dict
        self._items: list[Any] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, item: Any) -> None:
        """Take one item."""
        self.extend([item])

    def extend(self, items: list[Any]) -> None:
        """Take the next items. Raises :class:`SnapshotError` or :class:`Unusual`."""
        self._items += items
        if len(self._items) >= _ENOUGH:
            self.finish()

    def finish(self) -> None:
        """Turn the pending items into columns."""
        items, self._items = self._items, []
        if not items:
            return
        # The plain reader reports the place of an error; here the device is not known yet.
        if columns := self._uniform(items):
            n = len(next(iter(columns.values())))
            self.reader.read_columns(columns, "trace", self._rows, n, release=True)
            self._rows += n
            return
        entries = self._entries(items)
        self.reader.read_chunk(entries, "trace", self._rows, release=True)
        self._rows += len(entries)
        deque(map(dict.clear, entries), maxlen=0)

    def _uniform(self, items: list[Any]) -> dict[str, list[Any]] | None:
        """Key → values where all entries have the same keys in the same order, and few of them are dicts."""
        if len(items) > 1 and type(items[0]) is dict is type(items[1]):
            return None
        dicts = 0
        while (place := _other_than_none(items, period := _end(items, 0))) is not None:
            if dicts == _MOST_DICTS or type(items[place]) is not dict:
                return None
            entry = items[place]
            items[place : place + 1] = [None, *chain.from_iterable(entry.items())]
            entry.clear()
            self.nones -= 1  # this None was not an entry without a dict
            dicts += 1
        n, over = divmod(len(items), period)
        keys = items[1:period:2]
        if over or not keys or set(map(type, keys)) != {str} or len(set(keys)) < len(keys):
            return None
        if any(items[1 + 2 * i :: period] != [key] * n for i, key in enumerate(keys)):
            return None
        self.nones += n
        return {key: items[2 + 2 * i :: period] for i, key in enumerate(keys)}

    def _entries(self, items: list[Any]) -> list[dict[Any, Any]]:
        """The entries as dicts, with any content."""
        made, at = [], 0
        while at < len(items):
            if type(items[at]) is dict:
                made.append(items[at])
                at += 1
                continue
            end = _end(items, at)
            if items[at] is not None or end > len(items):
                raise Unusual("an entry that is no dict")
            made.append(dict(zip(items[at + 1 : end : 2], items[at + 2 : end : 2], strict=True)))
            self.nones += 1
            at = end
        return made


def _end(items: list[Any], at: int) -> int:
    """The end of the entry that begins at ``at``; no key is None or a dict."""
    at += 1
    if items[at - 1] is None:
        while at < len(items) and items[at] is not None and type(items[at]) is not dict:
            at += 2
    return at


def _other_than_none(items: list[Any], period: int) -> int | None:
    """The first of every ``period``-th item that is not None."""
    marks = items[::period]
    if marks.count(None) == len(marks):
        return None
    return period * next(i for i, mark in enumerate(marks) if mark is not None)


class TraceCollectors:
    """All collectors of one pickle, and the codes that they share."""

    def __init__(self) -> None:
        self.codes = Codes()
        self._collectors: list[TraceCollector] = []

    def __len__(self) -> int:
        return len(self._collectors)

    @property
    def nones(self) -> int:
        """Number of Nones in all collectors."""
        return sum(collector.nones for collector in self._collectors)

    def new(self) -> TraceCollector:
        """The next trace's collector. The previous trace is complete, so stacks are numbered as by the plain reader."""
        self.finish()
        self._collectors.append(TraceCollector(self.codes))
        return self._collectors[-1]

    def finish(self) -> None:
        """Turn the remaining items into columns."""
        for collector in self._collectors:
            collector.finish()

    def are_all_in(self, traces: Sequence[Any]) -> bool:
        """Whether each collector is one of ``traces``, once."""
        found = [id(trace) for trace in traces if type(trace) is TraceCollector]
        return sorted(found) == sorted(map(id, self._collectors))
