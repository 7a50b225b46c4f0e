"""Programs that people write on any day: layers that read all before them, attention to neighbours in a function, a
search for the learning rate, comparisons of all with all, a penalty on all weights, texts without padding, models
that are adapted to each sample, and evaluations that store scores.
"""

from __future__ import annotations

import copy

import torch
from pairs.kit import DEVICE, REMEDY, Layer, floats, halves, integers, program, run, train
from torch import nn
from torch.nn import functional


class Joining(nn.Module):
    """Reads all outputs so far, and adds a narrow one."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(), nn.Conv2d(before, after, 3, padding=1))

    def forward(self, *outputs: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat(outputs, 1))


@program(half="accumulation")
def joined() -> None:
    """A list of all outputs lives until the next batch has gone through the first layer: no backward pass frees it."""
    first = nn.Conv2d(3, 32, 3, padding=1).to(DEVICE)
    layers = nn.ModuleList(Joining(32 + 16 * i, 16) for i in range(12)).to(DEVICE)
    head = nn.Linear(32 + 16 * 12, 10).to(DEVICE)
    step = torch.optim.SGD([*first.parameters(), *layers.parameters(), *head.parameters()], 0.1, momentum=0.9)
    for _ in range(3):
        step.zero_grad()
        for x, y in halves(floats(16, 3, 48, 48), integers(16)):
            outputs = [first(x)]
            for layer in layers:
                outputs.append(run(layer, *outputs))
            functional.cross_entropy(head(torch.cat(outputs, 1).mean((2, 3))), y).backward()
        step.step()


@program(checkpoint="checkpointing", half="accumulation")
def neighbourhoods() -> None:
    """Four layers of attention to neighbours, which a function computes with modules that save nothing themselves."""
    q, k, v = (nn.Conv2d(64, 64, 1).to(DEVICE) for _ in range(3))
    first, last = nn.Conv2d(3, 64, 3, padding=1).to(DEVICE), nn.Conv2d(64, 3, 3, padding=1).to(DEVICE)

    def attend(x: torch.Tensor) -> torch.Tensor:
        keys = functional.unfold(k(x), 5, padding=2).unflatten(1, (64, 25))
        values = functional.unfold(v(x), 5, padding=2).unflatten(1, (64, 25))
        scores = (q(x).flatten(2).unsqueeze(2) * keys).sum(1)
        return x + (scores.softmax(1).unsqueeze(1) * values).sum(2).view_as(x)

    weights = [parameter for layer in (q, k, v, first, last) for parameter in layer.parameters()]
    step = torch.optim.Adam(weights)
    for _ in range(3):
        for (x,) in halves(floats(4, 3, 64, 64)):
            y = first(x)
            for _ in range(4):
                y = run(attend, y)
            (last(y) - x).abs().mean().backward()
        step.step()
        step.zero_grad()


@program(cpu="weight-copies")
def rates() -> None:
    """A search for the learning rate goes back to the weights and the optimizer's state from before it."""
    layers = [Layer(512, 8, fused=True) for _ in range(6)]
    net = nn.Sequential(nn.Embedding(8000, 512), *layers, nn.Linear(512, 10)).to(DEVICE)
    step = torch.optim.AdamW(net.parameters())

    def turn(rate: float) -> None:
        step.param_groups[0]["lr"] = rate
        functional.cross_entropy(net(integers(8, 128)).mean(1), integers(8)).backward()
        step.step()
        step.zero_grad()

    def saved(value: object) -> object:
        if isinstance(value, dict):
            return {key: saved(part) for key, part in value.items()}
        if isinstance(value, torch.Tensor):
            return value.cpu() if REMEDY == "cpu" else value.clone()
        return copy.deepcopy(value)

    turn(1e-4)
    weights, state = saved(dict(net.state_dict())), saved(step.state_dict())
    for power in range(6):
        turn(1e-6 * 10**power)
    net.load_state_dict(weights)
    step.load_state_dict(state)
    for _ in range(3):
        turn(1e-4)


@program(chunks="score-chunks")
def retrieved() -> None:
    """The best documents for each query: vectors are collected as they should be, and all scores made at once."""
    net = nn.Sequential(nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 256)).to(DEVICE).eval()
    with torch.no_grad():
        documents = torch.cat([functional.normalize(net(floats(2048, 768))) for _ in range(10)])
        queries = torch.cat([functional.normalize(net(floats(1024, 768))) for _ in range(6)])
        for part in queries.chunk(8 if REMEDY == "chunks" else 1):
            (part @ documents.T).topk(10, dim=1)


@program(chunks="score-chunks")
def recall() -> None:
    """Whether the nearest of all other vectors has the same label, after each epoch."""
    net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 128)).to(DEVICE)
    step = torch.optim.Adam(net.parameters())
    for _ in range(2):
        for _ in range(2):
            one, near, far = (functional.normalize(net(floats(256, 512))) for _ in range(3))
            (0.2 + (one - near).square().sum(1) - (one - far).square().sum(1)).relu().mean().backward()
            step.step()
            step.zero_grad()
        with torch.no_grad():
            vectors = torch.cat([functional.normalize(net(floats(512, 512))) for _ in range(14)])
            labels, right = integers(len(vectors)), 0
            for rows in torch.arange(len(vectors), device=DEVICE).chunk(8 if REMEDY == "chunks" else 1):
                scores = vectors[rows] @ vectors.T
                scores[torch.arange(len(rows)), rows] = -1
                right += (labels[scores.argmax(1)] == labels[rows]).sum()


@program(half="accumulation")
def packed() -> None:
    """Each time step of an LSTM has texts of its own number: what the engine makes has hundreds of sizes."""
    table, rnn = nn.Embedding(8000, 128).to(DEVICE), nn.LSTM(128, 256, batch_first=True, bidirectional=True).to(DEVICE)
    head = nn.Linear(512, 20).to(DEVICE)
    step = torch.optim.Adam([*table.parameters(), *rnn.parameters(), *head.parameters()])
    for number in range(3):
        lengths = torch.tensor([60, *((20 + 7 * i + number) % 60 + 1 for i in range(63))])
        for ids, each in zip(halves(integers(64, 60)), lengths.chunk(2 if REMEDY == "half" else 1), strict=True):
            texts = nn.utils.rnn.pack_padded_sequence(table(*ids), each, batch_first=True, enforce_sorted=False)
            hidden, _ = nn.utils.rnn.pad_packed_sequence(rnn(texts)[0], batch_first=True)
            logits = head(hidden)
            functional.cross_entropy(logits.flatten(0, 1), integers(len(logits) * logits.shape[1])).backward()
        step.step()
        step.zero_grad()


@program(drop="collected-weights")
def adapted() -> None:
    """Each sample adapts a copy of the model, which a list keeps with its gradients."""
    base = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).to(DEVICE)
    results = []
    for _ in range(6):
        model = copy.deepcopy(base)
        step = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
        for _ in range(2):
            step.zero_grad()
            model(floats(32, 1024)).softmax(1).square().sum().backward()
            step.step()
        with torch.no_grad():
            results.append((model(floats(1, 1024)).argmax(), None if REMEDY == "drop" else model))


@program()
def citations_dense() -> None:
    """A graph network with a dense matrix of all pairs of nodes, which takes most memory while it is made."""
    matrix = torch.zeros(6000, 6000, device=DEVICE) + torch.eye(6000, device=DEVICE)
    degree = matrix.sum(1).rsqrt()
    matrix = degree[:, None] * matrix * degree
    nodes, labels = floats(6000, 500), integers(140)
    first, last = nn.Linear(500, 128).to(DEVICE), nn.Linear(128, 16).to(DEVICE)
    step = torch.optim.Adam([*first.parameters(), *last.parameters()])
    for _ in range(5):
        step.zero_grad()
        functional.cross_entropy((matrix @ last((matrix @ first(nodes)).relu()))[:140], labels).backward()
        step.step()


@program()
def penalised() -> None:
    """The squares of all weights are added to the loss, joined: the batch has no part in their size."""
    net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(
        DEVICE
    )
    step = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        loss = functional.cross_entropy(net(floats(128, 1024)), integers(128))
        (loss + 1e-4 * torch.cat([p.flatten() for p in net.parameters()]).square().sum()).backward()
        step.step()
        step.zero_grad()


@program(last="full-logits")
def read_again() -> None:
    """Words are chosen one by one; each time the whole text is read again, and all its logits are computed."""
    layers = [Layer(256, 8, fused=True) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(16000, 256), *layers, nn.LayerNorm(256)).to(DEVICE).eval()
    head = nn.Linear(256, 16000, bias=False).to(DEVICE)
    with torch.no_grad():
        tokens = integers(8, 150)
        for _ in range(12):
            hidden = model(tokens)
            logits = head(hidden[:, -1:] if REMEDY == "last" else hidden)
            tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], 1)


class Merged(nn.Module):
    """A frozen layer with an adapter, whose product is added to the weight in each pass."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.zeros(8, width)), nn.Parameter(torch.zeros(width, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.base.weight + self.b @ self.a, self.base.bias)


@program(half="accumulation", checkpoint="checkpointing")
def merged_adapters() -> None:
    """The sums do not halve with the batch: 173 → 129 MiB were promised, and 166 are taken."""
    layers = nn.ModuleList(Merged(1536) for _ in range(8)).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = functional.gelu(run(layer, x))
        return functional.mse_loss(x, y)

    train(layers, lambda: (floats(160, 1536), floats(160, 1536)), loss_of)


def _trained_words() -> nn.Module:
    layers = [Layer(512, 8, fused=True) for _ in range(4)]
    net = nn.Sequential(nn.Embedding(4096, 512), *layers, nn.Linear(512, 4096)).to(DEVICE)
    step = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        functional.cross_entropy(net(integers(4, 256)).flatten(0, 1), integers(4, 256).flatten()).backward()
        step.step()
        step.zero_grad()
    return net


@program(cpu="collected-outputs")
def judged() -> None:
    """After a training, an evaluation collects the scores of all words before it takes the highest."""
    net, scores = _trained_words(), []
    with torch.no_grad():
        for _ in range(16):
            made = net(integers(8, 256))
            scores.append(made.cpu() if REMEDY == "cpu" else made)
        torch.cat(scores).argmax(-1)


STORED: dict[int, torch.Tensor] = {}


@program()
def stored_scores() -> None:
    """The same stores them by name, to the end of the program."""
    net = _trained_words()
    with torch.no_grad():
        for number in range(20):
            STORED[number] = net(integers(4, 256))
