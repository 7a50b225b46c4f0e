"""Programs on two GPUs: with a model whose layers are on both, and with work of which no layer could move."""

from __future__ import annotations

import threading

import torch
from pairs.kit import REMEDY, Layer, program
from torch import nn
from torch.nn import functional

FIRST, SECOND = "cuda:0", "cuda:1"
WORDS, WIDTH = 2000, 512


class Spread(nn.Module):
    """A transformer's layers, of which so many are on the first GPU."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH, device=FIRST)
        self.layers = nn.ModuleList(Layer(WIDTH, 8, fused=True).to(FIRST) for _ in range(first))
        self.layers.extend(Layer(WIDTH, 8, fused=True).to(SECOND) for _ in range(second))
        self.last = nn.Linear(WIDTH, WORDS, device=SECOND)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x.to(next(layer.parameters()).device))
        return self.last(x.to(SECOND))


def whole(layers: int, device: str) -> nn.Module:
    every = [Layer(WIDTH, 8, fused=True) for _ in range(layers)]
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *every, nn.Linear(WIDTH, WORDS)).to(device)


def words(device: str, samples: int = 8) -> torch.Tensor:
    return torch.zeros(samples, 128, dtype=torch.long, device=device)


def learn(net: nn.Module, device: str, to: str, samples: int = 8, steps: int = 3) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    for _ in range(steps):
        functional.cross_entropy(net(words(device, samples)).flatten(0, 1), words(to, samples).flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


@program(even="device-imbalance")
def layered() -> None:
    """Trains a model with most of its layers on the first GPU."""
    learn(Spread(*(6, 6) if REMEDY == "even" else (10, 2)), FIRST, SECOND)


@program(even="device-imbalance")
def layered_second() -> None:
    """The same with most of them on the second one, where the loss is."""
    learn(Spread(*(6, 6) if REMEDY == "even" else (2, 10)), FIRST, SECOND)


@program(even="device-imbalance")
def layered_inference() -> None:
    net = Spread(*(6, 6) if REMEDY == "even" else (10, 2)).eval()
    with torch.no_grad():
        for _ in range(6):
            net(words(FIRST)).argmax(-1).cpu()


@program()
def taught() -> None:
    """A student on the first GPU, its teacher on the second."""
    teacher, net = whole(4, SECOND).eval(), whole(8, FIRST)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    for _ in range(3):
        with torch.no_grad():
            target = teacher(words(SECOND)).softmax(-1).to(FIRST)
        functional.cross_entropy(net(words(FIRST)).flatten(0, 1), target.flatten(0, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()


@program()
def at_once() -> None:
    """Two models are trained by two threads, with the same lines of code."""
    runs = ((whole(8, FIRST), FIRST, FIRST), (whole(3, SECOND), SECOND, SECOND))
    threads = [threading.Thread(target=learn, args=run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@program()
def stored_beside() -> None:
    """Trains on the first GPU, from a data set on the second."""
    data = torch.empty(12, 8, 4096, device=SECOND)
    net = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(3))).to(FIRST)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    for number in range(4):
        net(data[3 * number : 3 * number + 3].to(FIRST)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@program()
def replicated() -> None:
    """DataParallel with few samples: most of the first GPU's memory is for gradients and the optimizer's state."""
    learn(nn.DataParallel(whole(8, FIRST), [0, 1]), FIRST, FIRST, samples=2)


@program()
def replicated_half() -> None:
    """The same under autocast, of which the threads that run the copies show nothing."""
    net, scaler = nn.DataParallel(whole(4, FIRST), [0, 1]), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    for _ in range(3):
        with torch.autocast("cuda", torch.float16):
            loss = functional.cross_entropy(net(words(FIRST, 16)).flatten(0, 1), words(FIRST, 16).flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
