"""Frameworks' own training loops allocate the same whether they are recorded or not, over the fake driver."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from fake_torch import PROGRAMS, FakeTorch

import snapreport

PROGRAM = PROGRAMS / "frameworks.py"


@pytest.mark.parametrize("framework", ["transformers", "peft", "lightning"])
def test_memory_stats_are_those_without_recording(torch_cuda: FakeTorch, tmp_path: Path, framework: str) -> None:
    if not torch_cuda.has(framework):
        pytest.skip(f"{framework} is not installed beside this PyTorch: tests/run.py --all-torch installs it")
    plain = torch_cuda.run(PROGRAM, framework)
    assert plain.code == 0, plain.err
    expected = json.loads(plain.out.splitlines()[-1])
    assert expected["allocation.all.allocated"] > 100
    counts = []
    for number, options in enumerate(([], ["--no-modules"])):
        run = tmp_path / f"run {number}"
        done = torch_cuda.record("-o", run, *options, command=[PROGRAM, framework])
        assert done.code == 0, done.err
        assert json.loads(done.out.splitlines()[-1]) == expected
        [snapshot] = run.glob("rank_*.pickle.gz")
        named = snapreport.load(snapshot).allocations(0).filter(pl.col("module_source") == "recorded")
        counts.append(len(named))
    assert counts[0] > counts[1], "modules were noted, and not with --no-modules"
