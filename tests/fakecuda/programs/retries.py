"""Trains on longer sentences in each step, which no cached block fits: most steps find the device full, release what is
cached and try again. Prints ``num_alloc_retries`` of each step as JSON.
"""

import json

import torch
from torch import nn

WIDTH, STEPS = 1024, 8

model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
counts = []
for step in range(STEPS):
    words = torch.zeros(50_000 + 14_000 * step, WIDTH, device="cuda")
    model(words).sum().backward()
    del words
    optimizer.step()
    optimizer.zero_grad()
    counts.append(torch.cuda.memory_stats()["num_alloc_retries"])
print(json.dumps([after - before for before, after in zip([0, *counts], counts)]))  # noqa: B905  Python 3.9
