"""Programs as people write them in a hurry: weights in lists, closures, functions called ``apply``, ``forward`` and
``step``, trainers of their own, generators, hand-written layers. No rule of advice was made for them.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pairs.kit import DEVICE, REMEDY, autocast, floats, halves, integers, maybe_no_grad, program
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def weights(*widths: int) -> list[torch.Tensor]:
    return [torch.empty(b, a, device=DEVICE, requires_grad=True) for a, b in itertools.pairwise(widths)]


@program(half="accumulation", autocast="mixed-precision")
def radiance() -> None:
    """A radiance field without any module: positions are encoded, an MLP runs over samples of rays, colours are
    composed along each ray.
    """
    params = [*weights(63, 256, 256, 256, 256, 4)]
    optimizer = torch.optim.Adam(params, 5e-4)

    def apply(x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([x] + [f(x * 2.0**i) for i in range(10) for f in (torch.sin, torch.cos)], -1)
        for w in params[:-1]:
            x = torch.relu(functional.linear(x, w))
        return functional.linear(x, params[-1])

    def step(origin: torch.Tensor, direction: torch.Tensor, colour: torch.Tensor) -> None:
        depth = torch.linspace(2, 6, 64, device=DEVICE)
        with autocast():
            raw = apply(origin[:, None] + direction[:, None] * depth[None, :, None])
            alpha = 1 - torch.exp(-functional.relu(raw[..., 3]) / 64)
            through = torch.cumprod(1 - alpha + 1e-10, -1)
            rgb = (alpha * through)[..., None] * torch.sigmoid(raw[..., :3])
            loss = (rgb.sum(1) - colour).square().mean()
        loss.backward()

    for _ in range(3):
        for part in halves(floats(2048, 3), floats(2048, 3), floats(2048, 3)):
            step(*part)
        optimizer.step()
        optimizer.zero_grad()


@program(autocast="mixed-precision")
def style() -> None:
    """An image is optimised with L-BFGS: one image, nothing to halve; the network is frozen."""
    layers: list[nn.Module] = []
    for before, after, pool in ((3, 32, 0), (32, 32, 1), (32, 64, 0), (64, 64, 1), (64, 128, 0), (128, 128, 0)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()] + [nn.MaxPool2d(2)] * pool
    vgg = nn.Sequential(*layers).to(DEVICE).eval().requires_grad_(False)
    image = floats(1, 3, 384, 384).requires_grad_()

    def gram(x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(2)
        return x @ x.transpose(1, 2) / x.numel()

    def features(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for layer in vgg:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                found.append(x)
        return found

    with torch.no_grad(), autocast():
        targets = [gram(one) for one in features(floats(1, 3, 384, 384))]
    optimizer = torch.optim.LBFGS([image], max_iter=3, history_size=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        with autocast():
            loss = sum(
                (gram(one) - target).square().sum() for one, target in zip(features(image), targets, strict=True)
            )
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


@program(half="accumulation")
def equation() -> None:
    """A network that solves an equation: its derivatives enter the loss, so that the graph is differentiated twice."""
    net = nn.Sequential(nn.Linear(2, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())

    def residual(points: torch.Tensor) -> torch.Tensor:
        points.requires_grad_()
        u = net(points)
        first = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
        second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0]
        return first[:, 1] + u[:, 0] * first[:, 0] - 0.01 * second[:, 0]

    for _ in range(3):
        for (points,) in halves(floats(16384, 2)):
            residual(points).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class Fitter:
    """A trainer of one's own, with the names of Lightning's hooks."""

    def __init__(self, model: Any, epochs: int = 2) -> None:
        self.model, self.epochs = model, epochs

    def fit(self, batches: Callable[[], Iterator[Any]], checks: Callable[[], Iterator[Any]]) -> None:
        optimizer = self.model.configure_optimizers()
        for _ in range(self.epochs):
            self.model.train()
            for batch in batches():
                loss = self.model.training_step(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.model.eval()
            self.run_validation(checks)

    def run_validation(self, checks: Callable[[], Iterator[Any]]) -> None:
        with maybe_no_grad():
            outputs = [self.model.validation_step(batch) for batch in checks()]
        torch.stack(outputs).mean()


class Forecaster(nn.Module):
    """Temporal convolutions over many series; the validation step is as large as three training steps."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.begin = nn.Conv1d(16, width, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i), nn.BatchNorm1d(width), nn.ReLU())
            for i in range(6)
        )
        self.end = nn.Conv1d(width, 1, 1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.begin(x)
        for block in self.blocks:
            x = x + block(x)
        return self.end(x)[:, 0]

    def training_step(self, batch: Any) -> torch.Tensor:
        return functional.l1_loss(self(batch[0]), batch[1])

    def validation_step(self, batch: Any) -> torch.Tensor:
        return functional.l1_loss(self(batch[0]), batch[1])


@program(no_grad="no-grad")
def forecaster() -> None:
    def loader(count: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(count):
            yield floats(size, 16, 512), floats(size, 512)

    Fitter(Forecaster().to(DEVICE)).fit(lambda: loader(3, 32), lambda: loader(3, 96))


@program(cpu="collected-outputs")
def documents() -> None:
    """Vectors of documents in a dictionary, computed by functions and a generator."""
    table, first, second = floats(20000, 512), floats(2048, 512), floats(4096, 2048)

    def forward(tokens: torch.Tensor) -> torch.Tensor:
        hidden = functional.embedding(tokens, table)
        hidden = functional.gelu(functional.linear(hidden, first))
        return functional.linear(hidden, second).amax(1)

    def embedded() -> Iterator[tuple[int, torch.Tensor]]:
        for number in range(24):
            yield number, forward(integers(32, 64))

    found = {}
    with torch.inference_mode():
        for number, vector in embedded():
            found[number] = vector.repeat(1, 8).cpu() if REMEDY == "cpu" else vector.repeat(1, 8)


@program(cdist="distance-matrix")
def discrepancy() -> None:
    """A maximum mean discrepancy with a Gaussian kernel, written with broadcasting."""
    net = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 96)).to(DEVICE)
    optimizer = torch.optim.RMSprop(net.parameters())

    def kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if REMEDY == "cdist":
            far = x.square().sum(1)[:, None] - 2 * x @ y.T + y.square().sum(1)[None]
        else:
            far = ((x[:, None] - y[None]) ** 2).sum(-1)
        return torch.exp(-far / 2)

    for _ in range(3):
        optimizer.zero_grad()
        x, y = net(floats(1024, 128)), floats(1024, 96)
        loss = kernel(x, x).mean() - 2 * kernel(x, y).mean()
        loss.backward()
        optimizer.step()


@program(detach="retained-graphs no-grad")
def carried() -> None:
    """Backpropagation through time whose state is never detached: every graph of the past stays."""
    cell, embed, head = (
        nn.GRUCell(256, 512).to(DEVICE),
        nn.Embedding(8000, 256).to(DEVICE),
        nn.Linear(512, 8000).to(DEVICE),
    )
    optimizer = torch.optim.SGD([*cell.parameters(), *embed.parameters(), *head.parameters()], 0.1)
    state = floats(128, 512)
    for _ in range(5):
        x, loss = integers(128, 12), 0
        for t in range(12):
            state = cell(embed(x[:, t]), state)
            loss = loss + functional.cross_entropy(head(state), x[:, t])
        loss.backward(retain_graph=REMEDY != "detach")
        if REMEDY == "detach":
            state = state.detach()
    optimizer.step()


@program(autocast="mixed-precision")
def citation() -> None:
    """A graph network on a whole graph, written with index_add: there is no batch."""
    nodes, edges, width = 20000, 120000, 128
    first, second, third = weights(256, width, width, 40)
    x, label = floats(nodes, 256), integers(nodes)
    source, target = integers(edges), integers(edges)
    optimizer = torch.optim.Adam([first, second, third], 0.01)

    def message(h: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(h).index_add(0, target, h[source])

    for _ in range(4):
        optimizer.zero_grad()
        with autocast():
            h = functional.relu(message(functional.linear(x, first)))
            h = functional.relu(message(functional.linear(functional.dropout(h), second)))
            loss = functional.cross_entropy(functional.linear(h, third), label)
        loss.backward()
        optimizer.step()


@program(select="full-logits")
def cloze() -> None:
    """Blanks are filled in: logits by a product with the embedding's table, then those of the blanks alone."""
    table = torch.empty(24000, 320, device=DEVICE, requires_grad=True)
    params = [table, *weights(320, 1280), *weights(1280, 320)]
    optimizer = torch.optim.SGD(params, 0.1)

    def encode(tokens: torch.Tensor) -> torch.Tensor:
        h = table[tokens]
        return h + functional.gelu(h @ params[1].T) @ params[2].T

    for _ in range(3):
        tokens = integers(8, 384)
        blanks = torch.arange(0, tokens.numel(), 6, device=DEVICE)
        h = encode(tokens).reshape(-1, 320)
        logits = h[blanks] @ table.T if REMEDY == "select" else (h @ table.T)[blanks]
        loss = functional.cross_entropy(logits, tokens.reshape(-1)[blanks])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program(sdpa="fused-attention sdpa-math-kernel")
def protein() -> None:
    """Attention in a closure, with einsum, over one long sequence."""
    width, heads, length = 384, 6, 1024
    layers = [[*weights(width, 3 * width), *weights(width, width)] for _ in range(4)]
    optimizer = torch.optim.AdamW([w for layer in layers for w in layer])

    def attend(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        q, k, v = ((x @ part.T).unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3))
        if REMEDY == "sdpa":
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            weight = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(width // heads)
            mixed = torch.einsum("bhij,bhjd->bhid", torch.softmax(weight, -1), v)
        return x + mixed.transpose(1, 2).flatten(2) @ out.T

    for _ in range(3):
        x = floats(2, length, width)
        for layer in layers:
            x = attend(x, *layer)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@program(no_grad="no-grad")
def averaged() -> None:
    """An average of the weights is evaluated in the midst of training, in a function called ``apply``."""
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), *[m for _ in range(6) for m in (nn.Conv2d(64, 64, 3, padding=1), nn.SiLU())],
    ).to(DEVICE)  # fmt: skip
    mean = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def apply(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x).mean((2, 3))

    for _ in range(3):
        apply(net, floats(8, 3, 96, 96)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        for slow, fast in zip(mean.parameters(), net.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.01)
        with maybe_no_grad():
            score = apply(mean, floats(16, 3, 96, 96)).argmax(-1)
        del score


@program(host="data-on-device")
def pictures() -> None:
    """All images on the device as bytes; a step converts those of its batch."""
    data = torch.zeros(24000, 3, 96, 96, dtype=torch.uint8, device="cpu" if REMEDY == "host" else DEVICE)
    net = nn.Sequential(nn.Conv2d(3, 32, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 23 * 23, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number in range(6):
        batch = data[128 * number : 128 * (number + 1)].to(DEVICE).float() / 255
        functional.cross_entropy(net(batch), integers(128)).backward()
        optimizer.step()
        optimizer.zero_grad()


@program(bf16="frozen-base")
def probe() -> None:
    """A small head is trained on a large frozen encoder, whose passes make no graph."""
    base = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(2048, 2048), nn.ReLU())]).to(DEVICE)
    base.requires_grad_(False)
    if REMEDY == "bf16":
        base.to(torch.bfloat16)
    head = nn.Linear(2048, 1000).to(DEVICE)
    optimizer = torch.optim.Adam(head.parameters())
    for _ in range(4):
        with torch.no_grad():
            hidden = base(floats(64, 2048).to(base[0].weight.dtype))
        functional.cross_entropy(head(hidden.float()), integers(64)).backward()
        optimizer.step()
        optimizer.zero_grad()


@program(delete="previous-outputs")
def segments() -> None:
    """A loop of inference whose large result keeps its name while the next one is computed."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 150, 1)).to(DEVICE).eval()
    with torch.inference_mode():
        number = 0
        while number < 6:
            masks = net(floats(4, 3, 256, 256)).softmax(1)
            masks.amax((0, 2, 3)).cpu()
            number += 1
            if REMEDY == "delete":
                del masks


@program(half="accumulation", checkpoint="checkpointing")
def spectra() -> None:
    """A Fourier neural operator: complex activations, hand-written layers in a list."""
    width, modes = 48, 16
    lift, project = nn.Conv2d(3, width, 1).to(DEVICE), nn.Conv2d(width, 1, 1).to(DEVICE)
    shape = (width, width, modes, modes)
    layers = [
        (nn.Parameter(torch.empty(shape, dtype=torch.cfloat, device=DEVICE)), nn.Conv2d(width, width, 1).to(DEVICE))
        for _ in range(6)
    ]
    params = [p for w, conv in layers for p in (w, *conv.parameters())]
    optimizer = torch.optim.Adam([*lift.parameters(), *project.parameters(), *params])

    def layer(x: torch.Tensor, w: torch.Tensor, conv: nn.Module) -> torch.Tensor:
        high = torch.fft.rfft2(x)
        out = torch.zeros_like(high)
        out[:, :, :modes, :modes] = torch.einsum("bixy,ioxy->boxy", high[:, :, :modes, :modes], w)
        return functional.gelu(torch.fft.irfft2(out, s=x.shape[-2:]) + conv(x))

    for _ in range(3):
        for x, y in halves(floats(8, 3, 96, 96), floats(8, 1, 96, 96)):
            h = lift(x)
            for one in layers:
                h = checkpoint(layer, h, *one, use_reentrant=False) if REMEDY == "checkpoint" else layer(h, *one)
            functional.mse_loss(project(h), y).backward()
        optimizer.step()
        optimizer.zero_grad()


@program(index="one-hot")
def smiles() -> None:
    """A variational autoencoder of strings: reconstruction against one-hot targets."""
    embed, encode, latent = nn.Embedding(4000, 128), nn.GRU(128, 256, batch_first=True), nn.Linear(256, 64)
    decode, out = nn.GRU(64, 256, batch_first=True), nn.Linear(256, 4000)
    net = nn.ModuleList([embed, encode, latent, decode, out]).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        x = integers(64, 80)
        z = latent(encode(embed(x))[1][0])
        logits = out(decode(z[:, None].expand(-1, 80, -1).contiguous())[0])
        if REMEDY == "index":
            loss = functional.cross_entropy(logits.flatten(0, 1), x.flatten())
        else:
            loss = -(functional.one_hot(x, 4000) * functional.log_softmax(logits, -1)).sum(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program(after="exception-holds")
def smaller() -> None:
    """A batch that does not fit is tried again with half of it, in the handler."""
    net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(1024, 1024), nn.GELU())]).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def attempt(size: int, fails: bool) -> None:
        hidden = net(floats(size, 1024))
        if fails:
            floats(1 << 40)
        hidden.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def forward(size: int) -> None:
        failed = False
        try:
            attempt(size, fails=True)
        except torch.OutOfMemoryError:
            if REMEDY != "after":
                attempt(size // 2, fails=False)
            failed = True
        if failed and REMEDY == "after":
            attempt(size // 2, fails=False)

    for _ in range(3):
        forward(4096)


@program(each="backward-each")
def few_shots() -> None:
    """Losses of several tasks are added up before one backward pass; weights are functional."""
    params = weights(512, 1024, 1024, 64)
    optimizer = torch.optim.Adam(params)

    def forward(x: torch.Tensor) -> torch.Tensor:
        for w in params[:-1]:
            x = functional.leaky_relu(functional.linear(x, w))
        return functional.linear(x, params[-1])

    for _ in range(3):
        losses = []
        for _ in range(6):
            loss = functional.mse_loss(forward(floats(2048, 512)), floats(2048, 64))
            if REMEDY == "each":
                loss.backward()
            losses.append(loss.detach() if REMEDY == "each" else loss)
        if REMEDY != "each":
            torch.stack(losses).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@program(squeeze="broadcast")
def ratings() -> None:
    """Predicted ratings of [N, 1] less ratings of [N], in a closure with no module."""
    params = weights(96, 384, 1)
    optimizer = torch.optim.SGD(params, 0.1)

    def step(x: torch.Tensor, rating: torch.Tensor) -> None:
        predicted = torch.tanh(x @ params[0].T) @ params[1].T
        if REMEDY == "squeeze":
            predicted = predicted[:, 0]
        error = predicted - rating
        (error * error).mean().backward()

    for _ in range(3):
        with contextlib.suppress(StopIteration):
            step(floats(5000, 96), floats(5000))
            optimizer.step()
            optimizer.zero_grad()


@program(fused="foreach-optimizer")
def many_weights() -> None:
    """Weights take far more than activations, and the optimizer handles all of them at once."""
    params = [w for _ in range(12) for w in weights(2048, 2048)]
    optimizer = torch.optim.AdamW(params, fused=REMEDY == "fused" or None)
    for _ in range(3):
        x = floats(16, 2048)
        for w in params:
            x = torch.relu(x @ w)
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
