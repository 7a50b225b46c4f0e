"""The keys and values of one layer and request, which grow by concatenation."""

from __future__ import annotations

import torch


class KeyValueCache:
    def __init__(self, batch: int, width: int) -> None:
        self.keys, self.values = (torch.empty(batch, 0, width, device="cuda") for _ in range(2))

    def extend(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys = torch.cat([self.keys, keys], 1)
        self.values = torch.cat([self.values, values], 1)
        return self.keys, self.values
