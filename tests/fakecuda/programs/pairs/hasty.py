"""Programs of kinds that no rule had seen when they were recorded: a simulation without any module, hooks that keep
what passes, federated averaging, trials in a loop, smoothed labels written out, samples of a diffusion, and two
networks that are trained against each other, weights that no optimizer has, and a focal loss.
"""

from __future__ import annotations

import copy

import torch
from pairs.kit import DEVICE, REMEDY, Layer, floats, halves, integers, maybe_no_grad, program
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@program(checkpoint="checkpointing")
def fluid() -> None:
    """A force is learned through a simulation of Runge and Kutta, 24 steps in a while loop; there is no batch."""
    force = torch.zeros(2, 384, 384, device=DEVICE, requires_grad=True)
    target = floats(2, 384, 384)
    optimizer = torch.optim.Adam([force], 0.1)

    def change(u: torch.Tensor) -> torch.Tensor:
        dx = (u.roll(1, -1) - u.roll(-1, -1)) / 2
        dy = (u.roll(1, -2) - u.roll(-1, -2)) / 2
        return force - u[0] * dx - u[1] * dy + 0.01 * (u.roll(1, -1) + u.roll(-1, -1) - 2 * u)

    def advance(u: torch.Tensor, dt: float) -> torch.Tensor:
        a = change(u)
        b = change(u + dt / 2 * a)
        c = change(u + dt / 2 * b)
        d = change(u + dt * c)
        return u + dt / 6 * (a + 2 * b + 2 * c + d)

    for _ in range(3):
        u, t = torch.zeros_like(target), 0
        while t < 24:
            u = checkpoint(advance, u, 0.01, use_reentrant=False) if REMEDY == "checkpoint" else advance(u, 0.01)
            t += 1
        optimizer.zero_grad()
        ((u - target) ** 2).mean().backward()
        optimizer.step()


@program(cpu="leak collected-outputs")
def saliency() -> None:
    """Hooks put what each layer gives into lists, over all batches, for statistics afterwards."""
    net = nn.Sequential(*[m for w in (3, 48, 48, 48) for m in (nn.Conv2d(w, 48, 3, padding=1), nn.SiLU())]).to(DEVICE)
    seen: dict[str, list[torch.Tensor]] = {}

    def keeper(name: str) -> object:
        def keep(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
            seen.setdefault(name, []).append(output.detach().cpu() if REMEDY == "cpu" else output)

        return keep

    for name, module in net.named_children():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(keeper(name))
    net.eval()
    for _ in range(10):
        net(floats(4, 3, 128, 128))
    for kept in seen.values():
        torch.stack([one.mean((0, 2, 3)) for one in kept]).std(0)


@program(cpu="collected-weights")
def clients() -> None:
    """Federated averaging: the weights of each client are kept on the device until all have trained."""
    shared = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 100))
    shared.to(DEVICE)
    for _ in range(2):
        updates = []
        for _ in range(8):
            local = copy.deepcopy(shared)
            optimizer = torch.optim.SGD(local.parameters(), 0.1)
            for _ in range(3):
                functional.cross_entropy(local(floats(256, 1024)), integers(256)).backward()
                optimizer.step()
                optimizer.zero_grad()
            state = local.state_dict()
            updates.append({name: one.cpu() for name, one in state.items()} if REMEDY == "cpu" else state)
        with torch.no_grad():
            for name, weight in shared.state_dict().items():
                weight.copy_(sum(update[name].to(DEVICE) for update in updates) / len(updates))


@program(cpu="leak")
def trials() -> None:
    """Learning rates are tried one after the other; each trial's model and its optimizer stay in a list for later."""
    tried: list[tuple[float, object]] = []
    for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5):
        model = nn.Sequential(*[Layer(512, 8, fused=True) for _ in range(4)]).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), rate)
        for _ in range(4):
            loss = model(floats(4, 128, 512)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        tried.append((loss.item(), model.cpu().state_dict() if REMEDY == "cpu" else (model, optimizer)))
    print(min(tried, key=lambda one: one[0])[0])


@program(index="one-hot", half="accumulation")
def smoothed() -> None:
    """Labels are smoothed into a tensor as large as the logits, beside which the divergence is computed."""
    body = nn.Sequential(nn.Embedding(12_000, 256), *[Layer(256, 4, fused=True) for _ in range(2)]).to(DEVICE)
    head = nn.Linear(256, 12_000, bias=False).to(DEVICE)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()])
    for _ in range(3):
        for (words,) in halves(integers(16, 128)):
            logits = head(body(words)).flatten(0, 1)
            labels = words.flatten()
            if REMEDY == "index":
                loss = functional.cross_entropy(logits, labels, label_smoothing=0.1)
            else:
                smooth = torch.full_like(logits, 0.1 / 11_999).scatter_(1, labels[:, None], 0.9)
                loss = functional.kl_div(logits.log_softmax(-1), smooth, reduction="batchmean")
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Residual(nn.Module):
    """A convolution, and what it makes of a time: as many numbers as an image of 32 by 32 has, for a batch of 16."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.norm, self.convolution = nn.GroupNorm(8, before), nn.Conv2d(before, width, 3, padding=1)
        self.time, self.shortcut = nn.Linear(64, width), nn.Conv2d(before, width, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.convolution(functional.silu(self.norm(x))) + self.time(time)[:, :, None, None]
        return self.shortcut(x) + functional.silu(hidden)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.begin, self.end = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 3, 3, padding=1)
        self.layers = nn.ModuleList([Residual(64, 64) for _ in range(3)])

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        x = self.begin(x)
        for layer in self.layers:
            x = layer(x, time)
        return self.end(x)


SCRIPT: dict[str, torch.Tensor] = {}
"""Variables of a script, which live until it ends."""


@program(no_grad="no-grad")
def guided() -> None:
    """Samples, with a condition and without, of the model that is trained: they stay until the next are drawn."""
    model, words = Denoiser().to(DEVICE), nn.Sequential(Layer(64, 4), nn.LayerNorm(64), nn.Linear(64, 64)).to(DEVICE)
    optimizer = torch.optim.SGD([*model.parameters(), *words.parameters()])
    for step in range(4):
        clean, noise, time = floats(24, 3, 32, 32), floats(24, 3, 32, 32), words(floats(24, 20, 64)).mean(1)
        loss = functional.mse_loss(model(clean + noise, time), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2:
            with maybe_no_grad():
                SCRIPT["samples"] = sampled(model)


def sampled(model: nn.Module) -> torch.Tensor:
    x = floats(16, 3, 32, 32)
    for _ in range(4):
        given, free = (model(x, floats(16, 64)) for _ in range(2))
        x = x - 0.1 * (free + 3 * (given - free))
    return x.clamp(-1, 1)


@program(half="evaluation-batch")
def drawn() -> None:
    """The same in a batch of twice as many images, larger than those of a training step."""
    model = Denoiser().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters())
    for step in range(4):
        clean, noise, time = floats(2, 3, 32, 32), floats(2, 3, 32, 32), floats(2, 64)
        loss = functional.mse_loss(model(clean + noise, time), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2:
            with torch.no_grad():
                for (samples,) in halves(floats(32, 3, 64, 64)):
                    times = floats(2 * len(samples), 64)
                    for _ in range(3):
                        both = model(torch.cat([samples, samples]), times).chunk(2)
                        samples = samples - 0.1 * (both[1] + 3 * (both[0] - both[1]))


def convolutions(before: int, widths: tuple[int, ...]) -> list[nn.Module]:
    sizes = zip((before, *widths), widths, strict=False)
    return [nn.Sequential(nn.Conv2d(size, width, 3, padding=1), nn.ReLU()) for size, width in sizes]


@program(detach="retained-graphs", half="accumulation")
def adversarial() -> None:
    """A generator and a discriminator, whose loss needs no gradient of the generator, but keeps its graph."""
    widths = (64, 64, 64)
    generator = nn.Sequential(*convolutions(16, widths), nn.Conv2d(64, 3, 1)).to(DEVICE)
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1))
    judge = nn.Sequential(*convolutions(3, widths), pooled).to(DEVICE)
    both = [torch.optim.Adam(net.parameters()) for net in (judge, generator)]
    count = 16 if REMEDY == "half" else 32
    for _ in range(4):
        images, made = floats(count, 3, 64, 64), generator(floats(count, 16, 64, 64))
        seen = made.detach() if REMEDY == "detach" else made
        loss = functional.softplus(-judge(images)).mean() + functional.softplus(judge(seen)).mean()
        loss.backward(retain_graph=REMEDY != "detach")
        both[0].step()
        both[0].zero_grad()
        loss = functional.softplus(-judge(made)).mean()
        loss.backward()
        both[1].step()
        both[1].zero_grad()


@program()
def inspected() -> None:
    """Hooks keep what each layer makes until the next step replaces it: recomputing layers would not free that."""
    layers = [nn.Sequential(nn.Conv2d(n, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()) for n in (3, *[64] * 5)]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(DEVICE)
    seen: dict[str, torch.Tensor] = {}

    def keeper(name: str) -> object:
        def keep(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
            seen[name] = output.mean((2, 3)).cpu() if REMEDY == "cpu" else output

        return keep

    for name, module in net.named_modules():
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
            module.register_forward_hook(keeper(name))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        functional.cross_entropy(net(floats(8, 3, 96, 96)), integers(8)).backward()
        optimizer.step()
        optimizer.zero_grad()


@program()
def pretrained() -> None:
    """The optimizer has the head alone, and the encoder still requires gradients: small ones, of a large graph."""
    encoder = nn.Sequential(*convolutions(3, (64,) * 12), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(DEVICE)
    encoder.requires_grad_(REMEDY != "freeze")
    head = nn.Linear(64, 400).to(DEVICE)
    optimizer = torch.optim.Adam(head.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        functional.cross_entropy(head(encoder(floats(16, 3, 96, 96))), integers(16)).backward()
        optimizer.step()


@program()
def painted() -> None:
    """An image is what is trained, and there is no other to accumulate over. A penalty has its gradient first."""
    layers = nn.Sequential(*convolutions(3, (64, 64, 128, 128, 256, 256))).to(DEVICE)
    layers.requires_grad_(REMEDY != "freeze")
    image, wanted = floats(1, 3, 256, 256).requires_grad_(True), layers(floats(1, 3, 256, 256)).detach()
    optimizer = torch.optim.Adam([image])
    for _ in range(4):
        optimizer.zero_grad()
        rough = (image[..., 1:] - image[..., :-1]).abs().mean()
        (functional.mse_loss(layers(image), wanted) + rough).backward()
        optimizer.step()


@program()
def focal() -> None:
    """A sigmoid for each class of each place of an image, and what a focal loss computes from it."""
    net = nn.Sequential(*convolutions(3, (64,)), nn.Conv2d(64, 80, 3, padding=1)).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = logits.sigmoid()
        loss = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return (loss * (1 - p * target - (1 - p) * (1 - target)) ** 2).sum()

    for _ in range(4):
        logits = net(floats(4, 3, 160, 160)).flatten(2).transpose(1, 2)
        target = torch.zeros_like(logits)
        if REMEDY == "chunks":
            parts = zip(logits.chunk(8, 1), target.chunk(8, 1), strict=True)
            loss = sum(checkpoint(loss_of, *part, use_reentrant=False) for part in parts)
        else:
            loss = loss_of(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
