"""A language model that serves requests: weights, prefill, decoding with a key-value cache that grows by concatenation.

Requests arrive and end at random, so that caches of many lengths coexist: each token allocates a longer cache
for every layer and frees the old one, as `DynamicCache` of transformers does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from generator.blocks import Block
from generator.device import Device
from generator.options import Options
from generator.stacks import APP, TORCH, StackBook
from generator.transformer import CUBLAS_WORKSPACE, FLOAT, HALF, LONG


@dataclass(slots=True)
class Request:
    """A request being answered: its tokens so far, those still to come, and the cache (key and value per layer)."""

    length: int
    remaining: int
    cache: list[Block] = field(default_factory=list)


class Serving:
    """The server on one device: `setup`, then repeated `step` (one round of decoding)."""

    def __init__(self, device: Device, options: Options, book: StackBook) -> None:
        self.device = device
        self.options = options
        self.requests: list[Request] = []
        self._kept: list[Block] = []
        self._cache_scale = options.regression if options.regression_in == "cache" else 1.0
        main = book.program(APP + "serve.py", 160)
        load = main.call(APP + "serve.py", 131, "main").call(APP + "loader.py", 44, "load_weights")
        self.weights = load.call(TORCH + "nn/modules/module.py", 1369, "to").stack("aten::to")
        self.kept_stack = load.call(APP + "loader.py", 52, "make_tables").stack("aten::arange")
        serve = main.call(APP + "serve.py", 140, "main").call(APP + "serve.py", 101, "serve_forever")
        self.place = serve
        prefill = serve.call(APP + "serve.py", 66, "prefill")
        decode = serve.call(APP + "serve.py", 83, "decode")
        self.prompt = prefill.call(APP + "tokenizer.py", 28, "encode").stack("aten::to")
        self.prompt_free = prefill.release()
        self._score = serve.call(APP + "serve.py", 74, "score_prompt").stack("aten::log_softmax")
        self.finish = serve.call(APP + "serve.py", 94, "finish").release()
        self.phases = {}
        for name, phase in (("prefill", prefill), ("decode", decode)):
            model = phase.call(TORCH + "utils/_contextlib.py", 120, "decorate_context").module(APP + "model.py", 178)
            block = model.module(APP + "model.py", 121)
            attention = block.module(APP + "model.py", 58)
            cache = attention.call(APP + "cache.py", 37, "update")
            mlp = block.module(APP + "model.py", 92)
            sample = phase.call(APP + "sampling.py", 19, "sample")
            self.phases[name] = {
                "hidden": block.module(APP + "model.py", 30).stack("aten::native_layer_norm"),
                "qkv": attention.module(TORCH + "nn/modules/linear.py", 134).stack("aten::linear"),
                "cache": cache.stack("aten::cat"),
                "cache_free": cache.release(),
                "attend": attention.call(APP + "model.py", 77, "attend").stack("aten::scaled_dot_product_attention"),
                "up": mlp.module(TORCH + "nn/modules/linear.py", 134).stack("aten::linear"),
                "free": block.release(),
                "logits": model.call(APP + "model.py", 184, "logits").stack("aten::linear"),
                "sample": sample.stack("aten::softmax"),
                "sample_free": sample.release(),
            }

    def setup(self) -> None:
        """Load the weights."""
        options, hidden = self.options, self.options.hidden
        self._kept.append(self.device.alloc(options.vocabulary * hidden * HALF, self.weights))
        for _ in range(options.layers):
            for elements in (
                3 * hidden * hidden,
                hidden * hidden,
                4 * hidden * hidden,
                4 * hidden * hidden,
                hidden,
                hidden,
            ):
                self._kept.append(self.device.alloc(elements * HALF, self.weights))
        self._kept.append(self.device.alloc(CUBLAS_WORKSPACE, self.kept_stack))
        self._kept.append(self.device.alloc(options.sequence * 128 * FLOAT, self.kept_stack))

    def step(self, number: int) -> None:
        """One round: requests arrive, each gets a token, some end."""
        rng = self.device.rng
        self.device.recorder.now_us += rng.randint(200, 3_000)
        while len(self.requests) < self.options.batch and rng.random() < 0.35:
            prompt = max(8, int(self.options.sequence * rng.random() ** 2))
            self._start(Request(prompt, 4 + int(rng.expovariate(1 / 48))))
        self._decode()

    def outgrow(self) -> None:
        """Score a prompt so long that its probabilities exceed the remaining memory: plain demand."""
        memory = self.device.allocator.memory
        left = memory.total - memory.other - self.device.allocator.allocated
        tokens = left * 5 // 4 // (self.options.vocabulary * FLOAT)
        prompt = self.device.alloc(tokens * LONG, self.prompt)
        hidden = self.device.alloc(self.options.hidden * HALF, self.phases["prefill"]["hidden"])
        logits = self.device.alloc(tokens * self.options.vocabulary * FLOAT, self._score)
        self.device.free_all((logits, hidden, prompt), self.finish)

    def _start(self, request: Request) -> None:
        """Prefill: run the whole prompt and create the cache."""
        self.requests.append(request)
        prompt = self.device.alloc(request.length * LONG, self.prompt)
        self._layers("prefill", [request], request.length)
        self.device.free(prompt, self.prompt_free)

    def _decode(self) -> None:
        if not self.requests:
            return
        for request in self.requests:
            request.length += 1
            request.remaining -= 1
        self._layers("decode", self.requests, len(self.requests))
        for request in [request for request in self.requests if request.remaining <= 0]:
            self.requests.remove(request)
            self.device.free_all(request.cache, self.finish)

    def _layers(self, phase: str, requests: list[Request], tokens: int) -> None:
        device, stacks, hidden = self.device, self.phases[phase], self.options.hidden
        alloc, free = device.alloc, device.free
        wide = tokens * hidden * HALF
        residual = alloc(wide, stacks["hidden"])
        for layer in range(self.options.layers):
            qkv = alloc(3 * wide, stacks["qkv"])
            for request in requests:
                for part in (2 * layer, 2 * layer + 1):
                    longer = alloc(request.length * hidden * HALF * self._cache_scale, stacks["cache"])
                    if part < len(request.cache):
                        free(request.cache[part], stacks["cache_free"])
                        request.cache[part] = longer
                    else:
                        request.cache.append(longer)
            attended = alloc(wide, stacks["attend"])
            free(qkv, stacks["free"])
            up = alloc(4 * wide, stacks["up"])
            free(attended, stacks["free"])
            following = alloc(wide, stacks["hidden"])
            free(up, stacks["free"])
            free(residual, stacks["free"])
            residual = following
        logits = alloc(len(requests) * self.options.vocabulary * HALF, stacks["logits"])
        free(residual, stacks["free"])
        probabilities = alloc(len(requests) * self.options.vocabulary * FLOAT, stacks["sample"])
        chosen = alloc(len(requests) * LONG, stacks["sample"])
        free(logits, stacks["sample_free"])
        free(probabilities, stacks["sample_free"])
        free(chosen, stacks["sample_free"])
