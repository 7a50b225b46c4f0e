"""Where a remedy applies, and what a person does first: advice is ranked by that before bytes."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from snapreport.findings.advice_context import ONE_LINE, SETTING, Advice, AdviceContext
from snapreport.findings.common_caller import calls_most
from snapreport.findings.loop_lines import MODULE_CALL
from snapreport.reading.noise import PYTHON, recorded_flags
from snapreport.reading.stack_marks import stacks_with
from snapreport.sentence import parts_of
from snapreport.timeline.phases import OPTIMIZER_STEP

MUCH = 0.05
"""Of the peak: a change of one line that saves less does not come before others that save more."""
WITHOUT_TYPES = (
    *("accumulation", "backward-each", "collected-weights", "second-model", "expanded-mask", "retained-graphs"),
    "exception-holds",
)
"""Rules whose estimates assume no number types, which are not recorded."""
_MOST_BYTES = 0.8
"""Of a rule's bytes: a line that calls so many of them calls what the remedy changes."""
_LIBRARY = r"(^|/)(torch|torchinductor_[^/]*|site-packages|dist-packages|lib/python[\d.]+)/"
_AT_CALL = (
    *("no-grad", "accumulation", "mixed-precision", "backward-each", "device-imbalance"),
    *("evaluation-batch", "inference-batch"),
)
"""Rules that change the line which calls the model."""
_AT_RESULT = ("previous-outputs", "collected-outputs", "retained-graphs")
"""Rules that change what the line which calls the model does with its largest result."""
_AT_LAYER = ("checkpointing",)
"""Rules that change the line which calls each layer."""
AT_STEP = ("foreach-optimizer", "optimizer-state", "offload")
"""Rules that change the optimizer's constructor, which no stack trace has: the line that calls its ``step``."""
_AT_ATTENTION = ("fused-attention",)
"""Rules that change the function which calls a softmax, and not the softmax."""
_MIN_PLACE_SHARE = 0.5
"""Of a rule's bytes at the peak: where more were allocated before the trace than by lines of the program, these lines
are not the ones to change."""
_IN_ENVIRONMENT = "in the environment, before the program starts"
_NO_STACKS = "not recorded, since no stack trace of what it changes has a line of the program"
_BEFORE = "not recorded, since most of what it changes was allocated before the trace"
_NO_ZEROING = "not recorded, since zero_grad() frees nothing here"
_NO_STEP = "not recorded, since the optimizer's step allocates nothing here"
_NO_FREES = "not recorded, since no stack trace has the line that frees what it changes"
_NO_CALLER = "not recorded, since no line of the program calls most of what it changes"


class Place(Struct, frozen=True):
    """The line to change, ``/app/file.py:12``, or why it is not known."""

    where: str | None = None
    unknown: str | None = None


def place_of(context: AdviceContext, advice: Advice) -> Place:
    """The line of the program to change.

    It allocates most of the advice's bytes, at the peak if most have a stack trace there, or calls what does; of
    gradients, it calls what frees them. Of ``empty_cache()``, it calls that.
    """
    if advice.rule == "empty-cache" and (churn := context.churn):
        (place, *_) = parts_of(churn.evidence["emptied_in"])
        return Place(f"{place.file}:{place.line}") if place.line else Place(unknown=_NO_STACKS)
    if advice.place:
        return Place(unknown=advice.place)
    if advice.effort == SETTING:
        return Place(unknown=_IN_ENVIRONMENT)
    if advice.rule in AT_STEP:
        where = _stepping(context)
        return Place(where, None if where else _NO_STEP)
    if advice.held is not None:
        return _freeing(context, advice.held)
    if advice.mask is None:
        return Place(unknown=_NO_FREES)
    stack_of = context.stack
    if advice.rule == "keep-gradients":  # the engine allocates them
        stack_of = np.where(context.functions("^zero_grad$")[context.free_stack], context.free_stack, 0)
    by_program = context.remember_of_stacks(
        "stacks of the program", lambda: stacks_with(context.recording, context.own_frames)
    )[stack_of]
    at_peak = advice.mask & context.at_peak
    if advice.rule == "collected-weights":  # whose optimizer state may be most of it
        at_peak &= context.category("parameter")
    recorded = int(context.size[at_peak & by_program].sum())
    older = int(context.size[at_peak & ~by_program & ~context.is_traced].sum())
    if recorded < older * _MIN_PLACE_SHARE / (1 - _MIN_PLACE_SHARE):
        return Place(unknown=_BEFORE)
    # The engine allocates gradients without a stack trace of the program: then all that its lines allocate counts.
    rows = at_peak if recorded >= _MIN_PLACE_SHARE * context.size[at_peak].sum() else advice.mask
    rows = np.flatnonzero(rows & by_program)
    if not len(rows):
        return Place(unknown=_NO_ZEROING if advice.rule == "keep-gradients" else _NO_STACKS)
    stacks, which = np.unique(stack_of[rows], return_inverse=True)
    size = np.bincount(which, weights=context.size[rows]).astype(np.int64)
    if advice.rule in _AT_RESULT:
        stacks, size = stacks[[np.argmax(size)]], size[[np.argmax(size)]]
    if advice.rule in (*_AT_CALL, *_AT_LAYER, *_AT_RESULT):
        where = _calling(context, stacks, size, is_layer=advice.rule in _AT_LAYER)
        return Place(where, None if where else _NO_CALLER)
    frames = context.innermost(_LIBRARY)[stacks]
    if advice.rule in _AT_ATTENTION:
        around = context.innermost(_LIBRARY + r"|(?i: \w*softmax\w*$)")[stacks]
        frames = np.where(around >= 0, around, frames)
    known = frames >= 0
    if not known.any():
        return Place(unknown=_NO_STACKS)
    where = _line(context, int(np.argmax(np.bincount(frames[known], weights=size[known]))))
    return Place(where, None if where else _NO_STACKS)


def _freeing(context: AdviceContext, held: np.ndarray) -> Place:
    """The line of the program that frees most of ``held``: where an exception that refers to it is caught."""
    rows = np.flatnonzero(held & (context.free_stack > 0) & (context.free_stack != context.stack))
    frames = context.innermost(_LIBRARY)[context.free_stack[rows]]
    known = frames >= 0
    if 2 * context.size[rows[known]].sum() < context.size[held].sum():
        return Place(unknown=_NO_FREES)
    frame = int(np.argmax(np.bincount(frames[known], weights=context.size[rows[known]])))
    where = _line(context, frame) or _meanwhile(context, held, frame)
    return Place(where, None if where else _NO_FREES)


def _meanwhile(context: AdviceContext, held: np.ndarray, frame: int) -> str | None:
    """The line of a frame's function that allocates most while all of ``held`` is alive: the end of an except block
    has no line, but the retry in it has.
    """
    while_held = (context.born > context.born[held].max()) & (context.born < context.freed[held].min())
    same, bytes_of = context.function_of_frame, dict[int, int]()
    for row in np.flatnonzero(while_held).tolist():
        for each in context.recording.stack(int(context.stack[row])):
            if same[each] == same[frame]:
                bytes_of[int(each)] = bytes_of.get(int(each), 0) + int(context.size[row])
                break
    return _line(context, max(bytes_of, key=lambda each: bytes_of[each])) if bytes_of else None


def _calling(context: AdviceContext, stacks: np.ndarray, size: np.ndarray, *, is_layer: bool) -> str | None:
    """The innermost line of the program in most of these bytes' stacks: of a layer, else outside of modules."""
    recording = context.recording
    calls = recording.frames["name"].str.contains(MODULE_CALL).to_numpy()
    whole = [np.asarray(recording.stack(stack)) for stack in stacks.tolist()]
    # What a backward pass computes again runs in a thread of its own, without the line that calls the model.
    # With C++ frames that thread's stack ends in them, as that of the program does.
    python = recorded_flags(recording) & PYTHON != 0
    by_program = np.array([bool(context.own_frames[inside[python[inside]][-1:]].any()) for inside in whole])
    if by_program.any() and not is_layer:
        whole, size = [inside for inside, own in zip(whole, by_program, strict=True) if own], size[by_program]
    is_layer = is_layer and any(calls[inside].any() for inside in whole)  # functions may be layers, too
    frames, callers = list[np.ndarray](), list[list[int]]()
    for inside in whole:
        called = np.flatnonzero(calls[inside])
        outside = int(called[0] if is_layer else called[-1]) + 1 if len(called) else 0
        # A loss calls no layers. A thread of the engine or of DataParallel has no line that calls the model.
        mine = [int(frame) for frame in inside[outside:] if context.own_frames[frame]]
        if is_layer and not mine:
            mine = [int(frame) for frame in inside if context.own_frames[frame]]
        frames.append(inside)
        callers.append(mine if len(called) or not is_layer else [])
    known = [at for at, mine in enumerate(callers) if mine]
    if not known:
        return None
    size = size[known]
    # One line calls most of it, or else several lines of one function, of which that with most bytes is taken; the line
    # that starts the program, which calls everything, comes last.
    line = np.arange(len(context.function_of_frame))
    for same, is_start in ((line, False), (context.function_of_frame, True), (line, True)):
        for frame in callers[known[int(np.argmax(size))]]:
            within = [bool((same[frames[at]] == same[frame]).any()) for at in known]
            if size[within].sum() >= _MOST_BYTES * size.sum() and (is_start or not _calls_all(context, frame)):
                return _line(context, frame)
    return None


def _calls_all(context: AdviceContext, frame: int) -> bool:
    """Whether a frame is the line of a module that starts nearly all of the program: it tells no place to change."""
    recording = context.recording
    traced = context.stack[context.is_traced & context.has_python]
    return bool(recording.frames["name"][frame] == "<module>") and calls_most(recording, frame, traced)


def _stepping(context: AdviceContext) -> str | None:
    """The innermost line of the program outside of the innermost ``step``, where an optimizer allocates most."""
    bytes_of = np.bincount(context.stack, context.size) * context.phases.runs(OPTIMIZER_STEP)[: context.stack.max() + 1]
    if not bytes_of.any():
        return None
    frames = list(context.recording.stack(int(np.argmax(bytes_of))))
    steps = np.flatnonzero((context.recording.frames["name"].gather(frames) == "step").to_numpy())
    outside = frames[int(steps[0]) + 1 :] if len(steps) else []
    calling = (int(frame) for frame in outside if context.own_frames[frame])
    frame = next(calling, None)
    return None if frame is None else _line(context, frame)


def _line(context: AdviceContext, frame: int) -> str | None:
    row = context.recording.frames.row(frame, named=True)
    return f"{row['filename']}:{row['line']}" if row["line"] > 0 else None


def priority_of(advice: Advice, saves_bytes: int, peak_bytes: int) -> int:
    """0 for a change of one line that the recording shows and that saves much, 2 for a guess, 1 for others."""
    if advice.confidence == "estimate" and advice.rule not in WITHOUT_TYPES:
        return 2
    is_much = advice.comes_first or saves_bytes >= MUCH * peak_bytes
    return 0 if advice.effort == ONE_LINE and is_much else 1
