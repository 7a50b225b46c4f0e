"""Programs of kinds that no other file has: views of a scene, play, attention in a graph."""

from __future__ import annotations

import torch
from pairs.kit import DEVICE, REMEDY, floats, integers, maybe_no_grad, program, run
from torch import nn
from torch.nn import functional


class Field(nn.Module):
    """Density and colour at each of many places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(27, width), *(nn.Linear(width, width) for _ in range(4))])
        self.head = nn.Linear(width, 4)

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        h = encoded(places)
        for layer in self.layers:
            h = functional.relu(layer(h))
        return self.head(h)


def encoded(places: torch.Tensor) -> torch.Tensor:
    waves = [wave(2.0**power * places) for power in range(4) for wave in (torch.sin, torch.cos)]
    return torch.cat([places, *waves], -1)


def composed(raw: torch.Tensor, depth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The colours of rays, and the weight of each of their samples."""
    gaps = torch.cat([depth[:, 1:] - depth[:, :-1], torch.full_like(depth[:, :1], 1e9)], 1)
    alpha = 1 - torch.exp(-functional.relu(raw[..., 3]) * gaps)
    light = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-9], 1), 1)[:, :-1]
    weights = alpha * light
    return (weights[..., None] * raw[..., :3].sigmoid()).sum(1), weights


def rendered(coarse: nn.Module, fine: nn.Module, rays: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Colours by evenly spaced samples, and by as many more where the first found something."""
    depth = torch.linspace(2, 6, 32, device=DEVICE).expand(len(rays), 32)
    rough, weights = composed(coarse(rays[:, None, :3] + rays[:, None, 3:] * depth[..., None]), depth)
    share = torch.cumsum((weights[:, :-1] + 1e-5) / (weights[:, :-1] + 1e-5).sum(1, keepdim=True), 1)
    found = torch.searchsorted(share.detach(), torch.rand(len(rays), 32, device=DEVICE)).clamp(max=31)
    depth, _ = torch.sort(torch.cat([depth, depth.gather(1, found)], 1), 1)
    return rough, composed(fine(rays[:, None, :3] + rays[:, None, 3:] * depth[..., None]), depth)[0]


@program(no_grad="no-grad")
def views() -> None:
    """A view of a scene is rendered every few steps, in parts, of which the last view's graph stays until the next."""
    coarse, fine = Field(96).to(DEVICE), Field(96).to(DEVICE)
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], 5e-4)
    for step in range(8):
        target, (rough, sharp) = floats(256, 3), rendered(coarse, fine, floats(256, 6))
        loss = functional.mse_loss(rough, target) + functional.mse_loss(sharp, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            with maybe_no_grad():
                image = torch.cat([rendered(coarse, fine, part)[1] for part in floats(2_048, 6).split(256)])
                error = functional.mse_loss(image, floats(2_048, 3))
                print(error.item())


class Memory:
    """What was seen and done, on the device, from which batches are drawn."""

    def __init__(self, count: int) -> None:
        self.where = "cpu" if REMEDY == "host" else DEVICE
        self.seen, self.next = (torch.zeros(count, 4, 36, 36, device=self.where) for _ in range(2))
        self.action = torch.zeros(count, dtype=torch.long, device=self.where)
        self.filled = 0

    def add(self, seen: torch.Tensor, action: int, following: torch.Tensor) -> None:
        self.seen[self.filled], self.action[self.filled], self.next[self.filled] = seen, action, following
        self.filled += 1

    def sample(self, count: int) -> list[torch.Tensor]:
        chosen = torch.randint(0, self.filled, (count,)).to(self.where)
        return [part[chosen].to(DEVICE) for part in (self.seen, self.action, self.next)]


@program(host="data-on-device")
def play() -> None:
    """Q-learning: an action for what is seen, whose memory is kept on the device; then a batch of what was seen."""

    def network() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(288, 6)
        ).to(DEVICE)

    online, target, memory = network(), network(), Memory(2_000)
    optimizer, seen = torch.optim.Adam(online.parameters(), 1e-4), floats(4, 36, 36)
    for step in range(48):
        with torch.no_grad():
            action = int(online(seen[None]).argmax(1))
        following = floats(4, 36, 36)
        memory.add(seen, action, following)
        seen = following
        if step > 15 and step % 4 == 0:
            before, actions, after = memory.sample(32)
            with torch.no_grad():
                value = 0.99 * target(after).amax(1)
            loss = functional.smooth_l1_loss(online(before).gather(1, actions[:, None]).squeeze(1), value)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


class GraphAttention(nn.Module):
    """Attention of each node to those with an edge to it, whose sources and targets are rows of one tensor."""

    def __init__(self, width: int, out: int, heads: int) -> None:
        super().__init__()
        self.heads, self.linear = heads, nn.Linear(width, heads * out, bias=False)
        self.of_source, self.of_target = (nn.Parameter(torch.ones(heads, out)) for _ in range(2))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        z = self.linear(x).unflatten(-1, (self.heads, -1))
        score = (z * self.of_source).sum(-1)[source] + (z * self.of_target).sum(-1)[target]
        raised = functional.leaky_relu(score, 0.2).exp()
        whole = torch.zeros(len(x), self.heads, device=x.device).index_add(0, target, raised)
        share = raised / (whole[target] + 1e-9)
        return torch.zeros_like(z).index_add(0, target, z[source] * share[..., None]).flatten(1)


@program(checkpoint="checkpointing", autocast="mixed-precision")
def attended() -> None:
    """All nodes of one graph in each step, with their edges in one tensor: there is no batch to halve."""
    x, labels, edges = floats(10_000, 128), integers(10_000), integers(2, 60_000)
    layers = nn.ModuleList([GraphAttention(128 if not n else 64, 16, 4) for n in range(4)]).to(DEVICE)
    head = nn.Linear(64, 40).to(DEVICE)
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], 5e-3)
    for _ in range(3):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=REMEDY == "autocast"):
            h = x
            for layer in layers:
                h = functional.elu(run(layer, h, edges))
            loss = functional.cross_entropy(head(h), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
