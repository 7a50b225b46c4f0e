"""Programs that no rule had seen when they were recorded: alignment of a language model with four models, volumes that
are all on the device, optical flow by iteration, attention between the nodes of a graph, and samples of a diffusion
model while it is trained. At first 11 of their 17 promises were within 15% and two said attention or several passes
where there are none. The rule for experts to which one-hot masks send their tokens was made with another program.
"""

from __future__ import annotations

import copy

import torch
from pairs.kit import DEVICE, REMEDY, Layer, autocast, floats, integers, maybe_no_grad, program, run, train
from torch import nn
from torch.nn import functional


class Decoder(nn.Module):
    def __init__(self, width: int, layers: int, out: int) -> None:
        super().__init__()
        self.words = nn.Embedding(8_000, width)
        self.layers = nn.ModuleList([Layer(width, 8, fused=True) for _ in range(layers)])
        self.head = nn.Linear(width, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.words(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


@program(bf16="frozen-base")
def alignment() -> None:
    """PPO: a policy and its critic are trained beside a reference and a reward model, which are only read."""
    policy, critic = Decoder(512, 6, 8_000).to(DEVICE), Decoder(256, 2, 1).to(DEVICE)
    reference, reward = copy.deepcopy(policy), Decoder(1024, 12, 1).to(DEVICE)
    for frozen in (reference, reward):
        frozen.requires_grad_(False).eval()
        if REMEDY == "bf16":
            frozen.to(torch.bfloat16)
    optimizer = torch.optim.AdamW([*policy.parameters(), *critic.parameters()], 1e-5)

    def chances(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        return model(tokens).float().log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)

    for _ in range(3):
        tokens = integers(8, 192)
        with torch.no_grad():
            old, ref = chances(policy, tokens), chances(reference, tokens)
            gain = reward(tokens)[:, -1].float() - 0.1 * (old - ref)
        for part in range(4):
            some = slice(2 * part, 2 * part + 2)
            ratio = (chances(policy, tokens[some]) - old[some]).exp()
            value = critic(tokens[some]).squeeze(-1)
            better = gain[some] - value.detach()
            loss = -torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
            loss = loss + functional.mse_loss(value, gain[some])
            (loss / 4).backward()
        optimizer.step()
        optimizer.zero_grad()


def double(before: int, after: int) -> nn.Sequential:
    parts = [nn.Conv3d(before, after, 3, padding=1), nn.InstanceNorm3d(after), nn.LeakyReLU(0.01, inplace=True)]
    return nn.Sequential(*parts, nn.Conv3d(after, after, 3, padding=1), nn.InstanceNorm3d(after), nn.LeakyReLU(0.01))


@program(host="data-on-device")
def tumours() -> None:
    """Patches of volumes that are moved to the device before the first step, with their labels."""
    down, deep, up = double(4, 16), double(16, 32), double(48, 16)
    last = nn.Conv3d(16, 4, 1)
    net = nn.ModuleList([down, deep, up, last]).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.99, nesterov=True)
    place = "cpu" if REMEDY == "host" else DEVICE
    volumes = torch.stack([torch.empty(4, 96, 96, 96) for _ in range(24)]).to(place)
    labels = torch.stack([torch.zeros(96, 96, 96, dtype=torch.long) for _ in range(24)]).to(place)
    for step in range(4):
        at = torch.arange(step * 2, step * 2 + 2, device=place)
        x = volumes[at][..., :48, :48, :48].contiguous().to(DEVICE)
        y = labels[at][..., :48, :48, :48].contiguous().to(DEVICE)
        fine = down(x)
        coarse = functional.interpolate(deep(functional.max_pool3d(fine, 2)), scale_factor=2)
        loss = functional.cross_entropy(last(up(torch.cat([fine, coarse], 1))), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Update(nn.Module):
    """One iteration: what all pairs have in common around the flow of now, and a convolutional GRU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(81 + 2, width, 3, padding=1)
        self.gates, self.new = nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.Conv2d(2 * width, width, 3, padding=1)
        self.flow = nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, pairs: torch.Tensor, h: torch.Tensor, flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, _, rows, columns = h.shape
        near = torch.zeros(batch * rows * columns, 9, 9, 2, device=DEVICE) + flow.permute(0, 2, 3, 1).reshape(
            -1, 1, 1, 2
        )
        seen = functional.grid_sample(pairs, near, align_corners=True)
        seen = seen.view(batch, rows, columns, -1).permute(0, 3, 1, 2)
        x = functional.relu(self.enter(torch.cat([seen, flow], 1)))
        update, reset = self.gates(torch.cat([h, x], 1)).sigmoid().chunk(2, 1)
        h = (1 - update) * h + update * self.new(torch.cat([reset * h, x], 1)).tanh()
        return h, flow + self.flow(h)


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def flow() -> None:
    """Optical flow: all pairs of pixels of two pictures, read again in each of twelve iterations."""
    width = 96
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3),
        nn.ReLU(),
        nn.Conv2d(64, 96, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(96, width, 3, 2, 1),
    ]
    encoder, step = nn.Sequential(*layers), Update(width)
    net = nn.ModuleList([encoder, step]).to(DEVICE)

    def loss_of(one: torch.Tensor, two: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        a, b = encoder(one), encoder(two)
        pairs = torch.einsum("bchw,bcij->bhwij", a, b) / width**0.5
        pairs = pairs.reshape(-1, 1, *pairs.shape[3:])
        h, moved, loss = a.tanh(), torch.zeros(len(a), 2, *a.shape[2:], device=DEVICE), torch.zeros((), device=DEVICE)
        for iteration in range(12):
            h, moved = run(step, pairs, h, moved.detach())
            large = functional.interpolate(moved, scale_factor=8, mode="bilinear")
            loss = loss + 0.8 ** (11 - iteration) * (large - truth).abs().mean()
        return loss

    train(net, lambda: (floats(6, 3, 256, 320), floats(6, 3, 256, 320), floats(6, 2, 256, 320)), loss_of)


class Between(nn.Module):
    """Attention between all nodes of a graph, to which their edges add a bias and which changes them in turn."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.edge_norm = nn.LayerNorm(width), nn.LayerNorm(heads * 4)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias, self.back = nn.Linear(heads * 4, heads), nn.Linear(heads, heads * 4)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        bias = self.bias(self.edge_norm(edges))
        scores = torch.einsum("bnhd,bmhd->bnmh", q, k) / q.shape[-1] ** 0.5 + bias
        edges = edges + self.back(scores)
        mixed = torch.einsum("bnmh,bmhd->bnhd", scores.softmax(2), v).flatten(2)
        x = x + self.out(mixed)
        return x + self.mlp(x), edges


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def graphs() -> None:
    """A transformer over molecules: what it needs is of all pairs of atoms."""
    nodes, edge, layers = nn.Linear(40, 256), nn.Linear(12, 32), nn.ModuleList([Between(256, 8) for _ in range(8)])
    head = nn.Linear(256, 1)
    net = nn.ModuleList([nodes, edge, layers, head]).to(DEVICE)

    def loss_of(x: torch.Tensor, e: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h, g = nodes(x), edge(e)
        for layer in layers:
            h, g = run(layer, h, g)
        return functional.l1_loss(head(h.mean(1)).squeeze(-1), y)

    train(net, lambda: (floats(32, 48, 40), floats(32, 48, 48, 12), floats(32)), loss_of)


class Noise(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.begin, self.end = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.begin(x)
        for block in self.blocks:
            h = h + block(h)
        return self.end(h)


@program(no_grad="no-grad")
def samples() -> None:
    """A diffusion model whose average draws pictures with guidance after each epoch; they are shown at the end."""
    model, optimizer = Noise(64).to(DEVICE), None
    average = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4, fused=True)
    shown = []
    for _ in range(3):
        for _ in range(3):
            x, noise = floats(8, 4, 64, 64), floats(8, 4, 64, 64)
            with autocast():
                loss = functional.mse_loss(model(x + noise), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.data.mul_(0.999).add_(fast.data, alpha=0.001)
        with maybe_no_grad():
            x = floats(2, 4, 64, 64)
            for _ in range(10):
                both = average(torch.cat([x, x]))
                given, free = both.chunk(2)
                x = x - 0.05 * (free + 3 * (given - free))
            shown.append(x.clamp(-1, 1).cpu())


class Dispatched(nn.Module):
    """Experts as of GShard: masks of tokens by experts by places, as many places as tokens give."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(width, experts, bias=False), experts
        self.enter = nn.Parameter(torch.zeros(experts, width, 2 * width))
        self.leave = nn.Parameter(torch.zeros(experts, 2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = 5 * len(x) // (4 * self.experts)
        gate, chosen = self.router(x).softmax(-1).max(-1)
        expert = functional.one_hot(chosen, self.experts).float()
        place = ((expert.cumsum(0) - 1) * expert).sum(-1).long().clamp(0, places - 1)
        place = functional.one_hot(place, places).float()
        send = torch.einsum("te,tp->tep", expert, place)
        h = torch.einsum("tep,td->epd", send, x)
        h = torch.bmm(torch.bmm(h, self.enter).relu(), self.leave)
        return x + torch.einsum("tep,epd->td", send * gate[:, None, None], h)


@program(half="accumulation")
def dispatched() -> None:
    begin, layers = nn.Linear(96, 384), nn.ModuleList([Dispatched(384, 6) for _ in range(4)])
    end = nn.Linear(384, 20)
    net = nn.ModuleList([begin, layers, end]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = begin(x)
        for layer in layers:
            h = layer(h)
        return functional.cross_entropy(end(h), y)

    train(net, lambda: (floats(3000, 96), integers(3000)), loss_of)


@program(before="cast-on-device")
def served() -> None:
    """A model that is moved and then cast, and answers a few requests."""
    model = Decoder(768, 8, 8_000).eval()
    if REMEDY == "before":
        model.to(DEVICE, torch.bfloat16)
    else:
        model.to(DEVICE).to(torch.bfloat16)
    with torch.no_grad():
        for _ in range(4):
            model(integers(2, 64)).argmax(-1).cpu()
