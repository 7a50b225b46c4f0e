"""Objects that replace the traces of a snapshot while its pickle is read, and turn their entries into columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from snapreport.reading.entry_tokens import Unusual
from snapreport.reading.events import Codes, EventReader
from snapreport.reading.frame_table import StackMark
from snapreport.reading.parsed_entries import ParsedEntries

# Dicts to turn into columns at once: some 2 MB. With 1,000, which the unpickler appends at a time, the calls for each
# column took a tenth more of the whole; 4,000 with frames of their own do not fit into the processor's cache.
_ENOUGH = 2_000


class TraceCollector:
    """Replaces one trace's list. The unpickler appends to it; afterwards the entries are empty.

    It receives dicts, and after those of a part of the trace the :class:`ParsedEntries` between them. The unpickler's
    memo refers to every dict and every list of frames until the end, so they are emptied, not dropped. Unhashable like
    the list, so that it cannot become a key.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, codes: Codes) -> None:
        self.reader = EventReader(codes)
        self.parsed = 0  # ParsedEntries received
        self._items: list[Any] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, item: Any) -> None:
        """Take one item."""
        self.extend([item])

    def extend(self, items: list[Any]) -> None:
        """Take the next items. Raises :class:`SnapshotError`."""
        if items and type(items[-1]) is ParsedEntries:
            self.finish()
            # The plain reader reports the place of an error; here the device is not known yet.
            self.reader.read_parsed(items[-1], items[:-1], self._rows)
            self._rows += items[-1].rows
            self.parsed += 1
            _empty(items[:-1])
            return
        self._items += items
        if len(self._items) >= _ENOUGH:
            self.finish()

    def finish(self) -> None:
        """Turn the pending items into columns."""
        entries, self._items = self._items, []
        if entries:
            self.reader.read_chunk(entries, "trace", self._rows, release=True)
            self._rows += len(entries)
            _empty(entries)


def _empty(entries: list[dict[Any, Any]]) -> None:
    deque(map(dict.clear, entries), maxlen=0)


class TraceCollectors:
    """All collectors of one pickle, and the codes that they share."""

    def __init__(self) -> None:
        self.codes = Codes()
        self._collectors: list[TraceCollector] = []

    def __len__(self) -> int:
        return len(self._collectors)

    @property
    def parsed(self) -> int:
        """Number of :class:`ParsedEntries` in all collectors."""
        return sum(collector.parsed for collector in self._collectors)

    def mark(self, stack: int) -> StackMark:
        """What names a stack in a list of frames, by its code. Raises :class:`Unusual` if there is none."""
        if stack >= len(self.codes.stacks):
            raise Unusual("a stack that no entry has")
        return StackMark(stack)

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
