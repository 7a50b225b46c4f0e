"""Models that are wrapped: by DDP, FSDP, FSDP2, ``torch.compile``, checkpoints and each other, or shared. Run by
``named.py`` like the programs of ``sized.py``: each takes a batch.

``MODELS`` has the modules and the parameters of each program by the names that they had before they were wrapped.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import Any

import sized
import torch
import torch.distributed as dist
from sized import DEVICE, words
from sized_models import Block, Transformer, attention_fused
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Named = tuple[nn.Module, list[tuple[str, nn.Module]]]
MODELS: list[Named] = []


def named(model: nn.Module) -> nn.Module:
    """On the device, and its modules by name."""
    MODELS.append((model, list(model.named_modules(remove_duplicate=False))))
    return model.to(DEVICE)


def ranks() -> None:
    """This process is the first of four, whose collectives do nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())


def data_parallel(model: nn.Module, **options: bool) -> nn.Module:
    """The only rank of DDP, which sends the order of its buckets through the device."""
    os.environ["FAKE_CUDA_SHADOW"] = "1"
    # It compares parameter shapes through the device, where everything reads as zero.
    dist._verify_params_across_processes = lambda *args, **kwargs: None
    dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore(), device_id=torch.device(DEVICE, 0))
    return nn.parallel.DistributedDataParallel(model, device_ids=[0], **options)


def train(model: nn.Module, batch: int) -> None:
    update = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(sized.STEPS):
        tokens = words(batch)
        logits = model(tokens)
        functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        update.step()
        update.zero_grad()
        if step < 2 and dist.is_initialized() and dist.get_backend() == "nccl":
            with contextlib.suppress(RuntimeError):  # of PyTorch 2.15's backend, which cannot be waited for
                dist.group.WORLD._wait_for_pending_works()  # until then a watchdog holds their buckets
    if dist.is_initialized():
        dist.destroy_process_group()


def ddp(batch: int) -> None:
    train(data_parallel(named(Transformer(layers=2))), batch)


def ddp_views(batch: int) -> None:
    """Gradients are parts of the buckets."""
    train(data_parallel(named(Transformer(layers=2)), gradient_as_bucket_view=True), batch)


def fsdp2(batch: int) -> None:
    from torch.distributed.fsdp import fully_shard

    ranks()
    model = named(Transformer(layers=3))
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    train(model, batch)


def fsdp2_checkpointed(batch: int) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    ranks()
    model = named(Transformer(layers=3, is_checkpointed=True))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    train(model, batch)


def fsdp2_compiled(batch: int) -> None:
    from torch.distributed.fsdp import fully_shard

    ranks()
    model = named(Transformer(layers=3))
    for layer in model.layers:
        layer.compile(backend="aot_eager", dynamic=False)
        fully_shard(layer)
    fully_shard(model)
    train(model, batch)


def fsdp1(batch: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    ranks()
    model = named(Transformer(layers=3))
    policy = ModuleWrapPolicy({Block})
    train(FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=0, use_orig_params=True), batch)


def compiled(batch: int) -> None:
    model = named(Transformer(layers=2))
    train(torch.compile(model, backend="aot_eager", dynamic=False), batch)


def compiled_layers(batch: int) -> None:
    """Each layer by its own, in place; what is around them is not compiled."""
    model = named(Transformer(layers=3))
    for layer in model.layers:
        layer.compile(backend="aot_eager", dynamic=False)
    train(model, batch)


def compiled_submodules(batch: int) -> None:
    """Wrapped objects take the places of the layers."""
    model = named(Transformer(layers=3))
    for number, layer in enumerate(model.layers):
        model.layers[number] = torch.compile(layer, backend="aot_eager", dynamic=False)
    train(model, batch)


class Reentrant(Transformer):
    def forward(self, tokens: torch.Tensor, cache: list[torch.Tensor] | None = None) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return self.head(x)


def reentrant(batch: int) -> None:
    model = named(Reentrant(layers=3))
    train(model, batch)


def checkpoint_wrappers(batch: int) -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    model = named(Transformer(layers=3))
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    train(model, batch)


class Halves(nn.Module):
    """Two stacks of layers in a dict, each in containers within containers."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4000, width)
        block = partial(Block, width, attention_fused, nn.Linear)
        self.halves = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Sequential(block(), block()), nn.Sequential(nn.Linear(width, width), nn.GELU()))
                for name in ("low", "high")
            }
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4000))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for half in self.halves.values():
            x = half(x)
        return self.head(x)


def nested(batch: int) -> None:
    train(named(Halves()), batch)


class Shared(nn.Module):
    """One block under two names and called by both, one norm in all places, and a head tied to the embedding."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4000, width)
        norm = nn.LayerNorm(width)
        block = Block(width, attention_fused, nn.Linear)
        self.first = nn.ModuleDict({"block": block, "norm": norm, "own": nn.Linear(width, width)})
        self.second = nn.ModuleDict({"block": block, "norm": norm, "own": nn.Linear(width, width)})
        self.head = nn.Linear(width, 4000, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for part in (self.first, self.second):
            x = part["own"](part["norm"](part["block"](x)))
        return self.head(x)


def shared(batch: int) -> None:
    train(named(Shared()), batch)


class Repeated(nn.Module):
    """One layer that runs three times in a step, as in ALBERT and universal transformers."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(4000, width), nn.Linear(width, 4000)
        self.layer = Block(width, attention_fused, nn.Linear)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for _ in range(3):
            x = self.layer(x)
        return self.head(x)


def repeated(batch: int) -> None:
    train(named(Repeated()), batch)


def parametrized(batch: int) -> None:
    """Weights that are computed from others in each forward pass."""
    model = Transformer(layers=2)
    for layer in model.layers:
        nn.utils.parametrizations.weight_norm(layer.up)
        nn.utils.parametrizations.spectral_norm(layer.down)
    train(named(model), batch)


def ddp_compiled(batch: int) -> None:
    model = data_parallel(named(Transformer(layers=2)))
    train(torch.compile(model, backend="aot_eager", dynamic=False), batch)


PROGRAMS: dict[str, Any] = {
    run.__name__: run
    for run in (
        ddp, ddp_views, ddp_compiled, fsdp1, fsdp2, fsdp2_checkpointed, fsdp2_compiled, compiled, compiled_layers,
        compiled_submodules, reentrant, checkpoint_wrappers, nested, shared, repeated, parametrized,
    )
}  # fmt: skip
