"""Graphs that no backward pass uses, though one may run while they are alive: of a teacher, an actor, an evaluation."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_births import births as births_without_workspaces
from snapreport.findings.advice_context import AdviceContext, remembered
from snapreport.findings.graphs import backward_passes, births_until, born_in, dropped_graphs, freed_in, is_inner
from snapreport.integers import following, stable_order
from snapreport.timeline.activity import TRAINING
from snapreport.timeline.phases import FORWARD

FEWEST_TENSORS, FEWEST_LINES = 6, 2
"""Of a graph: fewer that are freed together may be outputs."""
DENSE = 0.4
"""Of the lines that allocate between the first and the last of a graph: without a graph a pass keeps its outputs."""
CHECKPOINT = r"torch/utils/checkpoint\.py"
_DROPPED = r"^torch::autograd::(deleteNode|gatherFunctions|Node::~Node)\("
"""Frees what a graph saved when nothing refers to it any more; a backward pass frees that before. The first up to
PyTorch 2.12, the last from 2.14 on.
"""


@remembered
def unused_graphs(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: of a forward pass, and freed together with most of it outside of any pass, by lines of which
    no backward pass ever frees anything, while it does of others. None in a program that does not train.
    """
    if context.timeline.activity.kind != TRAINING:
        return context.marked()
    phase, last = context.phases.innermost, len(context.timeline.events)
    forward = (phase == FORWARD)[context.stack] & context.is_traced
    frees = context.free_stack
    by_backward = forward & context.is_freed & context.may_be_backward[frees]
    by_backward[len(context.recorded.allocations) :] = False  # requests that failed
    calls = context.calls[context.stack]
    used = np.bincount(calls[by_backward], minlength=len(phase)) > 0
    # A backward pass that frees nothing has used its graph with retain_graph=True.
    born, freed, passes = born_in(context), freed_in(context), int(backward_passes(context)[-1]) + 1
    releases = np.bincount(born[by_backward & (freed == born + 1)], minlength=passes) > 0
    outside = context.in_no_pass[frees] & context.is_freed
    ends_unused = outside & (releases[born] | (freed == born))
    dropped = ends_unused & _saved_by_dropped_nodes(context)
    # What the same lines made last may stay to the end.
    dropped |= (np.bincount(calls[dropped], minlength=len(phase)) > 0)[calls] & ~context.is_freed
    computed_again = context.frames(CHECKPOINT)[context.stack]  # a backward pass frees nothing of the first time
    rows = np.flatnonzero(forward & ends_unused & ~used[calls] & ~computed_again)
    if not len(rows):
        return np.asarray(dropped)
    # Frees with no allocation between them free one graph, if no backward pass began between its births; the last made
    # and freed is the output, which is needed anyway, if that is not of the program's own lines.
    together = births_until(context)[context.freed[rows]] * passes + born[rows]
    table = context.table(rows, graph=together, calls=calls[rows])
    graphs = table.group_by("graph").agg(
        n=pl.len(), lines=pl.col("calls").n_unique(), first=pl.col("born").min(), end=pl.col("born").max()
    )
    graphs = graphs.filter((pl.col("n") >= FEWEST_TENSORS) & (pl.col("lines") >= FEWEST_LINES))
    # Where a backward pass frees more of what was made meanwhile, the program keeps these: layers' outputs in a list.
    begun, ended = np.searchsorted(np.sort(context.born[by_backward]), graphs.select("first", "end").to_numpy().T)
    graphs = graphs.filter(pl.Series(ended - begun) < pl.col("n"))
    every = births_without_workspaces(context)
    order, lines_of = context.born[every.rows[every.forward]], every.calls[every.forward]
    # Some of a pass's lines save for another graph, as those of a coarse network for samples of a fine one.
    candidates = np.zeros(len(phase), bool)
    candidates[table.filter(pl.col("graph").is_in(graphs["graph"].implode()))["calls"].to_numpy()] = True
    dense = []
    for first, end in graphs.select("first", "end").rows():
        between = np.unique(lines_of[slice(*np.searchsorted(order, (first, end + 1)))])
        dense.append(bool(candidates[between].sum() >= DENSE * len(between)))
    numbers = graphs.filter(pl.Series(dense, dtype=pl.Boolean))["graph"].implode()
    of_graphs = table.filter(pl.col("graph").is_in(numbers))["calls"].to_numpy()
    # Several graphs may go at once, or stay to the end: they come from the same lines.
    lines = np.bincount(of_graphs, minlength=len(phase)) > 0
    found = context.marked(table.filter(is_inner("freed"))["row"].to_numpy())
    # So does what goes with a request that failed: no backward pass uses it.
    failed = np.array(context.timeline.oom_events, np.int64)
    ends = following(failed, context.born, last)
    found |= forward & (context.freed >= ends)
    return np.asarray((found & lines[calls]) | dropped)


def _saved_by_dropped_nodes(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: made by the program, also outside of modules, and freed with a node of a graph, by lines of
    which no backward pass ever frees anything. None where free stacks have no C++ frames.
    """
    made, frees, calls = context.has_python & context.is_traced, context.free_stack, context.calls[context.stack]
    by_backward = context.may_be_backward[frees] & made & context.is_freed
    used = np.bincount(calls[by_backward], minlength=len(context.calls)) > 0
    made &= context.category("activation", "temporary", "unknown")  # nodes refer to parameters, too
    return np.asarray(made & context.functions(_DROPPED)[frees] & ~used[calls])


@remembered
def inputs_of_unused_graphs(context: AdviceContext) -> pl.DataFrame:
    """Batches that graphs without a backward pass save: freed together with one, or alive at the end as one is, though
    their line has made another since. Columns "row" and "next", the event of that one: without a graph it frees them.
    """
    last, births = len(context.timeline.events), births_until(context)
    run = np.where(context.freed < last, births[np.minimum(context.freed, last - 1)].astype(np.int64), -1)
    # One from before another backward pass is replaced at the same time by chance, as the data of the last rollout.
    run = run * (int(backward_passes(context)[-1]) + 1) + born_in(context)
    together = np.unique(run[dropped_graphs(context) | unused_graphs(context)])
    read = context.traced("input", "unknown") & context.has_python
    rows = np.flatnonzero(read & (context.phases.innermost != FORWARD)[context.stack])
    rows = rows[stable_order(context.stack[rows], context.born[rows])]
    row, then = rows[:-1], rows[1:]
    after = context.born[then]
    begun = (context.stack[row] == context.stack[then]) & (after < context.freed[row])
    found = begun & np.isin(run[row], together)
    return pl.DataFrame({"row": row[found], "next": after[found]})
