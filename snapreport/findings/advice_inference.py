"""Advice about forward passes without a backward pass, and about what is alive beside them."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_births import growing_lines
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence, remembered
from snapreport.findings.autocast_weights import copies_in_inference
from snapreport.findings.collected_outputs import computed_from_all, extended_results
from snapreport.findings.graphs import dropped_graphs
from snapreport.findings.repeated_layers import MAX_OUTPUT_RATIO
from snapreport.findings.replaced_together import replaced_together
from snapreport.findings.retained_graphs import release_graphs
from snapreport.findings.saving import share_of_lives, share_with_cost
from snapreport.findings.unused_graphs import inputs_of_unused_graphs, unused_graphs
from snapreport.findings.unused_model import unused_model
from snapreport.findings.weight_copies import copied_weights
from snapreport.integers import following, is_among, stable_order
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.phases import FORWARD, NONE

_NO_GRAD = "https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html"
_AUTOCAST = "https://docs.pytorch.org/docs/stable/amp.html"
IN_USE = 4
"""Activations of a forward pass without gradients that are in use at once, as in a residual block. Recorded with and
without gradients, MiB replayed and measured: 360, 360; 413, 413; 425, 425 and 156, 156 (transformers), 75, 77 (residual
convolutions), 177, 192 and 202, 232 (a U-net, whose skips live longer)."""
IN_SEQUENCE = 2
"""The same of layers that each use the last one's output alone. A container inside of another adds its own input, which
the outer one holds until it returns."""
_CONTAINER = r"torch/nn/modules/container\.py forward$"
_APART = 16
"""How many times more events are between two lists of one line than between two tensors of one list."""
AT_ONCE = 4
"""Events after which a workspace is gone."""


class PreviousEvidence(AdviceEvidence, kw_only=True):
    previous_bytes: int


def _no_grad(context: AdviceContext) -> Advice | None:
    """Activations that are freed together after a forward pass whose graph no backward pass uses."""
    unused = unused_graphs(context)
    mask = dropped_graphs(context) | unused
    if not (size := context.much_at_peak(mask)):
        return None
    rows = np.flatnonzero(mask)
    rows = rows[np.argsort(context.born[rows], kind="stable")]
    # Library modules alone, one after another, use the output of the last; the program's own lines add and join others.
    own = context.own_frames[context.innermost()[context.stack[rows]]] & (context.size[rows] >= 1 << 20)
    in_use = IN_USE if own.any() else IN_SEQUENCE + _nested(context, rows)
    born = context.born[rows]
    read = born if own.any() else _outputs_after(context, rows)
    later = np.append(read, np.full(in_use, len(context.timeline.events)))
    ends = later[np.searchsorted(read, born, "right") + in_use - 1]
    inputs = inputs_of_unused_graphs(context)
    # What a rollout joins after its loop stays in a list, whether a graph saves it or not.
    lines = context.stack[inputs["row"].to_numpy()]
    batches_of = {line: context.is_traced & (context.stack == line) for line in np.unique(lines).tolist()}
    stay = [line for line, batches in batches_of.items() if len(computed_from_all(context, batches))]
    inputs = inputs.filter(~is_among(lines, stay))
    saved = inputs["row"].to_numpy()
    mask[saved] = True
    every = np.append(rows, saved), np.append(ends, inputs["next"].to_numpy() + 1)
    share = share_of_lives(context.timeline, *every)[0]
    batches = " and batches" if context.at_peak[saved].any() else ""
    what, how = "evaluation" if context.trains else "inference", "never runs: they are freed together, after the"
    if 2 * context.bytes_at_peak(unused & ~dropped_graphs(context)) > size:
        what, how = (
            "the forward pass",
            "does not use them: they outlive it, and are freed together with the output of the",
        )
    return Advice(
        "no-grad",
        sentence("Wrap {what} in `torch.no_grad()`", what=what),
        [
            sentence(
                "{} are activations{batches} saved for a backward pass that {how} forward pass.",
                context.share(context.bytes_at_peak(mask)),
                batches=batches,
                how=how,
            ),
            sentence(
                "Without a graph each is freed after its last use. The replay frees each when {IN_USE} more have been "
                "allocated.",
                IN_USE=in_use,
            ),
        ],
        sentence("`torch.no_grad()`, or `torch.inference_mode()`"),
        _NO_GRAD,
        mask,
        share,
        effort=ONE_LINE,
        line="with torch.no_grad():",
    )


def _autocast_copies(context: AdviceContext) -> Advice | None:
    """16-bit copies of weights that autocast makes in every forward pass and drops when its context ends."""
    if not context.infers:
        return None
    mask = copies_in_inference(context)
    if not (size := context.much_at_peak(mask)):
        return None
    # Without its cache, autocast holds the copies of one operator at a time.
    in_use = int(context.size[mask & context.at_peak].max())
    share = share_with_cost(context.timeline, np.flatnonzero(mask), 1.0, in_use)
    return Advice(
        "autocast-copies",
        "Cast the weights to 16 bits once, before inference",
        [
            sentence(
                "Autocast's 16-bit copies of the weights hold {} and are made again in every forward pass.",
                context.share(size),
            ),
            sentence(
                "`model.to(torch.bfloat16)` needs neither the copies nor the 32-bit weights; "
                "`autocast(cache_enabled=False)` drops each copy after its use."
            ),
        ],
        sentence("`torch.autocast(cache_enabled=False)`, or `model.to(torch.bfloat16)`"),
        _AUTOCAST,
        mask,
        share,
        effort=ONE_LINE,
        line="model.to(torch.bfloat16)",
    )


def _kv_cache(context: AdviceContext) -> Advice | None:
    if context.trains:
        return None
    mask = context.category("kv cache")
    if not (size := context.much_at_peak(mask)):
        return None
    return Advice(
        "kv-cache",
        "Shrink the key-value cache by half",
        [
            sentence(
                "Caches of keys and values hold {}. A shorter context, fewer sequences at once or a type of half the"
                " width halves them.",
                context.share(size),
            )
        ],
        "a sliding window, paging, or a quantized cache",
        "https://huggingface.co/docs/transformers/kv_cache",
        mask,
        0.5,
    )


def _outputs_after(context: AdviceContext, rows: np.ndarray) -> np.ndarray:
    """Int64 births of what modules give: neither statistics of a normalisation, which are small, nor what a line frees
    at once, or uses itself. What follows the pass counts: its last tensors are in use no longer.
    """
    kept = context.freed - context.born > AT_ONCE
    kept &= ~is_among(context.stack, np.unique(context.stack[rows]))
    kept[rows] = True
    return np.sort(context.born[kept & (MAX_OUTPUT_RATIO * context.size >= context.size[rows].max())])


def _nested(context: AdviceContext, rows: np.ndarray) -> int:
    """How many containers of modules are around another one in the stacks of most of these allocations' bytes."""
    recording = context.recording
    container = context.texts_contain(_CONTAINER)[recording.stack_frames]
    depths = np.add.reduceat(np.append(container, False).astype(np.int64), recording.stack_offsets[:-1])
    depths[np.diff(recording.stack_offsets) == 0] = 0
    held = np.bincount(depths[context.stack[rows]], context.size[rows])
    return max(0, int(np.argmax(held)) - 1)


def _previous_outputs(context: AdviceContext) -> Advice | None:
    """Outputs of one iteration that are freed only after the next one has allocated its own."""
    mask = _late_outputs(context)
    if not mask.any():
        return None
    fraction, previous = _overlap(context, mask)
    if not fraction:
        return None
    are_lists = 2 * len(np.unique(_generations(context)[mask])) < int(mask.sum())
    return Advice(
        "previous-outputs",
        "Delete the previous iteration's outputs before the next forward pass",
        [
            sentence(
                "{} of outputs from the previous iteration are still allocated at the peak, because their variable is "
                "assigned again only after {next}. Call del on it, or move the loop's body into a function.",
                bytes_part(previous),
                next="the next list of them is allocated" if are_lists else "the next forward pass",
            ),
        ],
        "del",
        "https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
        mask,
        fraction,
        evidence=PreviousEvidence(previous_bytes=previous),
        effort=ONE_LINE,
        line="del output",
    )


@remembered
def _late_outputs(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: an output that is freed after the next of its stack, and before the one after that."""
    born, freed, stack, size = context.born, context.freed, context.stack, context.size
    mask = np.zeros(len(size), bool)
    # Not a workspace beside the output: in PyTorch 2.15 each matrix product allocates its own, and frees it at once.
    kept = (born >= 0) & (size >= 1 << 20) & (freed - born > AT_ONCE) & ~context.category("input")
    # What is concatenated is needed until that is done.
    kept &= ~growing_lines(context)
    kept[extended_results(context)] = False
    kept[copied_weights(context)] = False
    rows = np.flatnonzero(kept & (stack > 0) & is_among(context.phases.innermost, (FORWARD, NONE))[stack])
    if not len(rows):
        return mask
    table = context.table(rows, generation=_generations(context)[rows])
    table = table.group_by("stack", "generation").agg(
        pl.col("born").min(), soonest=pl.col("freed").min(), freed=pl.col("freed").max()
    )
    table = table.sort("stack", "born").with_columns(
        pl.when(pl.col("stack") == pl.col("stack").shift(-places)).then(pl.col("born").shift(-places)).alias(name)
        for places, name in ((1, "next_born"), (2, "after_next"))
    )
    # One generation too many, each time: freed after the next is allocated and before the one after it begins.
    late = (pl.col("soonest") > pl.col("next_born")) & (
        pl.col("freed") < pl.col("after_next").fill_null(len(context.timeline.events) + 1)
    )
    grouped = table.group_by("stack").agg(
        n=pl.len(),
        late=late.sum(),
        gap=(pl.col("next_born") - pl.col("born")).median(),
        beyond=(pl.col("freed") - pl.col("next_born")).median(),
    )
    # Most of them, and the overlap is short beside an iteration: where a name is bound anew.
    mostly = (pl.col("late") >= 1) & (pl.col("late") >= 0.8 * (pl.col("n") - 1))
    briefly = pl.col("beyond") < 0.5 * pl.col("gap")
    chosen = grouped.filter((pl.col("n") >= 2) & mostly & briefly)["stack"].to_numpy()
    mask[rows] = is_among(stack[rows], chosen)
    mask &= ~_within_one_pass(context, mask)
    return mask


@remembered
def _generations(context: AdviceContext) -> np.ndarray:
    """Int64 per allocation: which of a stack's lists it is in, as of caches of all layers, that one iteration makes
    much faster than the next iteration follows. Where there are no lists, and in forward passes, whose layers share
    lines, each allocation has a number of its own.
    """
    # A median of each group of 100,000 takes polars 1.4 s, and two sorts 0.01.
    order = stable_order(context.stack, context.born)
    stack = context.stack[order]
    begins = np.diff(stack, prepend=-1) != 0
    gap = np.where(begins, -1, np.diff(context.born[order], prepend=0))
    first, group = np.flatnonzero(begins), np.cumsum(begins) - 1
    by_length, gaps = gap[stable_order(stack, gap)], np.diff(np.append(first, len(gap))) - 1
    lower, upper = (by_length[first + np.minimum(1 + half // 2, gaps)] for half in (gaps - 1, gaps))
    apart = begins | (gap > _APART * ((lower + upper) / 2)[group])
    lists = apart | (np.bincount(group[apart], minlength=len(first)) < 2)[group]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(lists | (context.phases.innermost != NONE)[stack])
    return found


def _overlap(context: AdviceContext, mask: np.ndarray) -> tuple[float, int]:
    """(the share of these outputs that goes, bytes at the peak of those of an earlier iteration); (0.0, 0): none is.

    Each is removed from the start of the next iteration on, and the share is the largest that saves no more than
    that: an output that is in use has to stay.
    """
    timeline, born, stack, generation = context.timeline, context.born, context.stack, _generations(context)
    order = np.flatnonzero((context.phases.innermost == FORWARD)[stack])
    order = order[np.argsort(born[order], kind="stable")]
    first = np.full(int(stack.max()) + 1, len(timeline.events), np.int64)
    rows = np.flatnonzero(mask)
    for made in (order, rows):  # outputs may be made outside of any module
        np.minimum.at(first, stack[made], born[made])
    starts = np.full(len(rows), len(timeline.events), np.int64)
    for number in np.unique(stack[rows]).tolist():
        # What this line's forward pass allocates before it begins an iteration when it is allocated again.
        earlier = born[order[first[stack[order]] < first[number]]]
        mine = stack[rows] == number
        # Lists are begun anew.
        begun = rows[mine][np.unique(generation[rows[mine]], return_index=True)[1]]
        if len(begun) < mine.sum():
            earlier = np.sort(np.append(earlier, born[begun]))
        starts[mine] = following(earlier, born[rows[mine]], len(timeline.events))
    previous = (starts <= context.event) & (context.freed[rows] > context.event)
    share, without, _ = share_of_lives(timeline, rows, starts)
    if not context.is_much(timeline.peak_bytes - without):
        return 0.0, 0
    return share, int(context.size[rows[previous]].sum())


def _within_one_pass(context: AdviceContext, mask: np.ndarray) -> np.ndarray:
    """Bool per allocation: of a stack that a loop over layers runs, where the next one replaces the last one's
    output.
    """
    events = context.timeline.events["stack"].to_numpy()
    forward = (context.phases.innermost == FORWARD)[events]
    # Between two iterations the program leaves the forward pass: something that is no forward pass is freed or made.
    outside = np.cumsum(~forward)
    found = np.zeros(len(mask), bool)
    for number in np.unique(context.stack[mask]).tolist():
        rows = np.flatnonzero(mask & (context.stack == number))
        rows = rows[np.argsort(context.born[rows])]
        found_here = rows
        rows = rows[np.unique(_generations(context)[rows], return_index=True)[1]]
        iterations = outside[context.born[rows]]
        found[found_here] = len(np.unique(iterations)) < 0.8 * len(rows)
    return found


INFERENCE_RULES = (
    _no_grad,
    _autocast_copies,
    _kv_cache,
    release_graphs,
    _previous_outputs,
    replaced_together,
    unused_model,
)
