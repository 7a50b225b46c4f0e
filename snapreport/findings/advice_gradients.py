"""Advice about gradients that stay allocated through the next forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence, remembered
from snapreport.findings.graphs import (
    added_to_gradients,
    backward_begins,
    backward_passes,
    born_in,
    forward_births,
    freed_in,
)
from snapreport.findings.saving import bytes_over_time, peak_without_spans, share_with_cost
from snapreport.findings.untrained_gradients import reaches_inputs, untrained, without_training
from snapreport.integers import following
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import FORWARD, OPTIMIZER_STEP, ZERO_GRAD

FEWEST_PASSES = 3
"""Backward passes that find a gradient allocated, where no optimizer step shows."""
_FREE = "Free gradients between steps: `zero_grad(set_to_none=True)`"
_LIGHTNING = r"/(pytorch_)?lightning/(pytorch/)?loops/"
"""Lightning calls ``training_step``, then ``zero_grad``, then ``backward``."""
_LIGHTNING_LINE = "def on_train_batch_end(self, *_): self.optimizers().zero_grad()"


class GradientsEvidence(AdviceEvidence, kw_only=True):
    in_forward_bytes: int


@remembered
def _old_gradients(context: AdviceContext) -> tuple[np.ndarray, np.ndarray]:
    """(Bool per allocation: gradients that an optimizer step has used, and that are still allocated in the next forward
    pass; Int64 per allocation, where that begins).
    """
    events = context.timeline.events["stack"].to_numpy()
    steps = np.flatnonzero(context.phases.innermost[events] == OPTIMIZER_STEP)
    # Used by an optimizer step since they were made, or made before the trace.
    next_step = following(steps, context.born, len(events))
    used_at = np.where(~context.is_traced, -1, next_step)
    next_forward = following(forward_births(context), used_at, len(events) + 1)
    return context.category("gradient") & (next_forward < context.freed), next_forward


def keep_gradients(context: AdviceContext) -> Advice | None:
    """Gradients of an earlier step, still allocated during a forward pass."""
    if not context.trains:
        return None
    old, next_forward = _old_gradients(context)
    if not len(forward := forward_births(context)):
        return None
    if not old.any():
        return _never_freed(context)
    old = old & ~untrained(context)
    innermost, events = context.phases.innermost, context.timeline.events["stack"].to_numpy()
    late = old & _freed_after_forward(context)
    if 2 * context.size[late].sum() > context.size[old].sum():
        return _freed_late(context, late, next_forward)
    # A forward pass that the trace joins midway is followed by the free, not by a backward pass that adds to them.
    size = int(context.size[old & context.alive_at(int(forward[0]))].sum()) or context.bytes_at_peak(old)
    if not context.is_much(size) or _accumulates(context, old):
        return None
    at_peak = innermost[events[context.event]] if context.event >= 0 else FORWARD
    by_step = bool(at_peak == OPTIMIZER_STEP)
    steps = (context.phases.runs(OPTIMIZER_STEP) | context.phases.runs(ZERO_GRAD))[events]
    part = 0.0 if by_step else _until_each_backward(context, old, steps)
    needed = not part
    user = "the optimizer's step needs" if by_step else "further micro-batches need"
    stays = sentence("The peak stays, because {user} them; the forward pass gains that much room.", user=user)
    held = "{} of gradients stay allocated through the forward pass: they are zeroed in place, or never."
    why = [sentence(held, bytes_part(size))] + [stays] * needed
    return _advice(sentence(_FREE), why, old, part or 1.0, size, spares_peak=needed)


def _advice(do: str, why: Sequence[str], mask: np.ndarray, fraction: float, size: int, **more: Any) -> Advice:
    """size: bytes of gradients in a forward pass."""
    return Advice(
        "keep-gradients",
        do,
        why,
        "Optimizer.zero_grad(set_to_none=True)",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        mask,
        fraction,
        evidence=GradientsEvidence(in_forward_bytes=size),
        effort=ONE_LINE,
        **{"line": "optimizer.zero_grad(set_to_none=True)", **more},
    )


def _freed_after_forward(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: freed by ``zero_grad``; or by what no stack trace says, as PyTorch 2.11 records none of
    frees, between the last allocation of a forward pass and the first of its backward pass.
    """
    last, forward = len(context.timeline.events), forward_births(context)
    next_forward, next_backward = (following(at, context.freed, last) for at in (forward, backward_begins(context)))
    unknown = (context.free_stack == 0) | (context.free_stack == context.stack)
    between = unknown & (next_backward < next_forward)
    return np.asarray(context.phases.runs(ZERO_GRAD)[context.free_stack] | between)


def _freed_late(context: AdviceContext, late: np.ndarray, next_forward: np.ndarray) -> Advice | None:
    _, step = np.unique(next_forward[late], return_inverse=True)
    size = int(np.bincount(step, weights=context.size[late]).max())
    fraction = _until_backward(context, late, next_forward) if context.is_much(size) else 0.0
    if not fraction:
        return None
    where = {}
    if context.occurs(context.frames(_LIGHTNING)):
        where = {"line": _LIGHTNING_LINE, "place": "in the LightningModule"}
    elif not context.phases.runs(ZERO_GRAD)[context.free_stack[late]].any():
        where = {"place": "directly after the optimizer's step"}
    why = [sentence("{} of gradients are freed only after the forward pass of the next step.", bytes_part(size))]
    do = sentence("Call `zero_grad()` before the forward pass, not after it")
    return _advice(do, why, late, fraction, size, **where)


def _never_freed(context: AdviceContext) -> Advice | None:
    """Gradients that several backward passes find allocated, where no step and no ``zero_grad`` allocates or frees."""
    stacks, passes = context.timeline.events["stack"].to_numpy(), backward_passes(context)
    if (context.phases.runs(OPTIMIZER_STEP) | context.phases.runs(ZERO_GRAD))[stacks].any():
        return None
    old = context.traced("gradient")
    old &= freed_in(context) - born_in(context) >= FEWEST_PASSES
    # More than one for each weight are no sums that backward passes add to, but gradients which something refers to.
    if not 0 < (size := context.much_at_peak(old)) <= context.bytes_at_peak(context.category("parameter", "unknown")):
        return None
    if reaches_inputs(context):
        return without_training(context, old, size)
    # Each forward pass begins after a step.
    forward = context.forward[stacks]
    first = np.flatnonzero(forward)[np.unique(passes[forward], return_index=True)[1]]
    steps = np.zeros(len(stacks), bool)
    steps[first] = True
    fraction = _until_each_backward(context, old, steps)
    why: list[str] = [
        sentence(
            "{} of gradients stay allocated through {} backward passes: they are zeroed in place, or further "
            "micro-batches add to them.",
            bytes_part(size),
            int(passes[-1]),
        ),
        "No optimizer step is recorded, as of SGD without momentum, which allocates nothing.",
    ]
    return _advice(sentence(_FREE), why, old, fraction, size, confidence="estimate")


def _until_backward(context: AdviceContext, old: np.ndarray, next_forward: np.ndarray) -> float:
    """The share of these gradients that may be taken out without saving more than it saves to free each of them from
    the next forward pass up to the next backward pass, which may make it again; 0 where that is nothing.
    """
    timeline, rows = context.timeline, np.flatnonzero(old)
    last, starts = len(timeline.events), next_forward[rows]
    ends = np.minimum(following(backward_begins(context), starts, last), context.freed[rows])
    size, born = context.size[rows], context.born[rows]
    without = peak_without_spans(timeline, starts, np.where(ends < last, ends, -1), size)[0]
    freed = np.where(context.is_freed[rows], context.freed[rows], -1)
    for parts in range(16, 0, -1):
        if peak_without_spans(timeline, born, freed, np.floor(size * (parts / 16)).astype(np.int64))[0] >= without:
            return parts / 16
    return 0.0


def _until_each_backward(context: AdviceContext, old: np.ndarray, steps: np.ndarray) -> float:
    """The share of gradients that are never freed which leaves as much as to free them after each step: the first
    backward pass after it makes them again, one after another, and further micro-batches need them. steps: Bool
    per event.
    """
    events = context.timeline.events["stack"].to_numpy()
    place = np.arange(len(events))
    begins = np.diff(backward_passes(context), prepend=0) > 0
    stepped, begun = (np.maximum.accumulate(np.where(flag, place, -1)) for flag in (steps, begins))
    passes = np.cumsum(begins) - np.append(0, np.cumsum(begins))[stepped + 1]
    stops = np.append(np.flatnonzero(steps | context.forward[events]), len(events))
    ends = stops[np.searchsorted(stops, begun, "right")]
    part = np.where(passes == 0, 1.0, np.where(passes == 1, (ends - place) / np.maximum(ends - begun, 1), 0.0))
    rows, added = np.flatnonzero(old), np.flatnonzero(added_to_gradients(context))
    # What is added to a gradient would be the gradient, until it is freed; after that the old one stands for it.
    is_added = np.isin(context.size[rows], context.size[added])
    added = added[np.isin(context.size[added], context.size[rows])]
    freed = np.bincount(context.freed[added], context.size[added], len(events) + 1)[:-1].cumsum()
    again = np.where(passes == 0, 0.0, np.where(passes == 1, freed - freed[begun], np.inf))
    left = np.maximum(bytes_over_time(context.timeline, rows[is_added]) - np.append(0.0, again), 0.0)
    gone = left + np.append(0.0, np.clip(part, 0.0, 1.0)) * bytes_over_time(context.timeline, rows[~is_added])
    return share_with_cost(context.timeline, rows, 0.0, -gone.astype(np.int64))


def _accumulates(context: AdviceContext, old: np.ndarray) -> bool:
    """Whether the gradients are those of micro-batches: the trace has backward passes and never a step or zero_grad."""
    runs = context.phases.runs
    stacks = np.unique(context.timeline.events["stack"].to_numpy())
    return not (runs(OPTIMIZER_STEP)[stacks].any() or runs(ZERO_GRAD)[stacks].any())
