"""Activations that outlive a backward pass: a stored output or loss refers to their graph."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence, remembered
from snapreport.findings.graphs import (
    FEWEST_STACKS,
    backward_allocations,
    backward_passes,
    births_until,
    born_in,
    freed_in,
    saved_for_backward,
)
from snapreport.findings.live import names_of
from snapreport.findings.saving import CLOSE_TO_PEAK, share_of_lives
from snapreport.findings.unused_graphs import unused_graphs
from snapreport.integers import following
from snapreport.sentence import bytes_part, event_part, sentence
from snapreport.timeline.activity import TRAINING
from snapreport.timeline.lifetimes import allocates

FEWEST_TENSORS, FEWEST_LINES = 5, 2
"""A graph that is released frees tensors of several lines at once: of a Sequential, those of a line for each kind of
layer. With fewer lines than ``FEWEST_STACKS`` it may be a set of outputs."""
_LARGE, _FEWEST_LARGE = 0.01, 3
"""Tensors of one step that a graph holds, so large beside its largest."""
_MIN_TENSOR_SHARE = 0.5
"""The share of a line's activations that outlive a backward pass, of those that are freed."""


class RetainedEvidence(AdviceEvidence, kw_only=True):
    retained_bytes: int


@remembered
def retained_graphs(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: an activation that is still allocated after the first backward pass that ended since its
    birth, and is freed by neither a backward nor a forward pass. A backward pass frees what it uses, unless
    ``retain_graph=True`` says otherwise; what no backward pass uses is freed with the last reference to its graph.

    Only of lines whose activations mostly do, and of graphs: outputs that are kept without one are few.
    """
    found = np.zeros(len(context.size), bool)
    if context.timeline.activity.kind != TRAINING:
        return found
    phase = context.phases.innermost
    forward = context.category("activation") & context.forward[context.stack] & context.is_traced
    # Of frees without a stack trace nothing is known: the autograd engine's threads have none either.
    outside = context.in_no_pass[context.free_stack]
    freed = forward & context.is_freed
    rows = np.flatnonzero(freed & outside & (backward_ends(context) < context.freed))
    # Frees with no allocation between them free one graph.
    births = births_until(context)
    table = context.table(rows, graph=births[context.freed[rows]], run=born_in(context)[rows], line=context.lines[rows])
    # An output or two of each step, and numbers beside them, all freed together, are no graph.
    is_large = pl.col("size") >= _LARGE * pl.col("size").max().over("graph", "run")
    large = is_large.sum().over("graph", "run") >= _FEWEST_LARGE
    graph = pl.len().over("graph") >= FEWEST_TENSORS, pl.col("line").n_unique().over("graph") >= FEWEST_LINES
    table = table.filter(large, *graph)
    # What is freed before any backward pass is not saved: a convolution without cuDNN unfolds each sample in its line.
    every = np.bincount(context.stack[freed & saved_for_backward(context)], minlength=len(phase))
    mostly = np.bincount(table["stack"].to_numpy(), minlength=len(phase)) >= np.maximum(_MIN_TENSOR_SHARE * every, 2)
    found[table.filter(pl.Series(mostly[table["stack"].to_numpy()]))["row"].to_numpy()] = True
    # What is alive at the end comes from the same lines.
    found |= forward & mostly[context.stack] & ~context.is_freed
    return np.asarray(found & ~unused_graphs(context))


def backward_ends(context: AdviceContext) -> np.ndarray:
    """Int64 per allocation: the event at which the first backward pass that began after its birth has surely ended,
    since something else allocates; the number of events where none has.
    """
    events = context.timeline.events
    begun, never = backward_passes(context), len(events)
    is_alloc = allocates(events)
    others = np.flatnonzero(is_alloc & ~backward_allocations(context))
    own = np.flatnonzero(backward_allocations(context))
    last = np.zeros(int(begun[-1]) + 2, np.int64)
    np.maximum.at(last, begun[own], own)
    ends = following(others, last, never)
    ends[-1] = never
    return np.asarray(ends[born_in(context) + 1])


def _stored_outputs(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: the last to be freed of a graph, which goes before the output that holds it. A program that
    stores outputs without their graphs keeps it.
    """
    rows = np.flatnonzero(retained_graphs(context) & context.is_freed)
    births = births_until(context)
    rows = rows[np.argsort(-context.freed[rows], kind="stable")]
    _, last = np.unique(births[context.freed[rows]], return_index=True)
    return context.marked(rows[last])


@remembered
def read_by_retained_graphs(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: freed together with a graph that a stored output holds, outside of a backward pass, as the
    inputs that its first layer saves; and what the same lines made that is alive at the end.
    """
    graphs = retained_graphs(context) & ~_stored_outputs(context)
    births = births_until(context)
    mine = context.traced("input", "unknown") & context.has_python
    mine &= backward_ends(context) < context.freed
    together = np.unique(births[context.freed[graphs & context.is_freed]])
    freed = np.flatnonzero(mine & context.is_freed)
    held = freed[np.isin(births[context.freed[freed]], together)]
    of_lines = np.isin(context.stack, np.unique(context.stack[held]))
    return np.asarray(context.marked(held) | (mine & ~context.is_freed & of_lines))


def _not_needed_from(context: AdviceContext, rows: np.ndarray) -> np.ndarray:
    """Int64 per row: the event from which no backward pass needs it. The next one may free another graph, that of its
    loss: then it never uses this one, whose forward pass is all that it lives for.
    """
    run, last, ends = born_in(context), len(context.timeline.events), backward_ends(context)
    of_rows, count = run[rows], int(backward_passes(context)[-1]) + 2
    # Bytes that each backward pass frees, and those of the graphs that it leaves.
    used = context.traced("activation") & ~context.marked(rows) & context.is_freed
    used &= freed_in(context) == run + 1
    of_loss = np.bincount(run[used], context.size[used], count)
    of_kept = np.bincount(of_rows, context.size[rows], count)
    made_from, made_until = np.full(count, last, np.int64), np.zeros(count, np.int64)
    np.minimum.at(made_from, of_rows, context.born[rows])
    np.maximum.at(made_until, of_rows, context.born[rows])
    # What each layer makes for both, as keys and values that a model returns beside its logits, is of one graph.
    among = used & (context.born > made_from[run]) & (context.born < made_until[run])
    of_same = np.bincount(run[among], context.size[among], count)
    unused = ((of_loss >= of_kept) & (2 * of_same < of_loss))[of_rows]
    return np.asarray(np.where(unused, made_until[of_rows] + 1, ends[rows]))


def release_graphs(context: AdviceContext) -> Advice | None:
    mask = retained_graphs(context) & ~_stored_outputs(context)
    if not mask.any():
        return None
    mask |= read_by_retained_graphs(context)
    rows = np.flatnonzero(mask)
    starts, size = _not_needed_from(context, rows), context.size[rows]
    there = (starts <= context.event) & (context.freed[rows] > context.event)
    retained = int(size[there].sum())
    fraction, without, then = share_of_lives(context.timeline, rows, starts)
    if not context.is_much(context.timeline.peak_bytes - without):
        return None
    by_stack = pl.DataFrame({"stack": context.free_stack[rows], "size": size}).filter(pl.col("stack") > 0)
    by_stack = by_stack.group_by("stack").agg(pl.col("size").sum()).sort("size", "stack", descending=[True, False])
    saves = context.timeline.peak_bytes - without
    limit = [sentence("Without them {} is the highest.", event_part(then))] if saves < CLOSE_TO_PEAK * retained else []
    return Advice(
        "retained-graphs",
        "Release the graph of a forward pass after its backward pass",
        [
            sentence(
                "{} of activations at the peak have outlived a backward pass: a stored output or loss refers to "
                "their graph. They are freed in {}.",
                bytes_part(retained),
                names_of(context.snapshot).line(int(by_stack["stack"][0])),
            ),
            *limit,
            sentence(
                "Store outputs detached, or compute them in `torch.no_grad()`. Delete the loss after its step, and "
                "leave out retain_graph=True where one backward pass is enough."
            ),
        ],
        sentence("`detach()`, `torch.no_grad()`, del"),
        "https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
        mask,
        fraction,
        confidence="inferred" if len(np.unique(context.lines[rows])) >= FEWEST_STACKS else "estimate",
        is_partly=True,
        evidence=RetainedEvidence(retained_bytes=retained),
        effort=ONE_LINE,
        line="results.append(output.detach())",
    )
