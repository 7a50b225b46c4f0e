"""Which stacks and rows of a text column contain a text; every distinct string is checked once per text."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import stacks_with
from snapreport.search.fields import Text, fold


class Folded:
    """A text column as folded distinct values, and the index of each row's value; null is the empty text."""

    def __init__(self, column: pl.Series) -> None:
        distinct = column.unique(maintain_order=True)
        self.values = [fold(value) for value in distinct.cast(pl.String).fill_null("").to_list()]
        if len(self.values) <= 1:
            self.codes = np.zeros(len(column), np.int64)
        else:
            numbers = np.arange(len(distinct), dtype=np.int64)
            self.codes = column.replace_strict(distinct, numbers, return_dtype=pl.Int64).to_numpy()

    def having(self, parts: tuple[str, ...]) -> np.ndarray:
        """Bool per row: whether its text contains the parts in this order; without parts, whether it is not empty."""
        hits = np.fromiter((contains_in_order(value, parts) for value in self.values), bool, len(self.values))
        return hits[self.codes] if len(hits) else np.zeros(0, bool)


def contains_in_order(value: str, parts: tuple[str, ...]) -> bool:
    at = 0
    for part in parts:
        found = value.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return value != ""


class StackTexts:
    """Searches the frames of a recording's stacks. All results are bool per stack."""

    def __init__(self, recording: Recording) -> None:
        frames = recording.frames
        self.files = Folded(frames["filename"])
        self.names = Folded(frames["name"])
        self.lines = frames["line"].clip(-(1 << 31), (1 << 31) - 1).to_numpy()
        self._recording = recording

    def with_file(self, test: Text) -> np.ndarray:
        return self.with_frame(self.files.having(test.parts) | self._at_place(test))

    def with_function(self, test: Text) -> np.ndarray:
        return self.with_frame(self.names.having(test.parts))

    def with_either(self, test: Text) -> np.ndarray:
        return self.with_frame(self.files.having(test.parts) | self.names.having(test.parts) | self._at_place(test))

    def with_frame(self, hit: np.ndarray) -> np.ndarray:
        """Which stacks have one of the frames marked in ``hit`` (bool per frame)."""
        return stacks_with(self._recording, hit)

    def _at_place(self, test: Text) -> np.ndarray:
        if test.place is None:
            return np.zeros(len(self.lines), bool)
        parts, line = test.place
        found: np.ndarray = self.files.having(parts) & (self.lines == line)
        return found
