"""Interning of stacks: lists of frame dicts in, numbers of distinct stacks out.

PyTorch's pickles share the frame dicts by memo, and a free's two events share their list, but every allocation has a
separate list: about a million lists of a few dozen frames, with a few thousand distinct stacks. Two ways:

- In order. One of the last two stacks that followed a stack follows it again in 80 to 95 of 100 cases, and comparing
  two lists of the same dicts takes a nanosecond per frame. The others are found by their frames' identities (30), or
  numbered (100).
- At once, where stacks follow each other in no order or are new: the addresses of all frames of a chunk are looked up
  in one array (18 nanoseconds per frame, for every list).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from snapreport.errors import SnapshotError
from snapreport.reading.fields import NoneType, Where, numbering, shown
from snapreport.reading.frame_table import MARKED, NOT_FOUND, NUMBER, FrameTable, NumberTable, StackMark
from snapreport.reading.stack_table import StackTable, sorted_stacks

_RECALLED = 8192  # stacks also indexed by the identities of their frames
_LONG = 24  # frames of a list that is worth emptying: 100 ns for 8 bytes a frame
# Nanoseconds, to choose a way: (per list, per frame).
_RECALL_COST, _NEW_COST, _AT_ONCE_COST = (800, 30), (1500, 100), (150, 25)
_FIRST_PATIENCE, _MOST_PATIENCE = 8, 64  # chunks at once before the other way is tried again
_MOST_AT_ONCE = 1 << 16  # frames: what fits into the processor's cache
_TRIED = 256  # lists of a chunk in order, before its others go the way that these say
_AT_LEAST = 64  # lists for which arrays pay


class StackInterner:
    """Collects stacks under provisional ids (0: the empty stack), then returns their table."""

    def __init__(self) -> None:
        # Stacks by their frames' numbers, as bytes; the order is that of the ids.
        self._codes = numbering([b""])
        self.register = self._codes.__getitem__
        """The id of a stack given as the bytes of its frames' numbers."""
        # A list of each stack to compare others with, alone in a tuple: ``in`` knows an object from itself without
        # comparing its items, which ``==`` does not.
        self._known: list[tuple[Any, ...]] = [([],)]
        # For each id, the last two ids that followed it, the likelier one first.
        self._follows: list[tuple[int, int]] = [(0, 0)]
        self._before = 0
        # Stacks by the identities of their frames: takes a third of the time of numbering them, but many times the
        # memory.
        self._recalled: dict[tuple[int, ...], int] = {}
        self._frames = FrameTable()
        # Stacks by hashes of their frames' numbers.
        self._by_hash = NumberTable()
        self._random = np.frombuffer(os.urandom(8 << 12), np.uint64) | np.uint64(1)
        self._marks: dict[int, StackMark] = {}
        self._deepest = 0  # bytes of the longest key
        self._patience, self._at_once = _FIRST_PATIENCE, 1  # in the first chunk, stacks are new
        self._cost = 0  # of the lists of a chunk that did not follow as before

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, lists: list[Any], where: Where, *, release: bool = False) -> np.ndarray:
        """Int32 provisional ids of a column of ``frames`` values; None and absent ones (None) are the empty stack.

        A list's place in error messages is ``where(row)`` + ".frames". ``release``: empty long lists once they are
        interned, except for a mark that names the stack.
        """
        self._grow()
        if len(lists) < _AT_LEAST:
            codes = self._codes_in_order(lists, where)
        elif self._at_once:
            codes = self._codes_at_once(lists, where)
            self._at_once -= 1
        else:
            codes = self._codes_in_order(lists[:_TRIED], where)
            self._choose(codes)
            if rest := lists[_TRIED:]:
                way = self._codes_at_once if self._at_once else self._codes_in_order
                codes = np.concatenate([codes, way(rest, lambda row: where(_TRIED + row))])
        self._grow()
        if release and self._deepest >= _LONG * NUMBER.itemsize:
            self._release(lists, codes)
        return codes

    def _codes_in_order(self, lists: list[Any], where: Where) -> np.ndarray:
        known, follows, before = self._known, self._follows, self._before
        made: list[int] = []
        append = made.append
        previous = None
        self._cost = 0
        for row, frames in enumerate(lists):
            if frames is not previous or frames is None:  # a free's request and its completion
                first, second = follows[before]
                if frames in known[first]:
                    code = first
                elif frames in known[second]:
                    code = second
                    follows[before] = second, first
                else:
                    code = self._code(frames, where, row)
                    follows[before] = code, first
                before, previous = code, frames
            append(before)
        self._before = before
        return np.array(made, np.int32)

    def _code(self, frames: Any, where: Where, row: int) -> int:
        """The id of a stack that does not usually follow the previous one, or is new."""
        if type(frames) is not list and type(frames) is not tuple:
            if frames is None:
                return 0
            raise SnapshotError(f"{where(row)}.frames: {shown(frames)}, not a list of frames")
        if len(frames) == 1 and type(frames[0]) is StackMark:
            return int(frames[0].stack)
        identities = tuple(map(id, frames))
        code = self._recalled.get(identities, -1)
        self._cost += _RECALL_COST[0] + _RECALL_COST[1] * len(frames)
        if code < 0:
            self._cost += _NEW_COST[0] + _NEW_COST[1] * len(frames)
            code = self.register(self._frames.numbers(frames, where, row).tobytes())
            self._grow()
            if len(self._recalled) < _RECALLED and not self._frames.is_full:
                self._recalled[identities] = code
        # Comparing with a list of plain frames is always quick. Additional keys of frames may take forever to compare.
        if not self._known[code] and _are_plain(frames):
            self._known[code] = (frames,)
        return code

    def number(self, frame: Any) -> int:
        """The number of a frame. Raises :class:`SnapshotError` if it is none."""
        return self._frames.number(frame)

    def _grow(self) -> None:
        """After stacks were registered."""
        if grown := len(self._codes) - len(self._known):
            self._known += [()] * grown
            self._follows += [(0, 0)] * grown
            self._deepest = max(self._deepest, *map(len, itertools.islice(reversed(self._codes), grown)))

    def _choose(self, codes: np.ndarray) -> None:
        """Decide by the time that a chunk took, in nanoseconds, which way the next ones go."""
        if self._cost <= _AT_ONCE_COST[0] * len(codes):
            self._patience = _FIRST_PATIENCE
            return
        keys = list(self._codes)
        distinct, counts = np.unique(codes, return_counts=True)
        frames = sum(len(keys[code]) * count for code, count in zip(distinct, counts, strict=True)) // NUMBER.itemsize
        if self._cost > _AT_ONCE_COST[0] * len(codes) + _AT_ONCE_COST[1] * frames:
            self._at_once = self._patience
            self._patience = min(2 * self._patience, _MOST_PATIENCE)

    def _codes_at_once(self, lists: list[Any], where: Where) -> np.ndarray:
        kinds = set(map(type, lists))
        if NoneType in kinds:
            kinds.discard(NoneType)
            lists = [() if frames is None else frames for frames in lists]
        if not kinds <= {list, tuple}:
            return self._codes_in_order(lists, where)  # which names the place
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        if lengths.sum() <= _MOST_AT_ONCE:
            codes = self._looked_up(lists, lengths, where)
        else:
            codes = self._looked_up_in_parts(lists, where)
        self._before = int(codes[-1])
        return codes.astype(np.int32)

    def _looked_up_in_parts(self, lists: list[Any], where: Where) -> np.ndarray:
        # A list of a million frames may occur in every entry.
        distinct = list({id(frames): frames for frames in lists}.values())
        lengths = np.fromiter(map(len, distinct), np.int64, len(distinct))
        parts = np.cumsum(lengths) // _MOST_AT_ONCE
        bounds = np.flatnonzero(np.diff(parts, prepend=-1, append=parts[-1] + 1)).tolist()
        codes = [self._looked_up(distinct[a:b], lengths[a:b], where) for a, b in itertools.pairwise(bounds)]
        found = dict(zip(map(id, distinct), np.concatenate(codes).tolist(), strict=True))
        return np.fromiter(map(found.__getitem__, map(id, lists)), np.int64, len(lists))

    def _looked_up(self, lists: list[Any], lengths: np.ndarray, where: Where) -> np.ndarray:
        flat = np.fromiter(itertools.chain.from_iterable(lists), object, int(lengths.sum()))
        try:
            numbers = self._frames.numbers_at_once(flat)
        except SnapshotError:
            for row, frames in enumerate(lists):
                self._code(frames, where, row)  # which names the place
            raise
        is_mark = numbers >= MARKED
        if not is_mark.any():
            return self._coded(numbers, lengths)
        rows = np.repeat(np.arange(len(lists)), lengths)[is_mark]
        if (lengths[rows] > 1).any():
            raise SnapshotError("a list of frames that grew after it was read")
        codes = np.zeros(len(lists), np.int64)
        codes[rows] = numbers[is_mark] - MARKED
        others = np.ones(len(lists), bool)
        others[rows] = False
        codes[others] = self._coded(numbers[~is_mark], lengths[others])
        return codes

    def _coded(self, numbers: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Int64 ids of stacks given by their frames' numbers."""
        ends = np.cumsum(lengths)
        starts = ends - lengths
        hashes = self._hashes(numbers, starts, lengths)
        codes = self._by_hash.find(hashes)
        new = np.flatnonzero(codes == NOT_FOUND)
        if len(new):
            distinct, first, of_each = np.unique(hashes[new], return_index=True, return_inverse=True)
            order = np.argsort(first)  # of their first appearance
            rows, raw, size = new[first[order]], numbers.tobytes(), NUMBER.itemsize
            bounds = zip((starts[rows] * size).tolist(), (ends[rows] * size).tolist(), strict=True)
            registered = np.empty(len(rows), np.int64)
            registered[order] = list(map(self.register, [raw[begin:end] for begin, end in bounds]))
            codes[new] = registered[of_each]
            self._by_hash.insert(distinct, registered)
        return codes

    def _hashes(self, numbers: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """UInt64 hashes of stacks: the sum of a random number of each frame times one of its place. That any two of a
        million stacks have the same one has a probability of 1 in 30 million.
        """
        most = max(len(self._frames), int(lengths.max(initial=0)))
        while len(self._random) < most:
            more = np.frombuffer(os.urandom(8 * len(self._random)), np.uint64) | np.uint64(1)
            self._random = np.concatenate([self._random, more])
        places = np.arange(len(numbers))
        places -= np.repeat(starts, lengths)
        products = self._random[numbers]
        products *= self._random[places]
        hashes = np.ones(len(starts), np.uint64)  # of the empty stack; 0 is no key of a table
        filled = lengths > 0
        if filled.any():
            hashes[filled] = np.add.reduceat(products, starts[filled])
        return hashes

    def _release(self, lists: list[Any], codes: np.ndarray) -> None:
        for frames, code in zip(lists, codes.tolist(), strict=True):
            if type(frames) is list and len(frames) >= _LONG:
                known = self._known[code]
                if not known or frames is not known[0]:
                    # clear(), not a slice assignment, which leaves the list's array in a fragmented heap: 2.2 GB
                    # instead of 0.4 on a pickle of 784 MB.
                    frames.clear()
                    frames.append(self._marks.setdefault(code, StackMark(code)))

    def finish(self, most_characters: int) -> StackTable:
        """The table of all stacks added.

        Raises :class:`SnapshotError` if the texts of distinct frames exceed ``most_characters``: a text shared by many
        frames is stored once in a pickle, but once per frame here.
        """
        characters = self._frames.characters
        if characters > most_characters:
            raise SnapshotError(f"frames with {characters:,} characters of text: not recorded by any program")
        offsets, flat, renumber, frame_order = sorted_stacks(list(self._codes), len(self._frames))
        return StackTable(self._frames.table(frame_order), offsets, flat, renumber)


_PLAIN = {str, int, NoneType, bool, float}


def _are_plain(frames: Sequence[Any]) -> bool:
    return set(map(type, frames)) <= {dict} and (
        set(map(len, frames)) <= {3} or all(set(map(type, frame.values())) <= _PLAIN for frame in frames)
    )
