"""What requests that had to be tried again cost in time, of a program in which PyTorch itself counts them."""

from __future__ import annotations

import gzip
import json
import statistics
from pathlib import Path

import cli
import polars as pl
from fake_torch import PROGRAMS, FakeTorch
from test_time_costs import activity

import snapreport
from snapreport.findings.run import findings

# Microseconds of each call, which no profiler sees over a driver without a GPU.
FREE, MALLOC = 300, 500


def test_retries_of_a_program(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """As many as ``num_alloc_retries``; all segments that they release, and as long as the calls that release them."""
    done = torch_cuda.record(
        "-o", tmp_path, "--no-modules", "--profile", "2:7", command=[PROGRAMS / "retries.py"], FAKE_GPU_GIB=4
    )
    assert done.code == 0, done.err
    counted = json.loads(done.out)
    assert sum(counted[2:7]) >= 3, counted
    [path], [trace] = tmp_path.glob("rank_*.pickle.gz"), tmp_path.glob("profile_*.json.gz")
    document = json.loads(gzip.decompress(trace.read_bytes()))
    bare = snapreport.load(path)
    seen = bare.recording.profile.activities.intervals
    events = bare.events(0).filter(pl.col("time_us").is_between(seen["begin"].min() // 1000, seen["end"].max() // 1000))
    released = events.filter(events["action"] == "segment_free")
    for action, name, length in (("segment_free", "cudaFree", FREE), ("segment_alloc", "cudaMalloc", MALLOC)):
        for time_us in events.filter(events["action"] == action)["time_us"].to_list():
            begin = time_us - document["baseTimeNanoseconds"] / 1000 - length
            document["traceEvents"].append(activity("cuda_runtime", name, begin, length))
    trace.write_bytes(gzip.compress(json.dumps(document).encode(), 1))

    snapshot = snapreport.load(path)
    [churn] = [one for one in findings(snapshot) if one.kind == "churn"]
    assert churn.evidence["retries"] == sum(counted)
    time = cli.in_process("stats", path, "--json").json["snapshots"][0]["time"]
    costs = {one["cause"]: one for one in time["costs"]}
    assert (costs["retry"]["count"], costs["retry"]["host_us"]) == (len(released), len(released) * FREE)
    assert "cudaFree" not in costs
    [advice] = [one for one in findings(snapshot) if one.evidence.get("rule") == "garbage-collection-threshold"]
    spent = statistics.median(
        sum(one["host_us"] for one in step["costs"] if one["cause"] in ("retry", "cudaMalloc"))
        for step in time["steps"]
    )
    assert advice.evidence["taken_us"] == spent >= FREE + MALLOC
    text = " ".join(cli.in_process("stats", path).out.split())
    assert "Retries and cudaMalloc take " in text and "a step by the profiler's trace." in text
    assert f"{sum(counted)} requests found no memory, released everything cached and tried again." in text
