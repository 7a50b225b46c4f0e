"""Trains a language model: ``train.py [--fused] [--long] [--keep] …``, options below."""

from __future__ import annotations

import argparse

import torch
from model import Transformer
from torch.nn import functional

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fused", action="store_true", help="Use scaled_dot_product_attention.")
parser.add_argument("--long", action="store_true", help="The last batch has long documents.")
parser.add_argument("--keep", action="store_true", help="Keep the output of the last layer for statistics.")
parser.add_argument("--vocabulary", type=int, default=8192)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--dump", help="Record from the third step, to this file.")
OPTIONS = parser.parse_args()
STATISTICS: list[torch.Tensor] = []


def make_batch(step: int) -> torch.Tensor:
    length = 2048 if OPTIONS.long and step == OPTIONS.steps - 1 else 512
    return torch.zeros(8, length, dtype=torch.long, device="cuda")


def log_step(logits: torch.Tensor) -> None:
    STATISTICS.append(logits.mean(-1).square())


def train_step(model: torch.nn.Module, tokens: torch.Tensor) -> None:
    logits = model(tokens)
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    if OPTIONS.keep:
        log_step(logits.detach().unflatten(-1, (-1, 32)))
    loss.backward()


def main() -> None:
    model = Transformer(OPTIONS.layers, OPTIONS.width, 12, OPTIONS.vocabulary, OPTIONS.fused).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(OPTIONS.steps):
        if OPTIONS.dump and step == 2:
            torch.cuda.memory._record_memory_history(stacks="python")
        train_step(model, make_batch(step))
        optimizer.step()
        optimizer.zero_grad()
    if OPTIONS.dump:
        torch.cuda.memory._dump_snapshot(OPTIONS.dump)


if __name__ == "__main__":
    main()
