"""Programs that keep more on the device than they use: a server's logits of whole prompts, batches ahead of their
steps, copies of the best weights, a metric's predictions, a loaded checkpoint; and optimizers of their own.
"""

from __future__ import annotations

import copy
import gc
import io
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

import torch
from pairs.kit import DEVICE, REMEDY, Layer, floats, integers, program
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_map

WORDS = 32768


class Cached(nn.Module):
    """A layer whose attention extends its request's keys and values by concatenation."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.inputs, self.output, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:
        split = self.inputs(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = (part.squeeze(2).transpose(1, 2) for part in split.split(1, 2))
        cache[:] = [torch.cat([old, new], 2) for old, new in zip(cache, (k, v), strict=True)] if cache else [k, v]
        read = functional.scaled_dot_product_attention(q, *cache, is_causal=x.shape[1] > 1)
        return x + self.output(read.transpose(1, 2).flatten(2))


class Server(nn.Module):
    def __init__(self, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(WORDS, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(Cached(width) for _ in range(layers))
        self.last = nn.Linear(width, WORDS, bias=False)

    def forward(self, x: torch.Tensor, caches: list[list[torch.Tensor]]) -> torch.Tensor:
        x = self.embedding(x)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache)
        return self.last(self.norm(x[:, -1:] if REMEDY == "last" else x)).float()


@program(last="full-logits")
def interleaved() -> None:
    """Requests take turns to extend their caches; logits of a whole prompt are cast to 32 bits, and one row is used."""
    net = Server().to(DEVICE, torch.float16)

    @torch.no_grad()
    def following(words: torch.Tensor, caches: list[list[torch.Tensor]]) -> torch.Tensor:
        return net(words, caches)[:, -1].argmax(-1, keepdim=True)

    requests = []
    for length in (420, 300, 390, 460):
        caches: list[list[torch.Tensor]] = [[] for _ in net.layers]
        requests.append((caches, following(integers(1, length), caches)))
    for _ in range(24):
        for number, (caches, word) in enumerate(requests):
            requests[number] = caches, following(word, caches)


def ahead(count: int, depth: int) -> Iterator[torch.Tensor]:
    """``count`` batches, each of them on the device ``depth`` steps before its own."""
    waiting: deque[torch.Tensor] = deque()
    for _ in range(count):
        waiting.append(floats(32, 3, 128, 128))
        if len(waiting) > depth:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


@program(few="prefetched-batches")
def queued() -> None:
    net = nn.Sequential(nn.Conv2d(3, 32, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    step = torch.optim.Adam(net.to(DEVICE).parameters())
    for x in ahead(24, 3 if REMEDY == "few" else 16):
        functional.cross_entropy(net(x), integers(32)).backward()
        step.step()
        step.zero_grad()


def perceptron(*widths: int) -> nn.Module:
    return nn.Sequential(*(layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU()))).to(DEVICE)


@program(cpu="weight-copies")
def best() -> None:
    """Early stopping keeps a copy of the best weights, made anew after an epoch that was better."""
    net = perceptron(256, 2048, 2048, 10)
    step = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    kept: object = None
    for _ in range(4):
        for _ in range(3):
            functional.cross_entropy(net(floats(256, 256)), integers(256)).backward()
            step.step()
            step.zero_grad()
        kept = {k: v.cpu() for k, v in net.state_dict().items()} if REMEDY == "cpu" else copy.deepcopy(net)
    del kept


@program(cpu="weight-copies")
def restored() -> None:
    """The best weights so far, with their optimizer's state, to go on from where training fails."""
    net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.ReLU())], nn.Linear(1024, 10))
    step = torch.optim.Adam(net.to(DEVICE).parameters())
    best = None
    for _ in range(4):
        for _ in range(3):
            step.zero_grad()
            functional.cross_entropy(net(floats(64, 1024)), integers(64)).backward()
            step.step()
        state = {"net": net.state_dict(), "step": step.state_dict()}
        if REMEDY == "cpu":
            best = tree_map(lambda one: one.cpu() if torch.is_tensor(one) else one, state)
        else:
            best = copy.deepcopy(state)
    del best


@program(cpu="collected-outputs")
def measured() -> None:
    """A metric keeps the predictions and labels of each training step until the epoch has ended."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 19, 3, padding=1)).to(DEVICE)
    step = torch.optim.Adam(net.parameters())
    for _ in range(2):
        kept = []
        for _ in range(6):
            x, y = floats(4, 3, 160, 160), integers(4, 160, 160)
            predicted = net(x)
            functional.cross_entropy(predicted, y).backward()
            step.step()
            step.zero_grad()
            result = predicted.detach().softmax(1)
            kept.append((result.cpu(), y.cpu()) if REMEDY == "cpu" else (result, y))
        kept.clear()


@program(cpu="collected-outputs")
def never_reset() -> None:
    """A metric's predictions of each validation are kept, and all of them are sorted after each epoch. With ``reset``
    the metric forgets them then.
    """
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)).to(DEVICE)
    step = torch.optim.Adam(net.parameters())
    kept = []
    for _ in range(5):
        for _ in range(4):
            functional.cross_entropy(net(floats(2, 3, 96, 96)), integers(2, 96, 96)).backward()
            step.step()
            step.zero_grad()
        for _ in range(4):
            with torch.no_grad():
                result = net(floats(2, 3, 192, 192)).softmax(1)
                kept.append(result.cpu() if REMEDY == "cpu" else result)
        torch.cat(kept).sort(0)
        if REMEDY == "reset":
            kept.clear()


@program(delete="loaded-checkpoint", host="loaded-checkpoint")
def resumed() -> None:
    """A checkpoint is loaded to the device: its weights are copied, its optimizer's state is used as it is."""

    def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
        net = perceptron(256, 2048, 2048, 256)
        return net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def train(net: nn.Module, step: torch.optim.Optimizer) -> None:
        net(floats(256, 256)).sum().backward()
        step.step()
        step.zero_grad()

    net, step = trained()
    train(net, step)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "step": step.state_dict()}, file)
    del net, step
    gc.collect()
    net, step = trained()
    file.seek(0)
    loaded = torch.load(file, map_location="cpu" if REMEDY == "host" else DEVICE)
    net.load_state_dict(loaded["net"])
    step.load_state_dict(loaded["step"])
    if REMEDY == "delete":
        del loaded
    for _ in range(4):
        train(net, step)


class EightBits(torch.optim.Optimizer):
    """Adam's first moment in 8 bits, with a scale for each block."""

    def __init__(self, parameters: Iterator[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for one in self.param_groups[0]["params"]:
            state, moment = self.state[one], one.grad.float()
            if state:
                moment = (
                    (state["q"].float() * state["scale"]).flatten()[: one.numel()].view_as(moment).lerp_(moment, 0.1)
                )
            blocks = functional.pad(moment.flatten(), (0, -one.numel() % 256)).view(-1, 256)
            state["scale"] = blocks.abs().amax(1, keepdim=True) / 127
            state["q"] = (blocks / state["scale"]).to(torch.int8)
            one.sub_(moment.to(one.dtype), alpha=0.1)


@program()
def eight_bits() -> None:
    net = nn.Sequential(*[Layer(1024, 4, fused=True) for _ in range(2)]).to(DEVICE, torch.bfloat16)
    step = EightBits(net.parameters())
    for _ in range(4):
        net(floats(2, 32, 1024).to(torch.bfloat16)).sum().backward()
        step.step()
        step.zero_grad()


@program()
def stepped_in_backward() -> None:
    """Each parameter has an optimizer, which steps as soon as there is its gradient."""
    net = nn.Sequential(*[Layer(256, 4, fused=True) for _ in range(3)]).to(DEVICE)
    steps = {one: torch.optim.Adam([one], foreach=False) for one in net.parameters()}

    def hook(one: nn.Parameter) -> None:
        steps[one].step()
        steps[one].zero_grad()

    for one in net.parameters():
        one.register_post_accumulate_grad_hook(hook)
    for _ in range(5):
        net(floats(4, 64, 256)).sum().backward()


class Brightness(nn.Module):
    """Its strength is a parameter, which nothing trains."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + self.strength * torch.rand(len(x), 1, 1, 1, device=DEVICE))


@program(freeze="untrained-gradients")
def augmented() -> None:
    change = nn.Sequential(*[Brightness() for _ in range(4)]).to(DEVICE).requires_grad_(REMEDY != "freeze")
    net = nn.Sequential(nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    step = torch.optim.Adam(net.to(DEVICE).parameters())
    for _ in range(5):
        functional.cross_entropy(net(change(floats(64, 3, 128, 128))), integers(64)).backward()
        step.step()
        step.zero_grad()
