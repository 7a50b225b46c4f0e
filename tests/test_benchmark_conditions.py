"""Which part of a condition decides something, counted while a program runs (benchmarks/conditions.py)."""

from __future__ import annotations

import ast
import sys
from typing import Any

import corpus
import numpy as np
import pytest

# The checkout behind the installed package, which does not contain benchmarks.
sys.path.append(str(corpus.ROOT))
from benchmarks import conditions

PROGRAM = """
def joined(one, two):
    return one > 0 and two > 0

def guarded(rows):
    return len(rows) > 0 and rows[0] > 0

def masked(one, two):
    return one & two & (one | two)

def branch(number):
    if number > 0 and number < 9:
        return 1
    return 0
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(conditions, "texts", {})
    conditions.decided.clear()
    tree = ast.fix_missing_locations(conditions.Instrumented("program.py").visit(ast.parse(PROGRAM)))
    names: dict[str, Any] = {conditions.NAME: conditions}
    exec(compile(tree, "program.py", "exec"), names)
    return names


def undecided() -> list[str]:
    return [line.partition(" ")[2] for line in conditions.undecided()]


def test_a_part_that_another_implies_decides_nothing(program: dict[str, Any]) -> None:
    assert [program["joined"](*pair) for pair in ((1, 1), (0, 0), (0, 1))] == [True, False, False]
    assert undecided() == ["all_of: two > 0"]
    assert not program["joined"](1, 0)
    assert undecided() == []


def test_a_guard_decides_where_what_follows_would_fail(program: dict[str, Any]) -> None:
    assert [program["guarded"](rows) for rows in ([], [1], [0])] == [False, True, False]
    assert undecided() == []


def test_masks_are_joined_without_each_of_their_parts(program: dict[str, Any]) -> None:
    one, two = np.array([True, True, False]), np.array([True, False, False])
    assert program["masked"](one, two).tolist() == [True, False, False]
    assert sorted(undecided()) == ["both: one", "both: one | two", "either: two"]


def test_branches_are_counted(program: dict[str, Any]) -> None:
    assert program["branch"](1) == 1
    assert undecided()[-1] == "outcome: never false: number > 0 and number < 9"
