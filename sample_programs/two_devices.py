"""Trains a model whose halves are on two devices; batches come on a stream of their own. The second device runs out."""

from __future__ import annotations

import torch
from model import Block
from torch import nn

WIDTH = 1024


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(Block(WIDTH, 16, is_fused=True) for _ in range(3)).to("cuda:0")
        self.second = nn.ModuleList(Block(WIDTH, 16, is_fused=True) for _ in range(5)).to("cuda:1")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.first:
            x = block(x)
        x = x.to("cuda:1")
        for block in self.second:
            x = block(x)
        return x


def load_batch(stream: torch.cuda.Stream, batch: int) -> torch.Tensor:
    with torch.cuda.stream(stream):
        loaded = torch.empty(batch, 1024, WIDTH, device="cuda:0")
    torch.cuda.current_stream("cuda:0").wait_stream(stream)
    loaded.record_stream(torch.cuda.current_stream("cuda:0"))
    return loaded


def main() -> None:
    model, stream = Halves(), torch.cuda.Stream("cuda:0")
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in (4, 6, 5, 12):
        model(load_batch(stream, batch)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
