"""What the default run leaves out of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import breadth
import pytest

TESTS = Path(__file__).parent


def test_every_function_that_is_named_is_there() -> None:
    """A function that is renamed would run with all inputs again."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in TESTS.glob("test_*.py")}
    for function in breadth.kept_inputs():
        file, _, name = function.partition("::")
        assert re.search(rf"(?m)^ *(?:async )?def {name or 'test_.*'}\(", texts.get(file, "")), function


@pytest.mark.parametrize(("count", "kept"), [(5, 1), (26, 5), (13, 3), (7, 7), (132, 26)])
def test_as_many_as_said_and_others_for_each_function(count: int, kept: int) -> None:
    of_each = [breadth.chosen(f"test_{number}", count, kept) for number in range(200)]
    assert {len(inputs) for inputs in of_each} == {kept}
    assert set().union(*of_each) == set(range(count)), "each input by some"


def test_proposals_keep_what_takes_two_seconds() -> None:
    cases = [{"classname": "test_a", "name": f"test_slow[{n}]", "time": "0.6"} for n in range(20)]
    cases += [{"classname": "test_a", "name": f"test_pair[{n}]", "time": "4"} for n in range(2)]
    cases += [{"classname": "test_a", "name": f"test_quick[{n}]", "time": "0.01"} for n in range(50)]
    cases += [{"classname": "test_b.TestClass", "name": "test_alone", "time": "30"}]
    assert [*breadth.proposals(cases)] == [" 1 test_a.py::test_pair", " 3 test_a.py::test_slow"]
