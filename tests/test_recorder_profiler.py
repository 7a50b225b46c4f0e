"""Recording where there is no accelerator: torch.profiler around an unchanged program, on the CPU build of torch."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import snapreport
from snapreport.recorder import allocator, metadata, profiler
from snapreport.recorder.options import Options

PROGRAM = """
import sys
import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
def train_step():
    optimizer.zero_grad()
    model(torch.randn(64, 256)).sum().backward()
    optimizer.step()
for step in range(int(sys.argv[1])):
    train_step()
if "profile" in sys.argv:
    with torch.profiler.profile(profile_memory=True) as own:
        torch.zeros(1000)
    print(any(event.key == "aten::zeros" for event in own.key_averages()))
print("done")
sys.exit(3)
"""


def record(folder: Path, *options: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("torch", reason="torch is not installed: recording without CUDA was not tested")
    program = folder / "train.py"
    program.write_text(PROGRAM)
    call = [sys.executable, "-m", "snapreport", "record", "-o", str(folder / "run"), *options, "--"]
    return subprocess.run(
        [*call, sys.executable, str(program), *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("recorded")
    return record(folder, "--report", arguments=("12",)), folder / "run"


def test_the_first_ten_steps_become_a_report(recorded):
    done, folder = recorded
    assert (done.returncode, done.stdout) == (3, "done\n"), done.stderr
    assert sorted(path.name for path in folder.iterdir()) == [
        "rank_00000_step_00000010_steps.html",
        "rank_00000_step_00000010_steps.json.gz",
    ]
    lines = done.stderr.splitlines()
    assert lines[0] == "snapreport: recorded the first 10 steps; --steps A:B chooses others"
    assert len(lines) == 3, done.stderr


def test_parameters_are_known_by_name(recorded):
    loaded = snapreport.load(recorded[1] / "rank_00000_step_00000010_steps.json.gz")
    assert loaded.devices == [-1] and loaded.timeline(-1).kind == "cpu"
    rows = loaded.allocations(-1)
    found = rows.filter((pl.col("user_metadata") == "0.weight") & (pl.col("free_event") < 0))
    assert found.select("size", "category", "category_source").rows() == [(256 * 256 * 4, "parameter", "recorded")]
    state = rows.filter(pl.col("user_metadata") == "0.weight.momentum_buffer")
    assert state.filter(pl.col("free_event") < 0)["category"].to_list() == ["optimizer state"]
    assert loaded.steps(-1)["step"].to_list()[:10] == list(range(10))
    assert loaded.recording.recorder is not None and loaded.recording.recorder.reason == "steps"


def test_a_program_that_profiles_itself_goes_on(tmp_path):
    done = record(tmp_path, arguments=("2", "profile"))
    assert (done.returncode, done.stdout) == (3, "True\ndone\n"), done.stderr
    assert "the program uses torch.profiler itself: recorded until here" in done.stderr
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["rank_00000_step_00000002_call.json.gz"]


class _Xpu(types.ModuleType):
    """``torch.xpu`` as PyTorch 2.13 has it, as far as it is used here."""

    def __init__(self) -> None:
        super().__init__("xpu")
        self.calls: list[Any] = []
        self.memory = types.SimpleNamespace(_record_memory_history=self.record, _snapshot=lambda: {"segments": []})

    def record(
        self, enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = 0,
        clear_history: bool = False, skip_actions: list[str] | None = None,
    ) -> None:  # fmt: skip
        self.calls.append((enabled, context, stacks, max_entries))

    def _lazy_call(self, function: Any) -> None:
        function()

    def current_device(self) -> int:
        return 1

    def get_device_properties(self, device: int) -> Any:
        return types.SimpleNamespace(name="Arc", uuid="u", total_memory=16)

    def memory_stats(self, device: int) -> dict[str, int]:
        return {"allocated_bytes.all.peak": 5}

    def mem_get_info(self, device: int) -> tuple[int, int]:
        return 4, 16


def _torch(**version: str | None) -> types.SimpleNamespace:
    versions = {"cuda": None, "hip": None, "xpu": None, **version}
    return types.SimpleNamespace(__version__="0", version=types.SimpleNamespace(**versions), xpu=_Xpu())


def test_xpu_has_its_own_recorder_of_the_same_shape(monkeypatch):
    fake = _torch(xpu="20250201")
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert allocator.memory_kind() == "xpu"
    recorder = allocator.CudaRecorder(Options("x", max_entries=7), "xpu")
    began: list[int] = []
    recorder.when_ready(lambda: began.append(1))
    recorder.begin(lambda *_: None)
    recorder.step(0)
    assert began == [1]
    assert fake.xpu.calls == [(None, "all", "all", 0), ("all", "all", "python", 7)]
    assert recorder.snapshot() == {"segments": []}
    assert metadata.memory_info("xpu") == {1: {"free_bytes": 4, "total_bytes": 16}}
    assert metadata.device_facts("xpu")[1]["memory_stats"] == {"allocated_bytes.all.peak": 5}


def test_without_a_driver_a_cuda_build_records_the_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", _torch())
    assert allocator.memory_kind() == "cpu"
    monkeypatch.setitem(sys.modules, "torch", _torch(cuda="12.8"))
    for version, kind in ((0, "cpu"), (12080, "cuda")):

        def driver(pointer: Any, version: int = version) -> int:
            pointer._obj.value = version
            return 0

        runtime = types.SimpleNamespace(cudaDriverGetVersion=driver)
        monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name, runtime=runtime: runtime)
        assert allocator.memory_kind() == kind


def test_accelerators_without_a_recorder_are_named(monkeypatch):
    for name, mps in (("mps", True), ("hpu", False)):
        fake = types.SimpleNamespace(
            backends=types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda mps=mps: mps)),
            accelerator=types.SimpleNamespace(current_accelerator=lambda: types.SimpleNamespace(type="hpu")),
        )
        monkeypatch.setitem(sys.modules, "torch", fake)
        assert profiler.unrecorded_accelerator() == name
