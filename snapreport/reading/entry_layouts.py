"""Reads many trace entries of a pickle at once, as columns of tokens.

A recorder writes millions of entries with the same keys in the same order, each a reference to the memo, and with
values of one or two opcodes. So the n-th value of all entries is one step of numpy: compare the bytes of the key, take
eight bytes of the value, and advance by the length that its opcode has. An entry of thirteen keys takes 0.2 µs; the
unpickler takes 0.7 to make a dict of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from snapreport.reading.entry_tokens import INTEGERS, LONG1, MEMOIZE, NONE, REFERENCES, SHORT_TEXT, Entry

HEAD = b"}\x94("  # EMPTY_DICT MEMOIZE MARK
INT_KEYS = ("addr", "size", "stream", "time_us", "device_free")
TEXT_KEYS = ("action", "compile_context", "user_metadata", "category")
POOL_KEYS = ("pool_id", "segment_pool_id")
_UNSUPPORTED = ("forward_frames",)

_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
_REFERENCE_LENGTHS = {code: 1 + n for code, n in REFERENCES.items()}


def _lengths(of: dict[int, int]) -> np.ndarray:
    table = np.zeros(256, np.int64)
    table[list(of)] = list(of.values())
    return table


_INT_LENGTHS = _lengths({**{code: 1 + n for code, n in INTEGERS.items()}, LONG1: 2})
_TEXT_LENGTHS = _lengths({**_REFERENCE_LENGTHS, NONE: 1, SHORT_TEXT: 3})
_OTHER_LENGTHS = _lengths({
    **{code: 1 + n for code, n in INTEGERS.items()}, **_REFERENCE_LENGTHS, LONG1: 2, NONE: 1, 0x88: 1, 0x89: 1,
    SHORT_TEXT: 3,
})  # fmt: skip
_PAIR_LENGTHS = _lengths({0x4B: 2, 0x4D: 3})  # of a pair's numbers


@dataclass
class Bytes:
    """Bytes to read. ``words[i]``: the eight bytes from ``i`` on, as a number."""

    data: bytes

    def __post_init__(self) -> None:
        self.bytes = np.frombuffer(self.data, np.uint8)
        self.words = np.ndarray((max(0, len(self.data) - 7),), "<u8", buffer=self.data, strides=(1,))
        # Where a number's opcode may stand at most; what is no entry may be misread, but nothing after the end.
        self.last = len(self.words) - 3

    def starts(self, key: bytes, at: int) -> np.ndarray:
        """Int64 places from ``at`` on where an entry with this first key may begin."""
        head = HEAD + key
        # Compare a byte of all, then eight bytes of the few that are equal.
        places = np.flatnonzero(self.bytes[at : max(at, self.last)] == head[0]) + at
        word = np.uint64(int.from_bytes(head[:8], "little"))
        found: np.ndarray = places[self.words[places] & _MASKS[min(8, len(head))] == word]
        return found


@dataclass
class Tokens:
    """What a layout reads of n candidates.

    ok: Boolean n, whether the candidate has this layout. values: key → uint64 n, the first eight bytes of each value;
    of texts and pairs only their own. places: key → Int64 n, where each value begins. memo: Int64 n, memo places filled
    before the frames. frames: Int64 n, where the value of ``frames`` begins, or where the entry ends if it has none.
    """

    ok: np.ndarray
    values: dict[str, np.ndarray] = field(default_factory=dict)
    places: dict[str, np.ndarray] = field(default_factory=dict)
    memo: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    frames: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class Layout:
    """The keys of an entry, in order, as references to the memo. ``frames``, if present, is the last."""

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        self.keys = tuple(keys)
        self.has_frames = self.keys[-1][0] == "frames"
        self.names = [name for name, _ in self.keys]

    @property
    def first(self) -> bytes:
        """The bytes of the first key."""
        return self.keys[0][1]

    def read(self, source: Bytes, starts: np.ndarray) -> Tokens:
        """The tokens of the entries that may begin at ``starts``."""
        at = starts + len(HEAD)
        made = Tokens(np.ones(len(starts), bool), memo=np.ones(len(starts), np.int64))
        for name, key in self.keys:
            word = np.uint64(int.from_bytes(key, "little"))
            same = source.words[at] & _MASKS[len(key)] == word
            if not same.all():
                made.ok &= same
            at = np.minimum(at + len(key), source.last)
            if name == "frames":
                break
            token = source.words[at]
            length = _kind(name)(token, source, at, made)
            # Texts and pairs are compared as they are, so without the bytes that follow them.
            is_compared = name in TEXT_KEYS or name in POOL_KEYS
            made.values[name] = token & _MASKS[np.minimum(length, 8)] if is_compared else token
            made.places[name] = at
            at = np.minimum(at + length, source.last)
        made.frames = at
        return made


def layout_of(entry: Entry, data: bytes) -> Layout | None:
    """The layout of an entry whose keys are all references; None if entries like it are not read at once."""
    names = [item.known for item in entry.items[::2]]
    if any(item.reference is None for item in entry.items[::2]) or set(map(type, names)) != {str}:
        return None
    if len(set(names)) < len(names) or "action" not in names or any(key in names for key in _UNSUPPORTED):
        return None
    if "frames" in names[:-1]:
        return None
    return Layout([(item.known, data[item.start : item.end]) for item in entry.items[::2]])


def _kind(name: str) -> Callable[[np.ndarray, Bytes, np.ndarray, Tokens], np.ndarray]:
    if name in INT_KEYS:
        return _int_length
    return _text_length if name in TEXT_KEYS else _pair_length if name in POOL_KEYS else _other_length


def _int_length(token: np.ndarray, source: Bytes, at: np.ndarray, made: Tokens) -> np.ndarray:
    code = token.astype(np.uint8)
    length = _INT_LENGTHS[code]
    long = code == LONG1
    if long.any():
        count = (token >> np.uint64(8)).astype(np.uint8)
        length = length + np.where(long, count, 0)
        made.ok &= ~long | ((count >= 1) & (count <= 8))
    made.ok &= length > 0
    return length


def _text_length(token: np.ndarray, source: Bytes, at: np.ndarray, made: Tokens) -> np.ndarray:
    """Only texts of up to eight bytes, opcodes included, are compared here; others are not read at once."""
    code = token.astype(np.uint8)
    length = _with_text(token, code, _TEXT_LENGTHS[code], made)
    made.ok &= (length > 0) & (length <= 8)
    return length


def _other_length(token: np.ndarray, source: Bytes, at: np.ndarray, made: Tokens) -> np.ndarray:
    """A value of a key that no column is made of."""
    code = token.astype(np.uint8)
    length = _with_text(token, code, _OTHER_LENGTHS[code], made)
    long = code == LONG1
    length = length + np.where(long, (token >> np.uint64(8)).astype(np.uint8), 0)
    text = code == SHORT_TEXT
    if text.any():
        end = np.minimum(at + length - 1, len(source.bytes) - 1)
        made.ok &= ~text | (source.bytes[end] == MEMOIZE)
    made.ok &= length > 0
    return length


def _with_text(token: np.ndarray, code: np.ndarray, length: np.ndarray, made: Tokens) -> np.ndarray:
    text = code == SHORT_TEXT
    if text.any():
        made.memo += text
        length = length + np.where(text, (token >> np.uint64(8)).astype(np.uint8), 0)
    return length


def _pair_length(token: np.ndarray, source: Bytes, at: np.ndarray, made: Tokens) -> np.ndarray:
    """Lengths of references, and of pairs of small numbers (``TUPLE2 MEMOIZE``)."""
    code = token.astype(np.uint8)
    first = _PAIR_LENGTHS[code]
    pair = first > 0
    length: np.ndarray = _TEXT_LENGTHS[code] * (code != SHORT_TEXT)
    if pair.any():
        second = _PAIR_LENGTHS[(token >> (np.uint64(8) * first.astype(np.uint64))).astype(np.uint8)]
        made.ok &= ~pair | (second > 0)
        made.memo += pair
        length = np.where(pair, first + second + 2, length)
    made.ok &= length > 0
    return length


def integers(values: np.ndarray, places: np.ndarray, source: Bytes) -> np.ndarray:
    """Int64 from tokens of ``BININT1``, ``BININT2``, ``BININT`` and ``LONG1`` of up to eight bytes."""
    code = values.astype(np.uint8)
    made = np.zeros(len(values), np.int64)
    for of in (0x4B, 0x4D, 0x4A, LONG1):
        chosen = code == of
        if not chosen.any():
            continue
        if chosen.all():
            return _numbers(of, values, places, source)
        made[chosen] = _numbers(of, values[chosen], places[chosen], source)
    return made


def _numbers(code: int, values: np.ndarray, places: np.ndarray, source: Bytes) -> np.ndarray:
    if code == LONG1:
        shift = np.uint64(64) - np.uint64(8) * (values >> np.uint64(8)).astype(np.uint8).astype(np.uint64)
        signed: np.ndarray = (source.words[places + 2] << shift).view(np.int64) >> shift.astype(np.int64)
        return signed
    width = INTEGERS[code]
    numbers: np.ndarray = (values >> np.uint64(8)) & _MASKS[width]
    if width == 4:  # signed
        numbers = numbers.astype(np.int32)
    return numbers.astype(np.int64)
