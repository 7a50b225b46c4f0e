"""The program that ``python -m benchmarks recording`` measures, run by a Python with CUDA; prints one JSON object.

``steps off|state|all|plain|profile COUNT``: processor seconds of each training step; ``plain`` is
``snapreport.record()`` without notes of modules, ``profile`` that with a profile of all steps, written in the last one.
``names COUNT``: those of recorded steps without names, with names, and of those of which modules are noted, which take
turns in one process.
``dump KIND EVENTS``: a trace of that many events, and what it takes to write it; KIND is ``pickle.dump``, or a
compression of snapreport's recorder.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from snapreport.recorder.allocator import CudaRecorder
from snapreport.recorder.api import record
from snapreport.recorder.dump import SUFFIXES, write_snapshot, zstd_available
from snapreport.recorder.module_marks import EVERY
from snapreport.recorder.options import Options

# Steps not counted: the first are slower, and their modules are noted in all of them.
WARMUP = 10


def resident() -> int:
    """Bytes of host memory that this process uses now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def trainer() -> Callable[[], float]:
    """A function that runs a training step and returns its processor seconds, those of all threads."""
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> float:
        began = time.process_time()  # other programs on the machine count less
        model(torch.randn(4, 64, 128, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        return time.process_time() - began

    return step


def steps(mode: str, count: int) -> dict[str, Any]:
    recorder = None
    if mode in ("plain", "profile"):
        profile = (WARMUP, WARMUP + count) if mode == "profile" else None
        folder = tempfile.mkdtemp()
        recorder = record(folder, at_exit=False, on_oom=False, modules=False, profile=profile).start()
    elif mode != "off":
        torch.cuda.memory._record_memory_history(mode, context=mode, stacks="python", max_entries=1_000_000)
    step = trainer()
    taken = [step() for _ in range(WARMUP + count)]
    if recorder is not None:
        recorder.stop()
        shutil.rmtree(folder)
    return {
        "seconds": taken[WARMUP:],
        "allocations": torch.cuda.memory_stats()["allocation.all.allocated"],
        "steps": count + WARMUP,
    }


def names(count: int) -> dict[str, list[float]]:
    folder = tempfile.mkdtemp()
    recorder = record(folder, at_exit=False, on_oom=False).start()
    step = trainer()
    named, plain = recorder.options, dataclasses.replace(recorder.options, modules=False)
    for _ in range(WARMUP):
        step()
    seconds: dict[str, list[float]] = {"without": [], "names": [], "noted": []}
    for number in range(count):
        if number % (2 * EVERY) == 0:
            recorder.options = named
            recorder._modules.start()
            step()
        elif number % (2 * EVERY) == EVERY:
            recorder._modules.stop()
            recorder.options = plain
            step()
        has_names = recorder.options is named
        kind = "without" if not has_names else "noted" if recorder._modules._is_noting[0] else "names"
        seconds[kind].append(step())
    recorder.stop()
    shutil.rmtree(folder)
    return seconds


def nested(depth: int, action: Any) -> None:
    """Runs ``action`` under ``depth`` frames."""
    if depth:
        nested(depth - 1, action)
    else:
        action()


def dump(kind: str, events: int) -> dict[str, Any]:
    if kind == "zstd" and not zstd_available():
        return {}
    torch.cuda.init()
    torch.empty(1, device="cuda")
    options = Options("unused", max_entries=events)
    recorder = CudaRecorder(options)
    recorder.begin(lambda *_: None)
    before = resident()
    recorder.step(0)
    # An alloc, a requested free and a completed free each; ten different stacks of 12 to 30 frames.
    for number in range(events // 30):
        for depth in range(10):
            nested(10 + 2 * depth, lambda number=number: torch.empty(512 * (1 + number % 64), device="cuda"))
    recorded = resident() - before
    began = time.perf_counter()
    snapshot = recorder.snapshot()
    took = time.perf_counter() - began
    count = sum(map(len, snapshot["device_traces"]))
    held = resident()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"snapshot{SUFFIXES.get(kind, '.pickle')}"
        began = time.perf_counter()
        if kind == "pickle.dump":
            with path.open("wb") as file:
                pickle.dump(snapshot, file, 4)
        else:
            write_snapshot(snapshot, path, kind)
        written = time.perf_counter() - began
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "events": count, "recorded": recorded, "snapshot_seconds": took, "write_seconds": written, "bytes": size,
        "more_memory": max(0, peak - held),
    }  # fmt: skip


if __name__ == "__main__":
    what, *kind, number = sys.argv[1:]
    measure = {"steps": steps, "dump": dump, "names": names}[what]
    print(json.dumps(measure(*kind, int(number))))
