"""Generates text for several requests at a time: caches of keys and values grow token by token, and end with a request.
One token of all requests is a CUDA graph.
"""

from __future__ import annotations

import torch
from kv_cache import KeyValueCache
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, REQUESTS = 2048, 4, 6


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, cache: KeyValueCache) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        x = x + self.out(functional.scaled_dot_product_attention(q, *cache.extend(k, v)))
        return x + self.feed_forward(x)

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))


class Request:
    """A prompt, and what has been generated for it."""

    def __init__(self, number: int) -> None:
        self.left = 4 + 5 * number % 7
        self.caches = [KeyValueCache(4, WIDTH) for _ in range(LAYERS)]
        self.tokens = torch.empty(4, 1024 + 97 * number % 2048, WIDTH, device="cuda")

    def advance(self, model: nn.ModuleList) -> None:
        x = self.tokens
        for layer, cache in zip(model, self.caches, strict=True):
            x = layer(x, cache)
        self.tokens, self.left = x[:, -1:], self.left - 1


def capture(model: nn.ModuleList) -> torch.cuda.CUDAGraph:
    x, graph = torch.empty(32, 1, WIDTH, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in model:
            x = layer.feed_forward(x)
    return graph


@torch.inference_mode()
def main() -> None:
    model = nn.ModuleList(Layer() for _ in range(LAYERS)).cuda()
    graph = capture(model)
    waiting, running = list(range(REQUESTS)), []
    while waiting or running:
        while waiting and len(running) < 4:
            running.append(Request(waiting.pop(0)))
        graph.replay()
        for request in running:
            request.advance(model)
        running = [request for request in running if request.left]


if __name__ == "__main__":
    main()
