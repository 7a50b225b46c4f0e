"""What offloading the optimizer is said to cost in time, against the copies of the program that offloads it."""

from __future__ import annotations

import gzip
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import corpus
import planted
import pytest
from fake_torch import PROGRAMS, FakeTorch
from test_time_costs import activity

import snapreport
from snapreport.findings.run import findings
from snapreport.timeline.time_costs import run_costs

# Nanoseconds that a copy takes to start, and for each byte.
LATENCY, EACH = 10_000, {"HtoD": 1 / 12, "DtoH": 1 / 10}
WAYS = {"HtoD": "Memcpy HtoD (Pinned -> Device)", "DtoH": "Memcpy DtoH (Device -> Pinned)"}


def recorded(torch: FakeTorch, folder: Path, remedy: str, *ways: str) -> snapreport.Snapshot:
    """The program with its copies of ``ways``, which it notes itself, as a profiler on a GPU would have them."""
    run, noted = folder / f"run {remedy}", folder / f"copies {remedy}"
    command = [PROGRAMS / "host_optimizer.py", noted, *filter(None, [remedy])]
    done = torch.record("-o", run, "--no-modules", "--profile", "1:5", command=command)
    assert done.code == 0, done.err
    [path], [trace] = run.glob("rank_*.pickle.gz"), run.glob("profile_*.json.gz")
    document = json.loads(gzip.decompress(trace.read_bytes()))
    for number, (at, way, size) in enumerate(json.loads(noted.read_text())):
        if way in ways:
            begin, length = (at - document["baseTimeNanoseconds"]) / 1000, (LATENCY + EACH[way] * size) / 1000
            own: dict[str, Any] = {"correlation": 10**6 + number}
            document["traceEvents"] += [
                activity("cuda_runtime", "cudaMemcpyAsync", begin, 5, **own),
                activity("gpu_memcpy", WAYS[way], begin + 5, length, tid=7, device=0, bytes=size, **own),
            ]
    trace.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return snapreport.load(path)


def advised(snapshot: snapreport.Snapshot) -> snapreport.Finding:
    [found] = [one for one in findings(snapshot) if one.evidence.get("rule") == "offload"]
    return found


def copied_us(snapshot: snapreport.Snapshot) -> float:
    """Device time of copies in the median profiled step."""
    costs = run_costs([snapshot.timeline(0)])
    assert costs and len(costs.steps) >= 3
    each = sorted(sum(c.device_us or 0 for c in step.costs if c.cause.startswith("copies")) for step in costs.steps)
    return each[len(each) // 2]


def test_as_long_as_the_copies_of_the_offloaded_program(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    plain, offloaded = (recorded(torch_cuda, tmp_path, remedy, *WAYS) for remedy in ("", "offload"))
    found = advised(plain)
    more = copied_us(offloaded) - copied_us(plain)
    assert 0.9 <= found.evidence["cost_us"] / more <= 1.1, (found.evidence, more)
    [said] = [line for line in found.detail if line.startswith("These copies take about ")]
    assert said.endswith(" as other copies in the profiler's trace (estimate).")
    assert not [one for one in findings(offloaded) if one.evidence.get("rule") == "offload"]


@pytest.mark.parametrize("way", list(WAYS))
def test_a_trace_with_copies_in_one_way(torch_cuda: FakeTorch, tmp_path: Path, way: str) -> None:
    """Nothing is assumed of the other way, and nothing is said without copies at all."""
    found = advised(recorded(torch_cuda, tmp_path, "", way))
    rate = found.evidence["to_device_bytes_per_s" if way == "HtoD" else "to_host_bytes_per_s"]
    assert abs(rate * EACH[way] / 1e9 - 1) < 0.1
    assert abs(found.evidence["cost_us"] - found.evidence["moved_bytes"] / rate * 1e6) <= 1
    assert found.evidence.get("to_host_bytes_per_s" if way == "HtoD" else "to_device_bytes_per_s") is None
    assert any(
        line.startswith(f"The copies to the {'device' if way == 'HtoD' else 'host'} alone") for line in found.detail
    )


def test_without_copies_nothing_is_said(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    assert advised(recorded(torch_cuda, tmp_path, "")).evidence.get("cost_us") is None


def test_calls_of_a_loop_that_empties_the_cache(tmp_path: Path) -> None:
    """Each call of cudaFree takes 7 µs and each of cudaMalloc 30, right after its event."""
    path, took = planted.path_of("churn"), {"segment_free": 7, "segment_alloc": 30}
    names = {"segment_free": "cudaFree", "segment_alloc": "cudaMalloc"}
    trace = [event for event in corpus.raw(path)["device_traces"][0] if "time_us" in event]
    start = trace[0]["time_us"]
    calls = [
        activity("cuda_runtime", names[event["action"]], event["time_us"] - start + 0.5, took[event["action"]])
        for event in trace
        if event["action"] in names
    ]
    calls += [activity("cpu_op", "aten::empty", at - start, 1) for at in (start, trace[-1]["time_us"])]
    profile = tmp_path / "trace.json"
    profile.write_text(json.dumps({"baseTimeNanoseconds": start * 1000, "traceEvents": calls}))
    snapshot = snapreport.load(path, profile=profile)
    steps = snapshot.timeline(0).steps.sort("first_event")["first_event"].to_list()
    each = [
        sum(took.get(event["action"], 0) for event in corpus.raw(path)["device_traces"][0][first:until])
        for first, until in itertools.pairwise(steps)
    ]
    [found] = [one for one in findings(snapshot) if one.evidence.get("rule") == "empty-cache"]
    assert found.evidence["taken_us"] == statistics.median(each[1:]) > 0
    assert found.detail[-1].startswith("empty_cache() and cudaMalloc take ")
