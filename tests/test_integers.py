"""Sets of small numbers against numpy's, which sort; and the fast sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from snapreport.integers import distinct, is_among, stable_order

SMALL = st.lists(st.integers(0, 300), max_size=40)


@given(SMALL, SMALL, st.sampled_from([np.uint16, np.int32, np.int64]))
def test_as_numpy_does(numbers: list[int], chosen: list[int], dtype: type[np.integer]) -> None:
    array = np.array(numbers, dtype)
    assert is_among(array, chosen).tolist() == np.isin(array, chosen).tolist()
    assert is_among(array, np.array(chosen, dtype)).tolist() == np.isin(array, chosen).tolist()
    assert distinct(array).tolist() == np.unique(array).tolist()
    assert distinct(array).dtype == dtype


@given(
    st.one_of(
        st.lists(st.integers(0, 2**64 - 1), max_size=50).map(lambda v: np.array(v, dtype=np.uint64)),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50).map(lambda v: np.array(v, dtype=np.int64)),
        st.lists(st.integers(0, 40), max_size=80).map(lambda v: np.array(v, dtype=np.uint64) * 512 + 2**47),
    )
)
def test_stable_order(values: np.ndarray) -> None:
    np.testing.assert_array_equal(stable_order(values), np.argsort(values, kind="stable"))


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-(2**40), 2**40)), max_size=50))
def test_stable_order_of_columns(rows: list[tuple[int, int]]) -> None:
    first, second = np.array(rows, np.int64).reshape(-1, 2).T
    assert stable_order(first.astype(np.int32), second).tolist() == sorted(range(len(rows)), key=rows.__getitem__)
