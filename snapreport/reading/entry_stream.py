"""The unpickler's stream in place of the entries of a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

FILLER_ID, PARSED_ID, MARK_ID = 0, 1, 2
"""Persistent ids in the unpickler's stream: the filler, the next of :class:`ParsedEntries`, and, from the last one
on, lists that name the stacks of parsed entries by code.
"""
_PUSH_FILLER, _PUSH_PARSED = (bytes([0x4B, number]) + b"Q" for number in (FILLER_ID, PARSED_ID))


class Unpickled(Struct):
    """An entry left to the unpickler.

    patches: (start, end, bytes in their place) of references to what the unpickler does not have. reference: the memo
    index that its frames refer to, if a trace has filled that, with its bytes (start, end). replaced: the stack found
    there. -1: none.
    """

    start: int
    end: int
    patches: list[tuple[int, int, bytes]]
    reference: int = -1
    frames: tuple[int, int] = (0, 0)
    replaced: int = -1

    def bytes_of(self, data: bytes) -> bytes:
        """Its bytes with the patches."""
        parts, at = [], self.start
        for start, end, instead in sorted(self.patches):
            parts += [data[at:start], instead]
            at = end
        return b"".join([*parts, data[at : self.end]])


def stream_of(fills: np.ndarray, inserted: list[tuple[int, int, bytes]]) -> bytes:
    """A batch: the unpickled entries, then the parsed ones, with the memo filled in their place.

    fills: memo places to fill for each parsed entry. inserted: where it begins in the file, the number of parsed
    entries before it, and bytes.
    """
    filled = np.concatenate(([0], np.cumsum(fills)))
    bounds = filled[np.array([0, *(row for _, row, _ in inserted), len(fills)])]
    parts = [b"("]
    for places, (_, _, raw) in zip(np.diff(bounds).tolist(), [*inserted, (0, 0, b"")], strict=True):
        if places:
            parts += [_PUSH_FILLER, b"\x94" * places, b"0"]
        parts.append(raw)
    return b"".join([*parts, _PUSH_PARSED, b"e"])


def pushed(value: Any) -> bytes:
    """Opcodes that push a text or a pair of numbers, and put nothing into the memo."""
    if type(value) is str:
        raw = value.encode("utf-8", "surrogatepass")
        return b"X" + len(raw).to_bytes(4, "little") + raw
    return b"".join(b"\x8a\x09" + one.to_bytes(9, "little") for one in value) + b"\x86"
