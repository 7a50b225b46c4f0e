"""Programs whose shapes depend on the data, for ``sized.py``: other sizes in each step and at each value."""

from __future__ import annotations

import random
import sys

import torch
from sized_models import Transformer, residual_net
from torch import nn
from torch.nn import functional

DEVICE = "cuda"
STEPS = 4
RNG = random.Random(str(sys.argv[2:4]))


def steps(model, step, make=torch.optim.AdamW):
    model.to(DEVICE)
    update = make([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for _ in range(STEPS):
        update.zero_grad()
        step(model).backward()
        update.step()


def lm(m, b, n):
    t = torch.zeros(b, n, dtype=torch.long, device=DEVICE)
    return functional.cross_entropy(m(t).flatten(0, 1), t.flatten())


def randomlengths_batch(v):
    steps(Transformer(), lambda m: lm(m, v, RNG.randint(32, 160)))


def dynamicpadding_batch(v):
    """The longest of the batch."""
    steps(Transformer(), lambda m: lm(m, v, min(256, max(int(RNG.lognormvariate(4, 0.6)) + 1 for _ in range(v)))))


def packed_batch(v):
    """Sequences without padding: the sum of the lengths."""
    steps(Transformer(layers=2), lambda m: lm(m, 1, sum(RNG.randint(16, 128) for _ in range(v))))


class Routed(nn.Module):
    def __init__(self, d=256, experts=8):
        super().__init__()
        self.embed, self.gate, self.head = nn.Embedding(4000, d), nn.Linear(d, experts), nn.Linear(d, 4000)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(experts)
        )

    def forward(self, t):
        x = self.embed(t).flatten(0, 1)
        n = x.shape[0]
        cuts = sorted(RNG.randint(0, n) for _ in range(len(self.experts) - 1))
        out = torch.zeros_like(x)
        for expert, a, b in zip(self.experts, [0, *cuts], [*cuts, n], strict=True):
            if b > a:
                rows = torch.arange(a, b, device=DEVICE)
                out = out.index_add(0, rows, expert(x[rows]))
        return self.head(x + out)


def routed_batch(v):
    def step(m):
        t = torch.zeros(v, 128, dtype=torch.long, device=DEVICE)
        return functional.cross_entropy(m(t), t.flatten())

    steps(Routed(), step)


def boxes_batch(v):
    """Each image has its own boxes."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = residual_net()[:5], nn.Conv2d(32, 4, 1)

        def forward(self, x):
            a = self.head(self.body(x)).permute(0, 2, 3, 1).flatten(1, 2)
            return sum(
                (one[:, None] - torch.empty(RNG.randint(1, 60), 4, device=DEVICE)[None])
                .abs()
                .sum(-1)
                .min(1)
                .values.mean()
                for one in a
            )

    steps(Net(), lambda m: m(torch.empty(v, 3, 48, 48, device=DEVICE)))


def earlyexit_batch(v):
    class Net(Transformer):
        def forward(self, t, cache=None):
            x = self.embedding(t)
            for at in range(RNG.randint(3, 8)):
                x = self.layers[at](x)
            return self.head(x)

    steps(Net(layers=8), lambda m: lm(m, v, 96))


def aspect_batch(v):
    def step(m):
        h, w = RNG.choice([(48, 80), (64, 64), (80, 48), (96, 64), (64, 96), (96, 96)])
        return m(torch.empty(v, 3, h, w, device=DEVICE)).square().mean()

    steps(residual_net(), step, torch.optim.Adam)


def droppath_batch(v):
    """Layers that are skipped by chance."""

    class Net(Transformer):
        def forward(self, t, cache=None):
            x = self.embedding(t)
            for layer in self.layers:
                if RNG.random() < 0.75:
                    x = layer(x)
            return self.head(x)

    steps(Net(layers=8), lambda m: lm(m, v, 96))


def negatives_batch(v):
    """A mask selects rows: another number each time."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(128, 1024), nn.Linear(1024, 500)

        def forward(self, x):
            h = functional.relu(self.a(x))
            rows = torch.arange(RNG.randint(len(x) // 8, len(x) // 2), device=DEVICE)
            return functional.cross_entropy(self.b(h[rows]), torch.zeros(len(rows), dtype=torch.long, device=DEVICE))

    steps(Net(), lambda m: m(torch.empty(v * 256, 128, device=DEVICE)))
