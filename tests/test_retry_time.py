"""What segments that are given back and allocated again cost in time, in programs in which PyTorch counts them."""

from __future__ import annotations

import gzip
import json
import statistics
from pathlib import Path
from typing import Any

import cli
import polars as pl
from fake_torch import PROGRAMS, FakeTorch
from test_time_costs import activity

import snapreport
from snapreport.findings.run import findings

# Microseconds of each call, which no profiler sees over a driver without a GPU.
FREE, MALLOC = 300, 500


def recorded(torch: FakeTorch, folder: Path, *command: object) -> tuple[Any, Path, int]:
    """What a program printed, its snapshot, and the number of segments released while a profiler saw steps 2 to 6: the
    calls of cudaFree and cudaMalloc at the times of their events are added to its trace.
    """
    done = torch.record("-o", folder, "--no-modules", "--profile", "2:7", command=[*command], FAKE_GPU_GIB=4)
    assert done.code == 0, done.err
    [path], [trace] = folder.glob("rank_*.pickle.gz"), folder.glob("profile_*.json.gz")
    document = json.loads(gzip.decompress(trace.read_bytes()))
    bare = snapreport.load(path)
    seen = bare.recording.profile.activities.intervals
    events = bare.events(0).filter(pl.col("time_us").is_between(seen["begin"].min() // 1000, seen["end"].max() // 1000))
    for action, name, length in (("segment_free", "cudaFree", FREE), ("segment_alloc", "cudaMalloc", MALLOC)):
        for time_us in events.filter(events["action"] == action)["time_us"].to_list():
            begin = time_us - document["baseTimeNanoseconds"] / 1000 - length
            document["traceEvents"].append(activity("cuda_runtime", name, begin, length))
    trace.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return json.loads(done.out), path, int((events["action"] == "segment_free").sum())


def advice(path: Path, rule: str, cause: str) -> tuple[Any, dict[str, Any], str]:
    """The advice by a rule, whose time is that of a step's calls; the costs by cause; what ``stats`` prints."""
    [found] = [one for one in findings(snapreport.load(path)) if one.evidence.get("rule") == rule]
    time = cli.in_process("stats", path, "--json").json["snapshots"][0]["time"]
    steps = [
        sum(one["host_us"] for one in step["costs"] if one["cause"] in (cause, "cudaMalloc")) for step in time["steps"]
    ]
    assert found.evidence["taken_us"] == statistics.median(steps) >= FREE + MALLOC
    text = " ".join(cli.in_process("stats", path).out.split())
    assert "a step by the profiler's trace." in text
    return found, {one["cause"]: one for one in time["costs"]}, text


def test_retries_of_a_program(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """As many as ``num_alloc_retries``; all segments that they release, and as long as the calls that release them."""
    counted, path, released = recorded(torch_cuda, tmp_path, PROGRAMS / "retries.py")
    assert sum(counted[2:7]) >= 3, counted
    [churn] = [one for one in findings(snapreport.load(path)) if one.kind == "churn"]
    assert churn.evidence["retries"] == sum(counted)
    _, costs, text = advice(path, "garbage-collection-threshold", "retry")
    assert (costs["retry"]["count"], costs["retry"]["host_us"]) == (released, released * FREE)
    assert "cudaFree" not in costs
    assert "Retries and cudaMalloc take " in text
    assert f"{sum(counted)} requests found no memory, released everything cached and tried again." in text


def test_a_program_that_empties_the_cache(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """All that its calls release is theirs, and what is advised is true of the program without them."""
    program = PROGRAMS / "emptied_cache.py"
    emptied, path, released = recorded(torch_cuda, tmp_path / "emptied", program)
    assert min(emptied["released"]) > 0
    found, costs, text = advice(path, "empty-cache", "empty_cache")
    # The trace ends with the optimizer's last step, before the last of these calls.
    assert released == sum(emptied["released"][2:6])
    assert (costs["empty_cache"]["count"], costs["empty_cache"]["host_us"]) == (released, released * FREE)
    assert not {"retry", "cudaFree"} & costs.keys()
    assert "empty_cache() and cudaMalloc take " in text
    line = 1 + next(n for n, line in enumerate(program.read_text().splitlines()) if ".empty_cache()" in line)
    assert found.detail[0].startswith(f"empty_cache() in <module> emptied_cache.py:{line} releases segments ")
    never, path, _ = recorded(torch_cuda, tmp_path / "never", program, "never")
    assert not any(never["released"]) and never["reserved"] >= emptied["reserved"]
    assert never["allocated"] <= emptied["allocated"]  # what is left of a split block counts, too
    assert not [one for one in findings(snapreport.load(path)) if one.kind == "churn"]
