"""Trains layers on the CPU: ``timed_layers.py KIND TRACE`` prints the processor seconds of its steps without and with
checkpoints, which take turns, and then records some without them by ``torch.profiler``.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

KIND, TRACE = sys.argv[1:]
WARMUP, STEPS, PROFILED = 3, 30, 6


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.middle = nn.Linear(width, 4 * width), nn.Linear(4 * width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.gelu(self.up(x))
        hidden = functional.gelu(self.middle(hidden))
        return x + self.down(hidden)


class Residual(nn.Module):
    def __init__(self, width: int, has_norm: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        norm = nn.BatchNorm2d if has_norm else nn.Identity
        self.norm, self.last = norm(width), norm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.gelu(self.norm(self.first(x)))
        return functional.gelu(x + self.last(self.second(hidden)))


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        mixed = (q @ k.transpose(-1, -2) / 6).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Gated(nn.Module):
    """A recurrence over the sequence: many small operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(2 * width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, states = torch.zeros_like(x[:, 0]), []
        for part in x.unbind(1):
            update, new = self.gates(torch.cat([state, part], -1)).chunk(2, -1)
            state = torch.lerp(state, new.tanh(), update.sigmoid())
            states.append(state)
        return x + torch.stack(states, 1)


class Mixer(nn.Module):
    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.tokens, self.channels = nn.Linear(length, length), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + functional.silu(self.tokens(x.transpose(1, 2))).transpose(1, 2)
        return x + functional.silu(self.channels(x)) * torch.sigmoid(x)


LAYERS = {
    "mlp": (lambda: Mlp(128), (4, 256, 128)),
    "convolutions": (lambda: Residual(16, False), (8, 16, 64, 64)),
    "resnet": (lambda: Residual(16, True), (8, 16, 64, 64)),
    "transformer": (lambda: Attention(128), (4, 256, 128)),
    "recurrent": (lambda: Gated(64), (16, 32, 64)),
    "mixer": (lambda: Mixer(256, 128), (16, 256, 128)),
    "small": (lambda: Mlp(16), (4, 64, 16)),
}
LAYER, SHAPE = LAYERS[KIND]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.is_checkpointed = nn.ModuleList(LAYER() for _ in range(8)), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.is_checkpointed else layer(x)
        return x


def train_step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    net(torch.randn(SHAPE)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(WARMUP + STEPS):
        for net.is_checkpointed in (False, True):
            began = time.process_time()
            train_step(net, optimizer)
            seconds[net.is_checkpointed].append(time.process_time() - began)
    net.is_checkpointed = False
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True) as profiler:
        for _ in range(PROFILED):
            train_step(net, optimizer)
            profiler.step()
    profiler.export_chrome_trace(TRACE)
    print(json.dumps([taken[WARMUP:] for taken in seconds.values()]))


main()
