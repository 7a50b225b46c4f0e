"""Programs that note what each of their tensors is for: ``categories.py OUT PROGRAM`` dumps a snapshot to OUT, and the
truth to OUT.json: for each noted moment its time, and the category of every live address.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

OUT, PROGRAM = sys.argv[1:3]
DEVICE = "cuda"
WIDTH = 512
noted: list[dict[str, Any]] = []


def tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from (*value.parameters(), *value.buffers())
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors(each)


def note(**categories: object) -> None:
    """What is live now; spaces in the names of categories are written as underscores."""
    live: dict[str, str] = {}
    for name, values in categories.items():
        for tensor in tensors(values):
            if tensor.is_cuda and tensor.untyped_storage().nbytes():
                live.setdefault(str(tensor.untyped_storage().data_ptr()), name.replace("_", " "))
            if name == "parameter" and tensor.grad is not None:
                live[str(tensor.grad.untyped_storage().data_ptr())] = "gradient"
    time.sleep(0.002)
    noted.append({"time_us": time.time_ns() // 1000, "live": live})
    time.sleep(0.002)


def record() -> None:
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)


def tower(width: int = WIDTH, layers: int = 6) -> nn.Sequential:
    parts = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU())]
    return nn.Sequential(*parts, nn.Linear(width, 10))


def batch(size: int = 256) -> torch.Tensor:
    return torch.zeros(size, WIDTH).to(DEVICE)


def learn(net: nn.Module, x: torch.Tensor) -> None:
    net(x).logsumexp(-1).mean().backward()


def moved() -> None:
    """A network that changes its number type while it has gradients."""
    record()
    net = tower().cuda()
    note(parameter=net)
    x = batch()
    learn(net, x)
    note(parameter=net, input=x)
    net.double()
    note(parameter=net, input=x)
    learn(net, x.double())
    net.to(torch.float32)
    note(parameter=net, input=x)


class Decoder(nn.Module):
    """Attention over the tokens so far. ``kind``: how keys and values are kept."""

    def __init__(self, kind: str, layers: int = 8, length: int = 96) -> None:
        super().__init__()
        self.kind = kind
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(layers))
        self.past: list[Any] = [[] if kind in ("quantised", "listed") else None for _ in range(layers)]
        self.at = 0
        self.length = length

    def keep(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.kind == "static":
            if self.past[layer] is None:
                self.past[layer] = [torch.zeros(len(k), self.length, WIDTH, device=DEVICE) for _ in range(2)]
            for whole, new in zip(self.past[layer], (k, v), strict=True):
                whole[:, self.at : self.at + new.shape[1]] = new
            return self.past[layer][0], self.past[layer][1]
        if self.kind == "quantised":
            for each in (k, v):
                scale = each.abs().amax(-1, keepdim=True)
                self.past[layer].append(((each / scale).to(torch.int8), scale))
            pairs = [small * scale for small, scale in self.past[layer]]
            return torch.cat(pairs[::2], 1), torch.cat(pairs[1::2], 1)
        if self.kind == "listed":
            self.past[layer].append((k, v))
            keys, values = zip(*self.past[layer], strict=True)
            return torch.cat(keys, 1), torch.cat(values, 1)
        if self.past[layer] is not None:
            k, v = (torch.cat(pair, 1) for pair in zip(self.past[layer], (k, v), strict=True))
        self.past[layer] = (k, v)
        return k, v

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, qkv in enumerate(self.qkv):
            q, k, v = (part.contiguous() for part in qkv(x).chunk(3, -1))
            k, v = self.keep(layer, k, v)
            x = x + functional.scaled_dot_product_attention(q, k, v)
        self.at += x.shape[1]
        return x


def generate(kind: str) -> None:
    record()
    net = Decoder(kind).to(DEVICE)
    with torch.no_grad():
        x = net(torch.zeros(64, 32, WIDTH, device=DEVICE))[:, -1:].clone()
        for _ in range(40):
            x = net(x)
            note(parameter=net, kv_cache=net.past)


def resident() -> None:
    """A data set on the device, whose batches are selected there."""
    record()
    net = tower().to(DEVICE)
    data, labels = torch.zeros(40_000, WIDTH, device=DEVICE), torch.zeros(40_000, dtype=torch.long, device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
    for _ in range(5):
        chosen = torch.randperm(len(data), device=DEVICE)[:2048]
        x, y = data[chosen], labels[chosen]
        functional.cross_entropy(net(x), y).backward()
        note(parameter=net, input=[data, labels, x, y, chosen])
        optimizer.step()
        note(parameter=net, input=[data, labels, x, y, chosen], optimizer_state=list(optimizer.state.values()))
        optimizer.zero_grad()


class Memory:
    """Transitions of a game, in a ring."""

    def __init__(self, places: int) -> None:
        self.before, self.after = (torch.zeros(places, WIDTH, device=DEVICE) for _ in range(2))
        self.reward = torch.zeros(places, 1, device=DEVICE)

    def put(self, at: int, before: torch.Tensor, after: torch.Tensor) -> None:
        self.before[at : at + len(before)] = before
        self.after[at : at + len(after)] = after

    def sample(self, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        chosen = torch.randint(len(self.before), (size,), device=DEVICE)
        return self.before[chosen], self.after[chosen], self.reward[chosen]


def replayed() -> None:
    """Q-learning with a replay buffer and a target network."""
    record()
    memory = Memory(30_000)
    net = nn.Sequential(nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8))
    net.to(DEVICE)
    target = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(5):
        memory.put(64 * step, batch(64), batch(64))
        before, after, reward = memory.sample(1024)
        with torch.no_grad():
            goal = reward + target(after).amax(-1, keepdim=True)
        functional.mse_loss(net(before).amax(-1, keepdim=True), goal).backward()
        data = [memory.before, memory.after, memory.reward, before, after, reward]
        note(parameter=[net, target], input=data)
        optimizer.step()
        note(parameter=[net, target], input=data, optimizer_state=list(optimizer.state.values()))
        optimizer.zero_grad()


class Update:
    """A program's own optimizer. ``kind``: what it keeps for each matrix."""

    def __init__(self, kind: str, params: list[nn.Parameter]) -> None:
        self.kind, self.params, self.kept = kind, params, dict[nn.Parameter, Any]()

    def start(self, p: nn.Parameter) -> list[torch.Tensor]:
        first = torch.zeros_like(p)
        if self.kind == "muon" or p.ndim < 2:
            return [first]
        sides = [torch.eye(side, device=DEVICE) for side in p.shape]
        return (
            [first, *sides]
            if self.kind == "shampoo"
            else [first, torch.zeros_like(p), *sides, *map(torch.clone, sides)]
        )

    @torch.no_grad()
    def advance(self) -> None:
        for p in self.params:
            assert p.grad is not None
            kept = self.kept.setdefault(p, None) or self.start(p)
            self.kept[p] = kept
            kept[0].lerp_(p.grad, 0.1)
            change = kept[0]
            if p.ndim == 2 and self.kind == "muon":
                change = change / (change.norm() + 1e-7)
                for _ in range(5):
                    square = change @ change.T
                    change = 3.4 * change + (2.0 * square @ square - 4.8 * square) @ change
            elif p.ndim == 2:
                kept[-2].lerp_(p.grad @ p.grad.T, 0.1)
                kept[-1].lerp_(p.grad.T @ p.grad, 0.1)
                change = kept[-2] @ change @ kept[-1]
            p.sub_(change, alpha=1e-3)

    def clear(self) -> None:
        for p in self.params:
            p.grad = None


def own_optimizer(kind: str) -> None:
    record()
    net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.ReLU())], nn.Linear(1024, 10))
    net.to(DEVICE)
    update = Update(kind, list(net.parameters()))
    for _ in range(5):
        x = torch.zeros(512, 1024).to(DEVICE)
        learn(net, x)
        note(parameter=net, input=x, optimizer_state=list(update.kept.values()))
        update.advance()
        note(parameter=net, input=x, optimizer_state=list(update.kept.values()))
        update.clear()


def averaged() -> None:
    """A running mean of the weights, copied before the first step."""
    record()
    net = tower().to(DEVICE)
    means = [p.detach().clone() for p in net.parameters()]
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(5):
        x = batch()
        learn(net, x)
        optimizer.step()
        for mean, p in zip(means, net.parameters(), strict=True):
            mean.lerp_(p.detach(), 0.01)
        note(parameter=net, input=x, optimizer_state=[means, list(optimizer.state.values())])
        optimizer.zero_grad()


def start_ema(net: nn.Module) -> nn.Module:
    return copy.deepcopy(net)


def copied() -> None:
    """A running mean of the weights, in a copy of the model."""
    record()
    net = tower().to(DEVICE)
    ema = start_ema(net)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(5):
        x = batch()
        learn(net, x)
        optimizer.step()
        with torch.no_grad():
            for mean, p in zip(ema.parameters(), net.parameters(), strict=True):
                mean.lerp_(p, 0.01)
        note(parameter=net, input=x, optimizer_state=[ema, list(optimizer.state.values())])
        optimizer.zero_grad()


def masters() -> None:
    """Weights in 16 bits, with copies in 32 that the optimizer works on."""
    record()
    net = tower().to(DEVICE, torch.bfloat16)
    full = [p.detach().float() for p in net.parameters()]
    optimizer = torch.optim.SGD(full, momentum=0.9)
    for _ in range(5):
        x = batch().bfloat16()
        learn(net, x)
        for whole, p in zip(full, net.parameters(), strict=True):
            whole.grad = p.grad.float()  # type: ignore[union-attr]
        note(parameter=net, input=x, gradient=[p.grad for p in full])
        optimizer.step()
        with torch.no_grad():
            for whole, p in zip(full, net.parameters(), strict=True):
                p.copy_(whole)
        note(parameter=net, optimizer_state=[list(optimizer.state.values()), [p.data for p in full]])
        optimizer.zero_grad()
        net.zero_grad()


class Constants:
    """One number per weight, kept by an estimator of gradients."""

    def __init__(self, net: nn.Module) -> None:
        self.scales = [torch.ones_like(p) for p in net.parameters()]


def constructed() -> None:
    """Gradients from differences of forward passes, with numbers that a constructor made."""
    record()
    net = tower().to(DEVICE)
    constants = Constants(net)
    with torch.no_grad():
        for _ in range(6):
            x = batch()
            for p, scale in zip(net.parameters(), constants.scales, strict=True):
                p.add_(torch.randn_like(p) * scale)
            net(x).logsumexp(-1).mean()
            note(parameter=net, optimizer_state=constants.scales, input=x)


def built() -> None:
    """A model whose constructor makes its weights on the device."""

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Parameter(torch.zeros(8, WIDTH, 2 * WIDTH, device=DEVICE))
            self.down = nn.Parameter(torch.zeros(8, 2 * WIDTH, WIDTH, device=DEVICE))
            self.out = nn.Linear(WIDTH, WIDTH, device=DEVICE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(torch.bmm(torch.bmm(x, self.up).relu(), self.down))

    record()
    net = Mixture()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(5):
        x = torch.zeros(8, 64, WIDTH).to(DEVICE)
        learn(net, x)
        optimizer.step()
        note(parameter=net, input=x, optimizer_state=list(optimizer.state.values()))
        optimizer.zero_grad()


class Block(nn.Module):
    """A layer of a Llama."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.o(functional.scaled_dot_product_attention(self.q(y), self.k(y), self.v(y)))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def llama(width: int = 1024, layers: int = 16) -> nn.Sequential:
    hidden = width * 43 // 16
    blocks = [Block(width, hidden) for _ in range(layers)]
    net = nn.Sequential(nn.Embedding(32000, width), *blocks, nn.RMSNorm(width), nn.Linear(width, 32000, bias=False))
    return net.to(DEVICE, torch.float16)


def late(passes: int) -> None:
    """A large model that was loaded before recording starts."""
    net = llama()
    tokens = torch.zeros(1, 64, dtype=torch.long, device=DEVICE)
    with torch.no_grad():
        net(tokens)
        record()
        for _ in range(passes):
            net(tokens)
        if not passes:
            tokens = tokens + 1
        note(parameter=net)


def late_trained() -> None:
    """The same, which has been trained: gradients are there too."""
    net = llama(512, 12)
    tokens = torch.zeros(1, 64, dtype=torch.long, device=DEVICE)
    net(tokens).mean().backward()
    record()
    with torch.no_grad():
        for _ in range(3):
            net(tokens)
        note(parameter=net)


torch.backends.cudnn.enabled = False
PROGRAMS: dict[str, Any] = {
    **{f.__name__: f for f in (moved, resident, replayed, averaged, copied, masters, constructed, built)},
    **{kind: lambda kind=kind: generate(kind) for kind in ("appended", "listed", "quantised", "static")},
    **{kind: lambda kind=kind: own_optimizer(kind) for kind in ("shampoo", "soap", "muon")},
    "late": lambda: late(3),
    "late_one": lambda: late(0),
    "late_trained": late_trained,
}
if PROGRAM == "--list":
    print(*PROGRAMS)
else:
    PROGRAMS[PROGRAM]()
    torch.cuda.memory._dump_snapshot(OUT)
    with open(OUT + ".json", "w", encoding="utf-8") as file:
        json.dump(noted, file)
