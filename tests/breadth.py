"""What the default run leaves out. ``python3 tests/run.py --all`` leaves out nothing.

Everything takes three times as long, most of it in those that open pages, run programs or go through recordings, each
for one input after another. ``costly.txt`` lists these functions with the number of inputs that are kept, 0 for none;
each function keeps others, so that most inputs are kept by some. A file that it lists keeps so many of its functions.
In all other runs of pytest nothing is left out.

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
SECONDS = 2
"""For all inputs of a function together: those beyond are left out, but for the first."""


def examples(count: int) -> int:
    """How many of so many random examples of a test the default run tries."""
    return count // 3 if IS_NARROW else count


def kept_inputs() -> dict[str, int]:
    """Functions ("test_a.py::test_b") and how many of their inputs the default run keeps; of files, of functions."""
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
    by_file: dict[str, list[list[pytest.Item]]] = defaultdict(list)
    for function, inputs in by_function.items():
        by_file[function.partition("::")[0]].append(inputs)
    out: set[pytest.Item] = set()
    for name, kept in kept_inputs().items():
        parts = [[item] for item in by_function[name]] if "::" in name else by_file[name]
        if kept < len(parts):
            stay = chosen(name, len(parts), kept)
            out |= {item for number, part in enumerate(parts) if number not in stay for item in part}
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


def proposals(cases: Sequence[Any]) -> Iterator[str]:
    """Lines of ``costly.txt``: as many inputs of each function as take ``SECONDS``, and at least one."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        file = str(case.get("classname")).partition(".")[0]
        seconds[f"{file}.py::{str(case.get('name')).partition('[')[0]}"].append(float(case.get("time")))
    for function, taken in sorted(seconds.items()):
        kept = max(1, int(SECONDS * len(taken) / max(SECONDS, sum(taken))))
        if kept < len(taken):
            yield f"{kept:2} {function}"


if __name__ == "__main__":
    print("\n".join(proposals([*ElementTree.parse(sys.argv[1]).iter("testcase")])))
