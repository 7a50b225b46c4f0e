"""Programs of language models that are aligned, adapted or trained by reinforcement."""

from __future__ import annotations

import copy

import torch
from pairs.kit import DEVICE, REMEDY, floats, halves, integers, program
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Adapted(nn.Module):
    """A linear layer with an adapter of low rank."""

    def __init__(self, base: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x)) * 2.0


class Block(nn.Module):
    """A layer of GPT that returns its keys and values, too."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        parts = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.back(functional.gelu(self.wide(self.second(x)))), (k, v)


class Gpt(nn.Module):
    def __init__(self, words: int, width: int, layers: int, heads: int, positions: int = 1024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def hidden(self, ids: torch.Tensor) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        place = torch.arange(ids.shape[1], device=ids.device)
        x, past = self.words(ids) + self.places(place), []
        for block in self.blocks:
            x, present = block(x)
            past.append(present)
        return self.norm(x), past

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        x, past = self.hidden(ids)
        return self.head(x), past


@program(freeze="untrained-gradients")
def unfrozen() -> None:
    """LoRA, whose base still requires gradients: ``zero_grad`` frees those of the adapters alone."""
    model = Gpt(8000, 512, 8, 8)
    model.requires_grad_(REMEDY != "freeze")
    for block in model.blocks:
        block.qkv, block.wide = Adapted(block.qkv), Adapted(block.wide)
        block.out, block.back = Adapted(block.out), Adapted(block.back)
    model.to(DEVICE)
    adapters = [p for name, p in model.named_parameters() if ".up." in name or ".down." in name]
    optimizer = torch.optim.AdamW(adapters, 1e-3)
    for _ in range(4):
        ids = integers(2, 128)
        optimizer.zero_grad()
        logits, _ = model(ids)
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()


@program()
def turns() -> None:
    """A discriminator is updated with each batch. Gradients of the generator are accumulated, until SGD uses them."""

    def network(first: int, width: int, last: int) -> nn.Sequential:
        hidden = [nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.2)) for _ in range(5)]
        return nn.Sequential(nn.Linear(first, width), nn.LeakyReLU(0.2), *hidden, nn.Linear(width, last)).to(DEVICE)

    generator, discriminator = network(128, 1024, 768), network(768, 512, 1)
    of_generator = torch.optim.SGD(generator.parameters(), 1e-3)
    of_discriminator = torch.optim.AdamW(discriminator.parameters(), 1e-4)
    for batch in range(1, 6):
        made = generator(floats(64, 128))
        of_discriminator.zero_grad()
        right = functional.softplus(-discriminator(floats(64, 768))).mean()
        (right + functional.softplus(discriminator(made.detach())).mean()).backward()
        of_discriminator.step()
        (functional.softplus(-discriminator(made)).mean() / 8).backward()
        if batch % 8 == 0:  # not in so short a recording
            of_generator.step()
            of_generator.zero_grad()


@program(chunks="chunked-loss")
def chosen() -> None:
    """DPO in 16 bits: chosen and rejected texts at once, log-probabilities from logits in 32 bits."""
    policy = Gpt(24000, 256, 4, 4).to(DEVICE, torch.bfloat16)
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-6)

    def of_part(head: nn.Module, hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return -functional.cross_entropy(head(hidden).float(), ids, reduction="none")

    def log_probabilities(model: Gpt, ids: torch.Tensor) -> torch.Tensor:
        if REMEDY == "chunks":
            hidden, target = model.hidden(ids)[0][:, :-1].flatten(0, 1), ids[:, 1:].flatten()
            parts = [
                checkpoint(of_part, model.head, *part, use_reentrant=False)
                for part in zip(hidden.chunk(8), target.chunk(8), strict=True)
            ]
            return torch.cat(parts).view(len(ids), -1).sum(-1)
        logits = model(ids)[0][:, :-1].float()
        return functional.log_softmax(logits, -1).gather(2, ids[:, 1:, None]).squeeze(2).sum(-1)

    for _ in range(3):
        ids = torch.cat([integers(3, 200), integers(3, 200)])
        optimizer.zero_grad()
        of_policy = log_probabilities(policy, ids)
        with torch.no_grad():
            of_reference = log_probabilities(reference, ids)
        margin = (of_policy - of_reference).view(2, 3)
        loss = -functional.logsigmoid(0.1 * (margin[0] - margin[1])).mean()
        loss.backward()
        optimizer.step()


@program(chunks="chunked-loss")
def perplexity() -> None:
    """Long texts in 16 bits, whose loss is computed in 32 bits without the last position."""
    model = Gpt(24000, 256, 4, 4).to(DEVICE, torch.bfloat16).eval()

    @torch.no_grad()
    def loss_of(ids: torch.Tensor) -> torch.Tensor:
        if REMEDY == "chunks":
            hidden, target = model.hidden(ids)[0][:, :-1].flatten(0, 1), ids[:, 1:].flatten()
            parts = zip(hidden.chunk(8), target.chunk(8), strict=True)
            losses = [functional.cross_entropy(model.head(x).float(), y, reduction="sum") for x, y in parts]
            return torch.stack(losses).sum() / ids.numel()
        logits = model(ids)[0].float()[..., :-1, :].contiguous()
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), ids[:, 1:].flatten())

    for _ in range(6):
        loss_of(integers(2, 512)).item()


@program()
def reference() -> None:
    """GRPO, whose reference model is trained, too. Positions of T tokens take 8 T bytes, and so do the positions of the
    policy, which its embedding saves; the square of 4 T is as large as what it gives for 4 texts of width 2 T.
    """
    policy = Gpt(8000, 1024, 2, 8)
    net = nn.ModuleList([policy, copy.deepcopy(policy)]).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 1e-6, momentum=0.9)
    for _ in range(3):
        ids, advantage = integers(4, 512), floats(4)
        of_policy, of_reference = (
            model(ids)[0][:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2) for model in net
        )
        ratio = torch.exp(of_policy - of_policy.detach())
        loss = -(ratio * advantage[:, None] - 0.04 * (of_reference - of_policy).exp()).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program()
def returned() -> None:
    """A model that returns keys and values, too: they outlive the backward pass, but are needed at the peak."""
    model = Gpt(8000, 256, 8, 8).requires_grad_(False)
    for block in model.blocks:
        block.out = Adapted(block.out)
    model.to(DEVICE)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    for _ in range(4):
        ids = integers(4, 256)
        logits, _past = model(ids)
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program(half="accumulation")
def padded() -> None:
    """Classes of texts: each batch is padded to its longest text, and one text is five times as long as any other."""
    words, last = nn.Embedding(8000, 256), nn.Linear(256, 4)
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, 0.1, batch_first=True), 3)
    net = nn.ModuleList([words, layers, last]).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    for length in (120, 128, 640, 96, 128):
        for ids, target in halves(integers(16, length), integers(16)):
            functional.cross_entropy(last(layers(words(ids)).mean(1)), target).backward()
        optimizer.step()
        optimizer.zero_grad()


@program(detach="retained-graphs")
def recurrent() -> None:
    """Actor and critic, whose state is carried over to the next update with its graph."""
    see = nn.Sequential(nn.Conv2d(3, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 32, 4, 2), nn.ReLU(), nn.Flatten())
    cell, heads = nn.LSTMCell(32 * 81, 256), nn.Linear(256, 9)
    net = nn.ModuleList([see, cell, heads]).to(DEVICE)
    optimizer = torch.optim.RMSprop(net.parameters(), 1e-3)
    for _ in range(4):
        state = floats(64, 256), floats(64, 256)
        for _update in range(4):
            if REMEDY == "detach":
                state = state[0].detach(), state[1].detach()
            values, rewards = [], []
            for _ in range(4):
                observed = torch.empty(64, 3, 84, 84).to(DEVICE)
                state = cell(see(observed), state)
                values.append(heads(state[0]))
                rewards.append(torch.ones(64, 1).to(DEVICE))
            loss = sum((reward - value).square().mean() for value, reward in zip(values, rewards, strict=True))
            loss.backward(retain_graph=REMEDY != "detach")
        optimizer.step()
        optimizer.zero_grad()
