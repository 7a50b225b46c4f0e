"""Programs on tables, graphs and games, and loops with one mistake."""

from __future__ import annotations

import itertools

import torch
from pairs.kit import DEVICE, REMEDY, Layer, autocast, floats, halves, integers, maybe_no_grad, program, run, train
from torch import nn
from torch.nn import functional


def tower(*widths: int, last: type[nn.Module] | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([last()] if last else []))


@program(half="accumulation")
def recommendation() -> None:
    """Embeddings of many categories, their products pair by pair, and two towers, as in DLRM."""
    tables = nn.ModuleList([nn.Embedding(40000, 64) for _ in range(12)])
    bottom, top = tower(13, 512, 256, 64), tower(78 + 64, 1024, 512, 256, 1)
    net = nn.ModuleList([tables, bottom, top]).to(DEVICE)
    pairs = torch.tril_indices(13, 13, -1, device=DEVICE)

    def loss_of(dense: torch.Tensor, sparse: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = bottom(dense)
        every = torch.stack([x, *(table(sparse[:, at]) for at, table in enumerate(tables))], 1)
        products = torch.bmm(every, every.transpose(1, 2))[:, pairs[0], pairs[1]]
        return functional.binary_cross_entropy_with_logits(top(torch.cat([x, products], 1))[:, 0], y)

    train(net, lambda: (floats(16384, 13), integers(16384, 12), floats(16384)), loss_of, torch.optim.Adam)


@program(half="accumulation", autocast="mixed-precision")
def tabular() -> None:
    layers: list[nn.Module] = []
    for before in (200, *[1024] * 7):
        layers += [nn.Linear(before, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Dropout(0.2)]
    net = nn.Sequential(*layers, nn.Linear(1024, 1)).to(DEVICE)
    train(net, lambda: (floats(8192, 200), floats(8192, 1)), lambda x, y: functional.mse_loss(net(x), y))


@program(half="accumulation", autocast="mixed-precision")
def molecules() -> None:
    """Minibatches of small graphs: messages along edges, added up at their targets."""

    class Message(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.edge = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
            self.node = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

        def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
            flat = x.flatten(0, 1)
            source, target = ends.flatten(0, 1).unbind(-1)
            m = self.edge(torch.cat([flat[source], flat[target]], -1))
            total = torch.zeros_like(flat).index_add_(0, target, m.to(flat.dtype))
            return x + self.node(torch.cat([flat, total], -1)).view_as(x)

    begin, end = nn.Linear(32, 192), nn.Linear(192, 1)
    layers = nn.ModuleList([Message(192) for _ in range(4)])
    net = nn.ModuleList([begin, end, layers]).to(DEVICE)

    def loss_of(x: torch.Tensor, ends: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = begin(x)
        for layer in layers:
            h = layer(h, ends)
        return functional.mse_loss(end(h).sum((1, 2)), y)

    train(net, lambda: (floats(64, 128, 32), integers(64, 1024, 2), floats(64)), loss_of, torch.optim.Adam)


@program(no_grad="no-grad retained-graphs", half="accumulation")
def actor_critic() -> None:
    """Rollouts whose values and probabilities are collected for a later update that computes them again."""
    body, actor, critic = tower(256, 1024, 1024, 1024, last=nn.Tanh), nn.Linear(1024, 18), nn.Linear(1024, 1)
    net = nn.ModuleList([body, actor, critic]).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(4):
        states, actions, values = [], [], []
        for _ in range(12):
            state = floats(1024, 256)
            with maybe_no_grad():
                h = body(state)
                values.append(critic(h))
                actions.append(actor(h).argmax(-1))
            states.append(state)
        x, a, v = torch.cat(states), torch.cat(actions), torch.cat(values).detach()
        for x_, a_, v_ in halves(x, a, v):
            h = body(x_)
            policy = actor(h).log_softmax(-1).gather(1, a_[:, None])
            loss = (critic(h) - v_).square().mean() - (policy * v_).mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program(no_grad="no-grad")
def averaged_teacher() -> None:
    """Self-distillation: a moving average of the student gives targets, and builds a graph for nothing."""

    def net_of() -> nn.Sequential:
        layers = [nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.GELU()) for _ in range(8)]
        ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1024)]
        return nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), *layers, *ends)

    student, teacher = net_of().to(DEVICE), net_of().to(DEVICE)
    optimizer = torch.optim.SGD(student.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        one, two = floats(32, 3, 128, 128), floats(32, 3, 128, 128)
        with maybe_no_grad():
            target = teacher(one).softmax(-1)
        loss = -(target.detach() * student(two).log_softmax(-1)).sum(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mean, now in zip(teacher.parameters(), student.parameters(), strict=True):
                mean.mul_(0.99).add_(now, alpha=0.01)


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def tasks() -> None:
    """One trunk and several heads, each with its own loss on maps as large as the image."""

    class Dilated(nn.Module):
        def __init__(self, width: int, rate: int) -> None:
            super().__init__()
            self.norm = nn.InstanceNorm2d(width, affine=True)
            self.one = nn.Conv2d(width, width, 3, padding=rate, dilation=rate)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.one(functional.leaky_relu(self.norm(x)))

    begin, trunk = nn.Conv2d(3, 48, 3, padding=1), nn.ModuleList([Dilated(48, 1 + i % 4) for i in range(10)])
    heads = nn.ModuleDict({"depth": nn.Conv2d(48, 1, 1), "normal": nn.Conv2d(48, 3, 1), "class": nn.Conv2d(48, 20, 1)})
    net = nn.ModuleList([begin, trunk, heads]).to(DEVICE)

    def loss_of(x: torch.Tensor, depth: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        h = begin(x)
        for block in trunk:
            h = run(block, h)
        near = functional.smooth_l1_loss(heads["depth"](h), depth)
        upright = 1 - functional.cosine_similarity(heads["normal"](h), x, 1).mean()
        return near + upright + functional.cross_entropy(heads["class"](h), labels)

    train(net, lambda: (floats(6, 3, 192, 192), floats(6, 1, 192, 192), integers(6, 192, 192)), loss_of)


@program(half="accumulation", autocast="mixed-precision")
def triplets() -> None:
    net = nn.Sequential(*[m for i in range(5) for m in (
        nn.Conv1d(64 if i else 12, 64, 9, padding=4), nn.GroupNorm(4, 64), nn.ELU(), nn.AvgPool1d(2),
    )], nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 128)).to(DEVICE)  # fmt: skip
    margin = nn.TripletMarginLoss()

    def loss_of(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return margin(net(a), net(b), net(c))

    train(net, lambda: tuple(floats(48, 12, 5000) for _ in range(3)), loss_of, torch.optim.Adagrad)


@program(detach="no-grad retained-graphs")
def queue() -> None:
    """A queue of keys of earlier batches, as in MoCo, that forgets to detach them."""
    net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.GELU())], nn.Linear(1024, 128))
    net.to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    keys: list[torch.Tensor] = []
    for _ in range(12):
        z = functional.normalize(net(floats(2048, 1024)), dim=-1)
        every = torch.cat([k.detach() for k in keys] + [z])
        loss = -(z @ every.T).log_softmax(-1).diagonal().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad() if REMEDY == "detach" else torch.enable_grad():
            keys = [*keys, functional.normalize(net(floats(2048, 1024)), dim=-1)][-6:]


@program(each="backward-each")
def contributions() -> None:
    """Losses of several data sets, added up before one backward pass."""
    net = nn.Sequential(nn.Embedding(4000, 384), *[Layer(384, 6, fused=True) for _ in range(4)]).to(DEVICE)
    heads = nn.ModuleList([nn.Linear(384, 100) for _ in range(3)]).to(DEVICE)
    optimizer = torch.optim.AdamW([*net.parameters(), *heads.parameters()])
    for _ in range(3):
        total = 0
        for head in heads:
            loss = functional.cross_entropy(head(net(integers(16, 256)).mean(1)), integers(16))
            if REMEDY == "each":
                loss.backward()
            else:
                total = total + loss
        if REMEDY != "each":
            total.backward()
        optimizer.step()
        optimizer.zero_grad()


@program(none="keep-gradients")
def zeroed() -> None:
    """Gradients zeroed in place, as large as a third of all."""
    net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(2048, 2048), nn.LayerNorm(2048), nn.GELU())])
    net.to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        net(floats(4096, 2048)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=REMEDY == "none")


@program(half="accumulation", autocast="mixed-precision")
def quantized() -> None:
    """VQ-VAE: distances to a codebook, the nearest code, a straight-through gradient."""
    encoder = nn.Sequential(
        nn.Conv2d(3, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1)
    )
    decoder = nn.Sequential(
        nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(128, 128, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(128, 3, 4, 2, 1),
    )  # fmt: skip
    book = nn.Embedding(512, 128)
    net = nn.ModuleList([encoder, decoder, book]).to(DEVICE)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        z = encoder(x).float()
        flat = z.permute(0, 2, 3, 1).reshape(-1, 128)
        far = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ book.weight.T + book.weight.pow(2).sum(1)
        codes = book(far.argmin(1)).view(len(x), *z.shape[2:], 128).permute(0, 3, 1, 2)
        commit = functional.mse_loss(z, codes.detach()) + functional.mse_loss(codes, z.detach())
        return functional.mse_loss(decoder(z + (codes - z).detach()), x) + commit

    train(net, lambda: (floats(32, 3, 128, 128),), loss_of, torch.optim.Adam)


@program(no_grad="no-grad")
def generated() -> None:
    """Features of a frozen network, computed batch by batch with a graph and reduced to numbers."""
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.SiLU()) for _ in range(6)]
    net = nn.Sequential(*layers)
    first = nn.Conv2d(3, 32, 3, padding=1).to(DEVICE)
    net.to(DEVICE)
    for _ in range(5):
        with maybe_no_grad(), autocast():
            x = net(first(floats(16, 3, 96, 96))).mean((2, 3))
        x.sum().item()


@program(no_grad="no-grad")
def distilled() -> None:
    """A small transformer learns from a large one, whose forward pass keeps a graph."""
    names = ("teacher", "student")
    nets = nn.ModuleDict()
    for name, width, count in zip(names, (768, 256), (12, 4), strict=True):
        layers = [Layer(width, width // 64, fused=True) for _ in range(count)]
        nets[name] = nn.Sequential(nn.Embedding(4000, width), *layers, nn.Linear(width, 4000))
    nets.to(DEVICE)
    optimizer = torch.optim.AdamW(nets["student"].parameters())
    for _ in range(4):
        x = integers(8, 256)
        with autocast():
            with maybe_no_grad():
                soft = nets["teacher"](x)
            hard = nets["student"](x)
            target = soft.detach().softmax(-1)
            loss = functional.kl_div(hard.log_softmax(-1), target, reduction="batchmean")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program(no_grad="no-grad")
def validated() -> None:
    """Training with a validation pass after each epoch, which builds graphs."""
    layers = [Layer(512, 8, fused=True) for _ in range(6)]
    net = nn.Sequential(nn.Embedding(4000, 512), *layers, nn.Linear(512, 4000)).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    def loss_of(count: int) -> torch.Tensor:
        x = integers(count, 256)
        return functional.cross_entropy(net(x).flatten(0, 1), x.flatten())

    def validate() -> float:
        total = 0.0
        for _ in range(3):
            with maybe_no_grad():
                total += loss_of(24).item()
        return total

    for _ in range(2):
        for _ in range(3):
            loss_of(8).backward()
            optimizer.step()
            optimizer.zero_grad()
        validate()
