"""A part of a trace whose columns were made from the bytes of its entries."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

Columns = dict[str, tuple[np.ndarray, np.ndarray]]
"""Key → values and Boolean nulls: Int64 whole numbers, Int32 codes of texts and pools (-1: null too)."""


class ParsedEntries(Struct):
    """A part of a trace: N entries, of which M were unpickled.

    rows: N. unpickled: Int64 M, the rows of these, ascending. columns: N - M values of the other rows by key; keys that
    none has are absent. stacks: Int32 N - M, codes of stacks. replaced: Int32 M, the code of the stack that was taken
    out of an unpickled entry, else -1. unknown_keys: key → entries.
    """

    rows: int
    unpickled: np.ndarray
    columns: Columns
    stacks: np.ndarray
    replaced: np.ndarray
    unknown_keys: dict[str, int]
