"""Real traces of ``torch.profiler``, recorded with the CPU build of torch, and the tensors that lived at the time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAM = """
import gc, json, sys
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

mode, trace, truth = sys.argv[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 512), nn.Linear(512, 256)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def keep_loss(losses, output):
    losses.append(output.repeat(50, 1))


def train_step(model, optimizer, x, y, losses):
    optimizer.zero_grad()
    output = model(x)
    if mode == "leak":
        keep_loss(losses, output)
    nn.functional.cross_entropy(output, y).backward()
    optimizer.step()


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    losses, peaks = [], []
    for step in range(8):
        with record_function(f"step {step}"):
            x, y = torch.randn(128, 256), torch.randint(0, 10, (128,))
            train_step(model, optimizer, x, y, losses)
    return model, optimizer, losses


before = torch.zeros(1000, 1000)  # not seen by the profiler
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=mode != "bare") as profiler:
    model, optimizer, losses = main()
profiler.export_chrome_trace(trace)
names = {p.untyped_storage().data_ptr(): n for n, p in model.named_parameters()}
gradients = {p.grad.untyped_storage().data_ptr(): n for n, p in model.named_parameters()}
states = {
    t.untyped_storage().data_ptr(): key
    for state in optimizer.state.values() for key, t in state.items() if isinstance(t, torch.Tensor)
}
gc.collect()
tensors = {
    t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
    for t in gc.get_objects() if isinstance(t, torch.Tensor) and t is not before
}
json.dump({"tensors": tensors, "parameters": names, "gradients": gradients, "states": states}, open(truth, "w"))
"""


@dataclass(frozen=True)
class Profiled:
    """trace: the file. Bytes of each tensor's storage by address, and the addresses by what they were for."""

    trace: Path
    tensors: dict[int, int]
    parameters: dict[int, str]
    gradients: dict[int, str]
    states: dict[int, str]


def profile(folder: Path, mode: str, suffix: str = ".json") -> Profiled:
    """``mode``: plain, leak, or bare (no stacks)."""
    trace, truth = folder / f"{mode}{suffix}", folder / f"{mode}.truth.json"
    program = folder / "train.py"
    program.write_text(PROGRAM)
    subprocess.run(
        [sys.executable, program.name, mode, str(trace), str(truth)], cwd=folder, check=True, capture_output=True
    )
    facts = {key: {int(a): v for a, v in rows.items()} for key, rows in json.loads(truth.read_text()).items()}
    return Profiled(trace, **facts)
