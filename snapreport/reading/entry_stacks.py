"""Stacks of trace entries by the bytes of their frames' values: lists of frames and of references to them."""

from __future__ import annotations

from itertools import pairwise, repeat
from typing import Any

import numpy as np
from msgspec import Struct

from snapreport.reading.entry_memo import GrowingTable, Memo
from snapreport.reading.entry_tokens import LONG1, REFERENCES
from snapreport.reading.fields import numbering
from snapreport.reading.frame_lists import FrameLists, read_lists
from snapreport.reading.frame_table import NUMBER
from snapreport.reading.stacks import StackInterner

NEW, UNREADABLE = -1, -2
"""Codes of values that were not added, and of those that cannot be."""
_TO_BE_NUMBERED = -2


class NewStacks(Struct):
    """K values that were not known when they were found, the lists that they are, and Int32 codes: ``NEW`` until they
    are added. Values with frames of their own are told apart: the same bytes put other frames into the memo.
    """

    values: list[bytes]
    lists: FrameLists
    codes: np.ndarray


class _Values(dict[bytes, Any]):
    """Values of references and numbers by their bytes. Raises ``KeyError`` for a reference to anything else."""

    def __init__(self, memo: Memo) -> None:
        self._memo = memo

    def of(self, tokens: list[Any]) -> list[Any]:
        """The values of keys and values of frames."""
        return [token if type(token) is str else self[token] for token in tokens]

    def __missing__(self, token: bytes) -> Any:
        value = self._memo.known_at(int.from_bytes(token[1:], "little")) if token[0] in REFERENCES else _number(token)
        if value is None and token != b"N":
            raise KeyError(token)
        self[token] = value
        return value


class EntryStacks:
    """Codes of stacks."""

    def __init__(self, stacks: StackInterner, memo: Memo) -> None:
        self._stacks = stacks
        self._memo = memo
        self._codes = {b"N": 0}
        self._numbers = GrowingTable()  # memo index → the number of the frame there
        self._values = _Values(memo)

    def of(self, values: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray, NewStacks]:
        """Int32 codes of values of ``frames``; Int64 rows of those that were not known, which of the new ones each is,
        and these.
        """
        # A dict compares bytes faster than numpy could group them.
        codes = np.fromiter(map(self._codes.get, values, repeat(NEW)), np.int32, len(values))
        rows = np.flatnonzero(codes == NEW)
        numbers: dict[bytes | int, int] = numbering()
        keys = [i if b"}" in values[i] else values[i] for i in rows.tolist()]
        which = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))
        found: list[Any] = [values[key] if type(key) is int else key for key in numbers]
        lists = read_lists(found)
        listed = [(i, self._listed(found[i])) for i in np.flatnonzero(~lists.is_read).tolist()]
        if listed:
            lists.put([(i, items) for i, items in listed if items is not None])
        codes[rows[~lists.is_read[which]]] = UNREADABLE
        return codes, rows, which, NewStacks(found, lists, np.full(len(found), NEW, np.int32))

    def add(self, new: NewStacks, which: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Int32 codes of entries with these new values, whose lists have these places in the memo: up to the first that
        refers to anything but a frame.
        """
        distinct, first = np.unique(which, return_index=True)
        is_left = new.codes[distinct] == NEW
        distinct, first = distinct[is_left], first[is_left]
        if len(distinct):
            begin = int(distinct[0])
            in_row = int(np.count_nonzero(distinct == begin + np.arange(len(distinct))))
            added = self._add(new, begin, begin + in_row, places[first[:in_row]])
            new.codes[begin : begin + len(added)] = added
        codes: np.ndarray = new.codes[which]
        missing = np.flatnonzero(codes == NEW)
        return codes[: missing[0]] if len(missing) else codes

    def _add(self, new: NewStacks, first: int, end: int, places: np.ndarray) -> np.ndarray:
        """Int32 codes of new values from ``first`` to ``end``, up to the first that refers to anything but a frame.
        places: of their lists in the memo.
        """
        lists = new.lists
        begin = lists.offsets[first]
        ends = lists.offsets[first + 1 : end + 1] - begin
        items = lists.items[begin : begin + ends[-1]]
        own = slice(*np.searchsorted(lists.frame_lists, (first, end)))
        at = places[lists.frame_lists[own] - first] + lists.frame_places[own]
        if len(at):
            items = items.copy()
            items[items < 0] = at
            self._numbers[at] = _TO_BE_NUMBERED
        numbers = self._numbers[items]
        unknown = items[numbers == -1]
        if len(at) or len(unknown):
            try:
                self._number_frames(lists, own, at, items[numbers < 0] if len(unknown) else at)
            except KeyError:
                return np.zeros(0, np.int32)
            numbers = self._numbers[items]
        if items.max(initial=-1) >= places[0]:
            after = places + lists.fills[first:end]
            numbers[items >= np.repeat(after, np.diff(ends, prepend=0))] = -1  # what was not there yet
        missing = np.flatnonzero(numbers < 0)
        if len(missing):
            ends = ends[: np.searchsorted(ends, missing[0], "right")]
        raw = numbers.astype(NUMBER).tobytes()
        bounds = [0, *(ends * NUMBER.itemsize).tolist()]
        codes = [*map(self._stacks.register, [raw[a:b] for a, b in pairwise(bounds)])]
        is_own = (lists.fills[first:end] > 1).tolist()
        self._codes.update(
            (value, code) for value, code, own in zip(new.values[first:end], codes, is_own, strict=False) if not own
        )
        return np.array(codes, np.int32)

    def _listed(self, value: bytes) -> list[int] | None:
        """Memo indices of the frames of a list of the unpickler, given by a reference to it."""
        is_reference = REFERENCES.get(value[0]) == len(value) - 1
        known = self._memo.object_at(int.from_bytes(value[1:], "little")) if is_reference else None
        try:
            return [self._memo.dicts[id(frame)] for frame in known] if type(known) is list else None
        except KeyError:
            return None

    def _number_frames(self, lists: FrameLists, own: slice, at: np.ndarray, indices: np.ndarray) -> None:
        """Numbers frames in the order of ``indices`` of the memo, as far as there are frames: those that are written in
        the lists, at ``at``, and others. Raises ``KeyError`` for a frame with other keys than texts.
        """
        columns, more = [column[own] for column in lists.columns], lists.more[own]
        place = at + 1
        for column in columns:
            texts = [i for i, one in enumerate(column) if type(one) is str]
            if texts:
                self._memo.objects.update(zip(place[texts].tolist(), [column[i] for i in texts], strict=True))
                place[texts] += 1
        for i in [i for i, one in enumerate(more) if one]:
            names = [one for one in more[i] if type(one) is str]
            self._memo.objects.update(zip(range(place[i], place[i] + len(names)), names, strict=True))
        known = self._values
        keys = [set(column) for column in columns[::2]]
        if indices is at and all(len(one) == 1 for one in keys) and not any(more):
            values = [known.of(column) for column in columns[1::2]]
            self._numbers[at] = self._stacks.numbers(known.of([one.pop() for one in keys]), values)
            return
        frames = {}
        for index, pairs in zip(at.tolist(), zip(*columns, more, strict=True), strict=True):
            tokens = known.of([*pairs[:-1], *pairs[-1]])
            if set(map(type, tokens[::2])) != {str}:
                raise KeyError(pairs)
            frames[index] = dict(zip(tokens[::2], tokens[1::2], strict=True))
        for index in dict.fromkeys(indices.tolist()):
            frame = frames.get(index) or self._memo.object_at(index)
            if type(frame) is dict:
                self._numbers[np.array([index])] = self._stacks.number(frame)


def _number(raw: bytes) -> int | bool | None:
    if raw in (b"N", b"\x88", b"\x89"):
        return None if raw == b"N" else raw == b"\x88"
    return int.from_bytes(raw[2 if raw[0] == LONG1 else 1 :], "little", signed=raw[0] in (LONG1, b"J"[0]))
