"""Where a remedy applies, and what a person does first: advice is ranked by that before bytes."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.loop_lines import MODULE_CALL

MUCH = 0.05
"""Of the peak: a change of one line that saves less does not come before others that save more."""
_MOST_BYTES = 0.8
"""Of a rule's bytes: a line that calls so many of them calls what the remedy changes."""
_LIBRARY = r"(^|/)(torch|torchinductor_[^/]*|site-packages|dist-packages|lib/python[\d.]+)/"
_AT_CALL = ("no-grad", "accumulation", "mixed-precision", "backward-each", "device-imbalance")
"""Rules that change the line which calls the model."""
_AT_LAYER = ("checkpointing",)
"""Rules that change the line which calls each layer."""
_NOWHERE = ("foreach-optimizer", "optimizer-state", "offload")
"""Rules that change the optimizer's constructor, which no stack trace has."""


def place_of(context: AdviceContext, advice: Advice) -> str | None:
    """``/app/file.py:12``: the line of the program to change; None where none is recorded.

    It allocates most of the advice's bytes, at the peak if any has a stack trace there, or calls what does.
    """
    if advice.mask is None or advice.rule in _NOWHERE:
        return None
    rows = np.flatnonzero(advice.mask & context.at_peak & (context.stack > 0))
    rows = rows if len(rows) else np.flatnonzero(advice.mask & (context.stack > 0))
    if not len(rows):
        return None
    stacks, which = np.unique(context.stack[rows], return_inverse=True)
    size = np.bincount(which, weights=context.size[rows]).astype(np.int64)
    if advice.rule in (*_AT_CALL, *_AT_LAYER):
        return _calling(context, stacks, size, is_layer=advice.rule in _AT_LAYER)
    frames = context.remember("lines of the program", lambda: context.innermost(_LIBRARY))[stacks]
    known = frames >= 0
    if not known.any():
        return None
    bytes_of = np.bincount(frames[known], weights=size[known])
    return _line(context, int(np.argmax(bytes_of)))


def _calling(context: AdviceContext, stacks: np.ndarray, size: np.ndarray, *, is_layer: bool) -> str | None:
    """The innermost line of the program that calls most of these bytes: of a layer, else outside of modules."""
    names = context.snapshot.recording.frames["name"]
    frames = {stack: set(context.snapshot.recording.stack(stack)) for stack in stacks.tolist()}
    top = list(context.snapshot.recording.stack(int(stacks[np.argmax(size)])))
    called = np.flatnonzero(names.gather(top).str.contains(MODULE_CALL).to_numpy())
    if not len(called):
        return None
    outside = int(called[0] if is_layer else called[-1]) + 1
    for frame in top[outside:]:
        called_here = [frame in frames[stack] for stack in stacks.tolist()]
        if context.own_frames[frame] and size[called_here].sum() >= _MOST_BYTES * size.sum():
            return _line(context, int(frame))
    return None


def _line(context: AdviceContext, frame: int) -> str | None:
    row = context.snapshot.recording.frames.row(frame, named=True)
    return f"{row['filename']}:{row['line']}" if row["line"] > 0 else None


def priority_of(advice: Advice, saves_bytes: int, peak_bytes: int) -> int:
    """0 for a change of one line that the recording shows and that saves much, 2 for an estimate, 1 for others."""
    if advice.confidence == "estimate":
        return 2
    return 0 if advice.effort == ONE_LINE and saves_bytes >= MUCH * peak_bytes else 1
