"""Trains a small model: ``train.py STEPS [FIRST_STEP_OUT_OF_MEMORY]``. Knows nothing of snapreport."""

import sys

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(functional.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.register_buffer("scale", torch.ones(1000))
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(steps: int, too_large: int) -> None:
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        batch = 1_000_000 if step >= too_large else 64
        model(torch.randn(batch, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"{steps} steps, device total {torch.cuda.get_device_properties(0).total_memory}")


if __name__ == "__main__":
    train(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else sys.maxsize)
