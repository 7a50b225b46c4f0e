"""Which ranks with more than others, or with other stacks, are of the others' role, at each limit: tables by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from snapreport.jobs.roles import _adopted, _by_stacks, _joined_outliers

USUAL = [60.0, 40.0, 0.0, 0.0]  # bytes by stack


def table(own: dict[int, Sequence[float]], ranks: int = 10, usual: Sequence[float] = USUAL) -> np.ndarray:
    return np.array([own.get(rank, usual) for rank in range(ranks)], float)


def joined(
    own: Sequence[float], rows: Sequence[int] = (3, 5), *, total: float | None = None, more: float = 0,
    failed: Sequence[int] = (), usual: Sequence[float] = USUAL, ranks: int = 10,
) -> bool:  # fmt: skip
    """Whether some ``rows`` with their ``own`` bytes are of the role of the others."""
    stacks = table(dict.fromkeys(rows, own), ranks, usual)
    totals = stacks.sum(axis=1)
    parameters, has_failed = np.full(ranks, 50.0), np.zeros(ranks, bool)
    parameters[list(rows)] += more
    has_failed[list(failed)] = True
    if total is not None:
        totals[list(rows)] = total
    others = [row for row in range(ranks) if row not in rows]
    found: Any = _joined_outliers([others, list(rows)], stacks, totals, parameters, has_failed)
    assert found in ([list(range(ranks))], sorted([others, list(rows)]))
    return len(found) == 1


@pytest.mark.parametrize(
    ("arguments", "is_one"),
    [
        ({"own": [60, 40, 30, 0]}, True),
        ({"own": [60, 0, 130, 0]}, True),  # between two steps, with so much in one stack
        ({"own": [60, 0, 104, 26]}, True),
        ({"own": [60, 0, 103, 27]}, False),
        ({"own": [60, 0, 130, 0], "total": 230}, True),
        ({"own": [60, 0, 130, 0], "total": 231}, False),
        ({"own": [60, 0, 103, 27], "failed": (3, 5)}, True),
        ({"own": [60, 0, 103, 27], "failed": (3,)}, False),
        ({"own": [60, 40, 30, 0], "total": 100}, False),  # no more than the others
        ({"own": [60, 40, 30, 0], "total": 101}, True),
        ({"own": [60, 40, 30, 0], "more": 2}, True),
        ({"own": [60, 40, 30, 0], "more": 2.1}, False),  # a part of the model
        ({"own": [75, 0, 50, 40], "usual": [75, 25, 0, 0]}, False),  # a quarter is missing
        ({"own": [76, 0, 50, 40], "usual": [76, 24, 0, 0]}, True),
        ({"own": [60, 40, 30, 0], "rows": (3, 4)}, False),  # neighbours
        ({"own": [60, 40, 30, 0], "rows": (3, 4), "failed": (3, 4)}, True),
        ({"own": [60, 40, 30, 0], "rows": (0, 5)}, False),  # the first ranks of hosts
        ({"own": [60, 40, 30, 0], "rows": (1, 4, 7), "ranks": 12}, False),  # replicas
        ({"own": [60, 40, 30, 0], "rows": (1, 4, 8), "ranks": 12}, True),
        ({"own": [60, 40, 30, 0], "rows": (1, 4, 8), "ranks": 11}, False),  # more than a quarter
    ],
)
def test_ranks_with_the_same_excess(arguments: dict[str, Any], is_one: bool) -> None:
    assert joined(**arguments) == is_one


def test_they_join_the_role_that_they_lack_least_of() -> None:
    stacks = np.array([[60.0, 40, 0]] * 10 + [[60, 0, 40]] * 10 + [[60, 25, 50]] * 2)
    stacks[[20, 21], 1] = 0
    apart = [list(range(10)), list(range(10, 20)), [20, 21]]
    totals, parameters = stacks.sum(axis=1), np.zeros(22)
    failed = np.array([False] * 20 + [True] * 2)
    assert _joined_outliers(apart, stacks, totals, parameters, failed) == [apart[0], [*apart[1], 20, 21]]


def adopted(own: Sequence[float], *, row: int = 2, ranks: int = 5, more: float = 0, total: float | None = None) -> bool:
    stacks = table({row: own}, ranks)
    totals, parameters = stacks.sum(axis=1), np.full(ranks, 50.0)
    parameters[row] += more
    totals[row] = totals[row] if total is None else total
    others = [rank for rank in range(ranks) if rank != row]
    found = _adopted([others, [row]], stacks, totals, parameters)
    assert found in ([list(range(ranks))], sorted([others, [row]]))
    return len(found) == 1


@pytest.mark.parametrize(
    ("arguments", "is_one"),
    [
        ({"own": [60, 40, 9, 0]}, True),
        ({"own": [60, 40, 9, 0], "ranks": 4}, True),
        ({"own": [60, 40, 9, 0], "ranks": 3}, False),  # of three nobody knows
        ({"own": [60, 0, 30, 0]}, False),  # less, and two fifths are missing
        ({"own": [60, 0, 30, 0], "total": 100}, False),
        ({"own": [60, 0, 30, 0], "total": 101}, True),  # memory ran out between two steps
        ({"own": [60, 40, 9, 0], "more": 9}, True),
        ({"own": [60, 40, 9, 0], "more": 2.1, "row": 0}, False),  # an embedding
        ({"own": [60, 40, 9, 0], "more": 2, "row": 0}, True),
        ({"own": [60, 40, 9, 0], "more": 2.1, "row": 4}, False),  # a head
        ({"own": [60, 40, 9, 0], "more": 2.1, "row": 3}, True),
    ],
)
def test_a_rank_alone(arguments: dict[str, Any], is_one: bool) -> None:
    assert adopted(**arguments) == is_one


def test_bytes_without_a_stack_trace_may_be_of_any_stack() -> None:
    """Of the last rank the trace begins late: 40 bytes have no stack."""
    stacks = np.array([[60.0, 40, 0]] * 3 + [[60, 0, 40]])
    unnamed, named = np.array([False, False, True]), np.zeros(3, bool)
    assert _by_stacks(stacks, stacks.sum(axis=1), unnamed) == [[0, 1, 2, 3]]
    assert _by_stacks(stacks, stacks.sum(axis=1), named) == [[0, 1, 2], [3]]
    stacks[:, 2] += 40  # all have some
    assert _by_stacks(stacks, stacks.sum(axis=1), unnamed) == [[0, 1, 2, 3]]


def test_a_stack_of_two_thousandths_is_none() -> None:
    """A difference of the others' stacks counts only where a stack is there on one rank alone."""
    tiny = np.array([[500.0, 498, 2, 0], [500, 300, 2, 198], [500, 498, 2, 0], [500, 300, 2, 198]])
    assert _by_stacks(tiny, tiny.sum(axis=1), np.zeros(4, bool)) == [[0, 1, 2, 3]]
    apart = np.array([[700.0, 300, 0], [700, 0, 300]] * 2)
    assert _by_stacks(apart, apart.sum(axis=1), np.zeros(3, bool)) == [[0, 2], [1, 3]]
