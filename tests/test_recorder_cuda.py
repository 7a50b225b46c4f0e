"""``snapreport record`` around unchanged programs, on PyTorch's own allocator and recorder (tests/fakecuda)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import fake_torch
import polars as pl
import pytest
from fake_torch import PROGRAMS, TRAIN, FakeTorch, raw, snapshots

import snapreport

FIRST_PARAMETER = 4 * 256 * 1024  # bytes of blocks.0.up.weight


def test_unchanged_program(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Recording starts before the first allocation, names every parameter, and changes neither output nor exit code."""
    plain = torch_cuda.run(TRAIN, 3, is_new=True)
    done = torch_cuda.record("-o", tmp_path / "run", command=[TRAIN, 3], is_new=True)
    assert (done.code, done.out) == (plain.code, plain.out) == (0, done.out)
    assert snapshots(tmp_path / "run") == ["rank_00000_step_00000003_exit.pickle.gz"]
    path = tmp_path / "run" / "rank_00000_step_00000003_exit.pickle.gz"
    assert f"1 snapshot in {tmp_path / 'run'}: {path.name}" in done.err
    loaded = snapreport.load(path)
    table = loaded.allocations(0)
    first = table.row(0, named=True)
    assert first["alloc_event"] == 1 and first["size"] == FIRST_PARAMETER and first["stack"] > 0
    frames = [loaded.recording.frames["name"][i] for i in loaded.recording.stack(first["stack"])]
    assert "train" in frames and table["origin"].unique().to_list() == ["traced"]
    stats = loaded.recording.recorder.devices[0].stats
    assert stats["requested_bytes.all.peak"] == loaded.timeline(0).peak_bytes
    # By the model's definition: two blocks of two layers, and the head, have a weight and a bias each; one buffer.
    names = {f"blocks.{b}.{part}.{what}" for b in (0, 1) for part in ("up", "down") for what in ("weight", "bias")}
    names |= {"head.weight", "head.bias"}
    by_category = {
        category: set(table.filter(table["category"] == category)["user_metadata"].drop_nulls())
        for category in ("parameter", "gradient", "optimizer state")
    }
    assert by_category["parameter"] == names | {"scale"}
    assert by_category["gradient"] == {f"{name}.grad" for name in names}
    moments = {f"{name}.{key}" for name in names for key in ("exp_avg", "exp_avg_sq")}
    assert by_category["optimizer state"] == moments
    weights = table.filter(table["user_metadata"] == "blocks.0.up.weight")
    assert weights["size"].to_list() == [FIRST_PARAMETER] and weights["alloc_event"].to_list() == [1]
    assert loaded.steps(0)["name"].to_list() == ["step 0", "step 1", "step 2"]
    # PyTorch's trace has the names, too, where it can, and they are no spans of the program.
    (own,) = torch_cuda.folder.glob("lib/python3*/site-packages/torch/cuda/memory.py")
    noted = loaded.events(0).filter(pl.col("action") == "annotate")["user_metadata"].to_list()
    can_annotate = "def _annotate_tensor" in own.read_text(encoding="utf-8")
    assert sorted(noted) == sorted((by_category["parameter"] | moments) if can_annotate else [])
    assert "memory" not in loaded.spans(0)["kind"].to_list()


def test_chosen_steps(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Only the events of the chosen steps are recorded, and parameters from before them have stack traces."""
    done = torch_cuda.record("-o", tmp_path, "--steps", "3:5", command=[TRAIN, 8])
    assert done.code == 0 and snapshots(tmp_path) == ["rank_00000_step_00000005_steps.pickle.gz"]
    loaded = snapreport.load(tmp_path / "rank_00000_step_00000005_steps.pickle.gz")
    assert loaded.steps(0)["step"].to_list() == [3, 4]
    table = loaded.allocations(0)
    before = table.filter(table["alloc_event"] < 0)
    assert before.filter(before["user_metadata"] == "blocks.0.up.weight")["stack"][0] > 0
    full = torch_cuda.record("-o", tmp_path / "all", command=[TRAIN, 8])
    every = snapreport.load(next((tmp_path / "all").iterdir()))
    of_two_steps = every.steps(0).filter(every.steps(0)["step"].is_in([3, 4]))
    own = loaded.events(0).filter(pl.col("action") != "annotate")  # names are written when recording begins
    assert full.code == 0 and len(own) == (of_two_steps["last_event"] - of_two_steps["first_event"] + 1).sum()


def test_periodic_dumps(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    done = torch_cuda.record("-o", tmp_path, "--every", 2, "--keep", 2, command=[TRAIN, 9, 8])
    assert done.code == 1
    every = [f"rank_00000_step_{n:08}_every.pickle.gz" for n in (6, 8)]
    assert snapshots(tmp_path) == [every[0], every[1], "rank_00000_step_00000008_oom.pickle.gz"]
    # The last says when the program waited for the four before it.
    recorder = snapreport.load(tmp_path / "rank_00000_step_00000008_oom.pickle.gz").recording.recorder
    ends = recorder.steps.filter(pl.col("step").is_in([2, 4, 6, 8]))["time_us"]
    assert len(recorder.writing) == 4 and ((recorder.writing["begin_us"] - ends).is_between(0, 1_000_000)).all()


def test_no_snapshot_where_cuda_is_not_used(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """A process that only imports torch, as a launcher does, is left alone."""
    done = torch_cuda.record("-o", tmp_path, command=["-c", "import torch; print(torch.cuda.is_initialized())"])
    assert (done.code, done.out) == (0, "False\n") and not snapshots(tmp_path)
    assert done.err.startswith("snapreport: no snapshot: no process of the command allocated memory that is recorded")


def test_signal(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """A signal dumps a running program; the program's own handler still runs."""
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('own handler'))\n"
        "import torch\n"
        "x = torch.ones(1000, device='cuda')\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print('after')\n"
    )
    done = torch_cuda.record("-o", tmp_path, "--on-signal", "USR1", "--no-at-exit", command=["-c", program])
    assert (done.code, done.out) == (0, "own handler\nafter\n")
    assert snapshots(tmp_path) == ["rank_00000_step_00000000_signal.pickle.gz"]


def test_ranks(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Workers of torchrun are recorded, each to its own file; the launcher is not."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, TRAIN, 2]
    done = torch_cuda.record("-o", tmp_path, command=launch, is_new=True, FAKE_GPU_COUNT=2)
    assert done.code == 0, done.err
    names = [f"rank_0000{rank}_step_00000002_exit.pickle.gz" for rank in (0, 1)]
    assert snapshots(tmp_path) == names
    for rank, name in enumerate(names):
        distributed = snapreport.load(tmp_path / name).recording.recorder.distributed
        assert (distributed["RANK"], distributed["WORLD_SIZE"]) == (str(rank), "2")
        assert distributed["TORCHELASTIC_RUN_ID"] and distributed["GROUP_RANK"] == "0"


@pytest.mark.parametrize(("kind", "first"), [("ddp", "0.weight"), ("fsdp", "0.weight")])
def test_parallel_training(torch_cuda: FakeTorch, tmp_path: Path, kind: str, first: str) -> None:
    """DDP and FSDP2 over two processes: each rank has its file, its device, and its shard of a parameter by name."""
    worker = ["--no-python", *torch_cuda.start(is_new=False), PROGRAMS / "parallel.py", kind]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *worker]
    done = torch_cuda.record("-o", tmp_path, command=launch, FAKE_GPU_COUNT=2, FAKE_CUDA_SHADOW=1)
    assert done.code == 0, done.err
    assert len(snapshots(tmp_path)) == 2
    for rank, name in enumerate(snapshots(tmp_path)):
        assert name.startswith(f"rank_0000{rank}_step_00000002")
        loaded = snapreport.load(tmp_path / name)
        table = loaded.allocations(rank)
        weight = table.filter(table["user_metadata"].str.starts_with(first) & (table["category"] == "parameter"))
        assert weight["size"].to_list() == [128 * 128 * 4 // (2 if kind == "fsdp" else 1)]
        assert (weight["stack"] > 0).all() and loaded.recording.recorder.distributed["LOCAL_RANK"] == str(rank)


def test_two_programs_of_one_command(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Two processes without a rank that run at the same time do not write to one file."""
    program = (
        "import subprocess, sys, torch\n"
        "x = torch.ones(1000, device='cuda')\n"
        "if len(sys.argv) == 1: sys.exit(subprocess.call([sys.executable, __file__, 'child']))\n"
    )
    (tmp_path / "twice.py").write_text(program)
    done = torch_cuda.record("-o", tmp_path / "run", command=[tmp_path / "twice.py"], is_new=True)
    assert done.code == 0, done.err
    names = snapshots(tmp_path / "run")
    assert names[1] == "rank_00000_step_00000000_exit.pickle.gz" and len(names) == 2
    assert names[0].startswith("rank_00000_pid_") and names[0].endswith("_step_00000000_exit.pickle.gz")


def test_in_a_program(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """The context manager, in a process without numpy, polars and click; steps are the program's own, and a model
    may be named before it is on the device.
    """
    program = (
        "import sys, snapreport, torch\n"
        "for name in ('polars', 'click', 'jinja2'): sys.modules[name] = None\n"
        "model = torch.nn.Linear(64, 64)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        f"with snapreport.record({str(tmp_path / 'run')!r}) as recorder:\n"
        "    recorder.watch(model); model.cuda()\n"
        "    for batch in range(6):\n"
        "        model(torch.ones(8, 64, device='cuda')).sum().backward()\n"
        "        optimizer.step(); optimizer.step()\n"
        "        if batch % 2: recorder.step()\n"
        "    print(recorder.dump().name)\n"
        "y = torch.ones(10**6, device='cuda')\n"
        "print(recorder.step_number, [path.name for path in recorder.files])\n"
    )
    done = torch_cuda.run("-c", program, PYTHONPATH=fake_torch.package_folder(tmp_path / "path"))
    # Three calls of step(); the twelve optimizer steps do not count.
    name = "rank_00000_step_00000003_{}.pickle.gz"
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == name.format("call")
    assert done.out.splitlines()[1] == f"3 {[name.format('call'), name.format('exit')]}"
    assert len(raw(tmp_path / "run" / name.format("exit"))["device_traces"][0]) > 0
    named = snapreport.load(tmp_path / "run" / name.format("call")).allocations(0)["user_metadata"].to_list()
    assert "weight" in named and "bias.grad" in named, named


def test_steps_of_a_profiler(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """A program without an optimizer that profiles itself: a step is the profiler's."""
    program = (
        "import torch\n"
        "layer = torch.nn.Linear(8, 8).cuda()\n"
        "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:\n"
        "    for _ in range(3): layer(torch.ones(4, 8, device='cuda')); profiler.step()\n"
    )
    done = torch_cuda.record("-o", tmp_path, command=["-c", program])
    assert done.code == 0 and snapshots(tmp_path) == ["rank_00000_step_00000003_exit.pickle.gz"], done.err


def test_decorator(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Each call is a separate recording, a call within it belongs to it, and results and errors pass through."""
    program = (
        "import snapreport, torch\n"
        "layer = torch.nn.Linear(8, 8).cuda()\n"
        "optimizer = torch.optim.SGD(layer.parameters(), 0.1)\n"
        f"@snapreport.record({str(tmp_path / 'run')!r})\n"
        "def main(depth):\n"
        "    layer(torch.ones(8, 8, device='cuda')).sum().backward(); optimizer.step()\n"
        "    if depth < 0: raise KeyError('own')\n"
        "    return 1 + main(depth - 1) if depth else 1\n"
        "print(main(2), main.__name__)\n"
        "try: main(-1)\n"
        "except KeyError as error: print(error)\n"
    )
    done = torch_cuda.run("-c", program, PYTHONPATH=fake_torch.package_folder(tmp_path / "path"))
    assert done.out == "3 main\n'own'\n", done.err
    names = snapshots(tmp_path / "run")
    # Three steps of the first call, and one of the second.
    assert names == [f"rank_00000_step_0000000{steps}_exit.pickle.gz" for steps in (1, 3)]
    assert snapreport.load(tmp_path / "run" / names[1]).steps(0)["step"].to_list()[:3] == [0, 1, 2]


def test_inside_a_recorded_command(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """A program that records itself and is recorded writes one recording, where the command says."""
    program = (
        "import snapreport, torch\n"
        f"with snapreport.record({str(tmp_path / 'inner')!r}) as recorder:\n"
        "    x = torch.ones(1000, device='cuda'); recorder.step()\n"
    )
    done = torch_cuda.record("-o", tmp_path / "outer", command=["-c", program])
    assert done.code == 0, done.err
    assert snapshots(tmp_path / "outer") == ["rank_00000_step_00000001_exit.pickle.gz"]
    assert not (tmp_path / "inner").exists()


def test_viewers_of_torch_read_it(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """PyTorch's own ``_memory_viz`` prints the same for a file of ours as for one that PyTorch dumped."""
    program = (
        "import gzip, pickle, snapreport, sys, torch\n"
        "from torch.cuda import _memory_viz\n"
        f"with snapreport.record({str(tmp_path / 'run')!r}) as recorder:\n"
        "    x = [torch.ones(1000 * n, device='cuda') for n in range(1, 50)]\n"
        "    del x[::2]\n"
        "    theirs = torch.cuda.memory._snapshot()\n"
        "    ours = pickle.load(gzip.open(recorder.dump()))\n"
        "assert list(ours)[0] == 'snapreport' and set(theirs) <= set(ours), ours.keys()\n"
        "trace = ours['device_traces'][0]\n"
        "assert trace[-1]['action'] == 'snapshot'\n"
        "assert [e['addr'] for e in trace[:-1]] == [e['addr'] for e in theirs['device_traces'][0]]\n"
        "assert _memory_viz.segsum(ours) == _memory_viz.segsum(theirs)\n"
        "assert _memory_viz.memory(ours, format_flamegraph=str) == _memory_viz.memory(theirs, format_flamegraph=str)\n"
        "assert _memory_viz.trace_plot(ours)\n"
        "print('same')\n"
    )
    done = torch_cuda.run("-c", program, PYTHONPATH=fake_torch.package_folder(tmp_path / "path"))
    assert done.out == "same\n", done.err


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_exit_by_signal(torch_cuda: FakeTorch, tmp_path: Path, ending: signal.Signals) -> None:
    """As a shell reports it: 128 and the signal's number. Nothing unfinished stays behind."""
    program = f"import os, torch; x = torch.ones(9, device='cuda'); os.kill(os.getpid(), {int(ending)})"
    done = torch_cuda.record("-o", tmp_path, command=["-c", program], is_new=ending == signal.SIGTERM)
    last = ["rank_00000_step_00000000_terminated.pickle.gz"] if ending == signal.SIGTERM else []
    assert done.code == 128 + ending and snapshots(tmp_path) == last


def test_report_is_made(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    done = torch_cuda.record("-o", tmp_path, "--report", command=[TRAIN, 2, 1])
    assert done.code == 1
    report = tmp_path / "rank_00000_step_00000001_oom.html"
    assert str(report) in done.err and "Fake GPU (4 GiB)" in report.read_text(encoding="utf-8")


def test_pipe_of_output(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Standard input reaches the program, and its output contains nothing else."""
    call = [sys.executable, "-m", "snapreport", "record", "-o", str(tmp_path), "--", str(torch_cuda.python), "-c"]
    program = "import sys, torch; sys.stdout.write(sys.stdin.read().upper()); sys.exit(3)"
    done = subprocess.run([*call, program], input="through\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "THROUGH\n")
