"""What checkpointing is said to cost, by traces whose arithmetic is known, and over the fake driver."""

from __future__ import annotations

import json
import lzma
import pickle
import sys
from pathlib import Path
from typing import Any

import corpus
import pytest
from fake_torch import PROGRAMS, FakeTorch
from test_time_costs import START, activity

import snapreport
from snapreport.findings.run import findings
from snapreport.timeline.time_costs import run_costs

sys.path.append(str(corpus.ROOT))

from benchmarks import remedy_times

RECORDINGS = Path(__file__).parent / "recordings"
EVENT_US, KERNEL_US = 10, 7
# Of each layer, allocations up to the output of GELU, the last that the backward pass reads: then comes "down".
IN_LAYER, LAYERS = 13, 4


def by_hand(folder: Path, *more: dict[str, Any]) -> snapreport.Snapshot:
    """A recorded program with an event every 10 µs, an operator for each allocation and a kernel of 7 µs for each."""
    snapshot = pickle.loads(lzma.decompress((RECORDINGS / "modules.pickle.xz").read_bytes()))
    trace, events = snapshot["device_traces"][0], list(more)
    del snapshot["snapreport"]["steps"]
    for number, event in enumerate(trace):
        at = number * EVENT_US
        event["time_us"] = START + at
        if event["action"] == "alloc":
            events += [
                activity("cpu_op", "aten::op", at - 1, 2),
                activity("cuda_runtime", "cudaLaunchKernel", at, 0.1, correlation=number),
                activity("kernel", "kernel", at + 100, KERNEL_US, tid=7, correlation=number, device=0),
            ]
    files = folder / "run.pickle", folder / "trace.json"
    files[0].write_bytes(pickle.dumps(snapshot))
    files[1].write_text(json.dumps({"baseTimeNanoseconds": START * 1000, "traceEvents": events}))
    return snapreport.load(files[0], profile=files[1])


def advised(snapshot: snapreport.Snapshot) -> snapreport.Finding:
    [found] = [one for one in findings(snapshot) if one.evidence.get("rule") == "checkpointing"]
    return found


def test_kernels_of_the_layers_run_again(tmp_path: Path) -> None:
    snapshot = by_hand(tmp_path)
    found = advised(snapshot)
    steps = snapshot.timeline(0).steps.sort("first_event")["first_event"].to_list()
    assert found.evidence["cost_us"] == LAYERS * IN_LAYER * KERNEL_US
    assert found.evidence["step_us"] == EVENT_US * (steps[2] - steps[1])
    assert found.evidence["device_busy_share"] < 0.3
    assert any(line.startswith("It costs at least 0.4 ms of ") for line in found.detail)


def test_a_busy_device(tmp_path: Path) -> None:
    """The kernels that fill it belong to no layer; of a device that is another one, nothing counts."""
    whole = activity("kernel", "other", 7_900, 6_900, tid=8, correlation=99_999, device=0)
    elsewhere = activity("kernel", "kernel", 9_000, 1_000, tid=7, correlation=880, device=1)
    found = advised(by_hand(tmp_path, whole, elsewhere, activity("cuda_runtime", "x", 8_000, 1, correlation=99_999)))
    assert found.evidence["cost_us"] == LAYERS * IN_LAYER * KERNEL_US
    assert found.evidence["device_busy_share"] > 0.99
    assert any(line.startswith("It costs about 0.4 ms of ") and line.endswith("(estimate).") for line in found.detail)


def test_operators_on_the_cpu() -> None:
    """A profiler's trace alone: the operators of four layers, of which the last linear layer does not run again."""
    path = RECORDINGS / "profiled_layers.json.xz"
    found = advised(snapreport.load(path, profile=path))
    forward = ("aten::linear", "aten::gelu")
    events = json.loads(lzma.decompress(path.read_bytes()))["traceEvents"]
    steps = sorted(event["ts"] for event in events if event["name"] == "aten::randn")
    operators = sorted((e["ts"], e["dur"]) for e in events if e.get("cat") == "cpu_op" and e["name"] in forward)
    each = [operators[number : number + 5] for number in range(0, len(operators), 5)]  # up, GELU, middle, GELU, down
    assert len(each) == LAYERS * len(steps)
    again = [sum(layer[3]) - layer[0][0] for layer in each]
    sums = [sum(again[number : number + LAYERS]) for number in range(0, len(again), LAYERS)]
    # Between layers there are some µs of Python.
    assert any(one <= found.evidence["cost_us"] <= 1.02 * one for one in sums)
    assert "device_busy_share" not in found.evidence
    assert found.evidence["layers"] in (0, LAYERS)


@pytest.mark.parametrize("program", ["words", "images"])
def test_advice_has_the_time_of_the_kernels(torch_cuda: FakeTorch, tmp_path: Path, program: str) -> None:
    """Compared with the kernels that the backward pass of the checkpointed program starts."""
    files = []
    for remedy in ("", "checkpoint"):
        folder = tmp_path / f"run {remedy}"
        command = [PROGRAMS / "remedies.py", tmp_path / "own.pickle", program, *filter(None, [remedy])]
        done = torch_cuda.record("-o", folder, "--no-modules", "--profile", "1:4", command=command)
        assert done.code == 0, done.err
        remedy_times.add_kernels(folder / "profile_rank_00000.json.gz")
        files += folder.glob("rank_*.pickle.gz")
    plain, checkpointed = map(snapreport.load, files)
    costs = run_costs([checkpointed.timeline(0)])
    assert costs
    again = [one.device_us for step in costs.steps for one in step.costs if one.cause == "recomputation"]
    assert len(again) == len(costs.steps) and again[0]
    cost = advised(plain).evidence["cost_us"]
    assert 0.8 <= cost / again[0] <= 1.25, (cost, again)
    assert not [one for one in findings(checkpointed) if one.evidence.get("cost_us")], "it is checkpointed"


def test_without_kernels_nothing_is_said_of_a_device(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """How long the host takes to start kernels is not how long they take."""
    command = [PROGRAMS / "remedies.py", tmp_path / "own.pickle", "words"]
    assert torch_cuda.record("-o", tmp_path / "run", "--profile", "1:4", command=command).code == 0
    [path] = (tmp_path / "run").glob("rank_*.pickle.gz")
    assert "cost_us" not in advised(snapreport.load(path)).evidence


def test_a_host_that_runs_ahead(tmp_path: Path) -> None:
    """Kernels that a step calls run for longer than the host takes to call them: that is how long the step takes."""
    more = []
    for number, (called, length) in enumerate(((100, 40_000), (7_900, 20_000)), 100_000):
        more.append(activity("cuda_runtime", "x", called, 1, correlation=number))
        more.append(activity("kernel", "x", 100_000 + called, length, tid=8, correlation=number, device=0))
    found = advised(by_hand(tmp_path, *more))
    assert found.evidence["step_us"] > 20_000 and found.evidence["device_busy_share"] == 1
    assert found.evidence["cost_us"] == LAYERS * IN_LAYER * KERNEL_US
