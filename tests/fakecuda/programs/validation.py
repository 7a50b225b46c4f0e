"""Trains, and validates without ``no_grad``.

``validation.py OUT WHEN`` dumps a snapshot to OUT. WHEN: the graphs of the validation are dropped before the next
backward pass ("before"), or after it ("after"); that pass frees none of them.
"""

import pickle
import sys

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(256, 256), nn.LayerNorm(256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        h = self.norm(h)
        h = nn.functional.gelu(h)
        h = h.sigmoid()
        return x + h.tanh()


def main(out: str) -> None:
    torch.cuda.memory._record_memory_history("all", stacks="python")
    model = nn.Sequential(*(Layer() for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        model(torch.randn(64, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        total = 0
        for _ in range(4):
            total = total + model(torch.randn(1024, 256, device="cuda")).square().mean()
        x = torch.randn(64, 256, device="cuda")
        y = model(x)
        loss = y.sum()
        if WHEN == "before":
            del total
            loss.backward()
        else:
            loss.backward()
            del total
        optimizer.step()
        optimizer.zero_grad()
    with open(out, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)


OUT, WHEN = sys.argv[1:]
main(OUT)
