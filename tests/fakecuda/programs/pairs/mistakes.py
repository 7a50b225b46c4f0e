"""Programs with one mistake that an expert sees first, each with what mends it."""

from __future__ import annotations

import contextlib

import torch
from pairs.kit import DEVICE, REMEDY, Layer, floats, integers, program, train
from torch import nn
from torch.nn import functional


def steps(net: nn.Module, loss_of: object, count: int = 4, lr: float = 1e-3) -> None:
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr)
    for _ in range(count):
        loss_of().backward()
        optimizer.step()
        optimizer.zero_grad()


@program(squeeze="broadcast")
def regression() -> None:
    """A target of [N] beside a prediction of [N, 1]."""
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)).to(DEVICE)

    def loss_of() -> torch.Tensor:
        x, y = floats(6000, 64), floats(6000)
        prediction = net(x)
        if REMEDY == "squeeze":
            prediction = prediction.squeeze(-1)
        return (prediction - y).square().mean()

    steps(net, loss_of)


@program(squeeze="broadcast")
def critic() -> None:
    """Values of [N, 1] beside returns of [N], with a loss of PyTorch's."""
    net = nn.Sequential(nn.Linear(128, 1024), nn.Tanh(), nn.Linear(1024, 1)).to(DEVICE)

    def loss_of() -> torch.Tensor:
        x, returns = floats(8192, 128), floats(8192)
        value = net(x)
        return functional.smooth_l1_loss(value.squeeze(-1) if REMEDY == "squeeze" else value, returns)

    steps(net, loss_of)


@program(index="one-hot")
def labels() -> None:
    net = nn.Sequential(nn.Embedding(12000, 256), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 12000)).to(DEVICE)

    def loss_of() -> torch.Tensor:
        x = integers(16, 128)
        chances = net(x).log_softmax(-1)
        if REMEDY == "index":
            return functional.nll_loss(chances.flatten(0, 1), x.flatten())
        return -(functional.one_hot(x, 12000).float() * chances).sum(-1).mean()

    steps(net, loss_of)


@program(cpu="collected-outputs")
def predictions() -> None:
    net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 8192)).to(DEVICE).eval()
    results = []
    with torch.no_grad():
        for _ in range(20):
            out = net(floats(512, 512)).softmax(-1)
            results.append(out.cpu() if REMEDY == "cpu" else out)
    torch.cat(results).argmax(-1)


@program(cpu="collected-outputs")
def features() -> None:
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU()).to(DEVICE)
    results = []
    with torch.inference_mode():
        for _ in range(12):
            out = net(floats(16, 3, 64, 64)).flatten(1)
            out = functional.normalize(out)
            results.append(out.cpu() if REMEDY == "cpu" else out)
    del results


@program(host="data-on-device")
def tables() -> None:
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(DEVICE)
    place = "cpu" if REMEDY == "host" else DEVICE
    data, target = torch.empty(400_000, 256, device=place), torch.zeros(400_000, dtype=torch.long, device=place)

    def loss_of() -> torch.Tensor:
        chosen = torch.randint(len(data), (4096,), device=place)
        return functional.cross_entropy(net(data[chosen].to(DEVICE)), target[chosen].to(DEVICE))

    steps(net, loss_of, 6)


class Adapted(nn.Module):
    """A frozen linear layer with a trained one of low rank beside it."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(before, after).requires_grad_(False)
        self.down, self.up = nn.Linear(before, 8, bias=False), nn.Linear(8, after, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x.to(self.frozen.weight.dtype)).to(x.dtype) + self.up(self.down(x))


@program(bf16="frozen-base")
def wide_adapters() -> None:
    layers = [m for _ in range(12) for m in (Adapted(1024, 4096), nn.GELU(), Adapted(4096, 1024))]
    net = nn.Sequential(*layers, nn.Linear(1024, 100)).to(DEVICE)
    if REMEDY == "bf16":
        for layer in net.modules():
            if isinstance(layer, Adapted):
                layer.frozen.to(torch.bfloat16)
    steps(net, lambda: functional.cross_entropy(net(floats(128, 1024)), integers(128)))


@program(cdist="distance-matrix")
def codebook() -> None:
    """The nearest of a codebook's vectors for each of a batch."""
    encode, codes = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)), nn.Embedding(1024, 64)
    net = nn.ModuleList([encode, codes]).to(DEVICE)

    def loss_of() -> torch.Tensor:
        z, c = encode(floats(4096, 256)), codes.weight
        if REMEDY == "cdist":
            distance = z.square().sum(-1, keepdim=True) - 2 * z @ c.T + c.square().sum(-1)
        else:
            distance = (z[:, None] - c[None]).square().sum(-1)
        return functional.mse_loss(z, codes(distance.argmin(-1))) + distance.mean()

    steps(net, loss_of)


@program(cdist="distance-matrix")
def neighbours() -> None:
    """Distances of queries to a gallery, without gradients."""
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 128)).to(DEVICE)
    with torch.no_grad():
        gallery = net(floats(6000, 256))
        for _ in range(5):
            q = net(floats(512, 256))
            if REMEDY == "cdist":
                distance = q.square().sum(-1, keepdim=True) - 2 * q @ gallery.T + gallery.square().sum(-1)
            else:
                distance = (q[:, None] - gallery[None]).square().sum(-1)
            distance.topk(5, largest=False)


class Encoder(nn.Module):
    def __init__(self, words: int = 16000, width: int = 384) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.layers = nn.ModuleList([Layer(width, 6) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x)
        for layer in self.layers:
            x = layer(x)
        return x


@program(select="full-logits")
def masked_model() -> None:
    """A masked language model: one word in seven is predicted."""
    net = Encoder().to(DEVICE)

    def loss_of() -> torch.Tensor:
        x = integers(16, 256)
        chosen, hidden = torch.arange(0, 16 * 256, 7, device=DEVICE), net(x).flatten(0, 1)
        logits = net.head(hidden[chosen]) if REMEDY == "select" else net.head(hidden)[chosen]
        return functional.cross_entropy(logits, x.flatten()[chosen])

    steps(net, loss_of)


@program(causal="expanded-mask")
def masks() -> None:
    net = nn.ModuleList([nn.Linear(512, 1536) for _ in range(6)]).to(DEVICE)

    def loss_of() -> torch.Tensor:
        x, mask = floats(8, 512, 512), None
        if REMEDY != "causal":
            square = torch.full((512, 512), float("-inf"), device=DEVICE).triu(1)
            mask = square.expand(8, 8, 512, 512).contiguous()
        for layer in net:
            q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in layer(x).chunk(3, -1))
            x = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
            x = x.transpose(1, 2).flatten(2)
        return x.mean()

    steps(net, loss_of)


@program(delete="previous-outputs")
def two_batches() -> None:
    """Predictions for two batches, the first of which stay until the name is bound anew."""
    net = nn.Sequential(nn.Embedding(16000, 256), *[Layer(256, 4) for _ in range(2)], nn.Linear(256, 16000)).to(DEVICE)
    with torch.no_grad():
        for _ in range(2):
            out = net(integers(16, 256))
            out.argmax(-1).cpu()
            if REMEDY == "delete":
                del out


@program(sdpa="fused-attention sdpa-math-kernel", half="accumulation")
def long_document() -> None:
    """Two batches of short documents, and one of long ones, whose scores take most of the memory."""
    net = nn.Sequential(nn.Embedding(4000, 256), *[Layer(256, 8) for _ in range(4)], nn.Linear(256, 4000)).to(DEVICE)
    lengths = iter((256, 256, 1024))

    def batch() -> tuple[torch.Tensor]:
        return (integers(4, next(lengths)),)

    train(net, batch, lambda x: functional.cross_entropy(net(x).flatten(0, 1), x.flatten()))


@program(after="exception-holds")
def retried() -> None:
    """A batch that does not fit, halved in the except block or below it."""
    net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(1024, 1024), nn.GELU())]).to(DEVICE)
    torch.cuda.set_per_process_memory_fraction(0.03)

    def attempt(batch: int) -> None:
        net(floats(batch, 1024)).mean().backward()
        net.zero_grad()

    failed = False
    try:
        attempt(16384)
    except torch.OutOfMemoryError:
        failed = True
        if REMEDY != "after":
            with contextlib.suppress(torch.OutOfMemoryError):
                attempt(2048)
    if failed and REMEDY == "after":
        attempt(2048)


@program(cpu="leak")
def logged() -> None:
    """What a training step returns goes into a history, outputs and numbers: the graph is gone after its backward."""
    net = nn.Sequential(*[nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()])
    net = net.append(nn.Linear(32, 10_000)).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    history: dict[str, list[torch.Tensor]] = {}

    def training_step(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = net(x)
        right = (logits.argmax(-1) == y).float().mean()
        return {"loss": functional.cross_entropy(logits, y), "accuracy": right, "logits": logits}

    for _ in range(12):
        optimizer.zero_grad()
        given = training_step(floats(64, 3, 32, 32), integers(64))
        given["loss"].backward()
        optimizer.step()
        for name, value in given.items():
            history.setdefault(name, []).append(value.detach().cpu() if REMEDY == "cpu" else value)


@program()
def fitted() -> None:
    """LBFGS runs passes of the model in its step: its state is in use there, and nobody has it in 8 bits."""
    net = nn.Sequential(nn.Linear(2, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1)).to(DEVICE)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(net(floats(500, 2)), floats(500, 1))
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)


@program(each="backward-each")
def summed() -> None:
    """Losses of all batches of an epoch, of which one sum has a backward pass: the peak lies in it."""
    layers = [nn.Linear(4096, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 3000)]
    net = nn.Sequential(nn.Embedding(3000, 128), nn.Flatten(), *layers).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        total = torch.zeros((), device=DEVICE)
        for _ in range(6):
            loss = functional.cross_entropy(net(integers(512, 32)), integers(512))
            if REMEDY == "each":
                loss.backward()
            else:
                total = total + loss
        if REMEDY != "each":
            total.backward()
        optimizer.step()
        optimizer.zero_grad()
