"""Programs on images: classification, detection, diffusion, generation, super-resolution."""

from __future__ import annotations

import torch
from pairs.kit import DEVICE, Layer, autocast, floats, halves, integers, program, run, train
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut = nn.Identity()
        if before != 4 * width or stride > 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def stages(before: int, widths: tuple[int, ...], count: int) -> nn.ModuleList:
    """Stages of bottlenecks, each at half the resolution of the one before."""
    found = nn.ModuleList()
    for width in widths:
        blocks = [Bottleneck(before, width, 2 if found else 1)]
        before = 4 * width
        found.append(nn.ModuleList([*blocks, *(Bottleneck(before, width) for _ in range(count - 1))]))
    return found


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        self.stages = stages(64, (64, 128, 256), 4)
        self.head = nn.Linear(1024, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for blocks in self.stages:
            for block in blocks:
                x = run(block, x)
        return self.head(x.mean((2, 3)))


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def resnet() -> None:
    net = ResNet().to(DEVICE)
    train(
        net,
        lambda: (floats(32, 3, 192, 192), integers(32)),
        lambda x, y: functional.cross_entropy(net(x), y),
        torch.optim.SGD,
        lr=0.1,
        momentum=0.9,
    )


class Inverted(nn.Module):
    """EfficientNet's block: expansion, depthwise convolution, squeeze and excitation, projection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 6 * width
        self.expand = nn.Sequential(nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU())
        self.depth = nn.Sequential(
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.SiLU()
        )
        self.squeeze = nn.Sequential(nn.Conv2d(inner, width // 4, 1), nn.SiLU(), nn.Conv2d(width // 4, inner, 1))
        self.project = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depth(self.expand(x))
        y = y * self.squeeze(y.mean((2, 3), keepdim=True)).sigmoid()
        return x + self.project(y)


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def efficientnet() -> None:
    stem, blocks = nn.Conv2d(3, 32, 3, 2, 1), nn.ModuleList([Inverted(32) for _ in range(8)])
    head = nn.Linear(32, 200)
    net = nn.ModuleList([stem, blocks, head]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = stem(x)
        for block in blocks:
            x = run(block, x)
        return functional.cross_entropy(head(x.mean((2, 3))), y, label_smoothing=0.1)

    train(net, lambda: (floats(16, 3, 128, 128), integers(16)), loss_of, torch.optim.RMSprop)


class Pyramid(nn.Module):
    """A detector: a backbone, a feature pyramid, and heads that share their weights over the levels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 4, 3)
        self.stages = stages(64, (32, 64, 128), 3)
        self.lateral = nn.ModuleList([nn.Conv2d(4 * width, 128, 1) for width in (32, 64, 128)])
        self.smooth = nn.ModuleList([nn.Conv2d(128, 128, 3, padding=1) for _ in range(3)])
        tower = [m for _ in range(4) for m in (nn.Conv2d(128, 128, 3, padding=1), nn.ReLU())]
        self.scores = nn.Sequential(*tower, nn.Conv2d(128, 9 * 80, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, levels = self.stem(x), []
        for blocks in self.stages:
            for block in blocks:
                x = block(x)
            levels.append(x)
        tops = [lateral(level) for lateral, level in zip(self.lateral, levels, strict=True)]
        for at in (1, 0):
            tops[at] = tops[at] + functional.interpolate(tops[at + 1], scale_factor=2.0)
        found = [self.scores(smooth(top)) for smooth, top in zip(self.smooth, tops, strict=True)]
        return torch.cat([level.flatten(2).transpose(1, 2).reshape(len(x), -1, 80) for level in found], 1)


@program(half="accumulation", autocast="mixed-precision")
def detector() -> None:
    net = Pyramid().to(DEVICE)

    def focal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = net(x).float()
        target = y[:, None, None].expand(-1, scores.shape[1], 1) * torch.ones_like(scores)
        p = scores.sigmoid()
        ce = functional.binary_cross_entropy_with_logits(scores, target, reduction="none")
        near = p * target + (1 - p) * (1 - target)
        return (ce * (1 - near) ** 2).sum()

    train(net, lambda: (floats(8, 3, 256, 256), floats(8)), focal, torch.optim.SGD, lr=0.01, momentum=0.9)


class Noisy(nn.Module):
    """A residual block of a diffusion model, which is given the time."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.one, self.two = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(256, after)
        self.skip = nn.Conv2d(before, after, 1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.one(functional.silu(self.first(x)))
        h = h + self.time(t)[:, :, None, None]
        return self.skip(x) + self.two(functional.silu(self.second(h)))


class Diffusion(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (64, 128, 256)) -> None:
        super().__init__()
        self.begin, self.end = nn.Conv2d(3, widths[0], 3, padding=1), nn.Conv2d(widths[0], 3, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        before = widths[0]
        for width in widths:
            self.down.append(nn.ModuleList([Noisy(before, width), Noisy(width, width)]))
            before = width
        self.middle = Layer(before, 4)
        for width in reversed(widths):
            self.up.append(nn.ModuleList([Noisy(before + width, width), Noisy(2 * width, width)]))
            before = width

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        x, skips = self.begin(x), []
        for level, blocks in enumerate(self.down):
            for block in blocks:
                x = run(block, x, t)
                skips.append(x)
            if level < 2:
                x = functional.avg_pool2d(x, 2)
        shape = x.shape
        x = self.middle(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(shape)
        for level, blocks in enumerate(self.up):
            for block in blocks:
                x = run(block, torch.cat([x, skips.pop()], 1), t)
            if level < 2:
                x = functional.interpolate(x, scale_factor=2.0)
        return self.end(x)


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def diffusion() -> None:
    net = Diffusion().to(DEVICE)

    def loss_of(x: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(net(0.7 * x + 0.7 * noise, t), noise)

    train(net, lambda: (floats(16, 3, 64, 64), floats(16, 3, 64, 64), floats(16, 256)), loss_of)


class Plain(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * self.body(x)


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def super_resolution() -> None:
    begin, blocks = nn.Conv2d(3, 64, 3, padding=1), nn.ModuleList([Plain(64) for _ in range(12)])
    end = nn.Sequential(nn.Conv2d(64, 48, 3, padding=1), nn.PixelShuffle(4))
    net = nn.ModuleList([begin, blocks, end]).to(DEVICE)

    def loss_of(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        x = begin(low)
        for block in blocks:
            x = run(block, x)
        return functional.l1_loss(end(x), high)

    train(net, lambda: (floats(16, 3, 64, 64), floats(16, 3, 256, 256)), loss_of, torch.optim.Adam)


@program(half="accumulation", autocast="mixed-precision", sdpa="fused-attention sdpa-math-kernel")
def masked_autoencoder() -> None:
    patch, encoder = nn.Linear(768, 512), nn.ModuleList([Layer(512, 8) for _ in range(6)])
    narrow, decoder = nn.Linear(512, 256), nn.ModuleList([Layer(256, 8) for _ in range(3)])
    end = nn.Linear(256, 768)
    token = nn.Parameter(floats(1, 1, 256))
    net = nn.ModuleList([patch, encoder, narrow, decoder, end]).to(DEVICE)

    def loss_of(x: torch.Tensor, shown: torch.Tensor) -> torch.Tensor:
        seen = patch(x.gather(1, shown[..., None].expand(-1, -1, x.shape[-1])))
        for layer in encoder:
            seen = layer(seen)
        seen = narrow(seen)
        whole = torch.cat([seen, token.expand(len(x), x.shape[1] - seen.shape[1], -1)], 1)
        for layer in decoder:
            whole = layer(whole)
        return ((end(whole) - x) ** 2).mean(-1).mean()

    train(net, lambda: (floats(24, 400, 768), integers(24, 100)), loss_of)


@program(half="accumulation", autocast="mixed-precision")
def wasserstein() -> None:
    """A critic with a gradient penalty: a backward pass through a backward pass."""

    def critic_of() -> nn.Sequential:
        layers: list[nn.Module] = []
        for before, after in ((3, 64), (64, 128), (128, 256)):
            layers += [nn.Conv2d(before, after, 4, 2, 1), nn.LeakyReLU(0.2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 64, 1))

    generator = nn.Sequential(
        nn.Linear(128, 256 * 64), nn.Unflatten(1, (256, 8, 8)), nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
    ).to(DEVICE)  # fmt: skip
    critic = critic_of().to(DEVICE)
    one, two = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(3):
        for real, z in halves(floats(128, 3, 64, 64), floats(128, 128)):
            with autocast():
                with torch.no_grad():
                    fake = generator(z)
                between = (0.5 * real + 0.5 * fake).requires_grad_()
                slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
                loss = critic(fake).mean() - critic(real).mean() + ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
            loss.backward()
        two.step()
        two.zero_grad()
        for (z,) in halves(floats(128, 128)):
            with autocast():
                loss = -critic(generator(z)).mean()
            loss.backward()
        one.step()
        one.zero_grad()
        two.zero_grad()
