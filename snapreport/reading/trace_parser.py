"""Reads the entries of a pickled trace as columns, without unpickling most of them.

An entry whose keys have occurred before holds nothing but numbers, texts and a stack, and its columns are made from its
bytes. Others, few of a million, are unpickled as dicts: the first, and everything unexpected. Later values refer to
earlier ones by their place in the unpickler's memo, so for entries that it does not see the same number of places is
filled with one object, the filler; frames that an entry is the first to have are given to the unpickler. What refers to
the filler is replaced in entries that are unpickled, and texts that a trace was the first to have are put into their
places after it; if anything else refers to the filler, the file is read again, the plain way.

Stacks: a recorder writes a list of references to frames for each entry (``entry_stacks.py``). References never change
their meaning, so equal bytes are equal stacks. A reference to the list of an earlier entry (a free's completion has
that of its request) is resolved by its place in the memo.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np
from msgspec import Struct

from snapreport.reading.entry_layouts import POOL_KEYS, TEXT_KEYS
from snapreport.reading.entry_memo import POOL, STACK, Memo
from snapreport.reading.entry_stacks import NEW, read_frames
from snapreport.reading.entry_stream import MARK_ID, Unpickled, pushed, stream_of
from snapreport.reading.entry_tokens import Entry, Incomplete, Unusual, Value, read_entry
from snapreport.reading.events import Codes
from snapreport.reading.parsed_entries import ParsedEntries
from snapreport.reading.parsing_time import UNREAD_SHARE, ParsingTime
from snapreport.reading.trace_candidates import ALONE, PARSED, UNPICKLED, CandidateReader, Candidates

_PUT = np.dtype([("opcode", "u1"), ("place", "<u4")])  # LONG_BINPUT
# Candidates looked at: few where most things are new, since those after an entry with a new layout or text are looked
# at again, and eight times as many after each piece without one.
_FEWEST, _MOST, _GROWTH = 256, 1 << 20, 8
_CHECKED_EVERY = 4  # entries read alone: a thread's clock takes a microsecond to read, in a sandbox 100
_BRACE, _MARK, _APPENDS, _APPEND = b"}(ea"
_NEW_LIST = b"]\x94"  # EMPTY_LIST MEMOIZE


class _Run(Struct):
    """Candidates [first, last) in a row, which fill the memo from ``memo`` on."""

    first: int
    last: int
    memo: int


class TraceParser:
    """Parses the traces of one pickle of ``size`` bytes."""

    def __init__(self, codes: Codes, size: int) -> None:
        self.parsed: deque[ParsedEntries] = deque()
        """For the unpickler, in the order of its stream."""
        self.memo = Memo(codes)
        self._reader = CandidateReader(codes, self.memo)
        self._stacks = self._reader.stacks
        self.is_in_batch = self._is_single = False
        self.made = 0
        """Number of :class:`ParsedEntries` so far."""
        self.needs_more = False
        """Whether the data ended within an entry."""
        self.rows = self.alone = self._restarts = 0
        self._most = _FEWEST
        self._time = ParsingTime(size)
        self.has_given_up = False

    @property
    def is_worthwhile(self) -> bool:
        """Whether parsing has been faster than unpickling, as far as it is known, or has become so."""
        return self._time.is_worthwhile(self._share)

    @property
    def _share(self) -> float:
        return 1 if self.rows > 4 * self.alone else UNREAD_SHARE

    def begin(self) -> None:
        """A trace begins: the list of its entries has been stored in the memo, and is on top of the stack."""
        self.is_in_batch = self._is_single = False
        self.memo.begin()

    def given_up(self) -> bytes:
        """The unpickler's stream before the entries that are left to it, which may refer to what parsed ones have put
        into the memo: that takes its places, and lists that name their stacks those of lists of frames.
        """
        self.has_given_up = True
        parts = []
        for stack, value, places in self.memo.parsed():
            puts = np.zeros(len(places), _PUT)
            puts["opcode"], puts["place"] = ord("r"), places
            push = pushed(value) if stack is None else b"J" + (MARK_ID + stack).to_bytes(4, "little") + b"Q"
            parts += [push, puts.tobytes(), b"0"]
        return b"".join([*parts, b"(" if self.is_in_batch else b""])

    def take(self, data: bytes, at: int) -> tuple[bytes, int, bool]:
        """Reads entries from ``data[at]`` on: the unpickler's stream in their place, the first byte not read, and
        whether the trace ended. Nothing is read if ``data`` does not hold a whole entry.

        Raises :class:`Unusual`.
        """
        began = time.thread_time()
        most, restarts = self._most, self._restarts
        found = self._reader.read(data, at, most)
        runs, unpickled, end, has_ended = self._sequence(data, at, found, began)
        self.needs_more = end == found.following and len(found.starts) < most
        rows = np.concatenate([np.arange(run.first, run.last) for run in runs]) if runs else np.zeros(0, np.int64)
        if not len(rows) and not unpickled:
            self._time.add(end - at, 0)
            return self._written() if has_ended else b"", end, has_ended
        has_restarted = self._restarts > restarts
        self._most = max(_FEWEST, most // _GROWTH) if has_restarted else min(_MOST, most * _GROWTH)
        self._resolve(found, runs, rows, unpickled)
        for i in rows[found.kinds[rows] == UNPICKLED].tolist():
            unpickled.append(self._unpickled(read_entry(data, int(found.starts[i]), self.memo.known_at)))
        unpickled.sort(key=lambda entry: entry.start)
        rows = rows[found.kinds[rows] == PARSED]
        before = np.searchsorted(found.starts[rows], [entry.start for entry in unpickled])
        self._append(found, rows, unpickled, before)
        fills = found.fills[rows]
        inserted = [
            (entry.start, row, entry.bytes_of(data)) for entry, row in zip(unpickled, before.tolist(), strict=True)
        ]
        listed = np.flatnonzero(np.isin(rows, list(found.lists))) if found.lists else ()
        for row in listed:
            i, fills[row] = rows[row], found.memo[rows[row]]
            inserted.append((found.starts[i], row + 1, data[found.frames[i] : found.stops[i] - 1] + b"0"))
        stream = stream_of(fills, sorted(inserted))
        self._time.add(end - at, time.thread_time() - began)
        return stream + self._written() if has_ended else stream, end, has_ended

    def _written(self) -> bytes:
        """The unpickler's stream after a trace."""
        puts = [(pushed(value), place.to_bytes(4, "little")) for place, value in self.memo.first()]
        return b"".join(push + b"r" + place + b"0" for push, place in puts)

    def _sequence(
        self, data: bytes, at: int, found: Candidates, began: float
    ) -> tuple[list[_Run], list[Unpickled], int, bool]:
        """Follows the entries from ``at`` on: runs of candidates, entries read alone, the end, and whether the trace
        has ended there. Updates ``memo``. ``began``: the thread's time when the candidates were looked for.
        """
        runs: list[_Run] = []
        unpickled: list[Unpickled] = []
        alone = np.append(np.flatnonzero(found.kinds == ALONE), len(found.starts))
        filled = np.concatenate(([0], np.cumsum(found.fills)))
        new = np.flatnonzero((found.stacks == NEW) & (found.kinds != ALONE))
        begin, filled_at = at, self.memo.filled
        while True:
            at, is_entry = self._between(data, at)
            if is_entry is None:
                return runs, unpickled, at, False
            if not is_entry:
                return runs, unpickled, at, True
            i = int(np.searchsorted(found.starts, at))
            if self.is_in_batch and i < len(found.starts) and found.starts[i] == at and found.kinds[i] != ALONE:
                last = int(alone[np.searchsorted(alone, i)])
                chosen = new[slice(*np.searchsorted(new, (i, last)))]
                last = self._add_stacks(data, found, chosen, filled[chosen] - filled[i], last)
                if last > i:
                    runs.append(_Run(i, last, self.memo.filled))
                    self.memo.filled += int(filled[last] - filled[i])
                    at = int(found.stops[last - 1])
                    continue
            if at == found.following and len(found.starts):
                return runs, unpickled, at, False
            try:
                entry = read_entry(data, at, self.memo.known_at)
            except Incomplete:
                return runs, unpickled, at, False
            if _refers_to(entry, filled_at, self.memo.filled):  # what the candidates were not read with
                self._restarts += 1
                return runs, unpickled, at, False
            unpickled.append(self._unpickled(entry))
            is_known = self._read_alone(entry, data)
            at = entry.end
            if self._reader.learn(entry, data) or not is_known:
                self._restarts += 1
                return runs, unpickled, at, False
            is_checked = self.alone % _CHECKED_EVERY == 0
            if is_checked and self._time.would_exceed(at - begin, time.thread_time() - began, self._share):
                return runs, unpickled, at, False

    def _add_stacks(self, data: bytes, found: Candidates, new: np.ndarray, before: np.ndarray, last: int) -> int:
        """Adds the new stacks of a run of candidates to ``last``. Returns the first of these that has to be read alone,
        else ``last``. ``before``: memo places that those of the run before each one fill.
        """
        if not len(new):
            return last
        ranges = zip(found.frames[new].tolist(), (found.stops[new] - 1).tolist(), strict=True)
        values = [data[a:b] for a, b in ranges]
        places = (before + self.memo.filled + found.memo[new]).tolist()
        inline = {k: found.lists[i] for k, i in enumerate(new.tolist()) if i in found.lists} if found.lists else {}
        codes = self._stacks.add(values, inline, places)
        found.stacks[new[: len(codes)]] = codes
        return last if len(codes) == len(new) else int(new[len(codes)])

    def _between(self, data: bytes, at: int) -> tuple[int, bool | None]:
        """The place after the opcodes between two entries, and whether an entry begins there; None if that cannot be
        seen.
        """
        while at + 1 < len(data):
            code = data[at]
            if self.is_in_batch:
                if code == _BRACE:
                    return at, True
                if code != _APPENDS:
                    raise Unusual("a batch that is not of entries")
                self.is_in_batch = False
            elif not self._is_single and code == _MARK and data[at + 1] == _BRACE:
                self.is_in_batch = True
            elif self._is_single:
                if code != _APPEND:
                    raise Unusual("an entry that is not appended")
                self._is_single = False
            elif code == _BRACE:
                self._is_single = True
                return at, True
            else:
                return at, False
            at += 1
        return at, None

    def _unpickled(self, entry: Entry) -> Unpickled:
        made = Unpickled(entry.start, entry.end, [])
        for one in entry.references:
            if one.reference is not None and one.reference >= self.memo.base:
                value = self.memo.parsed_at(one.reference)
                made.patches += [] if value is None else [(one.start, one.end, pushed(value))]
        for frames in _frames_of(entry):
            if frames.reference is not None and frames.reference >= self.memo.base:
                made.reference, made.frames = frames.reference, (frames.start, frames.end)
        return made

    def _read_alone(self, entry: Entry, data: bytes) -> bool:
        """Registers what an entry puts into the memo, and its stack; whether that is known."""
        filled = self.memo.filled
        self.memo.objects.update((filled + place, value) for place, value in entry.objects.items())
        self.memo.filled += entry.memo
        self.alone += 1
        frames = _frames_of(entry)
        if len(frames) > 1:
            raise Unusual("an entry with two stacks")
        if not frames or (frames[0].reference is not None and frames[0].reference >= self.memo.base):
            return True
        value, place = data[frames[0].start : frames[0].end], filled + frames[0].memo
        is_readable, listed = read_frames(value)
        codes = self._stacks.add([value], {0: listed} if listed else {}, [place]) if is_readable else []
        if codes and value[:2] == _NEW_LIST:
            self.memo.put(np.array([place]), np.array(codes), STACK)
        return bool(codes)

    def _resolve(self, found: Candidates, runs: list[_Run], rows: np.ndarray, unpickled: list[Unpickled]) -> None:
        """Registers what candidates put into the memo, and resolves references to lists of earlier entries; candidates
        where this fails are left to the unpickler.
        """
        if len(rows):
            fills = found.fills[rows]
            # Where each row's places begin: those of its run, and of the rows before it there.
            lengths = np.array([run.last - run.first for run in runs])
            begins = np.cumsum(fills) - fills
            first = np.cumsum(lengths) - lengths
            places = np.full(len(found.starts), -1)
            places[rows] = begins + np.repeat(np.array([run.memo for run in runs]) - begins[first], lengths)
            for key, inline, before in found.inline:
                inline = inline[(places[inline] >= 0) & (found.kinds[inline] != ALONE)]
                self.memo.put(places[inline] + before, found.columns[key][0][inline], POOL if key in POOL_KEYS else key)
            listed = rows[fills > found.memo[rows]]
            self.memo.put(places[listed] + found.memo[listed], found.stacks[listed], STACK)
            referring = rows[found.references[rows] >= 0]
            stacks = self.memo.stacks(found.references[referring])
            found.stacks[referring] = stacks
            found.kinds[referring[stacks < 0]] = UNPICKLED
        for entry in unpickled:
            if entry.reference >= 0:
                entry.replaced = int(self.memo.stacks(np.array([entry.reference]))[0])
                if entry.replaced >= 0:
                    entry.patches.append((*entry.frames, b"N"))

    def _append(self, found: Candidates, rows: np.ndarray, unpickled: list[Unpickled], before: np.ndarray) -> None:
        is_whole = len(rows) == len(found.starts)  # then without a copy
        count = len(rows) + len(unpickled)
        self.rows += count
        self.made += 1
        self.parsed.append(
            ParsedEntries(
                count,
                before + np.arange(len(unpickled)),
                {
                    key: (values, nulls) if is_whole else (values[rows], nulls[rows])
                    for key, (values, nulls) in found.columns.items()
                },
                found.stacks[rows],
                np.array([entry.replaced for entry in unpickled], np.int32),
                {key: int(np.count_nonzero(has[rows])) for key, has in found.unknown_keys.items()},
            )
        )


def _refers_to(entry: Entry, first: int, end: int) -> bool:
    """Whether a text or pool of the entry is one of these places of the memo."""
    return any(
        key.known in (*TEXT_KEYS, *POOL_KEYS) and value.reference is not None and first <= value.reference < end
        for key, value in zip(entry.items[::2], entry.items[1::2], strict=True)
    )


def _frames_of(entry: Entry) -> list[Value]:
    """The values of the key ``frames``."""
    return [value for key, value in zip(entry.items[::2], entry.items[1::2], strict=True) if key.known == "frames"]
