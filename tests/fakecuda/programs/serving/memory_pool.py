"""A pool of keys and values for all tokens, as an engine of SGLang's kind has it: a tensor per layer and kind."""

from __future__ import annotations

import torch


class TokenPool:
    def __init__(self, tokens: int, layers: int, width: int) -> None:
        self.shape = (tokens, width)
        self._create_buffers(layers)

    def _create_buffers(self, layers: int) -> None:
        self.k_buffer, self.v_buffer = (
            [torch.zeros(self.shape, dtype=torch.bfloat16, device="cuda") for _ in range(layers)] for _ in range(2)
        )

    def tensors(self) -> list[torch.Tensor]:
        return [*self.k_buffer, *self.v_buffer]
