"""Two hundred hostile files, always the same: read or refused in a line, in time, with the oracle's numbers.

``python -m benchmarks fuzz`` reads 20,000, including real snapshots.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import fuzz
from benchmarks.fuzz_cases import KINDS, Cases

CASES = 200


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what a process takes")
def test_hostile_files(tmp_path: Path) -> None:
    tally = fuzz.run(CASES, tmp_path / "work", seed=3, workers=2, real=False, keep=tmp_path / "faults")
    text = fuzz.table(tally)
    assert not tally.faults, text
    total = sum(tally.counts.values(), type(next(iter(tally.counts.values())))())
    assert total.total() == CASES and {kind for kind, _ in tally.counts} >= {"object", "bytes", "packed bytes", "cut"}
    # The test would be meaningless if nothing could be read, or nothing compared.
    assert total["refused"] > CASES // 4 and total["same"] > CASES // 10, text


def test_cases_are_the_same_by_number() -> None:
    a, b = (Cases(3, real=False) for _ in range(2))
    assert [a.case(n) for n in range(30)] == [b.case(n) for n in reversed(range(30))][::-1]
    assert {a.case(n).kind for n in range(200)} <= set(KINDS)


def test_faults_are_counted() -> None:
    tally = fuzz.Tally()
    tally.add({"number": 1, "kind": "cut", "container": "zip", "result": "crash", "detail": "x"})
    tally.add({"number": 2, "kind": "cut", "container": "zip", "result": "same", "detail": ""})
    assert len(tally.faults) == 1
    assert fuzz.table(tally).splitlines()[-2].split() == ["all", "2", "0", "1", "1", "0", "1", "0", "0", "0"]
