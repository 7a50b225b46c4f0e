"""Small programs that each have one cause of memory that no other program here has.

``witnesses.py OUT PROGRAM`` dumps a snapshot to OUT.
"""

from __future__ import annotations

import io
import sys

import torch
from torch import nn
from torch.nn import functional

OUT, PROGRAM = sys.argv[1:]
MIB = 1 << 20
MODELS: list[nn.Module] = []


def block(mib: float) -> torch.Tensor:
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def network(width: int = 1024, layers: int = 4) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))).cuda()


def train(net: nn.Module, width: int = 1024, steps: int = 4, batch: int = 64) -> None:
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        net(torch.empty(batch, width, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def emptied() -> None:
    """Calls empty_cache() in every step."""
    for _ in range(12):
        parts = [block(30) for _ in range(4)]
        del parts
        torch.cuda.empty_cache()


def grown_lengths() -> None:
    """Batches grow: what smaller ones have cached serves no larger one."""
    kept = []
    for size in range(24, 104, 4):
        batch = block(size)
        kept.append(block(2))
        del batch


def unsplit() -> None:
    """With a limit on splitting, a block over it serves no smaller request."""
    for size in (240, 200, 170, 145, 122):
        batch = block(size)
        del batch


def split() -> None:
    """Long-lived tensors split cached blocks of nearly twice their size."""
    rounds, kept = 5, []
    for _ in range(4):
        large = []
        for _ in range(rounds):
            large.append(block(220))
            kept.append(block(2))
        del large
        kept += [block(113) for _ in range(rounds)]
    kept += [block(220) for _ in range(rounds)]


def crowded() -> None:
    """Each request is larger than all that is cached, and the device is full."""
    for number in range(40):
        batch = block(100 + 10 * number)
        del batch


def cycles() -> None:
    """Objects that refer to each other hold activations until Python's garbage collector runs."""
    import gc

    class Node:
        pass

    gc.disable()
    for step in range(40):
        node = Node()
        node.own, node.data = node, block(4)
        work = [block(1) for _ in range(6)]
        del work, node
        if step % 8 == 7:
            gc.collect()


def host() -> None:
    """Pinned buffers just over a power of two."""
    buffers = [torch.empty(9 * MIB, dtype=torch.uint8, pin_memory=True) for _ in range(8)]
    for buffer in buffers:
        buffer.to("cuda", non_blocking=True)


def chat() -> None:
    """Keys and values of a conversation."""
    net, width = network(512, 8), 512
    with torch.no_grad():
        caches = make_caches(len(net), width)
        for position in range(24):
            x = torch.empty(8, 1, width, device="cuda")
            for layer, cache in zip(net, caches, strict=True):
                x = layer(x)
                cache[:, position : position + 1] = x


def make_caches(layers: int, width: int) -> list[torch.Tensor]:
    return [torch.empty(8, 2048, width, device="cuda") for _ in range(layers)]


def adam() -> None:
    """Little but parameters and an optimizer's state."""
    train(network(2048, 6), 2048)


class Uneven(nn.Module):
    """One device has layers that two could share."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1024, 1024, device="cuda:0"), nn.Linear(1024, 1024, device="cuda:1")
        self.layers = nn.ModuleList()
        for number in range(24):
            self.layers.append(nn.Linear(1024, 1024, device=f"cuda:{number // 20}"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x.to(layer.weight.device))
        return self.last(x)


def uneven() -> None:
    net = Uneven()
    with torch.no_grad():
        for _ in range(3):
            net(torch.empty(64, 1024, device="cuda"))


def copies() -> None:
    """Autocast casts the weights anew in every forward pass of an inference."""
    net = network(2048)
    for _ in range(4):
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            net(torch.empty(8, 2048, device="cuda"))


def zeroed() -> None:
    """Gradients are filled with zeros, and stay allocated through the forward pass."""
    net = network(1024, 8)
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    for _ in range(4):
        net(torch.empty(1024, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def unfrozen() -> None:
    """A new last layer is trained, on layers that still require gradients."""
    net, last = network(1024, 8), nn.Linear(1024, 16).cuda()
    optimizer = torch.optim.Adam(last.parameters(), foreach=False)
    for _ in range(4):
        optimizer.zero_grad()
        last(net(torch.empty(1024, 1024, device="cuda"))).sum().backward()
        optimizer.step()


def vocabulary() -> None:
    """Logits of many words."""
    net, last = network(256, 2), nn.Linear(256, 32000).cuda()
    target = torch.zeros(512, dtype=torch.long, device="cuda")
    for _ in range(3):
        functional.cross_entropy(last(net(torch.empty(512, 256, device="cuda"))), target).backward()
        net.zero_grad()
        last.zero_grad()


def outputs() -> None:
    """The outputs of a pass are there until the next one has made its own."""
    net, wide = network(1024, 4), nn.Linear(1024, 16384).cuda()
    for _ in range(5):
        with torch.no_grad():
            logits = wide(net(torch.empty(2048, 1024, device="cuda")))
            logits.float()


def loaded() -> None:
    """A checkpoint is loaded to the device, and not deleted after load_state_dict()."""
    file = io.BytesIO()
    torch.save(network(1024, 8).state_dict(), file)
    file.seek(0)
    state = torch.load(file, map_location="cuda")
    net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).to("cuda")
    net.load_state_dict(state)
    train(net)


def waiting() -> None:
    """Forward passes whose graphs wait for one backward pass."""
    net = network(1024, 6)
    for _ in range(3):
        losses = [net(torch.empty(2048, 1024, device="cuda")).square().mean() for _ in range(4)]
        torch.stack(losses).sum().backward()
        net.zero_grad()


def adapters() -> None:
    """Frozen weights with small ones that are trained."""
    base, low, high = network(2048, 8), nn.Linear(2048, 8).cuda(), nn.Linear(8, 2048).cuda()
    base.requires_grad_(False)
    optimizer = torch.optim.Adam([*low.parameters(), *high.parameters()])
    for _ in range(4):
        x = torch.empty(32, 2048, device="cuda")
        for layer in base:
            x = layer(x) + high(low(x))
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def floated() -> None:
    """A language model under autocast, whose loss takes its 16-bit logits in 32 bits; one layer, with one projection to
    queries, keys and values. Recorded with C++ frames, which the backward pass has, too.
    """
    words, first = nn.Embedding(16384, 512).cuda(), nn.LayerNorm(512).cuda()
    project, last = nn.Linear(512, 3 * 512).cuda(), nn.Linear(512, 16384).cuda()
    optimizer = torch.optim.SGD([p for layer in (words, first, project, last) for p in layer.parameters()])
    for _ in range(3):
        index = torch.zeros(6, 512, dtype=torch.long, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            hidden = functional.dropout(words(index), 0.1)
            query, key, value = (part.contiguous() for part in project(first(hidden)).chunk(3, -1))
            logits = last(hidden + functional.scaled_dot_product_attention(query, key, value))
            loss = functional.cross_entropy(logits.float().flatten(0, 1), index.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def replaced() -> None:
    """A model of another width is loaded beside the first, before recording starts."""
    old, new = network(1536, 8), network(1024, 12)
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    for _ in range(3):
        with torch.no_grad():
            new(torch.empty(256, 1024, device="cuda"))
    MODELS.extend((old, new))


if PROGRAM != "replaced":
    torch.cuda.memory._record_memory_history(
        stacks="all" if PROGRAM == "floated" else "python",
        max_entries=1_000_000,
        **{"record_pinned_host_memory": True} if PROGRAM == "host" else {},
    )
globals()[PROGRAM]()
torch.cuda.memory._dump_snapshot(OUT)
