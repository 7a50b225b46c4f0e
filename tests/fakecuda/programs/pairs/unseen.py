"""Programs of kinds that no model of a remedy was made with: they were recorded when the models were done.

The first eight: 33 of 36 promises were within 15% before anything was mended; the worst was that of checkpointing
``waves``, 2.42 times. The others were recorded after that.
"""

from __future__ import annotations

import itertools

import torch
from pairs.kit import DEVICE, REMEDY, cross_entropy, floats, integers, maybe_no_grad, program, run, train
from torch import nn
from torch.nn import functional


class Clip(nn.Module):
    """A block of a video network: space and time apart."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.space = nn.Conv3d(width, width, (1, 3, 3), padding=(0, 1, 1), bias=False)
        self.time = nn.Conv3d(width, width, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.one, self.two = nn.BatchNorm3d(width), nn.BatchNorm3d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.one(self.space(x)))
        return functional.relu(x + self.two(self.time(y)))


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def video() -> None:
    begin, blocks = nn.Conv3d(3, 32, (3, 5, 5), (1, 2, 2), (1, 2, 2)), nn.ModuleList([Clip(32) for _ in range(6)])
    head = nn.Linear(32, 400)
    net = nn.ModuleList([begin, blocks, head]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = begin(x)
        for block in blocks:
            h = run(block, h)
        return functional.cross_entropy(head(functional.dropout(h.mean((2, 3, 4)), 0.5)), y)

    train(net, lambda: (floats(6, 3, 8, 96, 96), integers(6)), loss_of, torch.optim.SGD, lr=0.1, momentum=0.9)


class Dilated(nn.Module):
    """A layer of a WaveNet: a gate of tanh and sigmoid, a residual and a skip."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        self.rate = rate
        self.both, self.out = nn.Conv1d(width, 2 * width, 2, dilation=rate), nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.both(functional.pad(x, (self.rate, 0))).chunk(2, 1)
        residual, skip = self.out(a.tanh() * b.sigmoid()).chunk(2, 1)
        return x + residual, skip


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def waves() -> None:
    begin, layers = nn.Conv1d(1, 64, 1), nn.ModuleList([Dilated(64, 2 ** (i % 8)) for i in range(16)])
    end = nn.Sequential(nn.ReLU(), nn.Conv1d(64, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1))
    net = nn.ModuleList([begin, layers, end]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h, total = begin(x), 0
        for layer in layers:
            h, skip = run(layer, h)
            total = total + skip
        return functional.cross_entropy(end(total), y)

    train(net, lambda: (floats(8, 1, 8000), integers(8, 8000)), loss_of)


@program(half="accumulation", autocast="mixed-precision")
def points() -> None:
    """Clouds of points: features of edges to the nearest neighbours, the greatest of each."""
    widths = (3, 64, 64, 128)
    layers = nn.ModuleList(
        nn.Sequential(nn.Conv2d(2 * a, b, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
        for a, b in itertools.pairwise(widths)
    )
    head = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.LeakyReLU(0.2), nn.Linear(256, 40))
    net = nn.ModuleList([layers, head]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = []
        for layer in layers:
            far = torch.cdist(x.transpose(1, 2).float(), x.transpose(1, 2).float())
            near = far.topk(16, largest=False).indices
            beside = x.transpose(1, 2)[torch.arange(len(x), device=DEVICE)[:, None, None], near].permute(0, 3, 1, 2)
            centre = x[..., None].expand_as(beside)
            x = layer(torch.cat([beside - centre, centre], 1)).amax(-1)
            found.append(x)
        return functional.cross_entropy(head(torch.cat(found, 1).amax(-1)), y)

    train(net, lambda: (floats(8, 3, 1024), integers(8)), loss_of, torch.optim.SGD, lr=0.1)


class Mixer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along = nn.Sequential(nn.Linear(tokens, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, tokens))
        self.across = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.along(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.second(x))


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def mixer() -> None:
    begin, layers = nn.Conv2d(3, 384, 16, 16), nn.ModuleList([Mixer(196, 384) for _ in range(8)])
    norm, head = nn.LayerNorm(384), nn.Linear(384, 1000)
    net = nn.ModuleList([begin, layers, norm, head]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = begin(x).flatten(2).transpose(1, 2)
        for layer in layers:
            h = run(layer, h)
        return functional.cross_entropy(head(norm(h).mean(1)), y, label_smoothing=0.1)

    train(net, lambda: (floats(32, 3, 224, 224), integers(32)), loss_of)


@program(half="accumulation", autocast="mixed-precision", chunks="chunked-loss")
def captions() -> None:
    """Recurrent cells that attend to an encoder's frames, additively, word by word."""
    width, words = 512, 12000
    table, cell, last = nn.Embedding(words, width), nn.GRUCell(2 * width, width), nn.Linear(width, words)
    key, query, score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
    net = nn.ModuleList([table, cell, last, key, query, score]).to(DEVICE)

    def loss_of(frames: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        keys, embedded, h = key(frames), table(y), frames.mean(1)
        states = []
        for at in range(y.shape[1]):
            weights = score(torch.tanh(keys + query(h)[:, None])).softmax(1)
            h = cell(torch.cat([embedded[:, at], (weights * frames).sum(1)], -1), h)
            states.append(h)
        return cross_entropy(last, torch.stack(states, 1), y)

    train(net, lambda: (floats(32, 64, width), integers(32, 32)), loss_of, torch.optim.Adam)


class Triangle(nn.Module):
    """Pairs of residues: each side of a triangle from the other two, gated."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.sides, self.gates = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.out, self.last = nn.Linear(width, width), nn.Linear(width, width)
        self.move = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x = self.norm(z)
        a, b = (self.sides(x) * self.gates(x).sigmoid()).chunk(2, -1)
        mixed = torch.einsum("bikc,bjkc->bijc", a, b)
        z = z + self.out(self.after(mixed)) * self.last(x).sigmoid()
        return z + self.move(z)


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def folding() -> None:
    begin, blocks, end = nn.Linear(32, 64), nn.ModuleList([Triangle(64) for _ in range(4)]), nn.Linear(64, 64)
    net = nn.ModuleList([begin, blocks, end]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = begin(x)
        for block in blocks:
            z = run(block, z)
        return functional.cross_entropy(end(z + z.transpose(1, 2)).flatten(0, 2), y.flatten())

    train(net, lambda: (floats(2, 128, 128, 32), integers(2, 128, 128)), loss_of, torch.optim.AdamW)


@program(no_grad="no-grad retained-graphs")
def bootstrapped() -> None:
    """Two views, each predicts what a slow copy of the network makes of the other: the copy's pass builds a graph."""

    def tower() -> nn.Sequential:
        layers = [nn.Sequential(nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.ReLU()) for _ in range(6)]
        return nn.Sequential(*layers, nn.Linear(1024, 256))

    online, slow, predict = tower().to(DEVICE), tower().to(DEVICE), nn.Linear(256, 256).to(DEVICE)
    optimizer = torch.optim.SGD([*online.parameters(), *predict.parameters()], 0.1, momentum=0.9)
    for _ in range(4):
        one, two = floats(2048, 1024), floats(2048, 1024)
        with maybe_no_grad():
            goals = slow(two), slow(one)
        loss = 0
        for view, goal in zip((one, two), goals, strict=True):
            loss = loss - functional.cosine_similarity(predict(online(view)), goal.detach(), dim=-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mean, now in zip(slow.parameters(), online.parameters(), strict=True):
                mean.lerp_(now, 0.01)


@program(detach="retained-graphs")
def curves() -> None:
    """The outputs of each batch are kept for a plot, with their graphs."""
    net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(768, 768), nn.SiLU())], nn.Linear(768, 32)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    plotted = []
    for _ in range(10):
        out = net(floats(2048, 768))
        loss = functional.huber_loss(out, floats(2048, 32))
        loss.backward(retain_graph=REMEDY != "detach")
        optimizer.step()
        optimizer.zero_grad()
        plotted.append(out.detach() if REMEDY == "detach" else out)


class Windows(nn.Module):
    """Attention within windows of an image, of PyTorch's own module."""

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        self.side, self.first, self.second = side, nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, h, w, c = x.shape
        s = self.side
        y = self.first(x).view(n, h // s, s, w // s, s, c).transpose(2, 3).reshape(-1, s * s, c)
        y = self.attention(y, y, y, need_weights=False)[0]
        x = x + y.view(n, h // s, w // s, s, s, c).transpose(2, 3).reshape(n, h, w, c)
        return x + self.mlp(self.second(x))


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def windows() -> None:
    begin, merge = nn.Conv2d(3, 96, 4, 4), nn.Linear(4 * 96, 192, bias=False)
    one, two = nn.ModuleList([Windows(96, 7) for _ in range(4)]), nn.ModuleList([Windows(192, 7) for _ in range(4)])
    head = nn.Linear(192, 1000)
    net = nn.ModuleList([begin, merge, one, two, head]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = begin(x).permute(0, 2, 3, 1).contiguous()
        for layer in one:
            h = run(layer, h)
        h = merge(torch.cat([h[:, a::2, b::2] for a in (0, 1) for b in (0, 1)], -1))
        for layer in two:
            h = run(layer, h)
        return functional.cross_entropy(head(h.mean((1, 2))), y)

    train(net, lambda: (floats(12, 3, 224, 224), integers(12)), loss_of)


class Latents(nn.Module):
    """A few latents read a long input, then each other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.q, self.kv, self.qkv = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    @staticmethod
    def mixed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        z = z + self.mixed(self.q(self.norms[0](z)), *self.kv(x).chunk(2, -1))
        z = z + self.mixed(*self.qkv(self.norms[1](z)).chunk(3, -1))
        return z + self.mlp(self.norms[2](z))


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def latents() -> None:
    begin, layers, head = nn.Linear(64, 256), nn.ModuleList([Latents(256) for _ in range(5)]), nn.Linear(256, 50)
    first = nn.Parameter(torch.zeros(128, 256, device=DEVICE))
    net = nn.ModuleList([begin, layers, head]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h, z = begin(x), first.expand(len(x), -1, -1)
        for layer in layers:
            z = run(layer, z, h)
        return functional.cross_entropy(head(z.mean(1)), y)

    train(net, lambda: (floats(16, 2048, 64), integers(16)), loss_of)


class Gate(nn.Module):
    """A gated convolution, as for inpainting; in a decoder it reads a skip, too."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.both, self.norm = nn.Conv2d(before, 2 * after, 3, stride, 1), nn.InstanceNorm2d(after, affine=True)

    def forward(self, x: torch.Tensor, skip: torch.Tensor | None = None) -> torch.Tensor:
        if skip is not None:
            x = torch.cat([functional.interpolate(x, scale_factor=2.0), skip], 1)
        value, gate = self.both(x).chunk(2, 1)
        return self.norm(functional.elu(value) * gate.sigmoid())


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def inpainting() -> None:
    widths = (32, 48, 64, 96, 128)
    begin, end = Gate(4, 32), nn.Conv2d(32, 3, 1)
    down = nn.ModuleList([Gate(a, b, 2) for a, b in itertools.pairwise(widths)])
    up = nn.ModuleList([Gate(b + a, a) for a, b in reversed(list(itertools.pairwise(widths)))])
    net = nn.ModuleList([begin, down, up, end]).to(DEVICE)

    def loss_of(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h, skips = begin(torch.cat([x * mask, mask], 1)), []
        for level in down:
            skips.append(h)
            h = run(level, h)
        for level in up:
            h = run(level, h, skips.pop())
        return functional.l1_loss(end(h).tanh(), x)

    train(net, lambda: (floats(8, 3, 192, 192), floats(8, 1, 192, 192)), loss_of, torch.optim.Adam)


@program(half="accumulation", chunks="chunked-loss", autocast="mixed-precision")
def sessions() -> None:
    """The next of many items, scored against all of them; ids alone go in."""
    items, mix, last = nn.Embedding(40000, 128), nn.GRU(128, 128, batch_first=True), nn.Linear(128, 40000, bias=False)
    net = nn.ModuleList([items, mix, last]).to(DEVICE)
    train(
        net,
        lambda: (integers(64, 16), integers(64, 16)),
        lambda x, y: cross_entropy(last, functional.dropout(mix(items(x))[0], 0.2), y),
        torch.optim.Adagrad,
    )
