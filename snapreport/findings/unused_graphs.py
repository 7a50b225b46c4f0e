"""Graphs that no backward pass uses, though one may run while they are alive: of a teacher, an actor, an evaluation."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_births import births as births_without_workspaces
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.graphs import backward_passes, births_until, is_inner
from snapreport.integers import is_among
from snapreport.timeline.activity import TRAINING
from snapreport.timeline.phases import BACKWARD, FORWARD

FEWEST_TENSORS, FEWEST_LINES = 6, 2
"""Of a graph: fewer that are freed together may be outputs."""
DENSE = 0.4
"""Of the lines that allocate between the first and the last of a graph: without a graph a pass keeps its outputs."""


def unused_graphs(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: of a forward pass, and freed together with most of it outside of any pass, by lines of which
    no backward pass ever frees anything, while it does of others. None in a program that does not train.
    """
    return context.remember("unused graphs", lambda: _unused(context))


def _unused(context: AdviceContext) -> np.ndarray:
    found = np.zeros(len(context.size), bool)
    if context.timeline.activity.kind != TRAINING:
        return found
    phase, last = context.phases.innermost, len(context.timeline.events)
    forward = (phase == FORWARD)[context.stack] & (context.born >= 0)
    frees = context.free_stack
    by_backward = forward & (context.freed < last) & ((frees == 0) | context.phases.runs(BACKWARD)[frees])
    by_backward[len(context.recorded.allocations) :] = False  # requests that failed
    calls = context.calls[context.stack]
    used = np.bincount(calls[by_backward], minlength=len(phase)) > 0
    if not by_backward.any():
        return found  # retain_graph=True: what no backward pass frees may have been used
    outside = (frees > 0) & ~is_among(phase, (FORWARD, BACKWARD))[frees] & (context.freed < last)
    rows = np.flatnonzero(forward & outside & ~used[calls])
    if not len(rows):
        return found
    # Frees with no allocation between them free one graph; the last made and freed is the output, which is needed
    # anyway, if that is not of the program's own lines.
    table = pl.DataFrame(
        {"row": rows, "graph": births_until(context)[context.freed[rows]], "calls": calls[rows]}
    ).with_columns(born=pl.Series(context.born[rows]), freed=pl.Series(context.freed[rows]))
    graphs = table.group_by("graph").agg(
        n=pl.len(), lines=pl.col("calls").n_unique(), first=pl.col("born").min(), end=pl.col("born").max()
    )
    graphs = graphs.filter((pl.col("n") >= FEWEST_TENSORS) & (pl.col("lines") >= FEWEST_LINES))
    # The next backward pass frees another graph, or it uses this one and retain_graph=True keeps it.
    begun, freed = backward_passes(context), np.minimum(context.freed[by_backward], last - 1)
    frees_some = np.unique(begun[freed])
    following = pl.Series(begun[graphs["end"].to_numpy()] + 1)
    graphs = graphs.filter(is_among(following.to_numpy(), frees_some) | (following > begun[-1]).to_numpy())
    every = births_without_workspaces(context)
    order, lines_of = context.born[every.rows[every.forward]], every.calls[every.forward]
    dense = [
        count >= DENSE * len(np.unique(lines_of[slice(*np.searchsorted(order, (first, end + 1)))]))
        for count, first, end in graphs.select("lines", "first", "end").rows()
    ]
    numbers = graphs.filter(pl.Series(dense, dtype=pl.Boolean))["graph"].implode()
    of_graphs = table.filter(pl.col("graph").is_in(numbers))["calls"].to_numpy()
    # Several graphs may go at once, or stay to the end: they come from the same lines.
    lines = np.bincount(of_graphs, minlength=len(phase)) > 0
    inner = table.filter(is_inner("born", "freed"))["row"].to_numpy()
    found[inner] = True
    # So does what goes with a request that failed: no backward pass uses it.
    failed = np.array(context.timeline.oom_events, np.int64)
    ends = np.append(failed, last)[np.searchsorted(failed, context.born, "right")]
    found |= forward & (context.freed >= ends)
    return np.asarray(found & lines[calls])
