"""The models of ``sized.py``: small, and of many kinds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]


def attention_fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def attention_by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, width: int, attend: Attend, linear: type[nn.Module]) -> None:
        super().__init__()
        self.attend = attend
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.up, self.down = linear(width, 4 * width), linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def attention(self, x: torch.Tensor, cache: list[torch.Tensor] | None, at: int) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if cache is not None:
            if len(cache) > 2 * at:
                k, v = torch.cat([cache[2 * at], k], 2), torch.cat([cache[2 * at + 1], v], 2)
            cache[2 * at : 2 * at + 2] = [k, v]
        return self.out(self.attend(q, k, v, cache is None).transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor] | None = None, at: int = 0) -> torch.Tensor:
        x = x + self.attention(self.first(x), cache, at)
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    def __init__(
        self,
        layers: int = 4,
        width: int = 256,
        vocabulary: int = 4000,
        attention: Attend = attention_fused,
        linear: type[nn.Module] = nn.Linear,
        is_checkpointed: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, attention, linear) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.is_checkpointed = is_checkpointed

    def forward(self, tokens: torch.Tensor, cache: list[torch.Tensor] | None = None) -> torch.Tensor:
        x = self.embedding(tokens)
        for at, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if self.is_checkpointed else layer(x, cache, at)
        return self.head(x)


class LoraLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.adapter_down, self.adapter_up = nn.Linear(inputs, 8, bias=False), nn.Linear(8, outputs, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.adapter_up(self.adapter_down(x))


class Experts(nn.Module):
    """Four experts, of which all tokens see two halves."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding, self.gate, self.head = nn.Embedding(4000, width), nn.Linear(width, 4), nn.Linear(width, 4000)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(4)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        shares = self.gate(x).softmax(-1)
        parts = [expert(x) * shares[..., at : at + 1] for at, expert in enumerate(self.experts)]
        return self.head(torch.stack(parts).sum(0))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x + self.last(self.second(functional.relu(self.norm(self.first(x))))))


def residual_net() -> nn.Module:
    body = [Residual(32) for _ in range(4)]
    end = [nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), Residual(64), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *body, *end)


class Dense(nn.Module):
    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, growth, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.conv(functional.relu(self.norm(x)))], 1)


def dense_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *(Dense(16 + 12 * at, 12) for at in range(6)))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(32 << at, 64 << at, 3, stride=2, padding=1) for at in range(3))
        self.up = nn.ModuleList(nn.ConvTranspose2d(64 << at, 32 << at, 2, stride=2) for at in (2, 1, 0))
        self.last = nn.Conv2d(32, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, skips = self.first(x), []
        for layer in self.down:
            skips.append(x)
            x = functional.silu(layer(x))
        for layer in self.up:
            x = functional.silu(layer(x)) + skips.pop()
        return self.last(x)


def vision_transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(192, 6, 768, dropout=0.0, batch_first=True)
    patches = nn.Sequential(nn.Conv2d(3, 192, 8, stride=8), nn.Flatten(2))
    return nn.Sequential(patches, Transposed(), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False))


class Transposed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 3, 3, padding=1)
        self.blocks = nn.ModuleList(Residual(64) for _ in range(3))
        self.norms = nn.ModuleList(nn.GroupNorm(8, 64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            flat = norm(block(x)).flatten(2).transpose(1, 2)
            mixed = functional.scaled_dot_product_attention(flat, flat, flat)
            x = x + mixed.transpose(1, 2).view_as(x)
        return self.out(x)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU())
        self.decode = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(x))


class Detector(nn.Module):
    """A loss between every anchor and every box."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = residual_net()[:5], nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        anchors = self.head(self.body(x)).permute(0, 2, 3, 1).reshape(-1, 4)
        return (anchors[:, None] - boxes[None]).abs().sum(-1).min(1).values.mean()


class Embeddings(nn.Module):
    """A recommender: tables of 26 fields, their products in pairs, layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 32) for _ in range(26))
        self.dense, self.top = nn.Linear(13, 32), nn.Sequential(nn.Linear(27 * 27, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, fields: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        rows = [table(fields[:, at]) for at, table in enumerate(self.tables)]
        x = torch.stack([*rows, self.dense(numbers)], 1)
        return self.top((x @ x.transpose(1, 2)).flatten(1)).mean()
