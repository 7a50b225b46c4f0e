"""The ranks of a job, one process after another and one device each, of which one does more than the others.

python ranks.py FOLDER MODEL CAUSE RANK RANKS SEED: records each rank and dumps it to FOLDER/rank0.pickle and so on.
MODEL: ``net`` (convolutions), ``scores`` and ``fused`` (transformers whose attention scores are in memory, or not),
``experts`` (with a mixture of experts), ``stages`` (of a pipeline, the first with the embedding, the last with the
head). CAUSE, on RANK alone: ``none``, ``batch``, ``sequence``, ``layer``, ``expert``, ``model`` (a second one) or
``leak``. SEED chooses sizes, optimizer, and how models are built and kept. Knows nothing of snapreport.
"""

from __future__ import annotations

import copy
import os
import random
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

STEPS = 6


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))


class Mixture(nn.Module):
    """Tokens are routed evenly: each expert of the rank has as many."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Mlp(width) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        parts = tokens.tensor_split(len(self.experts))
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)]).view_as(x)


class Block(nn.Module):
    def __init__(self, width: int, is_fused: bool, experts: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = Mixture(width, experts) if experts else Mlp(width)
        self.is_fused = is_fused

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.is_fused:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    def __init__(self, options: Options, has_embedding: bool, has_head: bool) -> None:
        super().__init__()
        width = options.width
        self.embedding = nn.Embedding(options.vocabulary, width) if has_embedding else None
        self.blocks = nn.ModuleList(
            Block(width, options.model == "fused", options.experts) for _ in range(options.layers)
        )
        self.head = nn.Linear(width, options.vocabulary) if has_head else None
        self.is_checkpointed = options.is_checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return x if self.head is None else self.head(x)


class Net(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        width = options.width // 2
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
            for _ in range(2 * options.layers)
        )
        self.last = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x.mean((2, 3)))


class Options:
    """Sizes of one rank: those of all, and what CAUSE adds."""

    def __init__(self, model: str, cause: str, seed: int) -> None:
        dice = random.Random(f"{model} {seed}")
        self.model, self.cause = model, cause
        self.width = dice.choice((128, 192, 256))
        self.layers = dice.randint(2, 5)
        self.vocabulary = dice.choice((2000, 4000))
        self.experts = dice.randint(2, 4) if model == "experts" else 0
        self.batch, self.length = dice.choice((4, 8)), dice.choice((128, 192))
        self.side = dice.choice((32, 48))
        self.optimizer = dice.choice((torch.optim.AdamW, torch.optim.SGD))
        self.is_moved, self.is_copied, self.is_checkpointed = (
            dice.random() < 0.5,
            dice.random() < 0.5,
            dice.random() < 0.25,
        )
        self.micro_batches = 4 if model == "stages" else 1
        factor = dice.choice((1.5, 2))
        if cause == "batch":
            self.batch = int(self.batch * factor)
        if cause == "sequence":
            self.length = int(self.length * factor)
        self.layers += cause == "layer"
        self.experts += cause == "expert"

    def build(self, rank: int, ranks: int) -> nn.Module:
        with torch.device("cpu" if self.is_moved else "cuda"):
            if self.model == "net":
                net: nn.Module = Net(self)
            else:
                is_stage = self.model == "stages"
                net = Transformer(self, not is_stage or rank == 0, not is_stage or rank == ranks - 1)
        return net.cuda()

    def input(self, rank: int) -> torch.Tensor:
        if self.model == "net":
            return torch.randn(self.batch, 3, self.side, self.side, device="cuda")
        if self.model == "stages" and rank:
            return torch.randn(self.batch, self.length, self.width, device="cuda", requires_grad=True)
        return torch.zeros(self.batch, self.length, dtype=torch.long, device="cuda")


def train(options: Options, rank: int, ranks: int) -> None:
    model = options.build(rank, ranks)
    second = None
    if options.cause == "model":
        second = copy.deepcopy(model) if options.is_copied else options.build(rank, ranks)
        second.requires_grad_(False)
    optimizer = options.optimizer(model.parameters(), 1e-3)
    history = []
    for _ in range(STEPS):
        losses = []
        for _ in range(options.micro_batches):
            x = options.input(rank)
            y = model(x)
            loss = y.float().square().mean()
            if second is not None:
                with torch.no_grad():
                    target = second(x)
                loss = loss + functional.mse_loss(y, target)
            losses.append(loss)
        if options.cause == "leak":
            history.append(torch.zeros(options.batch * options.length, options.width, 2, device="cuda"))
        for loss in losses:
            loss.backward()
        del losses, loss
        optimizer.step()
        optimizer.zero_grad()


def record(folder: str, options: Options, rank: int, ranks: int) -> None:
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=1_000_000)
    train(options, rank, ranks)
    torch.cuda.memory._dump_snapshot(os.path.join(folder, f"rank{rank}.pickle"))


if __name__ == "__main__":
    folder, model, cause = sys.argv[1:4]
    planted, ranks, seed = map(int, sys.argv[4:])
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            record(folder, Options(model, cause if rank == planted else "none", seed), rank, ranks)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"rank {rank} failed")
