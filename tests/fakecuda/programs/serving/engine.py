"""Engines that serve a transformer as vLLM and SGLang do: weights first, a pass with a dummy batch that shows how much
activations need, keys and values in what is left, CUDA graphs of several batch sizes in one private pool, then
requests.

``engine.py OUT NAME`` dumps a snapshot of the engine to OUT and prints, as JSON, what its own objects hold at the end
in bytes: ``weights``, ``kv_cache``, ``graphs`` (reserved), ``activations`` (the most of the dummy pass above the
weights), and ``reserved``. NAME is "lists" (a flat tensor per layer, weights created on the device), "pool" (keys and
values apart, in a pool of tokens; the model is moved to the device), "no_graphs", or "late" (recorded only when it
serves).
"""

from __future__ import annotations

import gc
import json
import pickle
import sys
from typing import Any

import torch
from memory_pool import TokenPool
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, VOCABULARY = 512, 6, 8, 16_000
MOST_TOKENS, GRAPHS = 2048, (16, 8, 4, 2, 1)
SHARE = 0.5  # of the device that the engine takes


class Linear(nn.Module):
    """Its weights are made on the device, and filled by the loader."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.create_weights(inputs, outputs)

    def create_weights(self, inputs: int, outputs: int) -> None:
        weight = torch.empty(outputs, inputs, dtype=torch.bfloat16, device=torch.get_default_device())
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = Linear(WIDTH, 3 * WIDTH), Linear(WIDTH, WIDTH)
        self.up, self.down = Linear(WIDTH, 8 * WIDTH), Linear(4 * WIDTH, WIDTH)
        self.norm, self.second = nn.LayerNorm(WIDTH, dtype=torch.bfloat16), nn.LayerNorm(WIDTH, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:
        normed = self.norm(x)
        q, k, v = self.qkv(normed).chunk(3, -1)
        for tensor, new in zip(cache, (k, v), strict=False):
            tensor.view(-1)[: new.numel()].view_as(new).copy_(new)
        parts = (part.unflatten(-1, (HEADS, -1)).transpose(0, 1) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(*parts).transpose(0, 1).flatten(1)
        x = x + self.out(mixed)
        gate, up = self.up(self.second(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, dtype=torch.bfloat16)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor, caches: list[list[torch.Tensor]]) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache)
        return x


class Runner:
    """``kind``: as NAME."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.caches: list[list[torch.Tensor]] = [[] for _ in range(LAYERS)]
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def load_model(self) -> None:
        if self.kind == "pool":
            self.model = Model().cuda()
        else:
            with torch.device("cuda"):
                self.model = Model()
        self.load_weights()
        gc.collect()

    def load_weights(self) -> None:
        for parameter in self.model.parameters():
            parameter.data.copy_(torch.empty(parameter.shape, dtype=parameter.dtype, pin_memory=False))

    def profile_run(self) -> None:
        """How much is needed beside the weights."""
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        torch.cuda.reset_peak_memory_stats()
        self._dummy_run(MOST_TOKENS)
        self.activations = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
        gc.collect()
        torch.cuda.empty_cache()

    def _dummy_run(self, tokens: int) -> torch.Tensor:
        hidden = self.model(torch.zeros(tokens, dtype=torch.long, device="cuda"), self.caches)
        return self.model.head(hidden[-256:]).float().softmax(-1)

    def initialize(self) -> None:
        room = int(torch.cuda.mem_get_info()[1] * SHARE) - torch.cuda.memory_allocated() - self.activations
        if self.kind == "pool":
            pool = TokenPool(room // (4 * WIDTH * LAYERS), LAYERS, WIDTH)
            self.caches = [[k, v] for k, v in zip(pool.k_buffer, pool.v_buffer, strict=True)]
        else:
            self.caches = [[tensor] for tensor in self._allocate_kv_cache_tensors(room // LAYERS)]

    def _allocate_kv_cache_tensors(self, size: int) -> list[torch.Tensor]:
        return [torch.zeros(size // 2, dtype=torch.int16, device="cuda").view(torch.bfloat16) for _ in range(LAYERS)]

    def capture_model(self) -> None:
        memory = None
        self.tokens = torch.zeros(GRAPHS[0], dtype=torch.long, device="cuda")
        self.outputs = {}
        for size in GRAPHS:
            self.model(self.tokens[:size], self.caches)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=memory):
                self.outputs[size] = self.model(self.tokens[:size], self.caches)
            memory = graph.pool()
            self.graphs[size] = graph

    def execute_model(self, step: int) -> torch.Tensor:
        if step % 4 == 0:  # a prompt
            hidden = self.model(torch.zeros(300 + 100 * step, dtype=torch.long, device="cuda"), self.caches)
        elif self.graphs:
            size = GRAPHS[step % len(GRAPHS)]
            self.graphs[size].replay()
            hidden = self.outputs[size]
        else:
            hidden = self.model(torch.zeros(8, dtype=torch.long, device="cuda"), self.caches)
        return self.model.head(hidden[-1:]).float().softmax(-1)

    def truth(self) -> dict[str, int]:
        segments = torch.cuda.memory._snapshot()["segments"]
        pools = [one["total_size"] for one in segments if tuple(one.get("segment_pool_id", (0, 0))) != (0, 0)]
        return {
            "weights": sum(one.untyped_storage().nbytes() for one in self.model.parameters()),
            "kv_cache": sum(one.untyped_storage().nbytes() for cache in self.caches for one in cache),
            "graphs": sum(pools),
            "activations": self.activations,
            "reserved": torch.cuda.memory_reserved(),
        }


@torch.inference_mode()
def main() -> None:
    out, kind = sys.argv[1:]
    record: Any = torch.cuda.memory._record_memory_history
    torch.cuda.init()
    if kind != "late":
        record(max_entries=1_000_000)
    runner = Runner(kind)
    runner.load_model()
    runner.profile_run()
    runner.initialize()
    if kind != "no_graphs":
        runner.capture_model()
    if kind == "late":
        record(max_entries=1_000_000)
    for step in range(12):
        runner.execute_model(step)
    with open(out, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    print(json.dumps(runner.truth()))


if __name__ == "__main__":
    main()
