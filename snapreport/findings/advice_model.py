"""What a model or its training could keep less of: each rule looks at a device and gives one piece of advice, or
none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from snapreport.findings.repetition import repetitions
from snapreport.findings.seen import Advice, Seen
from snapreport.scalars import greatest
from snapreport.timeline.own_code import own_functions

# Functions whose output is as large as their input and depends on it number by number; softmax and attention are not of
# them.
_ELEMENTWISE = (
    "relu6?|leaky_relu|rrelu|prelu|elu|selu|celu|gelu|silu|mish|glu|hardswish|hardtanh|hardsigmoid|softplus|threshold|tanh|sigmoid|"
    "dropout[123]?d?|alpha_dropout|feature_alpha_dropout"
)
_INNERMOST = rf"^(forward (activation|dropout)\.py|({_ELEMENTWISE})_? functional\.py)$"


def _checkpointing(seen: Seen) -> Advice | None:
    activations = seen.peak.filter(pl.col("category") == "activation")
    size = int(activations["size"].sum())
    # What one stretch between two checkpoints needs stays: at least its largest tensor.
    saves = size - greatest(activations["size"])
    if (
        not seen.trains
        or not seen.is_much(saves)
        or seen.has_frames(r"torch/utils/checkpoint\.py|(?i)activation_checkpoint")
    ):
        return None
    return Advice(
        "checkpointing",
        "Recompute activations in the backward pass instead of keeping them",
        f"Activations hold {seen.share(size)}, and no recorded stack goes through torch.utils.checkpoint.",
        saves,
        "activation checkpointing, torch.utils.checkpoint",
        "https://docs.pytorch.org/docs/stable/checkpoint.html",
        query="category:activation",
    )


def _accumulation(seen: Seen) -> Advice | None:
    size = seen.bytes_of("activation", "input", "temporary")
    if not seen.trains or seen.bytes_of("activation") == 0 or not seen.is_much(size // 2):
        return None
    return Advice(
        "accumulation",
        "Halve the batch and accumulate gradients over two",
        f"What grows with the batch (activations, inputs, temporaries) holds {seen.share(size)}.",
        size // 2,
        "gradient accumulation",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        query="category:activation OR category:input OR category:temporary",
    )


def _mixed_precision(seen: Seen) -> Advice | None:
    size = seen.bytes_of("activation")
    if not seen.is_much(size // 2) or seen.has_frames(
        r"(?i)autocast|/amp/|bfloat16|float16|\bhalf\b|fp16|bf16|transformer_engine|megatron"
    ):
        return None
    return Advice(
        "mixed-precision",
        "Compute in a 16-bit type where the model allows it",
        f"Activations hold {seen.share(size)}, and no recorded stack goes through autocast. A snapshot does not tell "
        "types: where the program is in 16 bits already, this saves nothing.",
        size // 2,
        "automatic mixed precision, torch.autocast",
        "https://docs.pytorch.org/docs/stable/amp.html",
        "guess",
        "category:activation",
    )


def _attention(seen: Seen) -> Advice | None:
    within = seen.frames_match(r"(?i)atten|attn")
    fused = seen.frames_match(
        r"(?i)flash_?attn|flash_attention|efficient_attention|_scaled_dot_product_|xformers|flex_attention"
    )
    own = seen.frames_match(r"(?i)(softmax|attention_scores|attn_weights|masked_fill|baddbmm)") & within & ~fused
    # The scores are made by the function that calls the softmax, and not by a module that it calls.
    callers = own_functions(seen.snapshot.recording).filter(pl.Series(own)).drop_nulls().unique()
    own |= seen.innermost.is_in(callers.implode()).fill_null(value=False).to_numpy() & within & ~fused
    size = seen.peak_bytes_in(own)
    if not seen.is_much(size):
        return None
    return Advice(
        "fused-attention",
        "Use fused attention, which never holds the matrix of scores",
        f"Scores and their softmax, made one by one within attention, hold {seen.share(size)}.",
        size,
        "torch.nn.functional.scaled_dot_product_attention",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        query="atten OR attn",
    )


def _loss(seen: Seen) -> Advice | None:
    size = seen.peak_bytes_in(seen.frames_match(r"(?i)cross_?entropy|log_?softmax|nll_?loss"))
    if not seen.trains or not seen.is_much(size):
        return None
    return Advice(
        "chunked-loss",
        "Compute the loss in chunks, or fuse it with the last layer",
        f"The loss and its gradient (cross entropy, log softmax) hold {seen.share(size)} at one moment.",
        size,
        "fused or chunked cross entropy",
        "https://docs.pytorch.org/torchtune/0.4/generated/torchtune.modules.loss.CEWithChunkedOutputLoss.html",
        query="cross_entropy OR log_softmax OR LogSoftmax OR nll_loss OR NllLoss",
    )


def _set_to_none(seen: Seen) -> Advice | None:
    """Gradients that never go: live through every repetition's least moment, so they were zeroed and kept."""
    size = seen.bytes_of("gradient")
    slices = repetitions(seen.timeline)
    if not seen.is_much(size) or slices is None:
        return None
    gradients = seen.timeline.allocations.filter(pl.col("category").cast(pl.String) == "gradient")
    start = gradients["alloc_event"].to_numpy().astype(np.int64) + 1
    end = gradients["free_event"].to_numpy().astype(np.int64) + 1
    end = np.where(end > 0, end, len(seen.timeline.allocated))
    sizes = gradients["size"].to_numpy()
    # Gradients that are set to None are gone for the whole forward pass: at a quarter of each repetition.
    quarters = slices.bounds[1:-1] + np.diff(slices.bounds)[1:] // 4
    kept = [int(sizes[(start <= at) & (end > at)].sum()) for at in quarters.tolist()]
    if not kept or min(kept) < 0.9 * size:
        return None
    return Advice(
        "set-to-none",
        "Drop gradients between steps instead of zeroing them",
        f"Gradients hold {seen.share(size)} and stay live through the forward pass of every {slices.unit}.",
        size,
        "Optimizer.zero_grad(set_to_none=True)",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        query="category:gradient",
    )


def _optimizer(seen: Seen) -> Advice | None:
    size = seen.bytes_of("optimizer state")
    if not seen.is_much(size):
        return None
    sharded = seen.has_frames(r"(?i)fsdp|zero_?redundancy|deepspeed|distributed_?optim|distrib_optimizer")
    many = len([device for device in seen.snapshot.devices if device >= 0 and len(seen.snapshot.events(device))])
    ranks = f" over the {many} devices of this snapshot" if many > 1 else ""
    what = "Keep less optimizer state" if sharded else f"Shard the optimizer's state{ranks}, or keep less of it"
    return Advice(
        "optimizer-state",
        what,
        f"Optimizer state holds {seen.share(size)}"
        + (
            "; it is sharded already."
            if sharded
            else ", and no recorded stack goes through FSDP or a sharded optimizer."
        ),
        # 8-bit states keep a quarter of 32-bit ones; of what is sharded over n ranks 1/n stays, which may be next to
        # nothing.
        3 * size // 4 if sharded else size,
        "ZeroRedundancyOptimizer and FSDP (fully_shard), or an optimizer with 8-bit state",
        "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
        query='category:"optimizer state"',
    )


def _offload(seen: Seen) -> Advice | None:
    size = seen.bytes_of("optimizer state", "parameter")
    if not seen.bytes_of("optimizer state") or size < 0.5 * seen.timeline.peak_bytes or seen.has_frames(r"(?i)offload"):
        return None
    return Advice(
        "offload",
        "Move what waits to host memory",
        f"Parameters and optimizer state hold {seen.share(size)}, most of them idle at any moment.",
        size,
        "CPUOffloadPolicy of fully_shard",
        "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.CPUOffloadPolicy",
        query='category:parameter OR category:"optimizer state"',
    )


def _kv_cache(seen: Seen) -> Advice | None:
    size = seen.peak_bytes_in(
        seen.frames_match(
            r"(?i)kv_?cache|key_?value|past_key|/cache\.py|/cache_utils\.py|DynamicCache|StaticCache|paged_?attention"
        )
    )
    if not seen.is_much(size) or seen.bytes_of("gradient", "optimizer state") > 0:
        return None
    return Advice(
        "kv-cache",
        "Keep a shorter or smaller key-value cache",
        f"Caches of keys and values hold {seen.share(size)}.",
        size,
        "KV cache: a sliding window, paging, or a narrower type",
        "https://docs.pytorch.org/tutorials/intermediate/scaled_dot_product_attention_tutorial.html",
        query="cache",
    )


def _elementwise(seen: Seen) -> Advice | None:
    """Outputs of functions that work number by number, each kept beside its input."""
    if seen.has_frames(r"torchinductor_|_inductor/|^<eval_with_key>"):
        return None
    innermost = seen.innermost.str.contains(_INNERMOST).fill_null(value=False).to_numpy()
    size = seen.peak_bytes_in(innermost & seen.frames_match(r"torch/nn/(modules/(activation|dropout)|functional)\.py "))
    if not seen.is_much(size):
        return None
    return Advice(
        "elementwise",
        "Fuse elementwise functions, or do them in place where the model allows it",
        f"Outputs of activation functions and dropout hold {seen.share(size)}, each beside its input, and no recorded "
        "stack was compiled.",
        size,
        "torch.compile, or inplace=True of torch.nn.ReLU, SiLU, Dropout and the like",
        "https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
        "guess",
        query="activation.py OR dropout.py OR functional.py",
    )


MODEL_RULES: tuple[Callable[[Seen], Advice | None], ...] = (
    _checkpointing, _accumulation, _mixed_precision, _attention, _loss, _elementwise, _set_to_none, _optimizer,
    _offload, _kv_cache,
)  # fmt: skip
