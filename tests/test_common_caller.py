"""The line that called what leaks: it has most of the bytes, and is not the program's own loop."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from scripted import MIB, Script
from test_findings_advice import FORWARD

import snapreport
from snapreport.findings.common_caller import common_caller

OTHER = (("/app/data.py", "fetch"),)


def caller(own: list[tuple[int, str]], folder: Path, *, others: int = 9) -> str:
    """Of ``own`` allocations (MiB, and the function that called a module for it), beside ``others`` of another line."""
    script = Script()
    for mib, function in own:
        calling = (("/app/loss.py", function),) if function else ()
        script.alloc("own", mib * MIB, (f"/app/layers{mib}.py", "compute"), *FORWARD, *calling)
    for _ in range(others):
        script.alloc("other", MIB, *OTHER)
    path = folder / "written.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    timeline = snapreport.load(path).timeline(0)
    rows = timeline.allocations["stack", "size"].head(len(own))
    sums: dict[int, int] = {}
    for stack, size in rows.rows():
        sums[stack] = sums.get(stack, 0) + size
    return str(common_caller(timeline, sums))


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ([(30, "total_loss"), (50, "total_loss")], "total_loss loss.py:7"),
        ([(80, "total_loss"), (20, "validate")], "total_loss loss.py:7"),  # four fifths of the bytes
        ([(79, "total_loss"), (21, "validate")], ""),  # only the loop calls both
        ([(40, "total_loss"), (60, "validate")], ""),
        ([(30, ""), (50, "")], ""),
    ],
)
def test_the_line_that_called_most_bytes(own: list[tuple[int, str]], found: str, tmp_path: Path) -> None:
    assert caller(own, tmp_path) == found


def test_a_line_that_calls_nearly_all_is_the_loop(tmp_path: Path) -> None:
    """Nine of ten allocations are not yet nearly all."""
    own = [(2, "total_loss")] * 9
    assert caller(own, tmp_path, others=1) == "total_loss loss.py:7"
    assert caller([*own, (2, "total_loss")], tmp_path, others=1) == ""
