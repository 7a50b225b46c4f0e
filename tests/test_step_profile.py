"""``record --profile``: a trace of a few steps beside the snapshots, which stats finds; the program is unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cli
import pytest
from fake_torch import TRAIN, FakeTorch, raw, snapshots

import snapreport
from snapreport.recorder.options import Options

TRACE, SNAPSHOT = "profile_rank_00000.json.gz", "rank_00000_step_00000006_exit.pickle.gz"
OWN_PROFILER = """
import sys
import torch
from torch import nn

model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if step == 2 or sys.argv[1:] == ["always"]:
        with torch.profiler.profile() as own:
            model(torch.zeros(4, 64, device="cuda")).sum().backward()
        assert any(event.key == "aten::zeros" for event in own.key_averages())
    else:
        model(torch.zeros(4, 64, device="cuda")).sum().backward()
    optimizer.step()
print("done")
"""


def record(torch: FakeTorch, folder: Path, *options: str, command: list[object] | None = None) -> Any:
    return torch.record("-o", folder, "--no-device-memory", *options, command=command or [TRAIN, 6])


def stats(path: Path) -> Any:
    return cli.in_process("stats", path, "--json").json["snapshots"][0]


@pytest.mark.parametrize("steps", [(0, 2), (3, 5)])
def test_profiled_steps(torch_cuda: FakeTorch, tmp_path: Path, steps: tuple[int, int]) -> None:
    """The program and the memory that PyTorch counts are the same; the trace has the chosen steps, on one clock."""
    plain = record(torch_cuda, tmp_path / "plain")
    done = record(torch_cuda, tmp_path / "run", "--profile", f"{steps[0]}:{steps[1]}")
    assert (done.code, done.out) == (0, plain.out), done.err
    assert snapshots(tmp_path / "run") == [TRACE, SNAPSHOT]
    assert f"snapreport: profile: {tmp_path / 'run' / TRACE}" in done.err
    assert "1 snapshot in" in done.err
    own = [raw(tmp_path / name / SNAPSHOT)["snapreport"] for name in ("plain", "run")]
    counted = [one["devices"][0]["memory_stats"] for one in own]
    assert counted[0] == counted[1] and counted[0]["allocation.all.allocated"] > 0
    assert [one["profile"] for one in own] == [None, TRACE]
    time = stats(tmp_path / "run" / SNAPSHOT)["time"]
    assert time["trace"] == TRACE and time["matched"] > 50 and max(time["clock_error_us"]) < 50
    assert "time" not in stats(tmp_path / "plain" / SNAPSHOT)
    (only,) = cli.in_process("stats", *sorted((tmp_path / "run").iterdir()), "--json").json["snapshots"]
    assert only["file"] == SNAPSHOT
    # Its operators run within the chosen steps, as the recorder has noted the ends of all steps.
    ends = dict(own[1]["steps"])
    activities = snapreport.load(tmp_path / "run" / SNAPSHOT).recording.profile.activities
    backward = activities.intervals.filter(activities.intervals["name"].str.contains("evaluate_function: GeluBackward"))
    assert len(backward) == 2 * (steps[1] - steps[0])
    begins = backward["begin"].to_numpy() // 1000
    assert begins.min() > ends.get(steps[0], 0) and begins.max() < ends[steps[1]]


def test_profile_of_a_program_that_ends(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    done = record(torch_cuda, tmp_path / "run", "--profile", "4:100")
    assert done.code == 0 and "the program ends: profile: " in done.err, done.err
    assert stats(tmp_path / "run" / SNAPSHOT)["time"]["matched"] > 50


@pytest.mark.parametrize("when", ["once", "always"])
def test_the_programs_own_profiler_works(torch_cuda: FakeTorch, tmp_path: Path, when: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(OWN_PROFILER)
    done = record(torch_cuda, tmp_path / "run", "--profile", "1:4", command=[program, when])
    assert (done.code, done.out) == (0, "done\n"), done.err
    assert "the program starts torch.profiler itself: profile: " in done.err
    assert snapshots(tmp_path / "run")[0] == TRACE


def test_a_trace_that_cannot_be_read_costs_nothing_but_itself(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    assert record(torch_cuda, tmp_path / "run", "--profile", "2:3").code == 0
    path = tmp_path / "run" / SNAPSHOT
    (tmp_path / "run" / TRACE).write_bytes(b"no trace")
    assert "time" not in stats(path)
    text = " ".join(cli.in_process("stats", path).out.split())
    assert "The profiler's trace beside the snapshot is not used: " in text
    (tmp_path / "run" / TRACE).unlink()
    assert "not used" not in cli.in_process("stats", path).out


def test_without_cuda_the_recording_is_a_profile(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: recording without CUDA was not tested")
    program = "import torch; torch.zeros(1000)"
    call = [sys.executable, "-m", "snapreport", "record", "-o", str(tmp_path), "--profile", "0:1", "--"]
    done = subprocess.run([*call, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "no profile: without CUDA, the recording itself is one" in done.stderr


def test_options() -> None:
    with pytest.raises(ValueError, match="profile: 3:3 is no step"):
        Options("run", profile=(3, 3))
    assert json.loads(Options("run", profile=(1, 2)).to_json())["profile"] == [1, 2]
    assert cli.in_process("record", "--profile", "x", "--", "true").code == 2
