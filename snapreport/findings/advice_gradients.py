"""Advice about gradients that stay allocated through the next forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence, remembered
from snapreport.findings.graphs import (
    added_to_gradients,
    backward_begins,
    backward_passes,
    born_in,
    forward_births,
    freed_in,
    saved_for_backward,
)
from snapreport.findings.saving import bytes_over_time, peak_without_spans, share_with_cost
from snapreport.integers import following
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import FORWARD, OPTIMIZER_STEP, ZERO_GRAD

FEWEST_ZEROED = 2
"""Backward passes that add to a gradient which stays, and whose other gradients ``zero_grad`` frees."""
FEWEST_PASSES = 3
"""Backward passes that find a gradient allocated, where no optimizer step shows."""
_MIN_UNTRAINED_SHARE, _MIN_UNTRAINED_BYTES = 0.1, 1 << 20
"""Of all weights: where so many get gradients that nothing uses, much of the graph may be there for these alone,
however few bytes of the peak the gradients are: of an encoder of videos 14 of 562 MiB; freezing it left 170 MiB."""
_ADAM, _MOMENTS = r"(?i)adam", 2
"""How many states of an optimizer are as large as the weight: Adam has two of them, others have one or none."""
_CONVOLUTION = r"torch/nn/modules/conv\.py"
_LARGEST_NORM = 64 << 10
"""Bytes of the weight of a norm, of 16,384 numbers in 32 bits."""
_FREE = "Free gradients between steps: `zero_grad(set_to_none=True)`"
_FREEZE = "Freeze the weights that no optimizer updates: `requires_grad_(False)`"
_FREEZING = (
    "Tensor.requires_grad_()",
    "https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation",
)
"""PyTorch's name for it, and where it is described."""
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
    used_at = np.where(context.born < 0, -1, next_step)
    next_forward = following(forward_births(context), used_at, len(events) + 1)
    return context.category("gradient") & (next_forward < context.freed), next_forward


@remembered
def untrained(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: a weight's gradient that ``zero_grad`` never frees, although it frees those of later
    backward passes that add to this one: the weight is not among the optimizer's.
    """
    gradients, last = context.category("gradient") & (context.born >= 0), len(context.timeline.events)
    zeroed = gradients & (context.freed < last) & context.phases.runs(ZERO_GRAD)[context.free_stack]
    of = born_in(context)
    # To add to a gradient, a pass computes it once more. Of two networks in turns, the other's passes do not.
    kind = np.unique(np.stack([context.stack, context.size]), axis=1, return_inverse=True)[1].reshape(-1)
    width = int(of.max(initial=0)) + 1
    code = kind * width + of
    again = np.unique(code[(context.born >= 0) & np.isin(of, of[zeroed])])
    nth = np.searchsorted(again, code, "right") + FEWEST_ZEROED - 1
    added = np.append(again, -1)[np.minimum(nth, len(again))] // width == kind
    stays = context.freed > context.freed[zeroed].max(initial=0)  # all are freed where a program ends
    stays &= gradients & added
    return np.asarray(stays & _of_other_weights(context, zeroed, stays))


def _of_other_weights(context: AdviceContext, zeroed: np.ndarray, stays: np.ndarray) -> np.ndarray:
    """Bool per allocation: of a size that weights have, as many as a pass has ``zeroed`` gradients (Bool per
    allocation) and those of ``stays`` together, where the optimizer has no more state than for the zeroed ones.
    """
    sizes, size = np.unique(context.size, return_inverse=True)
    weights, state, others = (
        np.bincount(size[mask], minlength=len(sizes))
        for mask in (context.category("parameter"), context.category("optimizer state"), stays)
    )
    passes, each = np.unique(np.stack([born_in(context)[zeroed], size[zeroed]]), axis=1, return_counts=True)
    most = np.zeros(len(sizes), np.int64)
    np.maximum.at(most, passes[1], each)
    moments = _MOMENTS if context.occurs(context.frames(_ADAM)) else 1
    is_other = (weights > 0) & ((most == 0) | (others + most <= weights)) & (state <= moments * most)
    return np.asarray(is_other[size])


def untrained_gradients(context: AdviceContext) -> Advice | None:
    """Gradients of weights that no optimizer updates, as of a base model under LoRA that was not frozen."""
    if not context.trains:
        return None
    mask = untrained(context)
    size, weights = context.bytes_at_peak(mask), int(context.size[context.category("parameter")].sum())
    is_much = context.is_much(size)
    of_graph = context.bytes_at_peak(_of_untrained(context, mask)) if mask.any() else 0
    # Of augmentations with parameters of their own, which are trained by nothing, the gradients are a few numbers.
    is_some = size >= max(_MIN_UNTRAINED_BYTES, _MIN_UNTRAINED_SHARE * weights)
    if not (is_much or is_some or context.is_much(of_graph)):
        return None
    with_reads = _with_reads(context, mask) if is_much else mask
    goes = _saved_for(context, with_reads) or ["Activations that only these gradients need go with them."]
    if has_graph := context.is_much(of_graph):
        goes = [sentence("{} are activations of a graph that only these gradients need.", context.share(of_graph))]
    return Advice(
        "untrained-gradients",
        sentence(_FREEZE),
        [
            sentence(
                "{} are gradients that zero_grad() never frees, although it frees others in each step: its optimizer "
                "does not have their weights.",
                context.share(size),
            ),
            *goes,
            "Common cases are a base model under LoRA, a pretrained encoder and the network of a perceptual loss. "
            "Weights that are to be trained belong to the optimizer.",
            sentence(
                "Where an optimizer without state (plain SGD) zeroes them in place, call "
                "`zero_grad(set_to_none=True)` instead."
            ),
        ],
        *_FREEZING,
        with_reads if is_much else None,
        effort=ONE_LINE,
        comes_first=has_graph,
        line="base_model.requires_grad_(False)",
        place="before the optimizer is created",
    )


def _of_untrained(context: AdviceContext, gradients: np.ndarray) -> np.ndarray:
    """Bool per allocation: activations of the graph that only ``gradients`` (Bool per allocation) need. A backward pass
    makes gradients of the last layers first: where it makes those of the optimizer's weights before all of these,
    nothing needs a graph of the layers before. What it adds to a gradient, as from a penalty on an image and then from
    a network that reads it, is as large.
    """
    saved = context.category("activation") & (context.born >= 0)
    run, first = born_in(context), int(context.born[gradients].min())
    this = backward_passes(context)[first]
    others = context.category("gradient") & ~gradients & (context.born >= 0) & (run == this)
    added = context.without_python[context.stack] & np.isin(context.size, context.size[others])
    last = int(context.born[others | (added & (context.born >= 0) & (run == this))].max(initial=-1))
    if not 0 <= last < first:
        return np.zeros(len(saved), bool)
    used = saved & (freed_in(context) == this) & (run < this)
    lines = np.setdiff1d(context.stack[used & (context.freed > last)], context.stack[used & (context.freed < last)])
    return np.asarray(saved & np.isin(context.stack, lines))


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
    between = unknown & (next_backward < next_forward) & (context.freed > forward.min(initial=last))
    return np.asarray((context.phases.runs(ZERO_GRAD)[context.free_stack] | between) & (context.freed < last))


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
    old = context.category("gradient") & (context.born >= 0)
    old &= freed_in(context) - born_in(context) >= FEWEST_PASSES
    # More than one for each weight are no sums that backward passes add to, but gradients which something refers to.
    if not 0 < (size := context.much_at_peak(old)) <= context.bytes_at_peak(context.category("parameter", "unknown")):
        return None
    if _reaches_inputs(context):
        return _without_training(context, old, size)
    # Each forward pass begins after a step.
    forward = context.forward[stacks]
    first = np.flatnonzero(forward)[np.unique(passes[forward], return_index=True)[1]]
    steps = np.zeros(len(stacks), bool)
    steps[first] = True
    fraction = _until_each_backward(context, old, steps)
    if not fraction:
        return None
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


def _reaches_inputs(context: AdviceContext) -> bool:
    """Whether most backward passes compute a gradient that no weight has the size of, and that the program frees, as
    that of an image which is attacked or explained.
    """
    freed = context.free_stack
    by_program = (freed == 0) | (freed == context.stack) | context.by_program[freed]
    mine = context.category("gradient") & (context.born >= 0) & (context.freed < len(context.timeline.events))
    mine &= by_program & ~np.isin(context.size, context.size[context.category("parameter")])
    return bool(2 * len(np.unique(born_in(context)[mine])) > backward_passes(context)[-1])


def _with_reads(context: AdviceContext, gradients: np.ndarray) -> np.ndarray:
    """Bool per allocation: ``gradients`` of weights that are not trained, what backward passes add to them, and
    activations that are saved for them alone.
    """
    added = added_to_gradients(context) & np.isin(context.size, context.size[gradients])
    return np.asarray(gradients | added | _read_by_products(context, gradients))


def _saved_for(context: AdviceContext, gradients: np.ndarray) -> list[str]:
    """gradients: of ``_with_reads``."""
    size = context.bytes_at_peak(gradients & context.category("activation"))
    saved = sentence("Linear layers save {} of activations for these gradients alone.", bytes_part(size))
    return [saved] if context.is_much(size) else []


def _read_by_products(context: AdviceContext, gradients: np.ndarray) -> np.ndarray:
    """Bool per allocation: activations that a backward pass frees directly after it has computed ``gradients`` (Bool
    per allocation) of a linear layer, which are saved for these alone, and those of the same lines in other passes. A
    convolution and a norm save their inputs for frozen weights, too. So does an adapter beside a frozen layer: what is
    freed after gradients of other weights does not count.
    """
    saved = context.category("activation") & saved_for_backward(context)
    # Buffers of sums, as of a bias' gradient, are freed before anything else happens.
    marks = np.sort(np.append(context.born[context.category("gradient")], context.freed[saved]))
    lasts = np.searchsorted(marks, context.born, "right") < np.searchsorted(marks, context.freed)
    lasts |= context.category("gradient")
    of_engine = np.flatnonzero(lasts & (context.born >= 0) & context.without_python[context.stack])
    if len(of_engine) < 2 or context.occurs(context.frames(_CONVOLUTION)):
        return context.marked()
    of_engine = of_engine[np.argsort(context.born[of_engine], kind="stable")]
    before = np.searchsorted(context.born[of_engine], context.freed)
    bias, weight = of_engine[before - 1], of_engine[before - 2]
    is_matrix = gradients & (context.size > _LARGEST_NORM)
    after = is_matrix[bias] | (gradients[bias] & is_matrix[weight])
    others, born, run = context.category("gradient") & ~gradients, born_in(context), freed_in(context)
    until = np.full(int(run.max()) + 2, len(context.timeline.events))
    np.minimum.at(until, born[others], np.maximum(context.born[others], 0))
    seen = context.table(np.flatnonzero(saved & np.isin(run, born[gradients])))
    seen = seen.with_columns(alone=pl.Series((after & (context.freed < until[run]))[seen["row"].to_numpy()]))
    lines = seen.group_by("stack", "size").agg(pl.col("alone").all()).filter("alone")
    found = context.table(np.flatnonzero(saved)).join(lines, on=["stack", "size"], how="semi")
    return context.marked(found["row"].to_numpy())


def _without_training(context: AdviceContext, old: np.ndarray, size: int) -> Advice:
    """Gradients that pile up where those of an input are wanted: ``old``, ``size`` bytes at the peak."""
    with_reads = _with_reads(context, old)
    return Advice(
        "untrained-gradients",
        sentence(_FREEZE),
        [
            sentence(
                "{} are gradients that stay allocated through {} backward passes, which compute gradients of an input, "
                "too. No optimizer step is recorded.",
                context.share(size),
                int(backward_passes(context)[-1]),
            ),
            *_saved_for(context, with_reads),
            "Attacks, saliency maps and reconstructed images need the gradient of their input alone.",
            sentence(
                "Where SGD without momentum, which allocates nothing, trains the weights, call "
                "`zero_grad(set_to_none=True)` instead."
            ),
        ],
        *_FREEZING,
        with_reads,
        effort=ONE_LINE,
        line="model.requires_grad_(False)",
    )


def _until_backward(context: AdviceContext, old: np.ndarray, next_forward: np.ndarray) -> float:
    """The share of these gradients that may be taken out without saving more than it saves to free each of them from
    the next forward pass up to the next backward pass, which may make it again; 0 where that is nothing.
    """
    timeline, rows = context.timeline, np.flatnonzero(old)
    last, starts = len(timeline.events), next_forward[rows]
    ends = np.minimum(following(backward_begins(context), starts, last), context.freed[rows])
    size, born = context.size[rows], context.born[rows]
    without = peak_without_spans(timeline, starts, np.where(ends < last, ends, -1), size)[0]
    freed = np.where(context.freed[rows] < last, context.freed[rows], -1)
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
    return not (runs(OPTIMIZER_STEP)[stacks].any() or runs(ZERO_GRAD)[stacks].any()) and bool(old.any())
