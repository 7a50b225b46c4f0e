"""Sets of small numbers, against numpy's, which sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from snapreport.integers import distinct, is_among

SMALL = st.lists(st.integers(0, 300), max_size=40)


@given(SMALL, SMALL, st.sampled_from([np.uint16, np.int32, np.int64]))
def test_as_numpy_does(numbers: list[int], chosen: list[int], dtype: type[np.integer]) -> None:
    array = np.array(numbers, dtype)
    assert is_among(array, chosen).tolist() == np.isin(array, chosen).tolist()
    assert is_among(array, np.array(chosen, dtype)).tolist() == np.isin(array, chosen).tolist()
    assert distinct(array).tolist() == np.unique(array).tolist()
    assert distinct(array).dtype == dtype
