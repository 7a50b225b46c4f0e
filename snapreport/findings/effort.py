"""What a remedy takes to apply, where, and the line as it should read: advice is ranked by these before bytes."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import AdviceContext

ONE_LINE, SETTING, REWRITE, SLOWER = "one line", "a setting", "a rewrite", "slower training"
EFFORTS = {
    "no-grad": ONE_LINE,
    "previous-outputs": ONE_LINE,
    "retained-graphs": ONE_LINE,
    "keep-gradients": ONE_LINE,
    "foreach-optimizer": ONE_LINE,
    "loaded-checkpoint": ONE_LINE,
    "unused-model": ONE_LINE,
    "fused-attention": ONE_LINE,
    "sdpa-math-kernel": ONE_LINE,
    "backward-each": ONE_LINE,
    "autocast-copies": ONE_LINE,
    "mixed-precision": ONE_LINE,
    "broadcast": ONE_LINE,
    "one-hot": ONE_LINE,
    "expanded-mask": ONE_LINE,
    "collected-outputs": ONE_LINE,
    "exception-holds": ONE_LINE,
    "full-logits": ONE_LINE,
    "frozen-base": ONE_LINE,
    "empty-cache": ONE_LINE,
    "expandable-segments": SETTING,
    "max-split-size": SETTING,
    "unset-max-split-size": SETTING,
    "garbage-collection-threshold": SETTING,
    "pinned-rounding": SETTING,
    "checkpointing": SLOWER,
    "accumulation": SLOWER,
    "offload": SLOWER,
}
"""By rule; what is not here is a rewrite."""
LINES = {
    "no-grad": "with torch.no_grad():",
    "keep-gradients": "optimizer.zero_grad(set_to_none=True)",
    "foreach-optimizer": "optimizer = torch.optim.AdamW(parameters, fused=True)",
    "fused-attention": "out = torch.nn.functional.scaled_dot_product_attention(q, k, v)",
    "mixed-precision": 'with torch.autocast("cuda", dtype=torch.bfloat16):',
    "checkpointing": "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
}
"""The line as it should read, where the rule alone says it."""
MUCH = 0.05
"""Of the peak: a change of one line that saves less does not come before others that save more."""
_LIBRARY = r"(^|/)(torch|torchinductor_[^/]*|site-packages|dist-packages|lib/python[\d.]+)/"


def effort_of(rule: str) -> str:
    return EFFORTS.get(rule, REWRITE)


def place_of(context: AdviceContext, mask: np.ndarray | None) -> str | None:
    """``file.py:12``: the line of the program that allocates most of these bytes; None where none is recorded."""
    if mask is None:
        return None
    rows = np.flatnonzero(mask & context.at_peak & (context.stack > 0))
    frames = context.remember("lines of the program", lambda: context.innermost(_LIBRARY))[context.stack[rows]]
    rows, frames = rows[frames >= 0], frames[frames >= 0]
    if not len(rows):
        return None
    bytes_of = np.zeros(int(frames.max()) + 1, np.int64)
    np.add.at(bytes_of, frames, context.size[rows])
    frame = context.snapshot.recording.frames.row(int(np.argmax(bytes_of)), named=True)
    return f"{frame['filename']}:{frame['line']}" if frame["line"] > 0 else None


def priority_of(rule: str, confidence: str, saves_bytes: int, peak_bytes: int) -> int:
    """0 for a change of one line that the recording shows and that saves much, 2 for an estimate, 1 for others."""
    if confidence == "estimate":
        return 2
    return 0 if effort_of(rule) == ONE_LINE and saves_bytes >= MUCH * peak_bytes else 1
