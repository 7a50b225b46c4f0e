"""Trains a model that is sharded over the ranks of torchrun. Rank 2 gets more documents in every step."""

from __future__ import annotations

import os

import torch
from model import Transformer
from torch.distributed import init_process_group
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

RANK = int(os.environ["RANK"])


def make_batch(step: int) -> torch.Tensor:
    batch = 4 + (3 * step if RANK == 2 else 0)
    return torch.zeros(batch, 512, dtype=torch.long, device="cuda")


def main() -> None:
    torch.cuda.set_device(RANK)
    init_process_group("nccl", device_id=torch.device("cuda", RANK))
    model = Transformer(2, 512, 8, 8192, is_fused=True).cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(5):
        tokens = make_batch(step)
        logits = model(tokens)
        functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        del logits
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
