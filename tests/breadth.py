"""What the default run leaves out. ``python3 tests/run.py --all`` leaves out nothing.

Everything takes 24 minutes on two cores, three quarters of them in one test in seven: those that open pages, run
programs or go through recordings, each for one input after another. ``costly.txt`` lists these functions with the
number of inputs that are kept, 0 for none; each function keeps others, so that most inputs are kept by some. In all
other runs of pytest nothing is left out.

``python tests/breadth.py JUNIT`` makes proposals for it, from what
``python3 tests/run.py -n 3 --dist loadfile --junitxml=JUNIT tests`` has measured.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

COSTLY = Path(__file__).parent / "costly.txt"
IS_NARROW = os.environ.get("SNAPREPORT_BREADTH") == "narrow"
MIN_SECONDS = 2
"""Of all inputs of a function together, from which on some are left out."""


def kept_inputs() -> dict[str, int]:
    """Functions ("test_a.py::test_b") and how many of their inputs the default run keeps."""
    lines = [line.split() for line in COSTLY.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {function: int(count) for count, function in lines}


def chosen(function: str, count: int, kept: int) -> set[int]:
    """Which of ``count`` inputs are kept: evenly apart, from one on that is another for each function."""
    start = zlib.crc32(function.encode())
    return {(start + number * count // kept) % count for number in range(kept)}


def function_of(item: pytest.Item) -> str:
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    by_function: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_function[function_of(item)].append(item)
    out: set[pytest.Item] = set()
    for function, kept in kept_inputs().items():
        inputs = by_function[function]
        if kept < len(inputs):
            stay = chosen(function, len(inputs), kept)
            out |= {item for number, item in enumerate(inputs) if number not in stay}
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


def proposals(cases: Sequence[Any]) -> Iterator[str]:
    """Lines of ``costly.txt``: a fifth of the inputs of each function that takes long, and at least two of six."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        file = str(case.get("classname")).partition(".")[0]
        seconds[f"{file}.py::{str(case.get('name')).partition('[')[0]}"].append(float(case.get("time")))
    for function, taken in sorted(seconds.items()):
        kept = max(1 + (len(taken) > 5), round(len(taken) / 5))
        if kept < len(taken) and sum(taken) > MIN_SECONDS:
            yield f"{kept:2} {function}"


if __name__ == "__main__":
    print("\n".join(proposals([*ElementTree.parse(sys.argv[1]).iter("testcase")])))
