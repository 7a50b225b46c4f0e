"""Trains and, unless ``never`` is given, empties the cache after each step, as programs do that once ran out of memory.
Prints as JSON for each step how many segments that released, and the peaks of allocated and reserved bytes.
"""

import json
import sys

import torch
from torch import nn

WIDTH, STEPS = 1024, 8

model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
released = []
for _ in range(STEPS):
    loss = model(torch.randn(6000, WIDTH, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del loss
    before = torch.cuda.memory_stats()["segment.all.freed"]
    if "never" not in sys.argv:
        torch.cuda.empty_cache()
    released.append(torch.cuda.memory_stats()["segment.all.freed"] - before)
stats = torch.cuda.memory_stats()
print(json.dumps({"released": released, **{key: stats[f"{key}_bytes.all.peak"] for key in ("allocated", "reserved")}}))
