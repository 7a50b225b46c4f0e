"""Reads the entries of a pickled trace as columns, without unpickling most of them.

An entry whose keys, texts and stack have occurred before adds nothing but numbers, and its columns are made from its
bytes. Others, some thousands of a million, are unpickled as dicts: the first with a stack, a text or a layout, and
everything unexpected. Later values refer to earlier ones by their place in the unpickler's memo, so for entries that
it does not see the same number of places is filled with one object, the filler. If anything refers to that object, the
file is read again, the plain way.

Stacks: a recorder writes a list of references to frames for each entry. References never change their meaning, so equal
bytes are equal stacks. A reference to the list of an earlier entry (a free's completion has that of its request) is
resolved by its place in the memo.
"""

from __future__ import annotations

import functools
import pickle
import statistics
import time
from collections import deque

import numpy as np
from msgspec import Struct

from snapreport.reading.entry_tokens import Entry, Incomplete, Unusual, read_entry
from snapreport.reading.events import Codes
from snapreport.reading.parsed_entries import GrowingTable, ParsedEntries
from snapreport.reading.trace_candidates import ALONE, PARSED, UNPICKLED, CandidateReader, Candidates

FILLER_ID, PARSED_ID, MARK_ID = 0, 1, 2
"""Persistent ids in the unpickler's stream: the filler, the next of :attr:`TraceParser.parsed`, and, from the last one
on, lists that name the stacks of parsed entries by number.
"""
_PUSH_FILLER, _PUSH_PARSED = (bytes([0x4B, number]) + b"Q" for number in (FILLER_ID, PARSED_ID))
_PUT_MARK = np.dtype([("opcode", "u1"), ("place", "<u4")])  # LONG_BINPUT
# Candidates looked at: few where most things are new, since those after an entry with a new layout or text are looked
# at again, and eight times as many after each piece without one.
_FEWEST, _MOST, _GROWTH = 256, 1 << 20, 8
# Parsing is given up once it has taken longer than unpickling what was read so far, this share of unpickling the file,
# and some seconds, in which a recorder's frames and layouts become known. Unpickling takes twice as long with columns
# to collect; parsing what a recorder writes, half.
ALLOWED_SHARE, ALLOWED_SECONDS = 0.1, 0.1
# The share of that while all entries had to be read alone.
UNREAD_SHARE = 0.25
# The share of that after which parsing is given up though its last pieces were faster than unpickling.
PATIENCE = 2
_CHECKED_EVERY = 16  # entries read alone: a thread's clock takes a microsecond to read, in a sandbox 100
_BRACE, _MARK, _APPENDS, _APPEND = b"}(ea"
_NEW_LIST = b"]\x94"  # EMPTY_LIST MEMOIZE


class _Unpickled(Struct):
    """An entry left to the unpickler.

    introduced: the stack that it is the first to have. reference: the memo index that its frames refer to, if a trace
    has filled that. replaced: the stack found there; then None is put in the place of ``frames``. -1: none.
    """

    start: int
    end: int
    introduced: int = -1
    reference: int = -1
    replaced: int = -1
    frames: tuple[int, int] = (0, 0)


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
        self.memo = 0
        """Number of filled places in the memo."""
        self._reader = CandidateReader(codes)
        self.objects = self._reader.objects
        self._stacks = self._reader.stacks
        self._base = -1  # number of filled places when the first trace began
        self._lists = GrowingTable()  # place of a list, less _base → its stack
        self.is_in_batch = self._is_single = False
        self.made = 0
        """Number of :class:`ParsedEntries` so far."""
        self.needs_more = False
        """Whether the data ended within an entry."""
        self.rows = self.alone = self._restarts = 0
        self._most = _FEWEST
        self._size = size
        self._bytes, self._seconds = 0, 0.0
        self._recent_bytes, self._recent_seconds = 0.0, 0.0  # of the last pieces, each half as much as the next
        self.has_given_up = False

    @property
    def is_worthwhile(self) -> bool:
        """Whether parsing has been faster than unpickling, as far as it is known, or has become so."""
        return self._seconds <= self._allowed(self._bytes) or (
            self._seconds <= PATIENCE * self._allowed(self._bytes)
            and self._recent_seconds <= self._recent_bytes * _unpickling_seconds()
        )

    def _allowed(self, count: int) -> float:
        seconds = ALLOWED_SECONDS + (count + ALLOWED_SHARE * self._size) * _unpickling_seconds()
        return seconds if self.rows > self.alone else seconds * UNREAD_SHARE

    def begin(self) -> None:
        """A trace begins: the list of its entries has been stored in the memo, and is on top of the stack."""
        self.is_in_batch = self._is_single = False
        if self._base < 0:
            self._base = self.memo

    def given_up(self) -> bytes:
        """The unpickler's stream before the entries that are left to it, which may refer to lists of frames of parsed
        ones: lists that name their stacks take the places of these.
        """
        self.has_given_up = True
        places = self._lists.places()
        stacks = self._lists[places]
        order = np.argsort(stacks, kind="stable")
        puts = np.zeros(len(places), _PUT_MARK)
        puts["opcode"], puts["place"] = ord("r"), places[order] + max(self._base, 0)
        numbers, first = np.unique(stacks[order], return_index=True)
        parts = []
        for number, part in zip(numbers.tolist(), np.split(puts, first[1:]), strict=True) if len(numbers) else ():
            parts += [b"J", (MARK_ID + number).to_bytes(4, "little"), b"Q", part.tobytes(), b"0"]
        return b"".join([*parts, b"(" if self.is_in_batch else b""])

    def take(self, data: bytes, at: int) -> tuple[bytes, int, bool]:
        """Reads entries from ``data[at]`` on: the unpickler's stream in their place, the first byte not read, and
        whether the trace ended. Nothing is read if ``data`` does not hold a whole entry.

        Raises :class:`Unusual`.
        """
        began = time.thread_time()
        most, restarts = self._most, self._restarts
        found = self._reader.read(data, at, most, self._base)
        runs, unpickled, end, has_ended = self._sequence(data, at, found, began)
        self._bytes += end - at
        self.needs_more = end == found.following and len(found.starts) < most
        rows = np.concatenate([np.arange(run.first, run.last) for run in runs]) if runs else np.zeros(0, np.int64)
        if not len(rows) and not unpickled:
            return b"", end, has_ended
        has_restarted = self._restarts > restarts
        self._most = max(_FEWEST, most // _GROWTH) if has_restarted else min(_MOST, most * _GROWTH)
        self._resolve(found, runs, rows, unpickled)
        for i in rows[found.kinds[rows] == UNPICKLED].tolist():
            entry = _Unpickled(int(found.starts[i]), int(found.stops[i]))
            if found.references[i] < 0:
                entry.introduced = int(found.stacks[i])
            elif found.stacks[i] >= 0:
                entry.replaced, entry.frames = int(found.stacks[i]), (int(found.frames[i]), entry.end - 1)
            unpickled.append(entry)
        unpickled.sort(key=lambda entry: entry.start)
        self._stacks.introduce([entry.introduced for entry in unpickled if entry.introduced >= 0])
        rows = rows[found.kinds[rows] == PARSED]
        before = np.searchsorted(found.starts[rows], [entry.start for entry in unpickled])
        self._append(found, rows, unpickled, before)
        stream = _stream(data, found.fills[rows], unpickled, before)
        taken = time.thread_time() - began
        self._seconds += taken
        self._recent_bytes = self._recent_bytes / 2 + end - at
        self._recent_seconds = self._recent_seconds / 2 + taken
        return stream, end, has_ended

    def _sequence(
        self, data: bytes, at: int, found: Candidates, began: float
    ) -> tuple[list[_Run], list[_Unpickled], int, bool]:
        """Follows the entries from ``at`` on: runs of candidates, entries read alone, the end, and whether the trace
        has ended there. Updates ``memo``. ``began``: the thread's time when the candidates were looked for.
        """
        runs: list[_Run] = []
        unpickled: list[_Unpickled] = []
        alone = np.append(np.flatnonzero(found.kinds == ALONE), len(found.starts))
        filled = np.concatenate(([0], np.cumsum(found.fills)))
        begin = at
        while True:
            at, is_entry = self._between(data, at)
            if is_entry is None:
                return runs, unpickled, at, False
            if not is_entry:
                return runs, unpickled, at, True
            i = int(np.searchsorted(found.starts, at))
            if self.is_in_batch and i < len(found.starts) and found.starts[i] == at and found.kinds[i] != ALONE:
                last = int(alone[np.searchsorted(alone, i)])
                runs.append(_Run(i, last, self.memo))
                self.memo += int(filled[last] - filled[i])
                at = int(found.stops[last - 1])
                continue
            if at == found.following and len(found.starts):
                return runs, unpickled, at, False
            if found.texts and found.starts[found.texts[0][0]] < at != begin:
                # It may refer to a text that a candidate before it is the first to have.
                self._restarts += 1
                return runs, unpickled, at, False
            try:
                entry = read_entry(data, at, self.objects)
            except Incomplete:
                return runs, unpickled, at, False
            unpickled.append(self._read_alone(entry, data))
            at = entry.end
            is_new = self._reader.learn(entry, data)
            if is_new:
                self._restarts += 1
                return runs, unpickled, at, False
            if self.alone % _CHECKED_EVERY == 0:
                seconds = self._seconds + time.thread_time() - began
                if seconds > self._allowed(self._bytes + at - begin):
                    return runs, unpickled, at, False

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

    def _read_alone(self, entry: Entry, data: bytes) -> _Unpickled:
        """Registers what an entry puts into the memo."""
        made = _Unpickled(entry.start, entry.end)
        self.objects.update({self.memo + place: value for place, value in entry.objects.items()})
        for i, key in enumerate(entry.items[::2]):
            if key.known != "frames":
                continue
            if made.introduced >= 0 or made.reference >= 0:
                raise Unusual("an entry with two stacks")
            value = entry.items[2 * i + 1]
            if value.reference is not None and value.reference >= self._base:
                made.reference, made.frames = value.reference, (value.start, value.end)
                continue
            number = self._stacks.find_or_add(data[value.start : value.end])
            made.introduced = number if number >= 0 else self._stacks.new()
            if data[value.start : value.start + 2] == _NEW_LIST:
                self._lists[np.array([self.memo + value.memo - self._base])] = made.introduced
        self.memo += entry.memo
        self.alone += 1
        return made

    def _resolve(self, found: Candidates, runs: list[_Run], rows: np.ndarray, unpickled: list[_Unpickled]) -> None:
        """Resolves references to lists of earlier entries; candidates where this fails are left to the unpickler."""
        if len(rows):
            fills = found.fills[rows]
            # Where each row's places begin: those of its run, and of the rows before it there.
            lengths = np.array([run.last - run.first for run in runs])
            begins = np.cumsum(fills) - fills
            first = np.cumsum(lengths) - lengths
            places = begins + np.repeat(np.array([run.memo for run in runs]) - begins[first], lengths)
            place_of = dict(zip(rows.tolist(), places.tolist(), strict=True)) if found.texts else {}
            for row, before, text in found.texts:
                if row in place_of and found.kinds[row] == UNPICKLED:
                    self._reader.has_text(place_of[row] + before, text)
            has_list = fills > found.memo[rows]
            listed = rows[has_list]
            self._lists[places[has_list] + found.memo[listed] - self._base] = found.stacks[listed]
            referring = rows[found.references[rows] >= 0]
            stacks = self._lists[found.references[referring] - self._base]
            found.stacks[referring] = stacks
            found.kinds[referring[stacks < 0]] = UNPICKLED
        for entry in unpickled:
            if entry.reference >= 0:
                entry.replaced = int(self._lists[np.array([entry.reference - self._base])][0])

    def _append(self, found: Candidates, rows: np.ndarray, unpickled: list[_Unpickled], before: np.ndarray) -> None:
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
                np.array([entry.introduced for entry in unpickled], np.int32),
                np.array([entry.replaced for entry in unpickled], np.int32),
                {key: int(np.count_nonzero(has[rows])) for key, has in found.unknown_keys.items()},
            )
        )


@functools.cache
def _unpickling_seconds() -> float:
    """Of the C unpickler, for a byte of a typical trace, on this machine now."""
    frames = [{"filename": f"{i}.py", "line": i, "name": "forward"} for i in range(50)]
    entry = {"action": "alloc", "size": 4096, "stream": 0, "compile_context": "N/A", "user_metadata": ""}
    trace = [entry | {"addr": 1 << 46 | i, "time_us": 1 << 50 | i, "frames": frames[i % 40 :][:10]} for i in range(300)]
    pickled = pickle.dumps(trace, 4)
    taken = []
    for _ in range(3):
        began = time.thread_time()
        pickle.loads(pickled)
        taken.append(time.thread_time() - began)
    return statistics.median(taken) / len(pickled)


def _stream(data: bytes, fills: np.ndarray, unpickled: list[_Unpickled], before: np.ndarray) -> bytes:
    """A batch: the unpickled entries, then the parsed ones, with the memo filled in their place.

    fills: memo places of each parsed entry. before: parsed entries before each unpickled one.
    """
    filled = np.concatenate(([0], np.cumsum(fills)))
    bounds = filled[np.concatenate(([0], before, [len(fills)])).astype(np.int64)]
    parts = [b"("]
    for i, places in enumerate(np.diff(bounds).tolist()):
        if places:
            parts += [_PUSH_FILLER, b"\x94" * places, b"0"]
        if i < len(unpickled):
            entry = unpickled[i]
            if entry.replaced >= 0:
                start, end = entry.frames
                parts += [data[entry.start : start], b"N", data[end : entry.end]]
            else:
                parts.append(data[entry.start : entry.end])
    return b"".join([*parts, _PUSH_PARSED, b"e"])
