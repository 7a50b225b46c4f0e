"""Snapshots of running out of memory, on PyTorch's own allocator and out-of-memory observer (tests/fakecuda)."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_torch import TRAIN, FakeTorch, raw, snapshots

import snapreport
from snapreport.report.summary import summarise


def test_out_of_memory(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """The snapshot shows the moment of failure, the error stays PyTorch's, and nothing is dumped again at the end."""
    done = torch_cuda.record("-o", tmp_path, command=[TRAIN, 4, 2], is_new=True)
    assert done.code == 1 and "torch.OutOfMemoryError: CUDA out of memory" in done.err
    assert snapshots(tmp_path) == ["rank_00000_step_00000002_oom.pickle.gz"]
    loaded = snapreport.load(tmp_path / "rank_00000_step_00000002_oom.pickle.gz")
    metadata = loaded.recording.recorder
    assert metadata.reason == "oom" and metadata.step == 2
    timeline = loaded.timeline(0)
    last = timeline.events.row(timeline.oom_events[-1], named=True)
    assert metadata.oom["free_bytes"] == last["device_free"]
    # PyTorch requests a segment for it: the request rounded up to 2 MiB.
    assert metadata.oom["tried_bytes"] == -(-last["size"] // (2 << 20)) * (2 << 20)
    # The dump allocates nothing on the device: after the failed request there is no event.
    assert timeline.oom_events[-1] == len(timeline.events) - 1
    stats = metadata.devices[0].stats
    assert stats["allocation.all.allocated"] == (timeline.allocations["alloc_event"] >= 0).sum()
    line = next(line for line in done.err.splitlines() if line.startswith("snapreport: Out of memory on cuda:0"))
    assert line.endswith(f" Step 2. Snapshot: {tmp_path / 'rank_00000_step_00000002_oom.pickle.gz'}")
    # The first sentence of the report.
    headline = summarise([loaded], "x").headline_text[0]
    assert line.startswith(f"snapreport: {headline} Step 2.")
    assert loaded.steps(0)["name"].to_list() == ["step 0", "step 1", "step 2 (unfinished)"]


OUT_OF_MEMORY = {
    # The backward pass runs in a thread of autograd's own, without Python frames.
    "backward": "x = torch.ones(1, device='cuda', requires_grad=True)\n(x.expand(450 << 20) * x).sum().backward()",
    "optimizer": (
        "layer = torch.nn.Linear(16384, 16384, bias=False).cuda(); optimizer = torch.optim.AdamW(layer.parameters())\n"
        "layer.weight.grad = torch.ones_like(layer.weight); optimizer.step()"
    ),
    "fraction": "torch.cuda.set_per_process_memory_fraction(0.25)\nx = [torch.empty(300 << 20, device='cuda')]",
    # Four blocks of 5 MiB share a segment of 20, and one of each four stays: three quarters are cached, and useless.
    "fragmented": (
        "x = [torch.empty(5 << 18, device='cuda') for _ in range(680)]; x = x[::4]\n"
        "x.append(torch.empty(500 << 18, device='cuda'))"
    ),
    "graph": ("graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph): x = torch.empty(5 << 30, device='cuda')"),
}


# Expandable segments with the cases that use another path in the allocator for them: free ranges, and private pools.
@pytest.mark.parametrize(
    ("kind", "expandable"),
    [*((kind, "False") for kind in OUT_OF_MEMORY), *((kind, "True") for kind in ("backward", "fragmented", "graph"))],
)
def test_kinds_of_out_of_memory(torch_cuda: FakeTorch, tmp_path: Path, kind: str, expandable: str) -> None:
    """In any thread, with any allocator settings: one whole snapshot whose last allocator event is the failure."""
    configuration = f"expandable_segments:{expandable}"
    command = ["-c", f"import torch\n{OUT_OF_MEMORY[kind]}\nprint('no error')"]
    done = torch_cuda.record("-o", tmp_path, command=command, PYTORCH_CUDA_ALLOC_CONF=configuration)
    assert done.code == 1 and "CUDA out of memory" in done.err, done.err
    assert snapshots(tmp_path) == ["rank_00000_step_00000000_oom.pickle.gz"]
    loaded = snapreport.load(next(tmp_path.iterdir()))
    assert loaded.events(0)["action"].cast(str).to_list()[-1] == "oom" and len(loaded.timeline(0).oom_events) == 1
    assert loaded.recording.recorder.allocator["PYTORCH_CUDA_ALLOC_CONF"] == configuration


def test_error_of_pytorch_is_the_same(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """The last lines of the traceback are those of the program on its own."""
    plain = torch_cuda.run(TRAIN, 1, 0)
    done = torch_cuda.record("-o", tmp_path, command=[TRAIN, 1, 0])
    ours = [line for line in done.err.splitlines() if not line.startswith("snapreport: ")]
    assert [line for line in ours if "Error" in line] == [line for line in plain.err.splitlines() if "Error" in line]
    assert done.code == plain.code == 1


def test_caught_out_of_memory(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """A program that retries fails many times and has one snapshot for each step; the end is dumped too."""
    program = (
        "import torch\n"
        "layer = torch.nn.Linear(8, 8).cuda(); optimizer = torch.optim.SGD(layer.parameters(), 0.1)\n"
        "for step in range(5):\n"
        "    for attempt in range(3):\n"
        "        try: torch.empty(5 << 30, dtype=torch.uint8, device='cuda')\n"
        "        except torch.OutOfMemoryError as error: assert 'Tried to allocate 5.00 GiB' in str(error)\n"
        "    layer(torch.ones(8, 8, device='cuda')).sum().backward(); optimizer.step()\n"
    )
    done = torch_cuda.record("-o", tmp_path, "--keep", 2, command=["-c", program])
    assert done.code == 0, done.err
    steps = [f"rank_00000_step_{n:08}_oom.pickle.gz" for n in (3, 4)]
    assert snapshots(tmp_path) == [*steps, "rank_00000_step_00000005_exit.pickle.gz"]


def test_second_failure_while_dumping(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Another thread runs out of memory while the first one's dump is written: it fails at once, the file is whole."""
    program = (
        "import threading, torch\n"
        "from snapreport.recorder import allocator\n"
        "def fail():\n"
        "    try: torch.empty(5 << 30, dtype=torch.uint8, device='cuda')\n"
        "    except torch.OutOfMemoryError: print('failed', flush=True)\n"
        "torch.ones(1, device='cuda')\n"
        "write = allocator.write_snapshot\n"
        "def slow(*arguments):\n"
        "    second = threading.Thread(target=fail); second.start(); second.join(20)\n"
        "    print('second is over', not second.is_alive(), flush=True)\n"
        "    return write(*arguments)\n"
        "allocator.write_snapshot = slow\n"
        "fail()\n"
    )
    done = torch_cuda.record("-o", tmp_path, "--no-at-exit", command=["-c", program])
    assert done.out.splitlines() == ["failed", "second is over True", "failed"], done.err
    assert [e["action"] for e in raw(next(tmp_path.iterdir()))["device_traces"][0]].count("oom") >= 1


def test_host_without_memory(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Where the dump itself fails, the program's error is PyTorch's, one line says why, and nothing is left."""
    program = (
        "import torch\n"
        "from snapreport.recorder import allocator\n"
        "def fail(*_): raise MemoryError\n"
        "allocator.write_snapshot = fail\n"
        "torch.empty(5 << 30, dtype=torch.uint8, device='cuda')\n"
    )
    done = torch_cuda.record("-o", tmp_path, "--no-at-exit", command=["-c", program])
    assert done.code == 1 and "OutOfMemoryError: CUDA out of memory" in done.err
    assert "snapreport: no oom snapshot: MemoryError" in done.err and not snapshots(tmp_path)
