"""Programs that nobody had seen when they were recorded: searching, preferences, an average's samples, speech, a graph,
tables, videos, recurrent states, validation, a retry. Each has one mistake of its own.
"""

from __future__ import annotations

import copy

import torch
from pairs.kit import DEVICE, REMEDY, floats, integers, maybe_no_grad, program, run, train
from torch import nn
from torch.nn import functional


@program(chunks="distance-chunks")
def search() -> None:
    """The nearest vectors of an index by ``|q|^2 + |x|^2 - 2 q x``, all queries at once."""
    index, queries = floats(20_000, 128), floats(8_192, 128)
    squares = index.square().sum(1)

    def nearest(q: torch.Tensor) -> torch.Tensor:
        distances = q.square().sum(1)[:, None] + squares[None] - 2 * (q @ index.T)
        return distances.topk(10, largest=False).indices

    for _ in range(3):
        parts = queries.chunk(8) if REMEDY == "chunks" else [queries]
        torch.cat([nearest(part) for part in parts])


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Policy(nn.Module):
    def __init__(self, words: int, width: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embedding(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def log_probabilities(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)[:, :-1]
    return logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


@program(no_grad="no-grad")
def preferences() -> None:
    """Group-relative policy optimisation: the reference is a copy that nobody told not to keep a graph."""
    policy = Policy(2_000, 256, 6).to(DEVICE)
    reference = copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-5)
    for _ in range(3):
        tokens, rewards = integers(16, 192), floats(4, 4)
        advantage = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
        with maybe_no_grad():
            before = log_probabilities(reference, tokens)
        now = log_probabilities(policy, tokens)
        ratio, gap = (now - now.detach()).exp(), before.detach() - now
        loss = -(ratio * advantage[:, None] - 0.04 * (gap.exp() - gap - 1)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Denoiser(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.begin, self.end = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.middle = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(6)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.begin(x)
        for part in self.middle:
            h = h + part(h)
        return self.end(h)


@program(no_grad="no-grad")
def previews() -> None:
    """Diffusion with a moving average of the weights, whose samples are drawn between the steps."""
    model = Denoiser(48).to(DEVICE)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for step in range(6):
        clean, noise, level = floats(4, 3, 64, 64), floats(4, 3, 64, 64), floats(4, 1, 1, 1)
        loss = functional.mse_loss(model(clean * (1 - level) + noise * level), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
        if step % 3 == 2:
            with maybe_no_grad():
                x = floats(4, 3, 64, 64)
                for _ in range(8):
                    x = x - 0.1 * average(x)


@program(detach="retained-graphs")
def transcripts() -> None:
    """Speech: convolutions, a GRU, CTC; losses are collected for a mean that is printed at the end."""
    convolutions = nn.Sequential(
        nn.Conv1d(80, 256, 5, 2, 2), nn.GELU(), nn.Conv1d(256, 256, 5, 2, 2), nn.GELU(), nn.Conv1d(256, 256, 3, 1, 1)
    ).to(DEVICE)
    head = nn.Linear(256, 1_000).to(DEVICE)
    optimizer = torch.optim.Adam([*convolutions.parameters(), *head.parameters()])
    losses = []
    for _ in range(6):
        spoken = convolutions(floats(12, 80, 1_200)).transpose(1, 2)
        scores = head(spoken).log_softmax(-1).transpose(0, 1)
        lengths = torch.full((12,), len(scores), dtype=torch.long)
        loss = functional.ctc_loss(scores, integers(12, 40) + 1, lengths, torch.full((12,), 40))
        penalty = scores.exp().square().mean()  # keeps its exponentials
        (loss + penalty).backward(retain_graph=True)
        losses.append(penalty.detach() if REMEDY == "detach" else penalty)
        optimizer.step()
        optimizer.zero_grad()
    torch.stack(losses).mean()


class Messages(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        sent = self.message(torch.cat([x[source], x[target]], -1))
        return self.norm(x + torch.zeros_like(x).index_add(0, target, sent))


@program(checkpoint="checkpointing")
def citations() -> None:
    """All nodes of one graph in each step: it has no batch to halve."""
    begin, layers, head = nn.Linear(300, 64), nn.ModuleList([Messages(64) for _ in range(5)]), nn.Linear(64, 40)
    net = nn.ModuleList([begin, layers, head]).to(DEVICE)
    features, labels = floats(10_000, 300), integers(10_000)
    source, target = integers(80_000), integers(80_000)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(3):
        h = begin(features)
        for layer in layers:
            h = run(layer, h, source, target)
        functional.cross_entropy(head(h), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


@program(embedding="one-hot-inputs")
def categorical() -> None:
    """Columns of categories as one-hot vectors in front of the first layer."""
    sizes = (3_000, 1_200, 400, 50)
    first = nn.Linear(sum(sizes), 64, bias=False).to(DEVICE)
    rest = nn.Sequential(nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(DEVICE)

    def loss_of(columns: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if REMEDY == "embedding":
            parts = first.weight.T.split(sizes)
            h = sum(functional.embedding(c, w) for c, w in zip(columns.T, parts, strict=True))
        else:
            h = first(torch.cat([functional.one_hot(c, n) for c, n in zip(columns.T, sizes, strict=True)], 1).float())
        return functional.mse_loss(rest(h).squeeze(-1), y)

    train(nn.ModuleList([first, rest]), lambda: (integers(4_096, 4), floats(4_096)), loss_of)


@program(host="data-on-device")
def clips() -> None:
    """A network for videos, and all videos on the device."""
    net = nn.Sequential(
        nn.Conv3d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv3d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    net(torch.zeros(1, 3, 16, 32, 32))
    net.to(DEVICE)
    where = "cpu" if REMEDY == "host" else DEVICE
    videos, labels = torch.empty(1_024, 3, 16, 32, 32, device=where), torch.zeros(1_024, dtype=torch.long, device=where)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for chosen in torch.arange(128).split(16):
        picked = chosen.to(where)
        functional.cross_entropy(net(videos[picked].to(DEVICE)), labels[picked].to(DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()


@program(detach="retained-graphs")
def forgotten() -> None:
    """A recurrent network over the parts of long texts, one step for each text; its state is carried on with the graph
    of all parts before, for which someone wrote ``retain_graph=True``.
    """
    embedding, cell, head = nn.Embedding(500, 256), nn.GRUCell(256, 512), nn.Linear(512, 500)
    net = nn.ModuleList([embedding, cell, head]).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        state = floats(64, 512)
        for _ in range(6):
            tokens, total = integers(64, 24), 0
            if REMEDY == "detach":
                state = state.detach()
            for word, following in zip(tokens[:, :-1].T, tokens[:, 1:].T, strict=True):
                state = cell(embedding(word), state)
                total = total + functional.cross_entropy(head(state), following)
            total.backward(retain_graph=REMEDY != "detach")
        optimizer.step()
        optimizer.zero_grad()


@program(cpu="collected-outputs")
def validation() -> None:
    """Masks of a validation set are collected for a score over all of it."""
    net = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 8, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        functional.cross_entropy(net(floats(4, 3, 96, 96)), integers(4, 96, 96)).backward()
        optimizer.step()
        optimizer.zero_grad()
    found: list[torch.Tensor] = []
    net.eval()
    with torch.inference_mode():
        for _ in range(24):
            scores = net(floats(8, 3, 96, 96)).softmax(1)
            found.append(scores.cpu() if REMEDY == "cpu" else scores)
    torch.cat([one.argmax(1) for one in found])


@program(after="exception-holds")
def retries() -> None:
    """Attempts in a loop; the last error is remembered for the log, and with it the frames of the attempt."""
    net = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(768, 768), nn.Tanh())]).to(DEVICE)
    last: Exception | str | None = None

    def attempt(batch: int) -> None:
        out = net(floats(batch, 768))
        out.square().mean().backward()
        if batch > 2_048:
            raise ValueError("the loss is not finite")
        net.zero_grad()

    def loss_only(batch: int) -> None:
        hidden = net(floats(batch, 768))
        if batch > 2_048:
            raise ValueError(f"the loss of {len(hidden)} rows is not finite")
        hidden.square().mean().backward()
        net.zero_grad()

    batch = 8_192
    for tried in (loss_only, loss_only, loss_only, attempt):
        try:
            tried(batch)
        except ValueError as error:
            last = str(error) if REMEDY == "after" else error
            batch //= 2
    print(last)
