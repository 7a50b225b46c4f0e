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

_SEARCHED_AT_ONCE = 1000  # texts; between two parts, a supervisor sees that this process makes progress


def frames_matching(recording: Recording, file: re.Pattern[str], function: re.Pattern[str]) -> np.ndarray:
    """Bool per row of ``frames``: whether both patterns are found in it, ``file`` with forward slashes."""
    names, files = _texts_of(recording)
    return files.having(file, names.having(function, np.ones(len(recording.frames), bool)))


class _Texts:
    """The texts of a column of frames."""

    def __init__(self, column: pl.Series) -> None:
        self._texts, self._number = interned(column)

    def having(self, pattern: re.Pattern[str], among: np.ndarray) -> np.ndarray:
        """Bool per frame: whether it is one of ``among`` (Bool) whose text has the pattern."""
        if not pattern.pattern:
            return among
        wanted = distinct(self._number[among])
        found = np.zeros(len(self._texts), bool)

        def search(part: np.ndarray) -> None:
            found[part] = [pattern.search(self._texts[number]) is not None for number in part.tolist()]

        with supervision.matching():
            for start in range(0, len(wanted), _SEARCHED_AT_ONCE):
                supervision.match(partial(search, wanted[start : start + _SEARCHED_AT_ONCE]))
        return np.asarray(among & found[self._number])


@memoize
def _texts_of(recording: Recording) -> tuple[_Texts, _Texts]:
    """Names of functions and of files."""
    return _Texts(recording.frames["name"]), _Texts(files_of(recording))


@memoize
def files_of(recording: Recording) -> pl.Series:
    """String per frame: its file, with forward slashes."""
    return recording.frames["filename"].str.replace_all("\\", "/", literal=True)
