"""Which frames match a rule's patterns; each distinct text is searched once."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import polars as pl

from snapreport import supervision
from snapreport.integers import distinct, interned
from snapreport.memoize import memoize
from snapreport.reading.recording import Recording

_IS_OWN = re.compile(r"\[[^\]]*(\[|&&|--|~~)")
"""Sets of characters in one another, and operations on them: in polars' patterns, but not in Python's."""
_MANY = 2000
"""Texts that polars, which takes half a millisecond to begin, searches in less time than Python: 100,000 in a tenth."""
_SEARCHED_AT_ONCE = 1000  # texts; between two parts, a supervisor sees that this process makes progress


def frames_matching(recording: Recording, file: re.Pattern[str], function: re.Pattern[str]) -> np.ndarray:
    """Bool per row of ``frames``: whether both patterns are found in it, ``file`` with forward slashes."""
    names, files = _texts_of(recording)
    return files.having(file, names.having(function, np.ones(len(recording.frames), bool)))


class _Texts:
    """The texts of a column of frames."""

    def __init__(self, column: pl.Series) -> None:
        texts, self._number = interned(column)
        self._texts = pl.Series(texts, dtype=pl.String)

    def having(self, pattern: re.Pattern[str], among: np.ndarray) -> np.ndarray:
        """Bool per frame: whether it is one of ``among`` (Bool) whose text has the pattern."""
        if not pattern.pattern:
            return among
        wanted = distinct(self._number[among])
        found = np.zeros(len(self._texts), bool)
        found[wanted] = _search(self._texts.gather(wanted), pattern)
        return np.asarray(among & found[self._number])


def _search(texts: pl.Series, pattern: re.Pattern[str]) -> np.ndarray | list[bool]:
    """Whether each text has the pattern, as Python understands it."""
    if len(texts) > _MANY and not _IS_OWN.search(pattern.pattern):
        try:
            return texts.str.contains(pattern.pattern).to_numpy()
        except pl.exceptions.ComputeError:  # It knows no lookahead.
            pass

    def search(start: int) -> list[bool]:
        return [pattern.search(text) is not None for text in texts[start : start + _SEARCHED_AT_ONCE].to_list()]

    with supervision.matching():
        parts = [supervision.match(partial(search, start)) for start in range(0, len(texts), _SEARCHED_AT_ONCE)]
    return [has for part in parts for has in part]


@memoize
def _texts_of(recording: Recording) -> tuple[_Texts, _Texts]:
    """Names of functions and of files."""
    return _Texts(recording.frames["name"]), _Texts(files_of(recording))


@memoize
def files_of(recording: Recording) -> pl.Series:
    """String per frame: its file, with forward slashes."""
    return recording.frames["filename"].str.replace_all("\\", "/", literal=True)
