"""Programs of science, meta-learning, recommendation and audio that no rule had seen when they were recorded: a kernel
of a Gaussian process written with broadcasting, two passes a step of which one keeps its graph, a graph of gradients,
a table that is most of a model, and attention over a spectrogram in mixed precision. At first nothing named the
kernel's differences, advice said that no backward pass uses the graph that retain_graph=True keeps, a graph of
gradients was called gradients, and foreach=False was offered where it takes more.
"""

from __future__ import annotations

import copy

import torch
from pairs.kit import DEVICE, REMEDY, floats, integers, program, run
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional


@program(cdist="distance-matrix")
def kernel() -> None:
    """Differences of all points, with a length scale for each dimension."""
    x, y = floats(2000, 12), floats(2000)
    scale, noise = (nn.Parameter(torch.zeros(size, device=DEVICE)) for size in (12, 1))
    optimizer = torch.optim.Adam([scale, noise], 0.05)

    def covariance() -> torch.Tensor:
        if REMEDY == "cdist":
            a = x / scale.exp()
            squares = a.square().sum(-1)
            distance = squares[:, None] + squares[None] - 2 * a @ a.T
        else:
            difference = (x[:, None] - x[None]) / scale.exp()
            distance = difference.square().sum(-1)
        return (-0.5 * distance).exp() + noise.exp() * torch.eye(len(x), device=DEVICE)

    for _ in range(4):
        optimizer.zero_grad()
        loss = y @ (covariance() @ y)
        loss.backward()
        optimizer.step()


@program(release="retained-graphs")
def sharpness() -> None:
    """Two passes a step: the first keeps its graph, which its loss holds until the next step has made another."""
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(6)]
    net = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    net.to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        x, y = floats(48, 3, 128, 128), integers(48)
        loss = functional.cross_entropy(net(x), y)
        loss.backward(retain_graph=REMEDY != "release")
        old = [weight.detach().clone() for weight in net.parameters()]
        with torch.no_grad():
            for weight in net.parameters():
                weight.add_(weight.grad, alpha=0.05)
        optimizer.zero_grad()
        functional.cross_entropy(net(x), y).backward()
        with torch.no_grad():
            for weight, before in zip(net.parameters(), old, strict=True):
                weight.copy_(before)
        optimizer.step()
        optimizer.zero_grad()


@program()
def adaptation() -> None:
    """Steps of an inner loop whose gradients are differentiated again."""
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.GELU()) for _ in range(6)]
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)
    )
    net.to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            x, y, weights = floats(24, 3, 64, 64), integers(24), dict(net.named_parameters())
            for _ in range(3):
                loss = functional.cross_entropy(functional_call(net, weights, (x,)), y)
                found = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), found, strict=True)}
            functional.cross_entropy(functional_call(net, weights, (x,)), y).backward()
        optimizer.step()


@program()
def curvature() -> None:
    """The largest eigenvalue of the Hessian: each product is a graph of the last, and all go with the function."""
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()) for _ in range(3)]
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)
    )
    net.to(DEVICE)
    weights, optimizer = list(net.parameters()), torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def largest(x: torch.Tensor, y: torch.Tensor) -> float:
        loss = functional.cross_entropy(net(x), y)
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        vector = [torch.ones_like(weight) for weight in weights]
        for _ in range(3):
            product = sum((g * v).sum() for g, v in zip(gradients, vector, strict=True))
            found = torch.autograd.grad(product, weights, create_graph=True)
            norm = sum(part.square().sum() for part in found).sqrt()
            vector = [part / norm for part in found]
        return norm.item()

    for _ in range(4):
        x, y = floats(32, 3, 32, 32), integers(32)
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        largest(x, y)


@program()
def shuffled() -> None:
    """A table on the device is put into a new order for each epoch; its batches are views."""
    x, y = floats(400_000, 100), floats(400_000)
    net = nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        order = torch.arange(len(x), device=DEVICE)
        x, y = x[order], y[order]
        for part in range(6):
            rows = slice(part * 8192, part * 8192 + 8192)
            loss = functional.mse_loss(net(x[rows]).squeeze(1), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@program(half="accumulation")
def private() -> None:
    """Gradients of each sample, which a variable holds until the next step has made its own, and which are clipped."""
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(DEVICE)
    optimizer, parts = torch.optim.Adam(net.parameters()), 2 if REMEDY == "half" else 1

    def loss_of(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional_call(net, weights, (x[None],)), y[None])

    for _ in range(4):
        weights = {name: weight.detach() for name, weight in net.named_parameters()}
        total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        x, y = floats(256, 256), integers(256)
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
            found = vmap(grad(loss_of), in_dims=(None, 0, 0))(weights, a, b)
            norm = torch.stack([one.flatten(1).norm(dim=1) for one in found.values()]).norm(dim=0)
            for name, one in found.items():
                total[name] += (one / norm.clamp(min=1).view(-1, *[1] * (one.dim() - 1))).sum(0)
        for name, weight in net.named_parameters():
            weight.grad = total[name] / len(x)
        optimizer.step()
        optimizer.zero_grad()


class Diagonal(torch.optim.Optimizer):
    """AdaHessian: its step differentiates the gradients along random vectors."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        super().__init__(weights, {})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        weights = [weight for group in self.param_groups for weight in group["params"]]
        gradients = [weight.grad for weight in weights]
        with torch.enable_grad():
            vectors = [torch.ones_like(weight) for weight in weights]
            products = torch.autograd.grad(gradients, weights, grad_outputs=vectors)
        for weight, gradient, vector, product in zip(weights, gradients, vectors, products, strict=True):
            state = self.state[weight]
            if not state:
                state["mean"], state["square"] = torch.zeros_like(weight), torch.zeros_like(weight)
            state["mean"].mul_(0.9).add_(gradient.detach(), alpha=0.1)
            state["square"].mul_(0.9).addcmul_(product * vector, product * vector, value=0.1)
            weight.addcdiv_(state["mean"], state["square"].sqrt().add_(1e-4), value=-0.1)


@program()
def diagonal() -> None:
    """The graph of the gradients stays until the optimizer's step has differentiated them."""
    layers = [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256), nn.Tanh()) for _ in range(6)]
    net = nn.Sequential(nn.Linear(100, 256), *layers, nn.Linear(256, 1)).to(DEVICE)
    optimizer = Diagonal(list(net.parameters()))
    for _ in range(4):
        loss = functional.mse_loss(net(floats(4096, 100)).squeeze(-1), floats(4096))
        optimizer.zero_grad()
        loss.backward(create_graph=True)
        optimizer.step()


@program(checkpoint="checkpointing", half="accumulation")
def solver() -> None:
    """A differential equation in 24 steps of a solver that calls the same network twice in each."""
    net = nn.Sequential(nn.Linear(33, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 32)).to(DEVICE)
    optimizer, parts = torch.optim.Adam(net.parameters()), 2 if REMEDY == "half" else 1

    def slope(time: float, y: torch.Tensor) -> torch.Tensor:
        return net(torch.cat([y, torch.full_like(y[:, :1], time)], 1))

    def step(time: float, y: torch.Tensor) -> torch.Tensor:
        return y + 0.1 * run(slope, time + 0.05, y + 0.05 * run(slope, time, y))

    for _ in range(4):
        optimizer.zero_grad()
        for y, target in zip(floats(4096, 32).chunk(parts), floats(4096, 32).chunk(parts), strict=True):
            for time in range(24):
                y = step(time / 24, y)
            functional.mse_loss(y, target).backward()
        optimizer.step()


@program(fused="foreach-optimizer")
def shop() -> None:
    """A table of customers is most of a recommender, of which a moving average is kept."""
    table, score = nn.Embedding(400_000, 64), nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
    net = nn.ModuleList([table, score]).to(DEVICE)
    average = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), fused=REMEDY == "fused" or None)
    for _ in range(4):
        loss = functional.binary_cross_entropy_with_logits(score(table(integers(8192))).squeeze(-1), floats(8192))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, now in zip(average.parameters(), net.parameters(), strict=True):
                mean.mul_(0.99).add_(now, alpha=0.01)


class Listening(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm, self.qkv, self.out = (
            heads,
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if REMEDY == "sdpa":
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
            mixed = torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


@program(sdpa="fused-attention")
def listener() -> None:
    """Autocast casts scores to 32 bits for their softmax, and that to 16 bits for the product with the values."""
    begin, layers, end = nn.Linear(80, 256), nn.ModuleList([Listening(256, 4) for _ in range(4)]), nn.Linear(256, 500)
    net, window, mel = nn.ModuleList([begin, layers, end]).to(DEVICE), floats(400), floats(201, 80)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    for _ in range(3):
        sound, target = floats(2, 240_000), floats(2, 500)
        spectrum = torch.stft(sound, 400, 160, window=window, return_complex=True).abs().square()
        with torch.autocast(DEVICE, torch.bfloat16):
            x = begin((spectrum.transpose(1, 2) @ mel + 1e-6).log())
            for layer in layers:
                x = run(layer, x)
            loss = functional.binary_cross_entropy_with_logits(end(x.mean(1)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
