"""Where a remedy applies, and what a person does first: advice is ranked by that before bytes."""

from __future__ import annotations

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext
from snapreport.findings.loop_lines import MODULE_CALL
from snapreport.sentence import parts_of
from snapreport.timeline.phases import OPTIMIZER_STEP

MUCH = 0.05
"""Of the peak: a change of one line that saves less does not come before others that save more."""
MISTAKES = ("backward-each", "second-model", "expanded-mask", "retained-graphs", "exception-holds")
"""Rules whose estimates name a mistake in the program; those of others assume number types that are not recorded."""
_MOST_BYTES = 0.8
"""Of a rule's bytes: a line that calls so many of them calls what the remedy changes."""
_LIBRARY = r"(^|/)(torch|torchinductor_[^/]*|site-packages|dist-packages|lib/python[\d.]+)/"
_AT_CALL = ("no-grad", "accumulation", "mixed-precision", "backward-each", "device-imbalance")
"""Rules that change the line which calls the model."""
_AT_RESULT = ("previous-outputs", "collected-outputs", "retained-graphs")
"""Rules that change what the line which calls the model does with its largest result."""
_AT_LAYER = ("checkpointing",)
"""Rules that change the line which calls each layer."""
_AT_STEP = ("foreach-optimizer", "optimizer-state", "offload")
"""Rules that change the optimizer's constructor, which no stack trace has: the line that calls its ``step``."""
_AT_ATTENTION = ("fused-attention",)
"""Rules that change the function which calls a softmax, and not the softmax."""
_WITH_GRADIENTS = ("chunked-loss",)
"""Rules of which most bytes may be gradients, which the engine allocates without a stack trace."""
_MIN_PLACE_SHARE = 0.5
"""Of a rule's bytes at the peak: where fewer have a stack trace, these lines are not the ones to change."""


def place_of(context: AdviceContext, advice: Advice) -> str | None:
    """``/app/file.py:12``: the line of the program to change; None where none is recorded.

    It allocates most of the advice's bytes, at the peak if any has a stack trace there, or calls what does; of
    gradients, it calls what frees them. Of ``empty_cache()``, it calls that.
    """
    if advice.rule == "empty-cache" and (churn := context.finding("churn")):
        (place, *_) = parts_of(churn.evidence["emptied_in"])
        return f"{place.file}:{place.line}" if place.line else None
    if advice.mask is None:
        return None
    if advice.rule in _AT_STEP:
        return _stepping(context)
    stack_of = context.stack
    if advice.rule == "keep-gradients":  # the engine allocates them
        stack_of = np.where(context.functions("^zero_grad$")[context.free_stack], context.free_stack, 0)
    at_peak = advice.mask & context.at_peak
    rows = np.flatnonzero(at_peak & (stack_of > 0))
    is_few = context.size[rows].sum() < _MIN_PLACE_SHARE * context.size[at_peak].sum()
    if len(rows) and is_few and advice.rule not in _WITH_GRADIENTS:
        return None
    rows = rows if len(rows) else np.flatnonzero(advice.mask & (stack_of > 0))
    if not len(rows):
        return None
    stacks, which = np.unique(stack_of[rows], return_inverse=True)
    size = np.bincount(which, weights=context.size[rows]).astype(np.int64)
    if advice.rule in _AT_RESULT:
        stacks, size = stacks[[np.argmax(size)]], size[[np.argmax(size)]]
    if advice.rule in (*_AT_CALL, *_AT_LAYER, *_AT_RESULT):
        return _calling(context, stacks, size, is_layer=advice.rule in _AT_LAYER)
    frames = context.innermost(_LIBRARY)[stacks]
    if advice.rule in _AT_ATTENTION:
        around = context.innermost(_LIBRARY + r"|(?i: \w*softmax\w*$)")[stacks]
        frames = np.where(around >= 0, around, frames)
    known = frames >= 0
    if not known.any():
        return None
    bytes_of = np.bincount(frames[known], weights=size[known])
    return _line(context, int(np.argmax(bytes_of)))


def _calling(context: AdviceContext, stacks: np.ndarray, size: np.ndarray, *, is_layer: bool) -> str | None:
    """The innermost line of the program in most of these bytes' stacks: of a layer, else outside of modules."""
    names = context.snapshot.recording.frames["name"]
    frames = {stack: set(context.snapshot.recording.stack(stack)) for stack in stacks.tolist()}
    top = list(context.snapshot.recording.stack(int(stacks[np.argmax(size)])))
    called = np.flatnonzero(names.gather(top).str.contains(MODULE_CALL).to_numpy())
    if is_layer and not len(called):
        return None
    outside = int(called[0] if is_layer else called[-1]) + 1 if len(called) else 0
    for frame in top[outside:]:
        called_here = [frame in frames[stack] for stack in stacks.tolist()]
        if context.own_frames[frame] and size[called_here].sum() >= _MOST_BYTES * size.sum():
            return _line(context, int(frame))
    return None


def _stepping(context: AdviceContext) -> str | None:
    """The innermost line of the program outside of the innermost ``step``, where an optimizer allocates most."""
    bytes_of = np.bincount(context.stack, context.size) * context.phases.runs(OPTIMIZER_STEP)[: context.stack.max() + 1]
    if not bytes_of.any():
        return None
    frames = list(context.snapshot.recording.stack(int(np.argmax(bytes_of))))
    steps = np.flatnonzero((context.snapshot.recording.frames["name"].gather(frames) == "step").to_numpy())
    outside = frames[int(steps[0]) + 1 :] if len(steps) else []
    calling = (int(frame) for frame in outside if context.own_frames[frame])
    frame = next(calling, None)
    return None if frame is None else _line(context, frame)


def _line(context: AdviceContext, frame: int) -> str | None:
    row = context.snapshot.recording.frames.row(frame, named=True)
    return f"{row['filename']}:{row['line']}" if row["line"] > 0 else None


def priority_of(advice: Advice, saves_bytes: int, peak_bytes: int) -> int:
    """0 for a change of one line that the recording shows and that saves much, 2 for a guess, 1 for others."""
    if advice.confidence == "estimate" and advice.rule not in MISTAKES:
        return 2
    is_much = advice.comes_first or saves_bytes >= MUCH * peak_bytes
    return 0 if advice.effort == ONE_LINE and is_much else 1
