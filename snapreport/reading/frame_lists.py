"""Lists of frames as ``pickle.dump`` writes them, many at once: references to earlier frames, and frames in between.

A reference takes two bytes or five (``BINGET``, ``LONG_BINGET``), so where the items of a list begin is known once the
short ones are. A byte that begins a short one may also be within a longer one; its distance from the list's beginning
tells which. That takes some 15 ns an item, a regular expression 150.
"""

from __future__ import annotations

import re
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from msgspec import Struct

from snapreport.reading.fields import NoneType

_REFERENCE = rb"h.|j.{4}"
# No character begins with MEMOIZE (0x94), which follows the text. The length before it is compared later.
_TEXT = rb"[\x00-\x7f]*+(?:(?:[\xc2-\xdf].|[\xe0-\xef]..|[\xf0-\xf4]...)[\x00-\x7f]*+)*+"
_INLINE = rb"(?:\x8c.|X.{4})" + _TEXT + rb"\x94"
_LONG = b"|".join(rb"\x8a" + re.escape(bytes([n])) + b".{%d}" % n for n in range(1, 10))
_NUMBER = rb"K.|M..|J.{4}|[N\x88\x89]|" + _LONG  # and None, True, False
_TOKEN = rb"(?:" + _REFERENCE + b"|" + _INLINE + b"|" + _NUMBER + b")"
_PAIR = b"(" + _TOKEN + b")(" + _TOKEN + b")"
_PAIRS = 3  # of a frame as PyTorch writes it
_FRAME = re.compile(rb"\}\x94\(" + _PAIR * _PAIRS + b"((?:" + _TOKEN + _TOKEN + b")*+)u", re.DOTALL)
_TOKENS = re.compile(_TOKEN, re.DOTALL)
_GROUPS = 2 * _PAIRS + 1
_FRAME_BYTES = 4  # EMPTY_DICT MEMOIZE MARK and SETITEMS
_STANDS_FOR_A_FRAME = b"f\0\0\0\0"  # no opcode of protocol 4
_SHORT_REFERENCE, _LONG_REFERENCE = b"hj"
_BATCH = b"e("  # between a thousand items and the next
LIST = b"]\x94"
_FULL_LIST = b"]\x94("
_IS_TEXT = {bytes: 0, str: 1, NoneType: -(1 << 32)}
_TEXT_HEADS = {0x8C: 2, 0x58: 5}  # opcode of a text → bytes before it


class FrameLists(Struct):
    """K lists of frames.

    is_read: Boolean K; the items of others mean nothing. offsets: Int64 K + 1, into the items. items: Int64, memo
    indices; -1 - f for frame f of those that are written in the lists. fills: Int64 K, memo places that each fills.
    frame_lists, frame_places: Int64 F, the list of each of these frames, and memo places filled since that began.
    columns: their keys and values in turn, each F texts, or bytes of references and numbers. more: those after the
    sixth, by frame.
    """

    is_read: np.ndarray
    offsets: np.ndarray
    items: np.ndarray
    fills: np.ndarray
    frame_lists: np.ndarray
    frame_places: np.ndarray
    columns: list[list[Any]]
    more: list[list[Any]]

    def put(self, lists: list[tuple[int, list[int]]]) -> None:
        """Puts lists that were not read, given their items, in ascending order."""
        of = np.array([i for i, _ in lists], np.int64)
        lengths = np.array([len(items) for _, items in lists], np.int64)
        items = [*chain.from_iterable(items for _, items in lists)]
        self.items = np.insert(self.items, np.repeat(self.offsets[of], lengths), items)
        self.is_read[of] = True
        self.offsets[1:] += np.cumsum(_sums(of, lengths, len(self.is_read)))


def read_lists(values: list[bytes]) -> FrameLists:
    """Reads values of ``frames`` that begin with ``EMPTY_LIST MEMOIZE``."""
    raw = b"".join(values)
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    columns: list[list[Any]] = [[] for _ in range(2 * _PAIRS)]
    more: list[list[Any]] = []
    owners = places = np.zeros(0, np.int64)
    fills = np.ones(len(values), np.int64)
    is_wrong = np.zeros(len(values), bool)
    if b"}" in raw:
        parts = _FRAME.split(raw)
        lengths = np.fromiter(map(len, parts[:-1]), np.int64, len(parts) - 1).reshape(-1, _GROUPS + 1)
        longer = lengths[:, 1:].sum(axis=1) + _FRAME_BYTES  # each frame
        owners = np.searchsorted(ends, np.cumsum(lengths[:, 0]) + np.cumsum(longer) - longer, "right")
        raw = _STANDS_FOR_A_FRAME.join(parts[:: _GROUPS + 1])
        ends -= np.cumsum(_sums(owners, longer - len(_STANDS_FOR_A_FRAME), len(values)))
        read = [_tokens(parts[1 + i :: _GROUPS + 1]) for i in range(2 * _PAIRS)]
        columns, own = [column for column, _ in read], 1 + np.sum([texts for _, texts in read], axis=0)
        more = [_TOKENS.findall(pairs) if pairs else [] for pairs in parts[_GROUPS :: _GROUPS + 1]]
        for i in [i for i, tokens in enumerate(more) if tokens]:
            more[i], texts = _tokens(more[i])
            own[i] += texts.sum()
        is_wrong[owners[own < 0]] = True
        fills += _sums(owners, own, len(values))
        places = np.cumsum(own) - own
        places += 1 - places[np.searchsorted(owners, owners)]
    is_read, offsets, items = _items(raw, ends, np.bincount(owners, minlength=len(values)))
    return FrameLists(is_read & ~is_wrong, offsets, items, fills, owners, places, columns, more)


def _tokens(raw: list[bytes]) -> tuple[list[Any], np.ndarray]:
    """With texts in the place of their bytes. Int64: 1 for each text; less than any number of them for what is none."""
    if _TEXT_HEADS.keys().isdisjoint(map(itemgetter(0), raw)):
        return raw, np.zeros(len(raw), np.int64)
    tokens = [*map(_token, raw)]
    return tokens, np.array([_IS_TEXT[type(token)] for token in tokens])


def _token(raw: bytes) -> bytes | str | None:
    head = _TEXT_HEADS.get(raw[0])
    if head is None:
        return raw
    try:
        text = raw[head:-1].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if int.from_bytes(raw[1:head], "little") == len(raw) - head - 1 else None


def _sums(owners: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """Int64: the sum of the numbers of each owner."""
    sums: np.ndarray = np.bincount(owners, numbers, count).astype(np.int64)
    return sums


def _items(raw: bytes, ends: np.ndarray, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``is_read``, ``offsets`` and ``items`` of :class:`FrameLists`. ends: of each list. frames: how many were replaced
    in each.
    """
    padded = raw + bytes(8)
    data = np.frombuffer(padded, np.uint8)
    words = np.ndarray((len(raw),), "<u8", buffer=padded, strides=(1,))
    starts = np.append(0, ends)[:-1]
    is_full = (words[starts] & np.uint64(0xFFFFFF) == int.from_bytes(_FULL_LIST, "little")) & (
        data[ends - 1] == b"e"[0]
    )
    has_one = ~is_full & (data[ends - 1] == b"a"[0])
    begins, stops = starts + 2 + is_full, ends - (is_full | has_one)
    at, of = _short_tokens(data, begins, stops)
    short = np.bincount(of, minlength=len(ends))
    longer = stops - begins - 2 * short
    counts = short + longer // 5
    is_read = (words[starts] & np.uint64(0xFFFF) == int.from_bytes(LIST, "little")) & (longer >= 0) & (longer % 5 == 0)
    is_read &= is_full | (counts == has_one)
    # Runs of longer tokens, each up to a short one or the end of its list.
    counts *= is_read
    at = at[is_read[of]]
    begins, stops = np.concatenate((begins[is_read], at + 2)), np.concatenate((at, stops[is_read]))
    begins.sort()
    stops.sort()
    closes = np.ones(len(begins), bool)
    closes[np.cumsum(short[is_read] + 1) - 1] = False
    in_run = (stops - begins) // 5 + closes
    last = np.cumsum(in_run)
    places = np.repeat(begins - 5 * (last - in_run), in_run)
    places += np.arange(0, 5 * len(places), 5)
    found = words[places]
    codes = found.astype(np.uint8)
    found >>= np.uint64(8)
    found &= np.uint64(0xFFFFFFFF)
    items, short_items = found.view(np.int64), last[closes] - 1
    items[short_items] &= 0xFF
    is_odd = codes != _LONG_REFERENCE
    is_odd[short_items] = codes[short_items] != _SHORT_REFERENCE
    odd = np.flatnonzero(is_odd)
    owner, codes = np.searchsorted(np.cumsum(counts), odd, "right"), codes[odd]
    is_own = codes == _STANDS_FOR_A_FRAME[0]
    is_batch = (codes == _BATCH[0]) & (items[odd] == _BATCH[1]) & is_full[owner]
    is_read[owner[~is_own & ~is_batch]] = False
    is_read &= np.bincount(owner[is_own], minlength=len(ends)) == frames
    items[odd[is_own & is_read[owner]]] = -1 - np.flatnonzero(np.repeat(is_read, frames))
    if is_batch.any():
        items = np.delete(items, odd[is_batch])
        counts -= np.bincount(owner[is_batch], minlength=len(ends))
    return is_read, np.append(0, np.cumsum(counts)), items


def _short_tokens(data: np.ndarray, begins: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where tokens of two bytes begin in lists with these bytes, and the list of each."""
    at = np.flatnonzero((data == _SHORT_REFERENCE) | (data == _BATCH[0]))
    of = np.searchsorted(begins, at, "right") - 1
    inside = (of >= 0) & (at < stops[of])
    at, of = at[inside], of[inside]
    counts = np.bincount(of, minlength=len(begins))
    before = np.cumsum(counts) - counts
    rank = np.arange(len(at)) - before[of]
    distances = at - begins[of]
    # In these lists, some are within longer tokens.
    unclear = np.unique(of[(distances - 2 * rank) % 5 > 0])
    begin_one = np.ones(len(at), bool)
    for i in unclear.tolist():
        part = slice(before[i], before[i] + counts[i])
        begin_one[part] = _begin_tokens((distances[part] % 5).tolist())
    return at[begin_one], of[begin_one]


def _begin_tokens(remainders: list[int]) -> list[bool]:
    """Whether a short token begins at places with these remainders of the division by five."""
    found, expected = [], 0
    for one in remainders:
        found.append(one == expected)
        if one == expected:
            expected = (expected + 2) % 5
    return found
