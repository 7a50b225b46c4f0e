"""Leaks in recordings of real PyTorch: found where the script leaks on purpose, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import corpus
import pytest

import snapreport
from snapreport.findings.live_at_end import leaks_of
from snapreport.findings.model import Finding

MIB = 1 << 20
RECORDED = Path(corpus.ROOT).parent / "shared" / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.pickle"))
pytestmark = pytest.mark.skipif(not NAMES, reason="no recordings of real PyTorch")
# What a script keeps alive on purpose, with its tensors: bytes per step.
LEAKING = {"leak_outputs": 2 * 256 * 32000 * 4}
# As many growths as a cache of three entries has.
TOO_SHORT = {"rec_series1": 2, "rec_series2": 3, "t29_rec_series1": 2, "t29_rec_series2": 3}


def found(name: str) -> dict[int, tuple[list[Finding], str]]:
    snapshot = snapreport.load(RECORDED / f"{name}.pickle")
    result = {}
    for device in snapshot.devices:
        leaks, verdict, _ = leaks_of(snapshot, snapshot.timeline(device))
        result[device] = leaks, verdict.status
    return result


@pytest.mark.parametrize("name", [name for name in LEAKING if name in NAMES])
def test_planted_leaks_are_found_to_the_byte(name: str) -> None:
    leaks, status = found(name)[0]
    (leak,) = [leak for leak in leaks if leak.severity == "warning"]
    assert status == "leak" and leak.evidence["bytes_per_step"] == LEAKING[name]


@pytest.mark.parametrize("name", [name for name in TOO_SHORT if name in NAMES])
def test_fewer_than_four_growths_decide_nothing(name: str) -> None:
    snapshot = snapreport.load(RECORDED / f"{name}.pickle")
    leaks, verdict, _ = leaks_of(snapshot, snapshot.timeline(0))
    assert leaks == [] and verdict.status == "unknown"
    assert f"rec_series scen.py:503 grew {TOO_SHORT[name]} times in " in verdict.reason


@pytest.mark.skipif("leak_loss" not in NAMES, reason="not recorded")
def test_a_graph_that_stays_alive_is_one_leak() -> None:
    """Losses appended with their graph: all that the forward pass saves stays, some 97 MiB per step."""
    leaks, _ = found("leak_loss")[0]
    (leak,) = [leak for leak in leaks if leak.severity == "warning"]
    end = corpus.replayed(RECORDED / "leak_loss.pickle")[0].allocated[-1]
    marks = json.loads((RECORDED / "leak_loss.truth.json").read_text())["marks"][-1]["live"].values()
    known = sum(size for category, size, _ in marks if category not in ("leak", "activation"))
    assert 0.9 * (end - known) <= leak.bytes <= end - known, "what nothing else of the program explains"
    assert len(leak.evidence["stacks"]) > 3 and "autograd graph" in leak.detail[-1]


@pytest.mark.skipif("leak_cycle" not in NAMES, reason="not recorded")
def test_reference_cycles() -> None:
    (cycle,), status = found("leak_cycle")[0]
    assert (cycle.severity, cycle.evidence["burst_bytes"], cycle.evidence["burst_count"]) == ("info", 320 * MIB, 20)
    assert status == "unknown", "a loop that computes nothing"


@pytest.mark.parametrize("name", [name for name in NAMES if "leak" not in name and name not in LEAKING])
def test_no_leak_where_none_is_planted(name: str) -> None:
    for leaks, _ in found(name).values():
        assert [leak.title for leak in leaks if leak.severity != "info" or not is_kv(name)] == []


def is_kv(name: str) -> bool:
    return name.startswith("oom_kv")


@pytest.mark.parametrize("name", [name for name in NAMES if is_kv(name)])
def test_a_growing_kv_cache_is_reported_and_is_no_leak(name: str) -> None:
    """Twelve layers extend keys and values by 128 tokens: batch 16, 1024 features, two bytes each."""
    (cache,), status = found(name)[0]
    assert status == "none" and cache.severity == "info"
    assert cache.evidence["bytes_per_step"] == 2 * 12 * 16 * 128 * 1024 * 2
    told = (
        "The KV cache grows by 96.0 MiB every iteration in forward models.py:15 and forward models.py:16, to 1.59 GiB"
    )
    assert cache.title.startswith(told)
