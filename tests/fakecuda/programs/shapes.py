"""Programs whose requests change from step to step, for replays under other allocator settings.

python shapes.py OUT PROGRAM [--fraction F] [--without] [--scale F]: records, dumps a snapshot to OUT and prints
"RESULT peak_reserved retries ooms peak_requested", or the same after "OOM" where it runs out of memory.
"""

from __future__ import annotations

import argparse
import random

import torch
from torch import nn

SCALE = 1.0


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(rows, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def extra(x: torch.Tensor) -> torch.Tensor:
    return x.repeat(1, 2, 3).square()


def varlen(dice: random.Random, left_out: bool) -> None:
    """A transformer trained on sequences of different lengths in each step."""
    net = nn.Sequential(*[Block(384, 6) for _ in range(4)]).cuda()
    adam = torch.optim.AdamW(net.parameters())
    for _ in range(10):
        x = torch.randn(dice.randint(2, 8), 16 * dice.randint(8, 40), 384, device="cuda")
        y = net(x)
        if not left_out:
            z = extra(x)
            del z
        y.sum().backward()
        adam.step()
        adam.zero_grad()


def conv(dice: random.Random, left_out: bool) -> None:
    """A convolutional network on images of different sizes in each step."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 64), (64, 128), (128, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)).cuda()
    sgd = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for _ in range(10):
        side = 8 * dice.randint(8, 32)
        x = torch.randn(dice.randint(2, 6), 3, side, side + 8 * dice.randint(0, 6), device="cuda")
        loss = net(x).sum()
        if not left_out:
            z = extra(x[:, 0])
            del z
        loss.backward()
        sgd.step()
        sgd.zero_grad()


def inference(dice: random.Random, left_out: bool) -> None:
    """Requests whose key-value caches grow by torch.cat; old ones leave, new ones arrive."""
    with torch.inference_mode():
        net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).half().cuda()
        caches: list[list[torch.Tensor]] = []
        for step in range(60):
            if step % 6 == 0:
                caches.append([torch.empty(1, dice.randint(100, 900), 1024, device="cuda") for _ in range(6)])
            if len(caches) > 5:
                caches.pop(dice.randrange(len(caches)))
            net(torch.empty(len(caches), dice.randint(64, 512), 1024, device="cuda", dtype=torch.half))
            if not left_out:
                z = extra(caches[-1][0])
                del z
            for cache in caches:
                for layer, old in enumerate(cache):
                    cache[layer] = torch.cat((old, old[:, : dice.randint(8, 64)]), 1)


def streams(dice: random.Random, left_out: bool) -> None:
    """Work on three streams; buffers are also used on a stream other than their own."""
    side = [torch.cuda.Stream() for _ in range(2)]
    alive: list[torch.Tensor] = []
    for step in range(80):
        for stream in (torch.cuda.current_stream(), *side):
            with torch.cuda.stream(stream):
                alive.append(torch.empty(dice.randint(1 << 10, 24 << 20), dtype=torch.uint8, device="cuda"))
                if step % 4 == 0:
                    alive[-1].record_stream(side[0])
        if not left_out:
            z = extra(alive[-1].view(1, 1, -1))
            del z
        while len(alive) > 30:
            alive.pop(dice.randrange(len(alive)))


def scratch(size: int) -> torch.Tensor:
    return torch.empty(round(size * SCALE), dtype=torch.uint8, device="cuda")


def buffers(dice: random.Random, left_out: bool) -> None:
    """Buffers of any size, interleaved with those of scratch(), the only ones that --scale changes: of a few bytes,
    near the limits of the small pool (1 MiB) and of separate segments (10 MiB), and larger ones, most of odd sizes.
    """
    limits = (3, 2_000, 1 << 20, 2 << 20, 10 << 20, 20 << 20, 60 << 20)
    alive: list[torch.Tensor] = []
    for _ in range(400):
        size = max(1, int(dice.choice(limits) * dice.uniform(0.5, 1.5)))
        alive.append(torch.empty(size, dtype=torch.uint8, device="cuda") if dice.random() < 0.5 else scratch(size))
        while len(alive) > 30:
            alive.pop(dice.randrange(len(alive)))


def main() -> None:
    global SCALE
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("program", choices=("varlen", "conv", "inference", "streams", "buffers"))
    parser.add_argument("--fraction", type=float, default=0.0)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0, help="of what scratch() allocates")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    SCALE = options.scale
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    if options.fraction:
        torch.cuda.set_per_process_memory_fraction(options.fraction)
    torch.manual_seed(0)
    try:
        globals()[options.program](random.Random(options.seed), options.without)
        outcome = "RESULT"
    except torch.OutOfMemoryError:
        outcome = "OOM"
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(options.out)
    print(
        outcome, stats["reserved_bytes.all.peak"], stats["num_alloc_retries"], stats["num_ooms"],
        stats["requested_bytes.all.peak"],
    )  # fmt: skip


main()
