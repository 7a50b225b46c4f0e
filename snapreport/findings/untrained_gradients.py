"""Advice about gradients of weights that nothing trains: freezing these saves what their gradients need, too."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, remembered
from snapreport.findings.graphs import added_to_gradients, backward_passes, born_in, freed_in, saved_for_backward
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import ZERO_GRAD

FEWEST_ZEROED = 2
"""Backward passes that add to a gradient which stays, and whose other gradients ``zero_grad`` frees."""
_MIN_UNTRAINED_SHARE, _MIN_UNTRAINED_BYTES = 0.1, 1 << 20
"""Of all weights: where so many get gradients that nothing uses, much of the graph may be there for these alone,
however few bytes of the peak the gradients are: of an encoder of videos 14 of 562 MiB; freezing it left 170 MiB."""
_ADAM, _MOMENTS = r"(?i)adam", 2
"""How many states of an optimizer are as large as the weight: Adam has two of them, others have one or none."""
_CONVOLUTION = r"torch/nn/modules/conv\.py"
_LARGEST_NORM = 64 << 10
"""Bytes of the weight of a norm, of 16,384 numbers in 32 bits."""
_FREEZE = "Freeze the weights that no optimizer updates: `requires_grad_(False)`"
_FREEZING = (
    "Tensor.requires_grad_()",
    "https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation",
)
"""PyTorch's name for it, and where it is described."""


@remembered
def untrained(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: a weight's gradient that ``zero_grad`` never frees, although it frees those of later
    backward passes that add to this one: the weight is not among the optimizer's.
    """
    gradients = context.traced("gradient")
    zeroed = gradients & context.phases.runs(ZERO_GRAD)[context.free_stack]
    of = born_in(context)
    # To add to a gradient, a pass computes it once more. Of two networks in turns, the other's passes do not.
    kind = np.unique(np.stack([context.stack, context.size]), axis=1, return_inverse=True)[1].reshape(-1)
    width = int(of.max(initial=0)) + 1
    code = kind * width + of
    again = np.unique(code[np.isin(of, of[zeroed])])
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
    is_other = (weights > 0) & (others + most <= weights) & (state <= moments * most)
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
    stay = sentence(
        "{} are gradients that zero_grad() never frees, although it frees others in each step: its optimizer does not "
        "have their weights.",
        context.share(size),
    )
    if has_graph := context.is_much(of_graph):
        goes = [sentence("{} are activations of a graph that only these gradients need.", context.share(of_graph))]
    why = [stay, *goes]
    if of_graph > size:  # a gate's or a bias' gradients are a few bytes
        of_weights = "{} are activations of a graph that only gradients of weights outside of the optimizer need."
        why = [sentence(of_weights, context.share(of_graph)), stay]
    return Advice(
        "untrained-gradients",
        sentence(_FREEZE),
        [
            *why,
            "Common cases are a base model under LoRA, a pretrained encoder, a target network and that of a perceptual "
            "loss. Weights that are to be trained belong to the optimizer.",
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
    saved = context.traced("activation")
    run, first = born_in(context), int(context.born[gradients].min())
    this = backward_passes(context)[first]
    others = context.category("gradient") & ~gradients & (run == this)
    added = context.without_python[context.stack] & np.isin(context.size, context.size[others])
    last = int(context.born[(others | added) & (run == this)].max(initial=-1))
    if not 0 <= last < first:
        return np.zeros(len(saved), bool)
    used = saved & (freed_in(context) == this) & (run < this)
    lines = np.setdiff1d(context.stack[used], context.stack[used & (context.freed < last)])
    return np.asarray(saved & np.isin(context.stack, lines))


def reaches_inputs(context: AdviceContext) -> bool:
    """Whether most backward passes compute a gradient that no weight has the size of, and that the program frees, as
    that of an image which is attacked or explained.
    """
    freed = context.free_stack
    by_program = (freed == 0) | (freed == context.stack) | context.by_program[freed]
    mine = context.traced("gradient") & context.is_freed
    mine &= by_program & ~np.isin(context.size, context.size[context.category("parameter")])
    return bool(2 * len(np.unique(born_in(context)[mine])) > backward_passes(context)[-1])


def _with_reads(context: AdviceContext, gradients: np.ndarray) -> np.ndarray:
    """Bool per allocation: ``gradients`` of weights that are not trained, what backward passes add to them, and
    activations that are saved for them alone.
    """
    added = added_to_gradients(context)
    return np.asarray(gradients | added | _read_by_products(context, gradients))


def _saved_for(context: AdviceContext, gradients: np.ndarray) -> list[str]:
    """A sentence about the activations among these, of :func:`_with_reads`, where they are much."""
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
    of_engine = np.flatnonzero(lasts & context.without_python[context.stack])
    if len(of_engine) < 2 or context.occurs(context.frames(_CONVOLUTION)):
        return context.marked()
    of_engine = of_engine[np.argsort(context.born[of_engine], kind="stable")]
    before = np.searchsorted(context.born[of_engine], context.freed)
    bias, weight = of_engine[before - 1], of_engine[before - 2]
    is_matrix = gradients & (context.size > _LARGEST_NORM)
    after = is_matrix[bias] | (gradients[bias] & is_matrix[weight])
    others, born, run = context.category("gradient") & ~gradients, born_in(context), freed_in(context)
    until = np.full(int(run.max()) + 2, len(context.timeline.events))
    np.minimum.at(until, born[others], context.born[others])
    seen = context.table(np.flatnonzero(saved & np.isin(run, born[gradients])))
    seen = seen.with_columns(alone=pl.Series((after & (context.freed < until[run]))[seen["row"].to_numpy()]))
    lines = seen.group_by("stack", "size").agg(pl.col("alone").all()).filter("alone")
    found = context.table(np.flatnonzero(saved)).join(lines, on=["stack", "size"], how="semi")
    return context.marked(found["row"].to_numpy())


def without_training(context: AdviceContext, old: np.ndarray, size: int) -> Advice:
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
