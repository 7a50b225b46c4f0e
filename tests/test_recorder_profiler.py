"""Recording without an accelerator: torch.profiler around an unchanged program, on the CPU build of torch."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from waiting import GUARD_SECONDS

import snapreport
from snapreport.recorder import allocator, metadata, profiler
from snapreport.recorder.chrome_trace import write_trimmed, write_whole
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


DECORATED = """
import sys, torch, snapreport
for name in ("polars", "click", "msgspec"): sys.modules[name] = None
@snapreport.record(sys.argv[1])
def train(steps):
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        model(torch.randn(8, 64)).sum().backward(); optimizer.step()
    return steps
print(train(2))
with torch.profiler.profile(profile_memory=True, with_stack=True) as whole:
    train.__wrapped__(3)
whole.export_chrome_trace(sys.argv[2])
"""


def test_a_decorated_function_and_what_is_left_out_of_its_trace(tmp_path):
    """A trimmed trace says the same about memory as the whole one: events, stacks and the profiler's totals."""
    pytest.importorskip("torch", reason="torch is not installed: recording without CUDA was not tested")
    whole, trimmed = tmp_path / "whole.json", tmp_path / "trimmed.json"
    call = [sys.executable, "-c", DECORATED, str(tmp_path / "run"), str(whole)]
    variables = {**os.environ, "PYTHONPATH": str(Path(snapreport.__file__).parent.parent)}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=variables)
    assert done.stdout == "2\n", done.stderr
    files = [path.name for path in (tmp_path / "run").iterdir()]
    assert files == ["rank_00000_step_00000002_exit.json.gz"]
    recorded = snapreport.load(tmp_path / "run" / files[0])
    assert len(recorded.steps(-1)) >= 2
    # A command line with quotes and newlines, which the profiler's own way of adding metadata does not preserve.
    assert recorded.recording.recorder is not None and DECORATED in recorded.recording.recorder.command
    with whole.open("rb") as source, trimmed.open("wb") as stream:
        count = write_trimmed(source, stream, {}, 10**6)
    assert trimmed.stat().st_size < whole.stat().st_size / 2
    assert json.loads(trimmed.read_bytes())["traceEvents"]
    expected, found = snapreport.load(whole), snapreport.load(trimmed)
    assert len(expected.events(-1)) == count and described(found) == described(expected)
    counted = [one.recording.devices[-1].counted_allocated.tolist() for one in (expected, found)]
    assert counted[0] == counted[1]
    with whole.open("rb") as source, trimmed.open("wb") as stream:
        assert write_trimmed(source, stream, {}, 20) == count
    assert described(snapreport.load(trimmed)) == described(expected)[-20:]


def described(loaded: snapreport.Snapshot) -> list[tuple[Any, ...]]:
    """Each memory event with the frames of its stack."""
    frames = loaded.recording.frames.rows()
    rows = loaded.events(-1).select("action", "addr", "size", "time_us", "stack").rows()
    return [(*row[:4], [frames[frame] for frame in loaded.recording.stack(row[4])]) for row in rows]


def test_a_layout_that_is_not_the_profilers():
    """Nothing is trimmed and nothing lost: the whole trace is written."""
    event = b'{"name": "[memory]", "ph": "i", "pid": 1, "tid": 1, "ts": 1}'
    in_one_line = b'{"traceEvents": [' + event + b"]}"
    cut_short = b'{\n"traceEvents": [\n  {\n' + event[1:-1] + b"\n  },\n  {\n"
    for text in (in_one_line, cut_short):
        with pytest.raises(ValueError, match="a trace"):
            write_trimmed(io.BytesIO(text), io.BytesIO(), {}, 9)
    stream = io.BytesIO()
    write_whole(io.BytesIO(in_one_line), stream, {"step": 3})
    assert json.loads(stream.getvalue()) == {"snapreport": {"step": 3}, **json.loads(in_one_line)}


def test_a_name_from_freed_memory_costs_one_function():
    """PyTorch 2.6 writes such names unescaped: invalid JSON. Its header looks like an event, after an empty line."""
    event = '  {\n    "ph": "X", "cat": "python_function", "name": "%s", "pid": 1, "tid": 1, "ts": 5, "dur": 9\n  },\n'
    memory = (
        '  {\n    "ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 7, "args": {"Bytes": 4, "Addr": 9}\n  }\n'
    )
    text = (
        '\n  {\n  "schemaVersion": 1,\n  "traceEvents": [\n'
        + event % "a\x13'\"\udc80"
        + event % "f"
        + memory
        + "  ]}\n"
    )
    stream = io.BytesIO()
    assert write_trimmed(io.BytesIO(text.encode("utf-8", "surrogateescape")), stream, {}, 9) == 1
    events = json.loads(stream.getvalue())["traceEvents"]
    assert [event["name"] for event in events] == ["f", "[memory]"]


WITHOUT_STEPS = """
import sys, time, torch, snapreport
from snapreport.recorder import host_limits, profiler
host_limits._CHECK_SECONDS = 0.05
def run(name):
    with snapreport.record(f"{sys.argv[1]}/{name}") as recorder:
        kept = torch.ones(1000)
        while not recorder.files:
            torch.zeros(10)
            time.sleep(0.001)
profiler.MOST_SECONDS = 0.1
run("time")
profiler.MOST_SECONDS = 60.0
host_limits.available_memory = lambda free=[10, 9, 8, 4], **_: free.pop(0)
run("memory")
print("done")
"""


def test_a_program_without_steps_ends_in_a_file(tmp_path):
    """Recorded for a minute at most, and while half of the free host memory lasts; the program continues."""
    pytest.importorskip("torch", reason="torch is not installed: recording without CUDA was not tested")
    variables = {**os.environ, "PYTHONPATH": str(Path(snapreport.__file__).parent.parent)}
    call = [sys.executable, "-c", WITHOUT_STEPS, str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=variables, timeout=GUARD_SECONDS)
    assert done.stdout == "done\n", done.stderr
    for limit, message in (
        ("time", r"recorded the first \d+ s"),
        ("memory", "until half of the free host memory was used"),
    ):
        assert re.search(message, done.stderr), done.stderr
        (file,) = (tmp_path / limit).iterdir()
        assert file.name == "rank_00000_step_00000000_call.json.gz"
        assert (snapreport.load(file).allocations(-1)["size"] == 4000).any()


class _Xpu(types.ModuleType):
    """``torch.xpu`` as in PyTorch 2.13, as far as it is used here."""

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


@pytest.mark.parametrize(
    ("version", "context", "recorded"),
    [
        ("2.10.0", "all", "all"), ("2.11.0+cu130", "all", "alloc"), ("2.12.1", "all", "all"),
        ("2.11.0", "state", "state"),
    ],
)  # fmt: skip
def test_no_stacks_of_frees_where_pytorch_loses_exceptions_by_them(monkeypatch, version, context, recorded):
    """Seen in 2.11.0: a checkpoint with dropout ends in a SystemError while stacks of frees are collected."""
    fake = _torch(xpu="20250201")
    fake.__version__ = version
    monkeypatch.setitem(sys.modules, "torch", fake)
    recorder = allocator.CudaRecorder(Options("x", context=context), "xpu")
    said: list[str] = []
    recorder.notice = said.append
    recorder.begin(lambda *_: None)
    recorder.step(0)
    assert fake.xpu.calls[-1][:2] == ("all", recorded)
    assert said == ([allocator.NO_STACKS_OF_FREES] if recorded != context else [])


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
