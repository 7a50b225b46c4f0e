"""Advice about the memory of forward and backward passes: activations, the loss, the batch, number types."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import UNSET, UnsetType

from snapreport.findings.advice_context import SLOWER, Advice, AdviceContext, AdviceEvidence
from snapreport.findings.autocast_weights import copies_in_inference
from snapreport.findings.backward_each import missing_gradients, several_graphs
from snapreport.findings.batch_limits import is_batch_fixed
from snapreport.findings.chunked_loss import chunked_loss
from snapreport.findings.collected_outputs import collections
from snapreport.findings.computed_weights import computed_weights, loaded_weights
from snapreport.findings.cut_off_pass import repeats_of_parameters
from snapreport.findings.evaluation_batch import evaluation_batch, inference_batch, is_evaluation, keeps_graphs
from snapreport.findings.graphs import (
    MOST_PASSES,
    added_to_gradients,
    after_backward,
    backward_allocations,
    backward_passes,
    born_in,
    dropped_graphs,
    forward_births,
    freed_in,
    possible_weights,
    unknown_of_a_step,
    waiting_passes,
)
from snapreport.findings.layer_count import layer_count
from snapreport.findings.mixed_precision import mixed_precision
from snapreport.findings.remedy_time import computed_again
from snapreport.findings.repeated_layers import repeated_layers
from snapreport.findings.resident_data import resident_data
from snapreport.findings.retained_graphs import backward_ends, retained_graphs
from snapreport.findings.router_masks import router_masks
from snapreport.findings.saving import bytes_of_spans, bytes_over_time, share_of_spans, share_with_cost
from snapreport.findings.score_chunks import scores_of_pairs
from snapreport.findings.unused_graphs import unused_graphs
from snapreport.sentence import bytes_part, code_part, sentence
from snapreport.timeline.activity import INFERENCE
from snapreport.timeline.module_tree import numbered_modules
from snapreport.timeline.phases import OPTIMIZER_STEP

_PASSES_OF_A_STEP = 2
"""Backward passes in a step of a generator and a discriminator: a loss that the next step replaces stays no longer."""

_IN_EACH_STEP = 0.75
"""Share of the backward passes. Each step drops a graph if so many have one before them; a validation drops
some between a few steps.
"""
_SAMPLES, _AT_ONCE = 6, 2
"""Of a loop over samples, as one that assigns anchors to each of eight images and needs 112 MiB for one: without it,
183 → 97 MiB was promised, and 157 taken."""

_LEAST = 0.1
"""Of what grows with a batch forward and backward passes make so much: 0.14 or more in 180 recordings. Where it is
less, the peak may be of what else a program computes that trains before or after.
"""
_TRANSFORMED = r"torch/_functorch/(apis|eager_transforms|vmap)\.py"
"""``torch.func``: checkpointing a layer inside of ``vmap``, ``grad`` or ``hessian`` raises RuntimeError, up to 2.15."""


class LayersEvidence(AdviceEvidence, kw_only=True):
    """``modules``: the layers, empty where the recording names none. ``cost_us``: what computing them again adds to a
    step of ``step_us``, by a profiler's trace; at least that where ``device_busy_share`` of the step is below 0.8.
    """

    layers: int
    modules: list[str]
    cost_us: int | UnsetType = UNSET
    step_us: int | UnsetType = UNSET
    device_busy_share: float | UnsetType = UNSET


class AccumulationEvidence(AdviceEvidence, kw_only=True):
    gradient_bytes: int


def _checkpointing(context: AdviceContext) -> Advice | None:
    """Activations of layers that repeat. One layer at a time is recomputed, and the inputs of all stay."""
    if not context.trains or context.occurs(
        context.frames(r"torch/utils/checkpoint\.py|(?i)activation_checkpoint|checkpoint_wrapper")
    ):
        return None
    activation = context.category("activation") & ~dropped_graphs(context) & ~retained_graphs(context)
    activation &= ~unused_graphs(context) & ~context.frames(_TRANSFORMED)[context.stack]
    # A backward pass that makes a graph (create_graph=True) saves what it computes again.
    if context.is_much(context.bytes_at_peak(activation & context.without_python[context.stack] & context.is_traced)):
        return None
    # What something else holds after the backward pass, such as a forward hook, stays in any case.
    outlives = activation & context.freed_elsewhere & (backward_ends(context) < context.freed)
    if 2 * context.bytes_at_peak(outlives) > context.bytes_at_peak(activation):
        return None
    passes = waiting_passes(context)
    found = repeated_layers(context, activation, passes)
    if found is None:
        return None
    mask = context.marked(found.rows)
    share, _, _ = share_of_spans(context.timeline, found.rows, found.starts, found.ends)
    if not share:
        return None
    if not (size := context.much_at_peak(mask)):
        return None
    live = context.timeline.allocations.filter(mask & context.at_peak)
    modules = numbered_modules(live["module"].set(live["module_source"] == "inferred", None), live["size"])
    counted = len(modules) or _proved(context, layer_count(context, found.rows, passes))
    ends = map(code_part, (modules[0], modules[-1])) if modules else ()
    named = [sentence("They are the modules {} to {}.", *ends)] if modules else []
    of = sentence("{} repeated layers", counted) if counted else sentence("repeated layers")
    if passes > 1 and counted:
        of = sentence("{of} in each of {passes} forward passes", of=of, passes=passes)
    has_option = context.is_transformers(mask)
    cost = computed_again(context, found)
    return Advice(
        "checkpointing",
        "Use activation checkpointing",
        [
            sentence(
                "Activations of {of} hold {}, and no recorded stack trace goes through torch.utils.checkpoint.",
                context.share(size),
                of=of,
            ),
            *named,
            "The replay leaves the input of every layer and the activations of one layer.",
            *([cost.sentence] if cost else []),
        ],
        "torch.utils.checkpoint",
        "https://docs.pytorch.org/docs/stable/checkpoint.html",
        mask,
        share,
        evidence=LayersEvidence(layers=counted, modules=modules, **(cost.evidence if cost else {})),
        effort=SLOWER,
        line="model.gradient_checkpointing_enable()"
        if has_option
        else "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
        place="after the model is loaded" if has_option else "",
    )


def _proved(context: AdviceContext, counted: int) -> int:
    """The number of layers, if parameters repeat as often, or a line calls modules as often; else 0: a layer that does
    the same twice looks like two.
    """
    repeats = repeats_of_parameters(context)
    if counted == repeats or (context.is_cut_off and counted < repeats):
        return counted
    modules = context.timeline.allocations.filter(context.at_peak & context.is_traced)["module"].drop_nulls()
    calls = modules.str.extract_groups(r"^(?<line>.*?)\.(?<number>\d+)(?:\.|$)").struct.unnest().drop_nulls()
    lines = calls.group_by("line").agg(pl.col("number").n_unique())
    return counted if counted in lines["number"] else 0


def _accumulation(context: AdviceContext) -> Advice | None:
    mask = batch_sized(context)
    infers = context.timeline.activity.kind == INFERENCE
    if infers:
        mask = (mask | context.traced("kv cache")) & ~copies_in_inference(context)
    size = context.bytes_at_peak(mask)
    if not (context.trains or infers) or not context.is_much(size // 2):
        return None
    if is_batch_fixed(context) or keeps_graphs(context, mask):
        return None
    if infers:
        return inference_batch(context, mask)
    in_passes = (context.forward | context.may_be_backward)[context.stack]
    if context.bytes_at_peak(mask & in_passes) < _LEAST * size and not _follows_forward(context):
        return None
    if is_evaluation(context, mask | added_to_gradients(context)):
        return evaluation_batch(context, mask)
    masks = router_masks(context)
    of_masks = context.bytes_at_peak(masks)
    is_routed = context.is_much(of_masks)
    gradients, share, peak_range = context.remember("half of the batch", lambda: _halved(context, mask, masks))
    if not share:
        return None
    squares = sentence(
        "A router's one-hot masks hold {}. Their length usually follows from the number of tokens, so that a quarter "
        "of them is left; otherwise half is.",
        context.share(of_masks),
    )
    stay = sentence("The gradients of the first half, {}, stay allocated through the second.", bytes_part(gradients))
    return Advice(
        "accumulation",
        "Halve the batch and accumulate gradients over two",
        [
            sentence(
                "What grows with the batch (activations, inputs, temporaries of forward and backward) holds {}.",
                context.share(size),
            ),
            *([stay] if context.is_much(gradients) else []),
            *([squares] if is_routed else []),
        ],
        "gradient accumulation",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        mask,
        share,
        confidence="estimate" if is_routed else "inferred",
        peak_range=peak_range if is_routed else None,
        evidence=AccumulationEvidence(gradient_bytes=gradients),
        effort=SLOWER,
        line="for part in batch.chunk(2): (loss_of(part) / 2).backward()",
    )


def _follows_forward(context: AdviceContext) -> bool:
    """Whether a forward pass has run since the last backward pass: then its loss may hold the peak."""
    backward = np.flatnonzero(backward_allocations(context)[: context.event + 1])
    births = forward_births(context)
    return bool(((births > backward[-1:].max(initial=-1)) & (births <= context.event)).any())


def _halved(context: AdviceContext, mask: np.ndarray, masks: np.ndarray) -> tuple[int, float, tuple[int, int]]:
    """(bytes of all gradients, the share of ``mask`` that is saved, the least and the highest peak) with half a batch.
    Of ``masks`` a quarter is left, and half at most.
    """
    timeline, rows = context.timeline, np.flatnonzero(mask)
    most, missing = missing_gradients(context)
    cost = missing + _anew(context)
    quarter = bytes_over_time(timeline, np.flatnonzero(masks)) // 4
    half = timeline.allocated - bytes_over_time(timeline, rows) // 2 + cost
    peaks = int((half - quarter).max()), int(half.max())
    return most, share_with_cost(timeline, rows, 0.5, cost - quarter), peaks


def _anew(context: AdviceContext) -> np.ndarray:
    """Int64 bytes per place in a curve: gradients of a second part of a batch until they are added to those of the
    first: one at its birth, and that of a weight that is used several times until it has the last of its sum.
    """
    rows, added = (np.flatnonzero(mask) for mask in (context.category("gradient"), added_to_gradients(context)))
    rows = rows[context.is_traced[rows]]
    sums = context.table(added, run=born_in(context)[added]).group_by("size", "run").agg(end=pl.col("freed").max())
    gradients = context.table(rows, run=born_in(context)[rows]).join(
        sums, on=["size", "run"], how="left", maintain_order="left"
    )
    ends = np.maximum(gradients["end"].fill_null(0).to_numpy(), context.born[rows] + 1)
    return bytes_of_spans(context.timeline, context.born[rows], ends, context.size[rows])


def batch_sized(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: activations, inputs, temporaries and what else is of one step, but not of the optimizer's.

    Graphs that a stored output keeps stay: the other half makes its own. So do a data set, also one of which batches
    are views, all results of a loop, weights that a pass computes, and what is as large as all parameters together,
    which it joins.
    """
    grows = context.traced("activation", "input", "temporary") & ~_dropped_for_good(context)
    weights = possible_weights(context)
    # As large as weights, before the next forward pass: of an optimizer step by hand, also one without gradients.
    of_weights = (after_backward(context) | context.infers) & np.isin(context.size, context.size[weights])
    grows |= unknown_of_a_step(context) & ~_of_one_sample(context) & ~of_weights
    # Inputs that stay allocated over more backward passes than those of one batch are no batch.
    lasting = context.traced("input") & (freed_in(context) - born_in(context) >= MOST_PASSES)
    grows &= ~(_kept_over_steps(context) | context.outlives_loop | resident_data(context))
    grows &= ~(collections(context) | lasting)
    grows &= ~scores_of_pairs(context)  # of an evaluation
    grows &= ~(np.isin(context.size, computed_weights(context)) | loaded_weights(context))
    joined = context.bytes_at_peak(weights)
    # A single weight is as large as all: an image that is optimized, and what is computed of it.
    grows &= (context.size != joined) | (joined == context.size[weights].max(initial=0))
    of_batch = grows & ~(context.phases.innermost == OPTIMIZER_STEP)[context.stack]
    return np.asarray(of_batch & ~added_to_gradients(context))


def _dropped_for_good(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: of graphs that are dropped, but for those of each step that the next one replaces, as of a
    momentum encoder without ``no_grad``: half of the batch makes half of them.
    """
    dropped = dropped_graphs(context)
    times = len(np.unique(born_in(context)[dropped]))
    return context.marked() if times >= _IN_EACH_STEP * backward_passes(context)[-1] else dropped


def _of_one_sample(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: what a loss computes for one sample at a time. A pass runs its line at least ``_SAMPLES``
    times, and at most ``_AT_ONCE`` of its tensors are alive together.
    """
    rows = np.flatnonzero(unknown_of_a_step(context))
    table = context.table(rows, run=born_in(context)[rows]).sort("born")
    same = ["stack", "size", "run"]
    table = table.with_columns(is_after=pl.col("born") >= pl.col("freed").shift(_AT_ONCE, fill_value=-1).over(same))
    table = table.filter(pl.col("is_after").all().over(same) & (pl.len().over(same) >= _SAMPLES))
    return context.marked(table["row"].to_numpy())


def _kept_over_steps(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: of retained graphs whose lines made some that more backward passes found allocated than
    those of one step of two networks. What the next step replaces is as large as its batch.
    """
    retained = retained_graphs(context)
    kept = retained & (freed_in(context) - born_in(context) > _PASSES_OF_A_STEP)
    return np.asarray(retained & np.isin(context.stack, context.stack[kept]))


ACTIVATION_RULES = (
    _checkpointing,
    several_graphs,
    _accumulation,
    mixed_precision,
    chunked_loss,
)
