"""Adapters trained beside frozen weights of a type: ``adapters.py FOLDER TYPE autocast|plain BATCH``."""

import sys

import torch
from torch import nn
from torch.nn import functional

import snapreport

FOLDER, TYPE, HOW, BATCH = sys.argv[1:]
WIDTH = 1024


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, 2 * WIDTH).requires_grad_(False).to(getattr(torch, TYPE))
        self.down, self.up = nn.Linear(WIDTH, 8, bias=False), nn.Linear(8, 2 * WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.silu(self.base(x) + self.up(self.down(x)))
        return y[..., :WIDTH] * y[..., WIDTH:]


with snapreport.record(FOLDER, at_exit=True) as recorder:
    net = nn.Sequential(*(Adapted() for _ in range(12))).to("cuda")
    optimizer = torch.optim.AdamW(one for one in net.parameters() if one.requires_grad)
    for _ in range(4):
        with torch.autocast("cuda", torch.bfloat16, enabled=HOW == "autocast"):
            loss = net(torch.randn(int(BATCH), WIDTH, device="cuda")).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        recorder.step()
