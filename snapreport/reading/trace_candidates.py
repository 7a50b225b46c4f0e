"""The trace entries in a part of a pickle, as columns of what is known of them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.reading.entry_layouts import (
    INT_KEYS,
    POOL_KEYS,
    TEXT_KEYS,
    Bytes,
    Layout,
    layout_of,
)
from snapreport.reading.entry_memo import POOL, UNKNOWN, Memo, TokenCodes
from snapreport.reading.entry_stacks import UNREADABLE, EntryStacks, Frames
from snapreport.reading.entry_tokens import MEMOIZE, REFERENCES, Entry, Incomplete, Unusual, read_entry
from snapreport.reading.events import KEYS, Codes
from snapreport.reading.fields import MAX_SIZE
from snapreport.reading.parsed_entries import Columns

# What becomes of a candidate: if it is an entry at all, it is read alone; it is unpickled; it is parsed.
ALONE, UNPICKLED, PARSED = range(3)
_MOST_LAYOUTS = 64
_MOST_UNREADABLE = 8  # candidates of one read that have no layout, before the others are left alone
_SETITEMS, _APPENDS, _MARK, _EMPTY_LIST = b"ue(]"


class Candidates(Struct):
    """C places where an entry may begin, and what was read of each.

    starts, stops: Int64, its bytes. kinds: UInt8. memo: Int64, memo places filled before its list of frames. fills:
    Int64, memo places filled in all. frames: Int64, where the value of its frames begins, -1 without. references:
    Int64, the memo index that its frames refer to if a trace has filled that, else -1. stacks: Int32, valid where there
    is no reference; ``NEW`` until it is added. columns: as in ``ParsedEntries``. unknown_keys: key → Boolean C.
    inline: key of a column of texts or pools that are no references, rows, memo places that each fills before it.
    lists: row → its frames, where some are no references.
    following: where the first candidate that was not read begins; -1 if there is none.
    """

    starts: np.ndarray
    stops: np.ndarray
    kinds: np.ndarray
    memo: np.ndarray
    fills: np.ndarray
    frames: np.ndarray
    references: np.ndarray
    stacks: np.ndarray
    columns: Columns
    unknown_keys: dict[str, np.ndarray]
    inline: list[tuple[str, np.ndarray, int]]
    lists: dict[int, Frames]
    following: int


class CandidateReader:
    """Reads candidates; layouts and stacks become known one by one."""

    def __init__(self, codes: Codes, memo: Memo) -> None:
        self.stacks = EntryStacks(codes.stacks, memo)
        self._memo = memo
        self._layouts: list[Layout] = []
        self._width = 0  # of the longest layout
        tables = {key: codes.texts[key] for key in TEXT_KEYS} | {"action": codes.actions}
        tables |= dict.fromkeys(POOL_KEYS, codes.texts[POOL])
        self._codes = {key: TokenCodes(key, table, memo) for key, table in tables.items()}

    def learn(self, entry: Entry, data: bytes) -> bool:
        """Whether entries like this one can be read at once from now on, but could not until now."""
        layout = layout_of(entry, data) if len(self._layouts) < _MOST_LAYOUTS else None
        if layout is None or any(layout.first != one.first or layout.is_like(one) for one in self._layouts):
            return False
        self._layouts.append(layout)
        self._width = max(self._width, layout.width)
        return True

    def read(self, data: bytes, at: int, most: int) -> Candidates:
        """At most ``most`` candidates from ``data[at]`` on."""
        source = Bytes(data)
        starts = source.starts(self._layouts[0].first, at, self._width) if self._layouts else np.zeros(0, np.int64)
        starts = starts[: most + 1]
        # Another trace may begin: a list, MEMOIZE and MARK.
        later = np.flatnonzero((source.bytes[starts[1:] - 1] == _MARK) & (source.bytes[starts[1:] - 2] == MEMOIZE))
        starts = starts[: later[0] + 2] if len(later) else starts
        following = int(starts[-1]) if len(starts) else -1
        found = self._empty(source, starts, following)
        if len(found.starts):
            self._read_layouts(found, source)
        self._read_stacks(found, source)
        return found

    @staticmethod
    def _empty(source: Bytes, starts: np.ndarray, following: int) -> Candidates:
        # An entry ends where the next begins. Between two batches stand APPENDS and MARK.
        starts, after = starts[:-1], starts[1:]
        n = len(starts)
        ends_batch = (source.bytes[after - 1] == _MARK) & (source.bytes[after - 2] == _APPENDS)
        stops = after - 2 * ends_batch
        kinds = np.where(source.bytes[stops - 1] == _SETITEMS, PARSED, ALONE).astype(np.uint8)
        zeros = np.zeros(n, np.int64)
        return Candidates(
            starts, stops, kinds, zeros.copy(), zeros.copy(), np.full(n, -1), np.full(n, -1), np.zeros(n, np.int32),
            {}, {}, [], {}, following,
        )  # fmt: skip

    def _read_layouts(self, found: Candidates, source: Bytes) -> None:
        """Reads the candidates' values; those of new layouts, too. The others are left alone."""
        left = np.flatnonzero(found.kinds == PARSED)
        found.kinds[left] = ALONE
        heads = source.heads(found.starts[left], self._width)
        known = unreadable = 0
        while len(left):
            for layout in self._layouts[known:]:
                fit = layout.fits(heads)
                if fit.all():
                    self._read_values(found, layout, heads.rows, left)
                    return
                if fit.any():
                    chosen, others = np.flatnonzero(fit), np.flatnonzero(~fit)
                    self._read_values(found, layout, heads.rows[chosen], left[chosen])
                    left, heads = left[others], heads[others]
            known = len(self._layouts)
            if not self._learn_layout(source.data, int(found.starts[left[0]])):
                unreadable += 1
                if unreadable == _MOST_UNREADABLE:
                    return
                left, heads = left[1:], heads[np.arange(1, len(left))]
            elif self._width > heads.rows.itemsize:
                if int(found.starts[left[-1]]) + self._width > len(source.data):
                    return
                heads = source.heads(found.starts[left], self._width)

    def _learn_layout(self, data: bytes, start: int) -> bool:
        try:
            return self.learn(read_entry(data, start, self._memo.known_at), data)
        except (Incomplete, Unusual):
            return False

    def _read_values(self, found: Candidates, layout: Layout, bytes_of: np.ndarray, rows: np.ndarray) -> None:
        """Reads the candidates ``rows``, which have the layout. ``bytes_of``: their first bytes, see :class:`Heads`."""
        n = len(found.starts)
        ends = found.stops[rows] - 1
        after = found.starts[rows] + layout.length
        fit = after < ends if layout.has_frames else after == ends
        columns = {}
        for key in layout.names:
            if key in INT_KEYS and layout.is_null(key):
                continue
            if key in INT_KEYS:
                columns[key] = layout.integers(key, bytes_of)
                if key in ("addr", "size"):
                    fit &= columns[key] >= 0
                if key == "size":
                    fit &= columns[key] <= MAX_SIZE
            elif key in self._codes:
                columns[key] = self._codes[key].of(layout.tokens(key, bytes_of))
                fit &= columns[key] != UNKNOWN
                if layout.is_inline(key) and key != "action":
                    found.inline.append((key, rows, layout.places[key]))
        is_whole = bool(fit.all())
        chosen = rows if is_whole else rows[fit]
        for key, values in columns.items():
            made, nulls = found.columns.setdefault(key, (np.zeros(n, values.dtype), np.ones(n, bool)))
            made[chosen] = values if is_whole else values[fit]
            nulls[chosen] = False
        for key in layout.names:
            if key not in KEYS:
                found.unknown_keys.setdefault(key, np.zeros(n, bool))[chosen] = True
        found.kinds[chosen] = PARSED
        found.memo[chosen] = layout.memo
        found.frames[chosen] = (after if is_whole else after[fit]) if layout.has_frames else -1

    def _read_stacks(self, found: Candidates, source: Bytes) -> None:
        """Sets references, stacks and memo fills."""
        rows = np.flatnonzero((found.kinds == PARSED) & (found.frames >= 0))
        begin, end = found.frames[rows], found.stops[rows] - 1
        words, width = source.words[begin], end - begin
        code = words.astype(np.uint8)
        short, long = ((code == of) & (width == 1 + n) for of, n in REFERENCES.items())
        index = (words >> np.uint64(8)).astype(np.uint32).astype(np.int64)
        index = np.where(short, index & 0xFF, index)
        referring = (short | long) & (index >= self._memo.base)
        found.references[rows] = np.where(referring, index, -1)
        found.fills[:] = found.memo
        found.fills[rows] += code == _EMPTY_LIST
        rows = rows[~referring]
        stacks, lists = self.stacks.of(source.data, begin[~referring], end[~referring])
        found.stacks[rows] = stacks
        found.kinds[rows[stacks == UNREADABLE]] = ALONE
        for i, frames in lists.items():
            found.lists[int(rows[i])] = frames
            found.fills[rows[i]] += frames.fills - 1
