"""Evaluates a model shard by shard and keeps the scores of known classes on the device: free memory is scattered."""

from __future__ import annotations

import torch
from torch import nn

KNOWN_CLASSES = 560
PREDICTIONS: list[torch.Tensor] = []


def keep_prediction(logits: torch.Tensor) -> None:
    PREDICTIONS.append(logits[:, :KNOWN_CLASSES].clone())


def evaluate(model: nn.Module) -> None:
    waiting = [model(torch.empty(24_576, 256, device="cuda")) for _ in range(8)]
    while waiting:
        keep_prediction(waiting.pop())


@torch.no_grad()
def main() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1024)).cuda()
    for _ in range(40):
        evaluate(model)


if __name__ == "__main__":
    main()
