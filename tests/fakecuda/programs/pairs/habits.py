"""Programs of jobs and services: an evaluation that concatenates what it predicts, a model on two GPUs, one that serves
adapters merged into copies of it, CUDA graphs for each size of a batch, augmentations on the GPU, a copy of the
weights after each epoch, cross-validation, rollouts of a policy, a table of embeddings that is
read twice, layers on two GPUs, an ensemble, and probabilities of words.
"""

from __future__ import annotations

import torch
from pairs.kit import DEVICE, REMEDY, Layer, floats, halves, integers, maybe_no_grad, program
from torch import nn
from torch.nn import functional

WORDS = 16384


class Words(nn.Module):
    def __init__(self, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.layers = nn.Sequential(*[Layer(width, 4, fused=True) for _ in range(layers)])
        self.last = nn.Linear(width, WORDS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(self.embedding(x)))


def concatenated(old: object, new: object) -> object:
    if isinstance(old, tuple):
        return tuple(concatenated(a, b) for a, b in zip(old, new, strict=True))
    return torch.cat((old, new))


@program(cpu="collected-outputs")
def epochs() -> None:
    """Logits and labels of an evaluation, each step's concatenated to those before, as in transformers' Trainer."""
    net = Words().to(DEVICE)
    step = torch.optim.AdamW(net.parameters(), 1e-4)
    for _ in range(2):
        for _ in range(3):
            functional.cross_entropy(net(integers(8, 32)).flatten(0, 1), integers(256)).backward()
            step.step()
            step.zero_grad()
        every: object = None
        for _ in range(8):
            labels = integers(8, 32)
            with torch.no_grad():
                logits = net(labels)
            kept = (logits, labels) if REMEDY != "cpu" else (logits.cpu(), labels.cpu())
            every = kept if every is None else concatenated(every, kept)


class WithLoss(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.net(x).flatten(0, 1), y.flatten())[None]


@program()
def replicas() -> None:
    """DataParallel on two GPUs; the remedy ``loss`` computes the loss inside of the module."""
    net = Words()
    model = nn.DataParallel(WithLoss(net) if REMEDY == "loss" else net).to(DEVICE)
    step = torch.optim.Adam(model.parameters(), 1e-4)
    for _ in range(3):
        x, y = integers(16, 128), integers(16, 128)
        if REMEDY == "loss":
            loss = model(x, y).mean()
        else:
            loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        step.zero_grad()
        loss.backward()
        step.step()


@program(wait="weight-copies")
@torch.inference_mode()
def merged() -> None:
    """A copy of the model for each adapter. 16-bit logits of 4 × 64 positions are as large as the last weight."""
    base = Words(layers=8).to(DEVICE).half()
    adapted: dict[int, nn.Module] = {}
    for request in range(12):
        customer = request % 6
        if REMEDY == "wait":
            for other in adapted.values():
                other.cpu()
        if customer not in adapted:
            adapted[customer] = Words(layers=8).to(DEVICE, torch.float16)
            adapted[customer].load_state_dict(base.state_dict())
        adapted[customer].to(DEVICE)(integers(4, 58 + request))[:, -1].float().argmax(-1).cpu()


@program()
@torch.no_grad()
def captured() -> None:
    """A CUDA graph for each size of a batch, each in a pool of its own."""
    net = Words().to(DEVICE)
    graphs = []
    for size in (1, 2, 4, 8, 16, 32):
        words = integers(size, 32)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(2):
                net(words)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = net(words)
        graphs.append((graph, words, out))
    for graph, _, out in graphs:
        graph.replay()
        out[:, -1].softmax(-1).cpu()


class Jitter(nn.Module):
    """Brightness, contrast and saturation of a batch of pictures, with strengths that are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.full((3,), 0.2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * (1 + self.strength[0] * floats(len(x), 1, 1, 1))
        mean = x.mean((1, 2, 3), keepdim=True)
        x = (x - mean) * (1 + self.strength[1] * floats(len(x), 1, 1, 1)) + mean
        gray = x.mean(1, keepdim=True)
        return gray + (x - gray) * (1 + self.strength[2] * floats(len(x), 1, 1, 1))


@program()
def jittered() -> None:
    net = nn.Sequential(Jitter(), nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 56 * 56, 10)).to(
        DEVICE
    )
    step = torch.optim.AdamW(net.parameters(), 1e-4)
    for _ in range(4):
        loss = functional.cross_entropy(net(floats(48, 3, 224, 224)), integers(48))
        step.zero_grad()
        loss.backward()
        step.step()


@program()
def averaged_epochs() -> None:
    """A copy of all weights after each epoch of three steps."""
    net = Words().to(DEVICE)
    step = torch.optim.AdamW(net.parameters(), 1e-4)
    history = []
    for _ in range(6):
        for _ in range(3):
            loss = functional.cross_entropy(net(integers(8, 32)).flatten(0, 1), integers(256))
            step.zero_grad()
            loss.backward()
            step.step()
        history.append({name: weight.clone() for name, weight in net.state_dict().items()})


@program(cpu="collected-weights")
def folds() -> None:
    """Cross-validation: the model and the optimizer of each fold stay until all are compared, at two rates."""
    for rate in (1e-3, 1e-4):
        kept: list[object] = []
        for _ in range(5):
            net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 16))
            net.to(DEVICE)
            step = torch.optim.AdamW(net.parameters(), rate)
            for _ in range(3):
                loss = functional.cross_entropy(net(floats(64, 512)), integers(64))
                step.zero_grad()
                loss.backward()
                step.step()
            weights = {name: one.cpu() for name, one in net.state_dict().items()} if REMEDY == "cpu" else {}
            kept.append(weights or (net, step))


@program(no_grad="no-grad")
def rollouts() -> None:
    """Advantages are computed with the graphs of all steps of a rollout, of which a Sequential's lines save ReLUs."""
    widths = [(4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
    body = [layer for width in widths for layer in (nn.Conv2d(*width), nn.ReLU())]
    net = nn.Sequential(*body, nn.Flatten(), nn.Linear(64 * 49, 512), nn.ReLU(), nn.Linear(512, 1)).to(DEVICE)
    step, states = torch.optim.Adam(net.parameters()), floats(24, 32, 4, 84, 84)
    for _ in range(3):
        values = []
        for state in states:
            with maybe_no_grad():
                values.append(net(state / 255).squeeze(-1))
        returns = torch.stack([one - values[-1] for one in values])
        wanted = returns.flatten().detach()
        for rows in torch.arange(24 * 32, device=DEVICE).chunk(4):
            loss = (net(states.flatten(0, 1)[rows] / 255).squeeze(-1) - wanted[rows]).square().mean()
            step.zero_grad()
            loss.backward()
            step.step()


@program()
def items() -> None:
    """A table of embeddings is read twice, and each gives a gradient as large as the table; so do halves of a batch."""
    net = nn.ModuleDict({"table": nn.Embedding(200_000, 64), "last": nn.Linear(64, 64)}).to(DEVICE)
    step = torch.optim.Adam(net.parameters())
    for _ in range(4):
        step.zero_grad()
        for seen, wanted in halves(integers(64, 100), integers(64, 100)):
            hidden = functional.gelu(net["last"](net["table"](seen)))
            functional.softplus(-(hidden * net["table"](wanted)).sum(-1)).mean().backward()
        step.step()


@program()
def two_devices() -> None:
    """The first half of the layers is on one GPU, the second on another."""
    first, second = (nn.Sequential(*[Layer(512, 8, fused=True) for _ in range(4)]).to(f"cuda:{k}") for k in (0, 1))
    step = torch.optim.AdamW([*first.parameters(), *second.parameters()])
    for _ in range(4):
        loss = second(first(floats(4, 128, 512)).to("cuda:1")).square().mean()
        step.zero_grad()
        loss.backward()
        step.step()


@program(cpu="collected-outputs")
def votes() -> None:
    """An ensemble's mean for each batch of images."""
    nets = [nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 21, 1)).to(DEVICE) for _ in range(8)]
    with torch.no_grad():
        for _ in range(4):
            x = floats(4, 3, 128, 128)
            every = []
            for net in nets:
                vote = net(x).softmax(1)
                every.append(vote.cpu() if REMEDY == "cpu" else vote)
            torch.stack(every).mean(0).argmax(1).cpu()


@program(chunks="chunked-loss")
def likelihoods() -> None:
    """The probability of each word of a text, without a function of PyTorch that says so."""
    net = Words().to(DEVICE).eval()

    def of(hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return net.last(hidden).log_softmax(-1).gather(-1, ids[..., None])

    with torch.no_grad():
        for _ in range(4):
            ids = integers(8, 128)
            hidden, count = net.layers(net.embedding(ids)), 8 if REMEDY == "chunks" else 1
            parts = zip(hidden.chunk(count, 1), ids.chunk(count, 1), strict=True)
            torch.cat([of(*part) for part in parts], 1).cpu()
