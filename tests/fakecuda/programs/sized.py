"""Programs of which one number can be chosen: a batch, a length, an image's side, a width.

``sized.py OUT PROGRAM VALUE`` records three steps of PROGRAM at VALUE, dumps a snapshot to OUT and prints
the peaks of ``torch.cuda.memory_stats`` as JSON. A request that fails is printed, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import sized_data
import torch
from sized_models import (
    Autoencoder,
    Denoiser,
    Detector,
    Embeddings,
    Experts,
    LoraLinear,
    Transformer,
    Unet,
    attention_by_hand,
    dense_net,
    residual_net,
    vision_transformer,
)
from torch import nn
from torch.nn import functional

DEVICE = "cuda"
Step = Callable[[nn.Module], torch.Tensor]
STEPS = 3


def words(batch: int, length: int = 128) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.long, device=DEVICE)


def images(batch: int, side: int = 64) -> torch.Tensor:
    return torch.empty(batch, 3, side, side, device=DEVICE)


def train(model: nn.Module, step: Step, optimizer: str = "AdamW", **options: object) -> None:
    model.to(DEVICE)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    update = getattr(torch.optim, optimizer)(trained, lr=1e-3, **options)
    for _ in range(STEPS):
        loss = step(model)
        loss.backward()
        update.step()
        update.zero_grad()


def next_word(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def gpt_batch(value: int) -> None:
    train(Transformer(), lambda model: next_word(model, words(value)))


def gpt_length(value: int) -> None:
    train(Transformer(), lambda model: next_word(model, words(4, value)))


def scores_length(value: int) -> None:
    """Attention that computes its scores: quadratic in the length."""
    train(Transformer(attention=attention_by_hand), lambda model: next_word(model, words(4, value)))


def gpt_width(value: int) -> None:
    train(Transformer(width=value), lambda model: next_word(model, words(4)))


def autocast_batch(value: int) -> None:
    def step(model: nn.Module) -> torch.Tensor:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return next_word(model, words(value))

    train(Transformer(), step)


def checkpointed_batch(value: int) -> None:
    train(Transformer(is_checkpointed=True), lambda model: next_word(model, words(value)))


def sgd_momentum_batch(value: int) -> None:
    train(Transformer(layers=2), lambda model: next_word(model, words(value)), "SGD", momentum=0.9)


def fused_adam_batch(value: int) -> None:
    train(Transformer(layers=2), lambda model: next_word(model, words(value)), "Adam", foreach=False)


def accumulated_batch(value: int) -> None:
    def step(model: nn.Module) -> torch.Tensor:
        next_word(model, words(value)).backward()
        return next_word(model, words(value))

    train(Transformer(), step)


def lora_batch(value: int) -> None:
    model = Transformer(linear=LoraLinear)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("adapter" in name)
    train(model, lambda model: next_word(model, words(value)))


def experts_batch(value: int) -> None:
    train(Experts(), lambda model: next_word(model, words(value)))


def resnet_batch(value: int) -> None:
    train(residual_net(), lambda model: model(images(value)).square().mean(), "SGD", momentum=0.9)


def resnet_side(value: int) -> None:
    train(residual_net(), lambda model: model(images(4, value)).square().mean(), "SGD", momentum=0.9)


def densenet_batch(value: int) -> None:
    train(dense_net(), lambda model: model(images(value)).square().mean())


def unet_batch(value: int) -> None:
    train(Unet(), lambda model: model(images(value)).square().mean())


def unet_side(value: int) -> None:
    train(Unet(), lambda model: model(images(2, value)).square().mean())


def vit_batch(value: int) -> None:
    train(vision_transformer(), lambda model: model(images(value)).square().mean())


def diffusion_batch(value: int) -> None:
    def step(model: nn.Module) -> torch.Tensor:
        clean = images(value, 32)
        noise = torch.empty_like(clean)
        return functional.mse_loss(model(clean + noise), noise)

    train(Denoiser(), step)


def autoencoder_batch(value: int) -> None:
    train(Autoencoder(), lambda model: functional.mse_loss(model(images(value)), images(value)))


def detector_boxes(value: int) -> None:
    """Anchors against boxes: a matrix of both."""
    train(Detector(), lambda model: model(images(2), torch.empty(value, 4, device=DEVICE)))


def embeddings_batch(value: int) -> None:
    train(Embeddings(), lambda model: model(words(value, 26), torch.empty(value, 13, device=DEVICE)), "Adagrad")


def contrastive_batch(value: int) -> None:
    """Every sample against every other: quadratic in the batch."""

    def step(model: nn.Module) -> torch.Tensor:
        one, two = (functional.normalize(model(images(value, 32)).flatten(1), dim=1) for _ in range(2))
        return functional.cross_entropy(one @ two.T, torch.arange(value, device=DEVICE))

    train(residual_net(), step)


def encoder(width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))


def compared_batch(value: int) -> None:
    """Pictures against texts, both ways, as in CLIP."""

    def step(model: nn.Module) -> torch.Tensor:
        pictures, texts = (functional.normalize(part(torch.empty(value, 256, device=DEVICE))) for part in model)
        logits, number = model.scale.exp() * pictures @ texts.T, torch.arange(value, device=DEVICE)
        return (functional.cross_entropy(logits, number) + functional.cross_entropy(logits.T, number)) / 2

    model = nn.ModuleList([encoder(), encoder()])
    model.scale = nn.Parameter(torch.ones([]))
    train(model, step)


def views_batch(value: int) -> None:
    """Two views of each picture, each against all others, as in SimCLR."""

    def step(model: nn.Module) -> torch.Tensor:
        views = functional.normalize(model(torch.empty(2 * value, 256, device=DEVICE)))
        itself = torch.eye(2 * value, dtype=torch.bool, device=DEVICE)
        similarity = (views @ views.T / 0.5).masked_fill(itself, float("-inf"))
        return functional.cross_entropy(similarity, torch.arange(2 * value, device=DEVICE).roll(value))

    train(encoder(), step)


def lstm_length(value: int) -> None:
    torch.backends.cudnn.enabled = False
    model = nn.ModuleDict({"in": nn.Embedding(4000, 128), "cell": nn.LSTM(128, 256, 2), "out": nn.Linear(256, 4000)})

    def step(model: nn.Module) -> torch.Tensor:
        tokens = words(value, 8)
        hidden, _ = model["cell"](model["in"](tokens))
        return functional.cross_entropy(model["out"](hidden).flatten(0, 1), tokens.flatten())

    train(model, step)


def lstm_batch(value: int) -> None:
    torch.backends.cudnn.enabled = False
    model = nn.ModuleDict({"in": nn.Embedding(4000, 128), "cell": nn.LSTM(128, 256, 2), "out": nn.Linear(256, 4000)})

    def step(model: nn.Module) -> torch.Tensor:
        tokens = words(32, value)
        hidden, _ = model["cell"](model["in"](tokens))
        return functional.cross_entropy(model["out"](hidden).flatten(0, 1), tokens.flatten())

    train(model, step)


def gan_batch(value: int) -> None:
    real, fake = Autoencoder().to(DEVICE), residual_net().to(DEVICE)
    first, second = (torch.optim.Adam(net.parameters()) for net in (real, fake))
    for _ in range(STEPS):
        made = real(images(value))
        second.zero_grad()
        (fake(made.detach()).mean() - fake(images(value)).mean()).backward()
        second.step()
        first.zero_grad()
        fake(made).mean().neg().backward()
        first.step()


def cached_decoding_batch(value: int) -> None:
    """Inference with keys and values that grow by one token."""
    model = Transformer().to(DEVICE).eval()
    with torch.no_grad():
        for _ in range(2):
            cache: list[torch.Tensor] = []
            tokens = words(value, 32)
            for _ in range(12):
                logits = model(tokens, cache)
                tokens = logits[:, -1:].argmax(-1)


def cached_decoding_length(value: int) -> None:
    model = Transformer().to(DEVICE).eval()
    with torch.no_grad():
        for _ in range(2):
            cache: list[torch.Tensor] = []
            tokens = words(4, value)
            for _ in range(12):
                tokens = model(tokens, cache)[:, -1:].argmax(-1)


def compiled_batch(value: int) -> None:
    model = torch.compile(Transformer(layers=2).to(DEVICE), backend="aot_eager", dynamic=False)
    train(model, lambda model: next_word(model, words(value)))


def padded_batch(value: int) -> None:
    """Lengths that depend on the data: another in each step, and on the number."""
    lengths = [(value * 37 + 53 * step) % 96 + 32 for step in range(STEPS)]
    model = Transformer()
    train(model, lambda model: next_word(model, words(value, lengths.pop())))


def buffered_batch(value: int) -> None:
    """A buffer of fixed size beside a batch that grows."""
    kept = torch.empty(2000, 3, 32, 32, device=DEVICE)
    train(residual_net(), lambda model: model(kept[:value].clone()).square().mean())


def evaluated_batch(value: int) -> None:
    """After each two steps an evaluation of 64 samples, whatever the batch of training is."""
    model = nn.Sequential(nn.Embedding(2000, 128), nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 2000)).to(DEVICE)
    update = torch.optim.AdamW(model.parameters())
    for number in range(STEPS):
        next_word(model, words(value, 32)).backward()
        update.step()
        update.zero_grad()
        if number % 2:
            with torch.no_grad():
                next_word(model, words(64, 32))


ENDINGS = ("batch", "length", "side", "width", "boxes")
PROGRAMS = {
    name: found
    for name, found in (vars(sized_data) | globals()).items()
    if callable(found) and name.rpartition("_")[2] in ENDINGS
}


def main() -> None:
    out, program, value = sys.argv[1:4]
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    torch.manual_seed(0)
    failed = ""
    try:
        PROGRAMS[program](int(value))
    except torch.OutOfMemoryError as error:
        failed = str(error)[:60]
    stats = torch.cuda.memory_stats()
    if out != "-":
        torch.cuda.memory._dump_snapshot(out)
    allocated, reserved = (stats[f"{name}_bytes.all.peak"] for name in ("requested", "reserved"))
    retries = stats["num_alloc_retries"]
    print(json.dumps({"allocated": allocated, "reserved": reserved, "retries": retries, "failed": failed}))


if __name__ == "__main__":
    main()
