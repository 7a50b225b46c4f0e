"""The allocation that represents a merged band: both ways of finding it against a simple one; and the fast sort."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreport.integers import stable_order
from snapreport.mesh import dominant as module
from snapreport.mesh.dominant import Members, dominant

MEMBERS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 8), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=25
)


def plain(rows: list[tuple[int, int, int, int]], cuts: int) -> list[int]:
    best = []
    for cut in range(cuts):
        held: dict[int, int] = defaultdict(int)
        oldest: dict[int, int] = {}
        for number, (opened, lasts, size, stack) in enumerate(rows):
            if opened <= cut < opened + lasts:
                held[stack] += size
                oldest.setdefault(stack, number)
        best.append(oldest[min(held, key=lambda s: (-held[s], s))] if held else -1)
    return best


@pytest.mark.parametrize("alone_from", [0, 10**9], ids=["by sums", "by rows"])
@given(rows=MEMBERS)
def test_dominant(alone_from: int, rows: list[tuple[int, int, int, int]]) -> None:
    rows = sorted(rows)  # no younger member starts before an older one
    table = np.array(rows, dtype=np.int64)
    cuts = int((table[:, 0] + table[:, 1]).max()) + 1
    members = Members(np.arange(len(rows)), table[:, 2], table[:, 3], table[:, 0], table[:, 0] + table[:, 1])
    before, module.ALONE_FROM = module.ALONE_FROM, alone_from
    try:
        found = dominant(members, np.zeros(len(rows), np.int64), cuts)
    finally:
        module.ALONE_FROM = before
    assert found.tolist() == plain(rows, cuts)


@given(
    st.one_of(
        st.lists(st.integers(0, 2**64 - 1), max_size=50).map(lambda v: np.array(v, dtype=np.uint64)),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50).map(lambda v: np.array(v, dtype=np.int64)),
        st.lists(st.integers(0, 40), max_size=80).map(lambda v: np.array(v, dtype=np.uint64) * 512 + 2**47),
    )
)
def test_stable_order(values: np.ndarray) -> None:
    np.testing.assert_array_equal(stable_order(values), np.argsort(values, kind="stable"))
