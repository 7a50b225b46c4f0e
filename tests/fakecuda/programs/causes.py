"""A small transformer with experts, trained with one option changed: ``causes.py OUT CHANGE`` dumps a snapshot to OUT;
``causes.py OUT CHANGE python`` one without C++ frames.

Changes: none, layers, experts, bfloat16, autocast, checkpoint, sgd, batch, width, vocabulary, frozen, average,
accumulation, zeroed, outputs, dropout.
"""

from __future__ import annotations

import copy
import sys
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

OUT, CHANGE, *STACKS = sys.argv[1:]
WIDTH, DROPS = 384 if CHANGE == "width" else 256, CHANGE == "dropout"
BATCH, LENGTH, WORDS = 16 if CHANGE == "batch" else 8, 64, 4096 if CHANGE == "vocabulary" else 1024


class Experts(nn.Module):
    """Each takes an equal part of the rows."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.flatten(0, 1).chunk(len(self.experts))
        made = [expert(part) for expert, part in zip(self.experts, parts, strict=True)]
        return torch.cat(made).view_as(x)


class Layer(nn.Module):
    def __init__(self, experts: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.down, self.experts = nn.Linear(4 * WIDTH, WIDTH), Experts(experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.experts(self.down(functional.dropout(functional.gelu(self.up(self.norm(x))), 0.1, DROPS)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        experts = 8 if CHANGE == "experts" else 4
        self.layers = nn.ModuleList(Layer(experts) for _ in range(6 if CHANGE == "layers" else 3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if CHANGE == "checkpoint" else layer(x)
        return self.head(x)


def train() -> None:
    model = Model().cuda()
    if CHANGE == "bfloat16":
        model = model.bfloat16()
    if CHANGE == "frozen":
        model.layers.requires_grad_(False)
    average, outputs = copy.deepcopy(model) if CHANGE == "average" else None, []
    make = torch.optim.SGD if CHANGE == "sgd" else torch.optim.AdamW
    optimizer = make(model.parameters(), lr=1e-3)
    for _ in range(4 if CHANGE == "outputs" else 3):
        for _ in range(2 if CHANGE == "accumulation" else 1):
            tokens = torch.zeros(BATCH, LENGTH, dtype=torch.int64, device="cuda")
            with torch.autocast("cuda", torch.bfloat16) if CHANGE == "autocast" else nullcontext():
                logits = model(tokens)
                loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            loss.backward()
            if CHANGE == "outputs":
                outputs.append(logits)
        optimizer.step()
        optimizer.zero_grad(set_to_none=CHANGE != "zeroed")
        if average is not None:
            with torch.no_grad():
                for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(weight, 0.01)


if __name__ == "__main__":
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks=(*STACKS, "all")[0])
    train()
    torch.cuda.memory._dump_snapshot(OUT)
