"""Sets of small whole numbers, such as codes of categories and numbers of stacks: a table answers in a tenth of the
time that ``np.isin`` takes on 300,000 codes (0.3 instead of 3.2 ms), and without sorting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def is_among(numbers: np.ndarray, chosen: np.ndarray | Sequence[int]) -> npt.NDArray[np.bool_]:
    """Bool per number: whether it is one of ``chosen``. None is negative."""
    wanted = np.asarray(chosen, np.intp)
    table = np.zeros(1 + max(_greatest(numbers), _greatest(wanted)), bool)
    table[wanted] = True
    found: npt.NDArray[np.bool_] = table[numbers]
    return found


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Each number once, ascending, of the same type. None is negative."""
    table = np.zeros(1 + _greatest(numbers), bool)
    table[numbers] = True
    return np.flatnonzero(table).astype(numbers.dtype)


def _greatest(numbers: np.ndarray) -> int:
    return int(numbers.max()) if len(numbers) else 0
