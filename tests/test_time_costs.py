"""What memory costs in time, by a profiler trace and a snapshot of one run: over the fake driver and by hand."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import cli
import pytest
from fake_torch import PROGRAMS, FakeTorch
from planted_trace import Recording

from snapreport.timeline.time_costs import ProfiledStep

START = 1_790_857_026_000_000  # µs since 1970, of the base


def activity(cat: str, name: str, at: float, dur: float, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": args.pop("tid", 1),
        "ts": at,
        "dur": dur,
        "args": args,
    }


def by_hand(folder: Path) -> tuple[Path, Path]:
    """Four steps of 1 ms, in the third of which cudaMalloc takes 2 ms and a checkpoint runs its forward pass again."""
    device = Recording()
    events: list[dict[str, Any]] = [activity("cpu_op", "aten::empty", 0, 1)]
    starts = [10, 1010, 2010, 6010]
    for number, at in enumerate(starts):
        block = device.request(32 + number)
        for event in device.trace:
            event.setdefault("time_us", START + at)
        address = block
        events.append({
            "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": at + 0.5,
            "args": {"Bytes": 1, "Addr": address, "Device Type": 1, "Device Id": 0},
        })  # fmt: skip
        events += [
            activity("cpu_op", "aten::mm", at + 100, 50, **{"Sequence number": 7, "Fwd thread id": 0}),
            activity("cpu_op", "autograd::engine::evaluate_function: MmBackward0", at + 300, 500, tid=2),
            activity("cpu_op", "aten::mm", at + 700, 20, tid=2),
        ]
        if number == 2:
            events += [
                activity("cuda_runtime", "cudaMalloc", at + 20, 2000),
                activity("cpu_op", "aten::mm", at + 320, 30, tid=2, **{"Sequence number": 9, "Fwd thread id": 0}),
                activity("cuda_runtime", "cudaLaunchKernel", at + 330, 5, tid=2, correlation=5),
                activity("cpu_op", "aten::gelu", at + 360, 40, tid=2, **{"Sequence number": 10, "Fwd thread id": 0}),
                activity("kernel", "gemm", at + 5000, 300, tid=7, correlation=5, device=0),
                activity("cuda_runtime", "cudaMemcpyAsync", at + 850, 60, correlation=6),
                activity(
                    "gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", at + 5400, 90, tid=7, correlation=6, bytes=3 << 20
                ),
                activity("python_function", "torch/serialization.py(944): save", at + 600, 240),
                activity("python_function", "torch/serialization.py(1200): save", at + 610, 100),
                activity("python_function", "torch/serialization.py(800): _save", at + 620, 100),
                activity("kernel", "other", at + 5500, 1000, tid=7, correlation=99),
            ]
    events.append(activity("cpu_op", "aten::empty", 7500, 1))
    snapshot = device.snapshot()
    snapshot["snapreport"] = {
        "schema": "snapreport-recording/1",
        "steps": [[i + 1, START + at - 5] for i, at in enumerate([*starts[1:], 7100])],
    }  # fmt: skip
    files = folder / "run.pickle", folder / "trace.json"
    files[0].write_bytes(pickle.dumps(snapshot))
    files[1].write_text(json.dumps({"baseTimeNanoseconds": START * 1000, "traceEvents": events}))
    return files


def test_costs_by_hand(tmp_path: Path) -> None:
    snapshot, trace = by_hand(tmp_path)
    time = cli.in_process("stats", snapshot, "--profile", trace, "--json").json["snapshots"][0]["time"]
    assert {one["cause"]: (one["count"], one["host_us"], one["device_us"]) for one in time["costs"]} == {
        "cudaMalloc": (1, 2000, 0), "recomputation": (1, 80, 300), "copies to the host": (1, 60, 90),
        "torch.save": (1, 240, 0),
    }  # fmt: skip
    assert {one["cause"]: one["bytes"] for one in time["costs"] if "bytes" in one} == {"copies to the host": 3 << 20}
    assert (time["matched"], time["clock_error_us"], time["clock_shift_us"]) == (4, [0, 0], 0)
    assert time["duration_us"] == 8510
    assert [one["duration_us"] for one in time["steps"]][1:3] == [1000, 4000]
    assert [len(one["costs"]) for one in time["steps"]] == [0, 0, 4, 0][: len(time["steps"])]
    text = " ".join(cli.in_process("stats", snapshot, "--profile", trace).out.split())
    assert "recomputation of checkpoints 1 segment 80 µs 0.9% 0.3 ms" in text
    assert "copies to the host 1 copy, 3.00 MiB 60 µs" in text and "writing a checkpoint 1 call 0.2 ms" in text
    assert "took 4.0 ms" in text and "2.0 ms more in cudaMalloc" in text


def test_segments_given_back_by_hand(tmp_path: Path) -> None:
    """Three calls of cudaFree: by ``empty_cache()``, by a request that had to be tried again, and near no segment."""
    callers = [[("/x/torch/cuda/memory.py", "empty_cache"), ("/a/t.py", "main")], [("/a/m.py", "forward")]]
    trace: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = [activity("cpu_op", "aten::empty", 0, 1)]
    for number, caller in enumerate(callers):
        at, block = 1000 * number + 100, {"addr": (number + 1) << 30, "size": 4 << 20, "stream": 0}
        for after, action in enumerate(("segment_alloc", "alloc", "free_requested", "free_completed", "segment_free")):
            frames = caller if action == "segment_free" else [("/a/t.py", "main")]
            named = [{"filename": file, "line": 1, "name": name} for file, name in frames]
            trace.append({"action": action, **block, "time_us": START + at + 10 * after, "frames": named})
        memory = {"Bytes": 1, "Addr": block["addr"], "Device Type": 1, "Device Id": 0}
        where = {"ph": "i", "cat": "cpu_instant_event", "pid": 1, "tid": 1}
        events.append({**where, "name": "[memory]", "ts": at + 10, "args": memory})
        events.append(activity("cuda_runtime", "cudaFree", at + 41, 20 + number))
    events += [activity("cuda_runtime", "cudaFree", 5000, 7), activity("cpu_op", "aten::empty", 6000, 1)]
    snapshot, profile = tmp_path / "run.pickle", tmp_path / "trace.json"
    snapshot.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    profile.write_text(json.dumps({"baseTimeNanoseconds": START * 1000, "traceEvents": events}))
    time = cli.in_process("stats", snapshot, "--profile", profile, "--json").json["snapshots"][0]["time"]
    assert {one["cause"]: (one["count"], one["host_us"]) for one in time["costs"]} == {
        "empty_cache": (1, 20), "retry": (1, 21), "cudaFree": (1, 7),
    }  # fmt: skip


def test_a_trace_of_another_run_is_refused(tmp_path: Path) -> None:
    snapshot, trace = by_hand(tmp_path)
    document = json.loads(trace.read_text())
    document["baseTimeNanoseconds"] += 60 * 10**9
    trace.write_text(json.dumps(document))
    done = cli.in_process("stats", snapshot, "--profile", trace)
    assert done.code == 2 and "not of the same run" in done.err
    trace.write_text("[1]")
    assert cli.in_process("stats", snapshot, "--profile", trace).code == 2
    assert cli.in_process("stats", snapshot, snapshot, "--profile", trace).code == 2


def test_a_profiler_that_a_step_starts_covers_it() -> None:
    """It begins and ends within a hundredth of the step."""
    step = ProfiledStep(3, "step 3", begin=1000, end=2000)
    assert step.is_within(1010, 2500) and step.is_within(1004, 1994)
    assert not step.is_within(1011, 2500) and not step.is_within(1006, 1994)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_of_a_program(torch_cuda: FakeTorch, tmp_path: Path, reentrant: bool) -> None:
    """As often as the program's own modules ran again, no longer than they took; on one clock with the allocations."""
    done = torch_cuda.run(PROGRAMS / "profiled_checkpoints.py", tmp_path / "run", int(reentrant))
    assert done.code == 0, done.err
    own = json.loads(done.out)
    files = tmp_path / "run.pickle", tmp_path / "run.json"
    time = cli.in_process("stats", files[0], "--profile", files[1], "--json").json["snapshots"][0]["time"]
    [cost] = [one for one in time["costs"] if one["cause"] == "recomputation"]
    assert cost["count"] == own["recomputed"] and 0 < cost["host_us"] <= own["recomputed_us"]
    assert time["matched"] > 100 and max(time["clock_error_us"]) < 50
