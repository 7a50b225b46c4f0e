"""Trains with a callback whose objects refer to each other: ``callbacks.py cycle``; or one that empties the cache:
``callbacks.py empty``.
"""

from __future__ import annotations

import gc
import sys

import torch
from model import Transformer
from torch.nn import functional


class Record:
    """One batch, and itself: only the garbage collector frees it."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.scores = logits.exp()
        self.latest = self


def on_batch(logits: torch.Tensor) -> None:
    Record(logits)


def end_step(step: int) -> None:
    if sys.argv[1] == "empty":
        torch.cuda.empty_cache()
    elif step % 3 == 2:
        gc.collect()


def main() -> None:
    gc.disable()
    model = Transformer(2, 512, 8, 4096, is_fused=True).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(12):
        tokens = torch.zeros(4, 256, dtype=torch.long, device="cuda")
        logits = model(tokens)
        if sys.argv[1] == "cycle":
            on_batch(logits.detach())
        functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        end_step(step)


if __name__ == "__main__":
    main()
