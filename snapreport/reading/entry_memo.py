"""What the unpickler's memo holds, as far as trace entries refer to it, and codes of what stands in their bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from snapreport.reading.entry_layouts import POOL_KEYS, TEXT_KEYS
from snapreport.reading.entry_tokens import MEMOIZE, NONE, REFERENCES, SHORT_TEXT
from snapreport.reading.events import Codes
from snapreport.reading.fields import is_pool
from snapreport.reading.recording import ACTIONS

UNKNOWN = -2
"""Code of a token that stands for nothing known."""
STACK = "frames"
POOL = "pool"
_KINDS = (STACK, *TEXT_KEYS[1:], POOL)  # of what a parsed entry puts into the memo; actions are references
_MEMOIZED, _TUPLE2 = bytes([MEMOIZE]), b"\x86"
_MOST_WRITTEN = 1_000  # texts and pools of a trace that the unpickler gets after it: 10 ms
_FEW = 16  # known tokens; with more, sorting is faster than a comparison with each


class GrowingTable:
    """An Int32 array that grows; -1 where nothing was set."""

    def __init__(self) -> None:
        self._items = np.full(1024, -1, np.int32)

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        if not len(places) or places.max() < len(self._items):
            found: np.ndarray = self._items[places]
            return found
        inside = places < len(self._items)
        items: np.ndarray = self._items[np.where(inside, places, 0)]
        return np.where(inside, items, -1)

    def places(self) -> np.ndarray:
        """Int64 places where something was set."""
        return np.flatnonzero(self._items >= 0)

    def __setitem__(self, places: np.ndarray, values: Any) -> None:
        needed = int(places.max(initial=0)) + 1
        if needed > len(self._items):
            more = np.full(max(needed, 2 * len(self._items)) - len(self._items), -1, np.int32)
            self._items = np.concatenate([self._items, more])
        self._items[places] = values


class Memo:
    """Places of the memo: those of objects that the unpickler has, and of texts, pools and lists of frames in entries
    that it does not see.
    """

    def __init__(self, codes: Codes) -> None:
        self.filled = 0
        """Number of filled places."""
        self.base = -1
        """That number when the first trace began."""
        self.before: Sequence[Any] = ()
        """All objects of the unpickler before the first trace, by index."""
        self.objects: dict[int, Any] = {}
        """Texts and pools that it has since, by index."""
        self._codes: list[dict[str, int]] = [codes.texts[key] for key in _KINDS[1:]]
        self._names: list[list[str]] = [[] for _ in self._codes]
        self._numbers = GrowingTable()  # place, less base → the code of what an entry put there, and its kind
        self._seen = [GrowingTable() for _ in self._codes]  # code → 1 if an entry put it into a place
        self._first: list[tuple[int, int]] = []  # numbers and places of the first in this trace

    def begin(self) -> None:
        """A trace begins."""
        if self.base < 0:
            self.base = self.filled

    def put(self, places: np.ndarray, codes: np.ndarray, kind: str) -> None:
        """Notes which stacks, texts or pools, by their codes, entries put into these places of the memo."""
        of_kind = _KINDS.index(kind)
        self._numbers[places - self.base] = numbers = codes * len(_KINDS) + of_kind
        if kind == STACK or not len(places):
            return
        seen = self._seen[of_kind - 1]
        new = np.flatnonzero(seen[codes] < 0)
        if len(new) and len(self._first) < _MOST_WRITTEN:
            seen[codes[new]] = 1
            distinct, first = np.unique(numbers[new], return_index=True)
            self._first += zip(distinct.tolist(), places[new[first]].tolist(), strict=True)

    def first(self) -> list[tuple[int, Any]]:
        """Places and texts or pools that parsed entries of this trace were the first to have, not all if many: what
        follows the trace may refer to them.
        """
        first, self._first = self._first, []
        return [(place, self._value(number)) for number, place in first]

    def stacks(self, places: np.ndarray) -> np.ndarray:
        """Int32 codes of the stacks of lists in these places, -1 for anything else."""
        numbers = self._numbers[places - self.base]
        return np.where((numbers >= 0) & (numbers % len(_KINDS) == 0), numbers // len(_KINDS), np.int32(-1))

    def object_at(self, index: int) -> Any:
        """The object of the unpickler at an index, if it is known."""
        return self.before[index] if index < len(self.before) else self.objects.get(index)

    def known_at(self, index: int) -> Any:
        """The text or pair of numbers at an index; None for anything else."""
        found = self.object_at(index)
        if found is None:
            found = self.parsed_at(index)
        return found if type(found) is str or is_pool(found) else None

    def parsed_at(self, index: int) -> Any:
        """The text or pair of numbers that a parsed entry put there, which the unpickler does not have; else None."""
        if index < self.base or index in self.objects:
            return None
        number = int(self._numbers[np.array([index - self.base])][0])
        return None if number < 0 or number % len(_KINDS) == 0 else self._value(number)

    def _value(self, number: int) -> Any:
        code, kind = divmod(number, len(_KINDS))
        codes, names = self._codes[kind - 1], self._names[kind - 1]
        names += [*islice(reversed(codes), len(codes) - len(names))][::-1]
        return names[code] if _KINDS[kind] != POOL else tuple(map(int, names[code][1:-1].split(", ")))

    def parsed(self) -> Iterator[tuple[int | None, Any, np.ndarray]]:
        """What parsed entries put into the memo: the code of a stack, or a text or pair of numbers; Int64 places."""
        places = self._numbers.places()
        numbers = self._numbers[places]
        order = np.argsort(numbers, kind="stable")
        distinct, first = np.unique(numbers[order], return_index=True)
        if not len(distinct):
            return
        for number, part in zip(distinct.tolist(), np.split(places[order] + self.base, first[1:]), strict=True):
            is_stack = number % len(_KINDS) == 0
            yield number // len(_KINDS) if is_stack else None, None if is_stack else self._value(number), part


class TokenCodes:
    """Codes of a key's texts or pools by the token that stands for them.

    codes: text → code, to which new ones are added; of actions none are.
    """

    def __init__(self, key: str, codes: defaultdict[str, int], memo: Memo) -> None:
        self._key = key
        self._codes = codes
        self._memo = memo
        self._known: dict[int, int] = {}

    def of(self, tokens: np.ndarray) -> np.ndarray:
        """Int32 codes of tokens (:meth:`Layout.tokens`): -1 for None, ``UNKNOWN`` for what is no text or pool."""
        made = np.full(len(tokens), UNKNOWN, np.int32)
        if tokens.dtype.kind == "V":
            # Every recorder writes one text of each action, and references to it.
            return self._of_texts(tokens.tobytes(), tokens.itemsize) if self._key != "action" else made
        if (tokens == tokens[0]).all():
            made[:] = self._code(int(tokens[0]))
            return made
        left = len(tokens)
        if len(self._known) <= _FEW:
            for token, code in self._known.items():
                chosen = tokens == np.uint64(token)
                made[chosen] = code
                left -= int(np.count_nonzero(chosen))
                if not left:
                    return made
        rows = np.flatnonzero(made == UNKNOWN)
        distinct, of_row = np.unique(tokens[rows], return_inverse=True)
        made[rows] = np.fromiter(map(self._code, distinct.tolist()), np.int32, len(distinct))[of_row]
        return made

    def _of_texts(self, raw: bytes, width: int) -> np.ndarray:
        """Of texts of ``width`` bytes each."""
        n = len(raw) // width
        if raw == raw[:width] * n:
            raw = raw[:width]
        if raw.isascii():
            joined = raw.decode("ascii")
            texts = [joined[i : i + width] for i in range(0, len(raw), width)]
            made = np.fromiter(map(self._codes.__getitem__, texts), np.int32, len(texts))
        else:
            found = [_text(raw[i : i + width]) for i in range(0, len(raw), width)]
            made = np.array([UNKNOWN if text is None else self._codes[text] for text in found], np.int32)
        return made if len(made) == n else np.full(n, made[0], np.int32)

    def _code(self, token: int) -> int:
        code = self._known.get(token)
        if code is None:
            raw = token.to_bytes(8, "little")
            code = -1 if raw[0] == NONE else self._code_of(self._value(raw))
            if code != UNKNOWN:
                self._known[token] = code
        return code

    def _value(self, raw: bytes) -> Any:
        """The text or pair of numbers that a token stands for, if any."""
        if raw[0] in REFERENCES:
            return self._memo.known_at(int.from_bytes(raw[1:], "little"))
        if raw[0] != SHORT_TEXT:
            return _pair(raw)
        end = 2 + raw[1]
        return None if self._key == "action" or raw[end : end + 1] != _MEMOIZED else _text(raw[2:end])

    def _code_of(self, value: Any) -> int:
        if type(value) is str and self._key == "action":
            return self._codes.get(value, UNKNOWN) if value in ACTIONS else UNKNOWN
        if type(value) is str and self._key in TEXT_KEYS:
            return self._codes[value]
        if is_pool(value) and self._key in POOL_KEYS and min(value) >= 0 and max(value) < 1 << 64:
            return self._codes[f"({value[0]}, {value[1]})"]
        return UNKNOWN


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _pair(raw: bytes) -> tuple[int, ...] | None:
    pair, at = [], 0
    for _ in range(2):
        width = {0x4B: 1, 0x4D: 2}.get(raw[at], 0)
        pair.append(int.from_bytes(raw[at + 1 : at + 1 + width], "little"))
        at += 1 + width
    return tuple(pair) if raw[at : at + 2] == _TUPLE2 + _MEMOIZED else None
