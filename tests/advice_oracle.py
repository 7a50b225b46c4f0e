"""What each piece of advice may say it saves: sums over the peak's allocations, or a number of the finding it rests
on.
"""

from __future__ import annotations

import re
from typing import Any

import held_oracle
import oracle
import table_oracle

from snapreport.reading.noise import NOISE, PYTHON

SCORES = re.compile(r"(?i)(softmax|attention_scores|attn_weights|masked_fill|baddbmm)")
FUSED = re.compile(r"(?i)flash_?attn|flash_attention|efficient_attention|_scaled_dot_product_|xformers|flex_attention")
ATTENTION = re.compile(r"(?i)atten|attn")
LOSS = re.compile(r"(?i)cross_?entropy|log_?softmax|nll_?loss")
CACHE = re.compile(
    r"(?i)kv_?cache|key_?value|past_key|/cache\.py|/cache_utils\.py|DynamicCache|StaticCache|paged_?attention"
)
ELEMENTWISE = re.compile(
    r"^(forward (activation|dropout)\.py|(relu6?|leaky_relu|rrelu|prelu|elu|selu|celu|gelu|silu|mish|glu"
    r"|hardswish|hardtanh|hardsigmoid|softplus|threshold|tanh|sigmoid|dropout[123]?d?|alpha_dropout"
    r"|feature_alpha_dropout)_? functional\.py)$"
)
TORCH_FILES = re.compile(r"torch/nn/(modules/(activation|dropout)|functional)\.py ")
SHARDED = re.compile(r"(?i)fsdp|zero_?redundancy|deepspeed|distributed_?optim|distrib_optimizer")


def has(stack: oracle.Frames, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(f"{held_oracle.slashed(file)} {name}") for file, _, name in stack)


def innermost(stack: oracle.Frames) -> str | None:
    table_oracle.learn(set(stack))
    for frame in stack:
        if table_oracle.FLAGS[frame] & PYTHON and not table_oracle.FLAGS[frame] & NOISE:
            return f"{frame[2]} {held_oracle.slashed(frame[0]).split('/')[-1]}"
    return None


def is_score(stack: oracle.Frames, callers: set[str]) -> bool:
    if has(stack, FUSED) or not has(stack, ATTENTION):
        return False
    return has(stack, SCORES) or innermost(stack) in callers


def saves(device: oracle.Device, stacks: set[oracle.Frames], rule: str, others: list[dict[str, Any]]) -> int:
    """Bytes for one rule. ``stacks``: all of the snapshot; ``others``: evidence of the device's other findings,
    recomputed.
    """
    live = held_oracle.live_at(device, device.peak_event)
    held = {row["category"]: row["bytes"] for row in held_oracle.by_category(live)}

    def of(*categories: str) -> int:
        return sum(held.get(category, 0) for category in categories)

    def within(keep: Any) -> int:
        return sum(a.size for a in live if keep(a.stack))

    if rule == "checkpointing":
        return of("activation") - max((a.size for a in live if held_oracle.category(a) == "activation"), default=0)
    if rule == "accumulation":
        return of("activation", "input", "temporary") // 2
    if rule == "mixed-precision":
        return of("activation") // 2
    if rule == "fused-attention":
        makers = [s for s in stacks if has(s, SCORES) and has(s, ATTENTION) and not has(s, FUSED)]
        callers = {held_oracle.function(s) for s in makers}
        return within(lambda s: is_score(s, callers))
    if rule == "chunked-loss":
        return within(lambda s: has(s, LOSS))
    if rule == "set-to-none":
        return of("gradient")
    if rule == "optimizer-state":
        sharded = any(has(s, SHARDED) for s in stacks)
        return 3 * of("optimizer state") // 4 if sharded else of("optimizer state")
    if rule == "offload":
        return of("optimizer state", "parameter")
    if rule == "kv-cache":
        return within(lambda s: has(s, CACHE))
    if rule == "pinned-rounding":
        return sum((1 << (a.size - 1).bit_length()) - a.size for a in live)
    if rule == "elementwise":
        return within(lambda s: bool(ELEMENTWISE.search(innermost(s) or "")) and has(s, TORCH_FILES))
    keys = {
        "expandable-segments": ("own_hole_bytes", "usable_hole_bytes"),
        "max-split-size": ("inactive_split_bytes",),
        "empty-cache": ("bytes_again",),
        "garbage-collection-threshold": ("bytes_again",),
    }[rule]
    return next(e[key] for e in others for key in keys if key in e)
