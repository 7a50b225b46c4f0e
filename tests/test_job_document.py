"""Which stacks a job's page has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from snapreport.jobs import document


def job(stack_bytes: list[list[int]], *outliers: list[int]) -> Any:
    found = [SimpleNamespace(stacks=[(stack, 1) for stack in stacks]) for stacks in outliers]
    return cast("Any", SimpleNamespace(stack_bytes=np.array(stack_bytes), outliers=found))


def test_stacks_with_most_bytes_on_any_rank_and_those_of_outliers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_STACKS", 2)
    ranks = [[9, 1, 5, 2], [0, 1, 7, 8]]
    assert document._shown_stacks(job(ranks)).tolist() == [0, 3]
    assert document._shown_stacks(job(ranks, [1], [3])).tolist() == [0, 3, 1]


def test_stacks_of_a_group_are_those_of_its_median_rank() -> None:
    ranks = [[9, 0, 5, 2], [0, 0, 7, 8], [3, 1, 6, 4], [90, 90, 90, 90]]
    number = {0: 10, 1: 11, 2: 12}
    # The fourth is not shown, and the second is on one rank of three.
    assert document._group_stacks(job(ranks), [0, 1, 2], number) == [[12, 6], [10, 3]]
    assert document._group_stacks(job([[n + 1 for n in range(20)]]), [0], {n: n for n in range(20)}) == [
        [n, n + 1] for n in range(19, 9, -1)
    ]
