"""Programs with and without the remedy that advice names.

``remedies.py OUT PROGRAM [REMEDY[+REMEDY]]`` dumps a snapshot to OUT.
"""

from __future__ import annotations

import contextlib
import io
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

OUT, PROGRAM, REMEDY = (*sys.argv[1:], "")[:3]
REMEDIES = REMEDY.split("+")
WORDS, WIDTH, LENGTH, BATCH = 8000, 256, 256, 8
DEVICE = "cuda"


class Block(nn.Module):
    """A layer of a transformer that computes the scores of its attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if "sdpa" in REMEDIES:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            mixed = (q @ k.transpose(-1, -2) / 6).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(self.second(functional.relu(self.norm(self.first(x)))))


class Net(nn.Module):
    """Layers between a first and a last one, each checkpointed if that is the remedy."""

    def __init__(self, first: nn.Module, layers: list[nn.Module], last: nn.Module) -> None:
        super().__init__()
        self.first, self.layers, self.last = first, nn.ModuleList(layers), last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if "checkpoint" in REMEDIES else layer(x)
        return self.last(x)


def transformer() -> Net:
    return Net(nn.Embedding(WORDS, WIDTH), [Block() for _ in range(6)], nn.Linear(WIDTH, WORDS, bias=False))


def convolutions() -> Net:
    end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return Net(nn.Conv2d(3, 32, 3, padding=1), [Residual(32) for _ in range(6)], end)


def words(batch: int) -> torch.Tensor:
    return torch.randint(WORDS, (batch, LENGTH)).to(DEVICE)


def images(batch: int) -> torch.Tensor:
    return torch.randn(2 * batch, 3, 96, 96).to(DEVICE)


def features(batch: int) -> torch.Tensor:
    return torch.randn(batch, 1024).to(DEVICE)


def loss_of(net: Net, x: torch.Tensor) -> torch.Tensor:
    last = net.last
    if "chunks" in REMEDIES:
        net.last = nn.Identity()
    out = net(x).flatten(0, -2)
    net.last = last
    target = torch.zeros(len(out), dtype=torch.long, device=DEVICE)
    if "chunks" not in REMEDIES:
        return functional.cross_entropy(out, target)

    def part(hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(last(hidden), labels)

    parts = zip(out.chunk(8), target.chunk(8), strict=True)
    return sum(checkpoint(part, a, b, use_reentrant=False) for a, b in parts) / 8


def train(net: Net, data: object, passes: int = 1, steps: int = 4) -> None:
    """``passes``: batches whose losses add up to the step's, with one backward pass or one each."""
    optimizer = torch.optim.AdamW(net.parameters(), fused=True if "fused" in REMEDIES else None)
    for _ in range(steps):
        losses = []
        for batch in [BATCH // 2] * 2 if "half" in REMEDIES else [BATCH] * passes:
            with torch.autocast(DEVICE, torch.bfloat16) if "autocast" in REMEDIES else contextlib.nullcontext():
                losses.append(loss_of(net, data(batch)))
            if {"half", "each"} & set(REMEDIES):
                losses.pop().backward()
        if losses:
            sum(losses).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=PROGRAM != "zeroed" or "none" in REMEDIES)


def evaluate(net: Net, data: object) -> None:
    with torch.no_grad() if "no_grad" in REMEDIES else contextlib.nullcontext():
        for _ in range(5):
            loss_of(net, data(BATCH)).item()


def outputs(net: Net) -> None:
    with torch.no_grad():
        for _ in range(6):
            for part in words(BATCH).chunk(2 if "half" in REMEDIES else 1):
                out = net(part)
                out.argmax(-1)
            if "del" in REMEDIES:
                del out


def stored(net: Net) -> None:
    """Steps whose output and loss are kept until the next one, with a graph that the backward pass leaves."""
    optimizer = torch.optim.SGD(net.parameters())
    kept: list[torch.Tensor] = []
    for _ in range(8):
        out = net(words(BATCH))
        loss = out.square().mean()
        loss.backward(retain_graph="detach" not in REMEDIES)
        kept = [out, loss] if "detach" not in REMEDIES else [out.detach(), loss.detach()]
        optimizer.step()
        optimizer.zero_grad()
    del kept


def cast(net: Net) -> None:
    """Inference that casts the weights to 16 bits, once each pass or once each use."""
    with torch.no_grad():
        for _ in range(4):
            with torch.autocast(DEVICE, torch.bfloat16, cache_enabled="no cache" not in REMEDIES):
                net(words(1)).argmax(-1)


def resumed() -> Net:
    """A model whose parameters are read from a file."""
    file = io.BytesIO()
    torch.save(transformer().state_dict(), file)
    file.seek(0)
    net = transformer().to(DEVICE)
    state = torch.load(file, map_location=DEVICE, weights_only=True)
    net.load_state_dict(state)
    if "del" not in REMEDIES:
        net.state = state
    return net


torch.backends.cudnn.enabled = False
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
if PROGRAM in ("words", "zeroed"):
    train(transformer().to(DEVICE), words)
elif PROGRAM == "images":
    train(convolutions().to(DEVICE), images)
elif PROGRAM == "wide":
    layers = [nn.Linear(1024, 1024) for _ in range(24)]
    train(Net(nn.Linear(1024, 1024), layers, nn.Linear(1024, 10)).to(DEVICE), features)
elif PROGRAM == "passes":
    train(transformer().to(DEVICE), words, passes=3)
elif PROGRAM == "resumed":
    train(resumed(), words)
elif PROGRAM == "evaluated words":
    evaluate(transformer().to(DEVICE), words)
elif PROGRAM == "evaluated images":
    evaluate(convolutions().to(DEVICE), images)
elif PROGRAM == "outputs":
    outputs(transformer().to(DEVICE))
elif PROGRAM == "stored":
    stored(transformer().to(DEVICE))
elif PROGRAM == "cast":
    cast(
        Net(nn.Embedding(WORDS, WIDTH), [nn.Linear(WIDTH, WIDTH) for _ in range(400)], nn.Linear(WIDTH, 10)).to(DEVICE)
    )
else:
    sys.exit(f"no program {PROGRAM!r}")
torch.cuda.memory._dump_snapshot(OUT)
