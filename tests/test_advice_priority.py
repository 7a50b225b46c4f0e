"""The order of advice by what it costs its reader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from snapreport.findings.advice_context import ONE_LINE, REWRITE
from snapreport.findings.effort import MUCH, WITHOUT_TYPES, priority_of


@pytest.mark.parametrize(
    ("given", "saves", "expected"),
    [
        ({}, int(MUCH * 1000), 0),
        ({}, int(MUCH * 1000) - 1, 1),  # of one line, and little
        ({"comes_first": True}, 0, 0),
        ({"effort": REWRITE}, 1000, 1),
        ({"confidence": "estimate"}, 1000, 2),
        ({"confidence": "estimate", "rule": next(iter(WITHOUT_TYPES))}, 1000, 0),
    ],
)
def test_one_line_that_saves_much_comes_first(given: dict[str, Any], saves: int, expected: int) -> None:
    values = {"confidence": "inferred", "rule": "a rule", "comes_first": False, "effort": ONE_LINE} | given
    assert priority_of(cast("Any", SimpleNamespace(**values)), saves, 1000) == expected
