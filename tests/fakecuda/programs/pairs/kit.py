"""What the programs of this folder share: their remedy, loops of training with common remedies, and small modules."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

OUT, PROGRAM, REMEDY = (*sys.argv[1:], "", "")[:3]
DEVICE = "cuda"
PROGRAMS: dict[str, tuple[Callable[[], None], dict[str, str]]] = {}
"""By name: the program, and the rule of snapreport's advice of each of its remedies."""


def program(**remedies: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Registers a program and its remedies: ``checkpoint="checkpointing"``. Rules apart by a space are alternatives."""

    def register(function: Callable[[], None]) -> Callable[[], None]:
        if function.__name__ in PROGRAMS:
            raise ValueError(f"two programs are called {function.__name__}")
        PROGRAMS[function.__name__] = function, remedies
        return function

    return register


def floats(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device=DEVICE)


def integers(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.long, device=DEVICE)


def run(layer: Callable[..., Any], *inputs: Any) -> Any:
    """A layer of a model, checkpointed where that is the remedy."""
    if REMEDY == "checkpoint" and torch.is_grad_enabled():
        return checkpoint(layer, *inputs, use_reentrant=False)
    return layer(*inputs)


def autocast() -> contextlib.AbstractContextManager[Any]:
    return torch.autocast(DEVICE, torch.bfloat16) if REMEDY == "autocast" else contextlib.nullcontext()


def maybe_no_grad() -> contextlib.AbstractContextManager[Any]:
    return torch.no_grad() if REMEDY == "no_grad" else contextlib.nullcontext()


def cross_entropy(last: nn.Module, hidden: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The loss of a language model, in chunks with the last layer where that is the remedy."""
    if REMEDY != "chunks":
        return functional.cross_entropy(last(hidden).flatten(0, -2), target.flatten())

    def part(h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(last(h), t, reduction="sum")

    parts = zip(hidden.flatten(0, -2).chunk(8), target.flatten().chunk(8), strict=True)
    return sum(checkpoint(part, h, t, use_reentrant=False) for h, t in parts) / target.numel()


def halves(*batch: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The batch, or its halves where that is the remedy."""
    yield from zip(*(part.chunk(2 if REMEDY == "half" else 1) for part in batch), strict=True)


def train(
    net: nn.Module,
    batch: Callable[[], tuple[torch.Tensor, ...]],
    loss_of: Callable[..., torch.Tensor],
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    steps: int = 3,
    **options: Any,
) -> None:
    """A loop of training. The batch of a halved step is not on the device before its half is used."""
    step = optimizer([p for p in net.parameters() if p.requires_grad], **options)
    for _ in range(steps):
        for part in halves(*batch()):
            with autocast():
                loss = loss_of(*part)
            loss.backward()
        step.step()
        step.zero_grad(set_to_none=True)


class Attention(nn.Module):
    """Self-attention, or cross-attention to ``memory``, with its scores in memory unless the remedy is SDPA."""

    def __init__(self, width: int, heads: int, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused or REMEDY == "sdpa"
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        source = x if memory is None else memory
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q(x), self.k(source), self.v(source))
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5)
            mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A pre-norm layer of a transformer."""

    def __init__(self, width: int, heads: int, fused: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, fused)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))
