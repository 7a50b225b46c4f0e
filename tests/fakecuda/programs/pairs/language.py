"""Programs on text and speech: language models, translation, contrastive pairs, experts, fine-tuning."""

from __future__ import annotations

import torch
from pairs.kit import (
    DEVICE,
    REMEDY,
    Attention,
    Layer,
    cross_entropy,
    floats,
    integers,
    program,
    run,
    train,
)
from torch import nn
from torch.nn import functional


@program(half="accumulation", chunks="chunked-loss", autocast="mixed-precision")
def lstm() -> None:
    words, body = nn.Embedding(20000, 512), nn.LSTM(512, 512, 2, batch_first=True)
    last = nn.Linear(512, 20000)
    net = nn.ModuleList([words, body, last]).to(DEVICE)
    train(
        net,
        lambda: (integers(32, 64), integers(32, 64)),
        lambda x, y: cross_entropy(last, body(words(x))[0], y),
        torch.optim.Adam,
    )


class Cross(nn.Module):
    """A layer of a decoder, which attends to the encoder's output."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.own, self.cross = Attention(width, heads), Attention(width, heads)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](x + self.own(x))
        x = self.norms[1](x + self.cross(x, memory))
        return self.norms[2](x + functional.dropout(self.down(functional.relu(self.up(x))), 0.1))


@program(
    half="accumulation",
    autocast="mixed-precision",
    checkpoint="checkpointing",
    chunks="chunked-loss",
    sdpa="fused-attention sdpa-math-kernel",
)
def translation() -> None:
    words, last = nn.Embedding(16000, 384), nn.Linear(384, 16000, bias=False)
    encoder = nn.ModuleList([Layer(384, 6) for _ in range(5)])
    decoder = nn.ModuleList([Cross(384, 6) for _ in range(5)])
    net = nn.ModuleList([words, encoder, decoder, last]).to(DEVICE)

    def loss_of(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory = words(source)
        for layer in encoder:
            memory = run(layer, memory)
        x = words(target)
        for layer in decoder:
            x = run(layer, x, memory)
        return cross_entropy(last, x, target)

    train(net, lambda: (integers(16, 256), integers(16, 192)), loss_of)


class Gated(nn.Module):
    """A layer of a Llama: root mean squares, rotated queries and keys, a gated multilayer perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 8 * width // 3, bias=False) for _ in range(2))
        self.down = nn.Linear(8 * width // 3, width, bias=False)

    @staticmethod
    def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.qkv(self.normed(x, self.first)).chunk(3, -1))
        q, k = (part * cos + torch.cat([-part.chunk(2, -1)[1], part.chunk(2, -1)[0]], -1) * sin for part in (q, k))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v.contiguous()))
        mixed = functional.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.normed(x, self.second)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


@program(half="accumulation", chunks="chunked-loss", autocast="mixed-precision", checkpoint="checkpointing")
def llama() -> None:
    words, layers = nn.Embedding(32000, 768), nn.ModuleList([Gated(768, 12) for _ in range(8)])
    last = nn.Linear(768, 32000, bias=False)
    net = nn.ModuleList([words, layers, last]).to(DEVICE)
    cos, sin = floats(512, 1, 64), floats(512, 1, 64)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = words(x)
        for layer in layers:
            h = run(layer, h, cos, sin)
        return cross_entropy(last, h, y)

    train(net, lambda: (integers(4, 512), integers(4, 512)), loss_of, fused=True)


class Adapted(nn.Module):
    """A frozen linear layer with a trained one of low rank beside it."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(before, after, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(before, 16, bias=False), nn.Linear(16, after, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(x))


class AdaptedLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, fused=True)
        for name in "qkv":
            setattr(self.attention, name, Adapted(width, width))
        self.attention.out.requires_grad_(False)
        self.up, self.down = Adapted(width, 4 * width), Adapted(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(functional.gelu(self.up(self.second(x))))


@program(base="frozen-base", checkpoint="checkpointing", half="accumulation")
def adapters() -> None:
    words, layers = nn.Embedding(16000, 1024).requires_grad_(False), nn.ModuleList()
    layers.extend(AdaptedLayer(1024, 16) for _ in range(10))
    last = nn.Linear(1024, 16000, bias=False).requires_grad_(False)
    net = nn.ModuleList([words, layers, last]).to(DEVICE)
    if REMEDY == "base":
        net.to(torch.bfloat16)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = words(x)
        for layer in layers:
            h = run(layer, h)
        return cross_entropy(last, h, y)

    train(net, lambda: (integers(4, 256), integers(4, 256)), loss_of)


@program(autocast="mixed-precision", checkpoint="checkpointing")
def contrastive() -> None:
    """Images and texts, each the other's negatives within the batch, which cannot be halved."""
    eyes = nn.ModuleList([Layer(512, 8, fused=True) for _ in range(6)])
    reader = nn.ModuleList([Layer(384, 6, fused=True) for _ in range(6)])
    patch, words = nn.Conv2d(3, 512, 16, 16), nn.Embedding(8000, 384)
    one, two = nn.Linear(512, 256), nn.Linear(384, 256)
    net = nn.ModuleList([eyes, reader, patch, words, one, two]).to(DEVICE)

    def loss_of(image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        x, y = patch(image).flatten(2).transpose(1, 2), words(text)
        for layer in eyes:
            x = run(layer, x)
        for layer in reader:
            y = run(layer, y)
        u, v = functional.normalize(one(x.mean(1)), dim=-1), functional.normalize(two(y.mean(1)), dim=-1)
        logits = 14 * u @ v.T
        labels = torch.arange(len(u), device=DEVICE)
        return (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)) / 2

    train(net, lambda: (floats(64, 3, 192, 192), integers(64, 64)), loss_of)


class Experts(nn.Module):
    """Tokens sorted by expert, each of which has its own multilayer perceptron."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(count)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1)
        gates = self.router(flat).softmax(-1)
        parts = flat.chunk(len(self.experts))
        mixed = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return x + (mixed * gates.amax(-1, keepdim=True)).view_as(x)


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def experts() -> None:
    words, last = nn.Embedding(4000, 512), nn.Linear(512, 4000)
    layers = nn.ModuleList([m for _ in range(4) for m in (Layer(512, 8, fused=True), Experts(512, 4))])
    net = nn.ModuleList([words, layers, last]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = words(x)
        for layer in layers:
            h = run(layer, h)
        return cross_entropy(last, h, y)

    train(net, lambda: (integers(16, 512), integers(16, 512)), loss_of)


@program(sdpa="fused-attention sdpa-math-kernel", half="accumulation", autocast="mixed-precision")
def masked_words() -> None:
    """An encoder with additive masks and dropout on its scores, as in BERT."""

    class Masked(Attention):
        def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
            q, k, v = (p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
            mask = x.new_zeros(len(x), 1, 1, x.shape[1])
            if self.fused:
                mixed = functional.scaled_dot_product_attention(q, k, v, mask.expand(-1, -1, x.shape[1], -1), 0.1)
            else:
                scores = q @ k.transpose(-1, -2) / 8 + mask
                mixed = functional.dropout(scores.softmax(-1), 0.1) @ v
            return self.out(mixed.transpose(1, 2).flatten(2))

    words, last = nn.Embedding(8000, 512), nn.Linear(512, 8000)
    layers = nn.ModuleList([Layer(512, 8) for _ in range(6)])
    for layer in layers:
        layer.attention = Masked(512, 8)
    net = nn.ModuleList([words, layers, last]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = words(x)
        for layer in layers:
            h = layer(h)
        return cross_entropy(last, h, y)

    train(net, lambda: (integers(16, 320), integers(16, 320)), loss_of)


class Biased(Attention):
    """Attention with dropout, and a bias that is added to its scores in place."""

    def forward(
        self, x: torch.Tensor, memory: torch.Tensor | None = None, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        source = x if memory is None else memory
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q(x), self.k(source), self.v(source))
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, bias, 0.1, scale=1.0)
        else:
            scores = q @ k.transpose(-1, -2)
            if bias is not None:
                scores += bias
            mixed = functional.dropout(scores.softmax(-1), 0.1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


@program(sdpa="fused-attention")
def relative() -> None:
    """An encoder and a decoder as in T5: relative positions and a mask are one bias per sample and head."""
    words, last = nn.Embedding(8000, 256), nn.Linear(256, 8000)
    tables = nn.ModuleList([nn.Embedding(32, 4) for _ in range(2)])
    encoder, decoder = (nn.ModuleList([Layer(256, 4) for _ in range(count)]) for count in (5, 10))
    for layer in (*encoder, *decoder):
        layer.attention = Biased(256, 4)
    net = nn.ModuleList([words, tables, encoder, decoder, last]).to(DEVICE)

    def bias_of(table: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        place = torch.arange(ids.shape[1], device=DEVICE)
        bias = table((place[None] - place[:, None]).clamp(0, 31)).permute(2, 0, 1)[None]
        bias = bias + floats(len(ids), 1, 1, ids.shape[1])
        return bias.contiguous() if REMEDY == "sdpa" else bias

    def layer_of(layer: Layer, x: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
        x = x + layer.attention(layer.first(x), *others)
        return x + layer.mlp(layer.second(x))

    def loss_of(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, bias = words(source), bias_of(tables[0], source)
        for layer in encoder:
            memory = layer_of(layer, memory, None, bias)
        x, bias = words(target), bias_of(tables[1], target)
        for own, cross in zip(decoder[::2], decoder[1::2], strict=True):
            x = layer_of(cross, layer_of(own, x, None, bias), memory)
        return cross_entropy(last, x, target)

    train(net, lambda: (integers(8, 512), integers(8, 128)), loss_of)


@program(delete="previous-outputs")
def requests() -> None:
    """A server of requests. One line makes the buffers of all layers, while those of the last request are alive."""
    net = nn.ModuleList([nn.Linear(512, 512) for _ in range(8)]).to(DEVICE)
    with torch.inference_mode():
        for _ in range(4):
            if REMEDY == "delete":
                buffers = buffer = None
            buffers = [floats(4, 512, 512) for _ in net]
            x = floats(4, 512)
            for place in range(12):
                for layer, buffer in zip(net, buffers, strict=True):
                    buffer[:, place] = layer(x)
                    x = buffer[:, : place + 1].mean(1)
            x.cpu()


class Conformer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.feed = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 4, fused=True)
        self.before, self.after = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depth, self.batch = nn.Conv1d(width, width, 31, padding=15, groups=width), nn.BatchNorm1d(width)
        self.last = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.feed[0](x)
        x = x + self.attention(self.norm(x))
        y = functional.glu(self.before(x.transpose(1, 2)), 1)
        x = x + self.after(functional.silu(self.batch(self.depth(y)))).transpose(1, 2)
        return self.last(x + 0.5 * self.feed[1](x))


@program(half="accumulation", autocast="mixed-precision", checkpoint="checkpointing")
def speech() -> None:
    begin, layers = nn.Linear(80, 256), nn.ModuleList([Conformer(256) for _ in range(8)])
    last = nn.Linear(256, 500)
    net = nn.ModuleList([begin, layers, last]).to(DEVICE)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = begin(x)
        for layer in layers:
            h = run(layer, h)
        return functional.cross_entropy(last(h).transpose(1, 2), y)

    train(net, lambda: (floats(16, 400, 80), integers(16, 400)), loss_of)
