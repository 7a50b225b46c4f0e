"""Trace entries whose columns were made from their bytes, and the tables that give these bytes a meaning."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from msgspec import Struct

from snapreport.reading.entry_layouts import POOL_KEYS, TEXT_KEYS
from snapreport.reading.entry_tokens import MEMOIZE, NONE, REFERENCES, SHORT_TEXT
from snapreport.reading.fields import is_pool
from snapreport.reading.recording import ACTIONS

UNKNOWN = -2
"""Code of a token that no unpickled entry has had."""

NO_STACK, EMPTY_STACK = 0, 1
"""Numbers of the stacks that need no entry: no frames, and an empty list."""

_FEW = 16  # known tokens; with more, sorting is faster than a comparison with each

Columns = dict[str, tuple[np.ndarray, np.ndarray]]
"""Key → values and Boolean nulls: Int64 whole numbers, Int32 codes of texts and pools (-1: null too)."""


class ParsedEntries(Struct):
    """A part of a trace: N entries, of which M were unpickled.

    rows: N. unpickled: Int64 M, the rows of these, ascending. columns: N - M values of the other rows by key; keys that
    none has are absent. stacks: Int32 N - M, numbers of stacks. introduced: Int32 M, the number of the stack that an
    unpickled entry is the first to have, else -1. replaced: Int32 M, the number of the stack that was taken out of an
    unpickled entry, else -1. unknown_keys: key → entries.
    """

    rows: int
    unpickled: np.ndarray
    columns: Columns
    stacks: np.ndarray
    introduced: np.ndarray
    replaced: np.ndarray
    unknown_keys: dict[str, int]


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


class TokenCodes:
    """Codes of a key's texts or pools by the token that stands for them.

    codes: text → code, to which new ones are added; of actions none are. memo: the memo's texts and pairs by index.
    inline: those that unpickled entries have had, not as references: later entries may refer to the first.
    """

    def __init__(self, key: str, codes: defaultdict[str, int], memo: dict[int, Any], inline: set[Any]) -> None:
        self._key = key
        self._codes = codes
        self._memo = memo
        self._inline = inline
        self._known: dict[int, int] = {}

    def of(self, tokens: np.ndarray) -> tuple[np.ndarray, dict[int, Any]]:
        """Int32 codes of tokens (:meth:`Layout.tokens`): -1 for None, ``UNKNOWN`` for what no entry has had. Also the
        rows of the first of each new text or pool.
        """
        if tokens.dtype.kind == "V":
            return self._of_long(tokens.tolist())
        made = np.full(len(tokens), UNKNOWN, np.int32)
        if (tokens == tokens[0]).all():
            code, new = self._code_or_new(int(tokens[0]).to_bytes(8, "little"), int(tokens[0]))
            made[:] = code
            return made, {} if new is None else {0: new}
        left = len(tokens)
        if len(self._known) <= _FEW:
            for token, code in self._known.items():
                chosen = tokens == np.uint64(token)
                made[chosen] = code
                left -= int(np.count_nonzero(chosen))
                if not left:
                    return made, {}
        rows = np.flatnonzero(made == UNKNOWN)
        distinct, first, of_row = np.unique(tokens[rows], return_index=True, return_inverse=True)
        found = [self._code_or_new(token.to_bytes(8, "little"), token) for token in distinct.tolist()]
        made[rows] = np.array([code for code, _ in found], np.int32)[of_row]
        return made, {int(rows[i]): new for i, (_, new) in zip(first, found, strict=True) if new is not None}

    def _of_long(self, tokens: list[bytes]) -> tuple[np.ndarray, dict[int, Any]]:
        made: dict[bytes, int] = {}
        introduced: dict[int, Any] = {}
        for row, token in enumerate(tokens):
            if token not in made:
                made[token], new = self._code_or_new(token, None)
                if new is not None:
                    introduced[row] = new
        return np.fromiter(map(made.__getitem__, tokens), np.int32, len(tokens)), introduced

    def _code_or_new(self, raw: bytes, token: int | None) -> tuple[int, Any]:
        """The code of a token, and its text or pool if no entry has had that."""
        code = self._code(token) if token is not None else UNKNOWN
        if code != UNKNOWN or self._key == "action" or raw[0] in REFERENCES:
            return code, None
        value: Any = _text(raw) if self._key in TEXT_KEYS and raw[0] == SHORT_TEXT else None
        if self._key in POOL_KEYS:
            value = _pair(raw)
        if value is None:
            return UNKNOWN, None
        is_new = value not in self._inline
        name = value if type(value) is str else f"({value[0]}, {value[1]})"
        return self._codes[name], value if is_new else None

    def _code(self, token: int) -> int:
        code = self._known.get(token)
        if code is None:
            value = self._value(token)
            if value is None:
                code = -1
            elif is_pool(value) and self._key in POOL_KEYS and min(value) >= 0 and max(value) < 1 << 64:
                code = self._codes[f"({value[0]}, {value[1]})"]
            elif type(value) is str and self._key == "action":
                code = self._codes.get(value, UNKNOWN) if value in ACTIONS else UNKNOWN
            elif type(value) is str and self._key in TEXT_KEYS:
                code = self._codes[value]
            else:
                return UNKNOWN
            if self._key == "action" and code < 0:
                return UNKNOWN
            self._known[token] = code
        return code

    def _value(self, token: int) -> Any:
        """The text, pair of numbers or None that a token stands for; False if that is not known."""
        raw = token.to_bytes(8, "little")
        if raw[0] == NONE:
            return None
        if raw[0] in REFERENCES:
            return self._memo.get(token >> 8, False)
        if raw[0] == SHORT_TEXT and self._key == "action":
            return False  # every recorder writes one text for all entries, and references to it
        value = _text(raw) if raw[0] == SHORT_TEXT else _pair(raw)
        return value if value in self._inline else False


def _text(raw: bytes) -> str | None:
    try:
        return raw[2 : 2 + raw[1]].decode("utf-8", "surrogatepass") if raw[2 + raw[1]] == MEMOIZE else None
    except (UnicodeDecodeError, IndexError):
        return None


def _pair(raw: bytes) -> tuple[int, ...] | None:
    pair, at = [], 0
    for _ in range(2):
        width = {0x4B: 1, 0x4D: 2}.get(raw[at], 0)
        pair.append(int.from_bytes(raw[at + 1 : at + 1 + width], "little"))
        at += 1 + width
    return tuple(pair) if raw[at : at + 2] == b"\x86\x94" else None
