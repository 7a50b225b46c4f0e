"""Objects that stand for the traces of a snapshot while its pickle is read, and turn their entries into columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from snapreport.reading.events import Codes, EventReader
from snapreport.reading.trace_stream import Unusual

# Entries that are turned into columns together. The unpickler hands over 1,000 at a time.
_CHUNK = 8_000


class TraceCollector:
    """Stands for one trace's list. The unpickler appends to it; afterwards the entries are empty.

    The unpickler's memo refers to every entry and every list of frames until the end, so they are emptied, not dropped.
    """

    def __init__(self, codes: Codes) -> None:
        self.reader = EventReader(codes)
        self.nones = 0  # that stood before entries, see trace_stream.py
        self._entries: list[Any] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows + len(self._entries)

    def append(self, entry: Any) -> None:
        """Take one entry."""
        self.extend([entry])

    def extend(self, entries: list[Any]) -> None:
        """Take the next entries. Raises :class:`SnapshotError` or :class:`Unusual`."""
        given = len(entries)
        if None in entries[:3]:  # an entry whose beginning lies in two frames has none before it
            entries = [entry for entry in entries if entry is not None]
        self.nones += given - len(entries)
        self._entries += entries
        if len(self._entries) >= _CHUNK:
            self._flush()

    def finish(self) -> None:
        """Turn what is left into columns."""
        if self._entries:
            self._flush()

    def _flush(self) -> None:
        entries, self._entries = self._entries, []
        # A file's reader names the place of what is wrong; here the device is not known yet.
        self.reader.read_chunk(entries, "trace", self._rows, release=True)
        self._rows += len(entries)
        try:
            deque(map(dict.clear, entries), maxlen=0)
        except TypeError:
            raise Unusual("an entry that is no dict") from None


class TraceCollectors:
    """All collectors of one pickle, and the codes that they share."""

    def __init__(self) -> None:
        self.codes = Codes()
        self._collectors: list[TraceCollector] = []

    def __len__(self) -> int:
        return len(self._collectors)

    @property
    def nones(self) -> int:
        """Of all collectors."""
        return sum(collector.nones for collector in self._collectors)

    def new(self) -> TraceCollector:
        """The next trace's collector."""
        self._collectors.append(TraceCollector(self.codes))
        return self._collectors[-1]

    def finish(self) -> None:
        """Turn what is left into columns."""
        for collector in self._collectors:
            collector.finish()

    def are_all_in(self, traces: Sequence[Any]) -> bool:
        """Whether each collector is one of ``traces``, once."""
        found = [id(trace) for trace in traces if type(trace) is TraceCollector]
        return sorted(found) == sorted(map(id, self._collectors))
