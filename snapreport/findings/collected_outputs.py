"""Outputs of a loop without gradients that stay on the device until the loop has ended."""

from __future__ import annotations

import numpy as np
import polars as pl

from snapreport.findings.advice_births import births
from snapreport.findings.advice_context import ONE_LINE, Advice, AdviceContext, AdviceEvidence, remembered
from snapreport.findings.graphs import (
    backward_begins,
    births_until,
    born_in,
    dropped_graphs,
    fails_in_backward,
    forward_births,
    freed_in,
    saved_for_backward,
)
from snapreport.findings.joined_results import LARGE, joined_results
from snapreport.findings.live import names_of
from snapreport.findings.retained_graphs import read_by_retained_graphs, retained_graphs
from snapreport.findings.saving import share_of_lives
from snapreport.findings.unused_graphs import unused_graphs
from snapreport.integers import following, is_among, stable_order
from snapreport.sentence import bytes_part, sentence
from snapreport.timeline.activity import INFERENCE, TRAINING
from snapreport.timeline.phases import NONE

_MIN_OUTPUTS = 4
_MIN_SHARE = 0.9
_LIKE_MOST = 0.2
"""Of the largest collection's bytes: smaller ones, as of targets, may stay."""
_MAX_USES = 8
"""Allocations until which an output has been used and copied to the host."""


class CollectedEvidence(AdviceEvidence, kw_only=True):
    """``iterations``: of which the line with the largest results keeps one each. ``joined_bytes``: of what is computed
    from all of them.
    """

    iterations: int
    joined_bytes: int


def collected_outputs(context: AdviceContext) -> Advice | None:
    """One allocation of a line in each iteration of a loop of forward passes, all alive after the last."""
    rows, joined = _collections(context)
    if is_extended := not len(rows):
        rows = extended_results(context)
    mine, mask = np.concatenate((rows, joined)), context.marked(rows, joined)
    size = context.bytes_at_peak(mask)
    if not context.is_much(size):
        return None
    traced = rows[context.is_traced[rows]]
    largest = int(context.stack[traced[np.argmax(context.size[traced])]])
    order = context.born[births(context).rows]
    later = np.searchsorted(order, context.born[mine], "right") + _MAX_USES
    starts = np.append(order, np.full(_MAX_USES + 1, len(context.timeline.events)))[np.minimum(later, len(order))]
    # A variable may refer to one until the line has made the next.
    born, order = context.born[mine], stable_order(context.stack[mine], context.born[mine])
    is_followed = np.append(np.diff(context.stack[mine][order]) == 0, False)
    starts[order] = np.where(is_followed, np.minimum(starts[order], np.roll(born[order], -1) + 1), starts[order])
    computed = 0 if is_extended else len(rows)
    starts[computed:] = context.born[mine[computed:]]
    starts[~context.is_traced[mine]] = -1
    fraction = share_of_lives(context.timeline, mine, starts)[0]
    of_largest = rows[(context.stack[rows] == largest) | ~context.is_traced[rows]]
    count = int(context.at_peak[of_largest].sum()) or len(of_largest)
    joined_bytes = context.bytes_at_peak(context.marked(joined))
    if is_extended:  # of an epoch, with the first result, which is concatenated to the second
        begun = born_in(context)[rows]
        count = int(((context.stack[rows] == largest) & (begun == begun[np.argmax(context.size[rows])])).sum()) + 1
    return Advice(
        "collected-outputs",
        "Move each result to the CPU in the loop",
        [
            sentence(
                "{} are results of {} iterations that stay on the device, from {}{}.",
                context.share(size),
                count,
                names_of(context.snapshot).line(largest),
                sentence(", together with {} of what is computed from all of them", bytes_part(joined_bytes))
                if joined_bytes
                else "",
            ),
            sentence("Of a number, `.item()` is enough{}.", "; of a mean, a running sum" if len(joined) else ""),
        ],
        "Tensor.cpu(), Tensor.item()",
        "https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
        mask,
        fraction,
        effort=ONE_LINE,
        line="results.append(output.cpu())",
        evidence=CollectedEvidence(iterations=count, joined_bytes=joined_bytes),
    )


def collections(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: results that a loop collects, and the tensors that join them. The batch does not change
    their size.
    """
    return context.marked(*_collections(context), extended_results(context), _joined_leaks(context))


@remembered
def _joined_leaks(context: AdviceContext) -> np.ndarray:
    """Int64 rows of what is computed from all that a line leaks."""
    return computed_from_all(context, context.leaked)


def computed_from_all(context: AdviceContext, results: np.ndarray) -> np.ndarray:
    """Int64 rows of what is computed from all of a line's ``results`` (Bool per allocation), in no forward pass."""
    others = context.is_traced & context.has_python & ~context.forward[context.stack] & ~results
    return joined_results(context.timeline, results, others)


@remembered
def _collections(context: AdviceContext) -> tuple[np.ndarray, np.ndarray]:
    """Int64 rows of results, and of what they are joined into."""
    rows = _collected(context)
    if not len(rows):
        rows = _over_steps(context)
        return rows, computed_from_all(context, context.marked(rows))
    # What they are joined into is as large as they all are; a line may compute something of each of them, too.
    sizes, counts = np.unique(context.size[rows], return_counts=True)
    last = int(context.born[rows].max(initial=0))
    # A trace that begins in the loop shows of what is older how large it is; that they are joined shows what it is.
    older = context.category("unknown") & ~context.is_traced & (context.freed > last)
    wholes = sizes * (counts + [int(older[context.size == size].sum()) for size in sizes])
    is_whole = (context.born > last) & context.has_python
    proved = [size for size, whole in zip(sizes, wholes, strict=True) if (is_whole & (context.size == whole)).any()]
    rows = np.union1d(rows, np.flatnonzero(older & np.isin(context.size, proved)))
    sizes, counts = np.unique(context.size[rows], return_counts=True)
    later = (context.born > last) & ~context.without_python[context.stack]
    while_all = np.flatnonzero(later & (context.born < context.freed[rows].min(initial=len(context.timeline.events))))
    _, line, n = np.unique(context.stack[while_all], return_inverse=True, return_counts=True)
    joined = np.union1d(
        np.flatnonzero((context.born > last) & np.isin(context.size, sizes * counts)),
        while_all[np.isin(n[line], counts)],
    )
    return rows, np.union1d(joined, computed_from_all(context, context.marked(rows)))


@remembered
def extended_results(context: AdviceContext) -> np.ndarray:
    """Int64 rows of results to which a program that trains concatenates those of the next forward pass, outside of any
    module and with no backward pass between: of a line most of whose tensors are larger than the last one, which goes
    right after. A backward pass frees none: else they are of its graph.
    """
    mine = context.traced("activation", "temporary", "unknown") & context.has_python
    mine &= (context.phases.innermost == NONE)[context.stack] & (context.size >= LARGE)
    rows = np.flatnonzero(mine)
    if context.timeline.activity.kind != TRAINING or not len(rows):
        return np.zeros(0, np.int64)
    # The next of the same line that is freed, as numbers in order of lines and events.
    line = context.stack[rows].astype(np.int64) * (len(context.timeline.events) + 1)
    born, freed, size = line + context.born[rows], line + context.freed[rows], context.size[rows]
    order = np.argsort(freed, kind="stable")
    next_freed = order[np.minimum(np.searchsorted(freed[order], born, "right"), len(rows) - 1)]
    replaces = (freed[next_freed] > born) & (freed[next_freed] <= born + _MAX_USES) & (born[next_freed] < born)
    # A forward pass has run since that was made: both are no temporaries of one line.
    until = np.searchsorted(forward_births(context), context.born[rows])
    replaces &= until > until[next_freed]
    pairs = context.table(
        rows, epoch=born_in(context)[rows], replaces=replaces, grows=replaces & (size[next_freed] < size),
        by_program=_freed_by_program(context, rows),
    )  # fmt: skip
    lines = pairs.group_by("stack", "epoch").agg(pl.col("replaces", "grows").sum(), pl.col("by_program").all())
    lines = lines.group_by("stack").agg(
        pl.col("replaces", "grows").sum(), pl.col("by_program").all(), most=pl.max("grows")
    )
    most = (pl.col("most") >= _MIN_OUTPUTS) & (pl.col("grows") >= _MIN_SHARE * pl.col("replaces"))
    lines = lines.filter(most & pl.col("by_program"))
    return rows[is_among(context.stack[rows], lines["stack"].to_numpy())]


def _freed_by_program(context: AdviceContext, rows: np.ndarray) -> np.ndarray:
    """Bool per row: freed by no backward pass, as far as the stack of the free tells, or alive at the end and not saved
    for one: neither do backward passes free others of its stack, nor did memory run out in the one that follows it.
    """
    by_backward = context.is_freed & context.may_be_backward[context.free_stack]
    is_saved = is_among(context.stack, np.unique(context.stack[by_backward]))
    if fails_in_backward(context):
        is_saved |= freed_in(context) == born_in(context) + 1
    return np.asarray(~np.where(context.is_freed, by_backward, is_saved)[rows])


def _collected(context: AdviceContext) -> np.ndarray:
    """Int64 rows of results: of lines that allocate once in each iteration, nearly all alive after the last one.

    Where the program trains, of passes with no backward pass between them, and freed by none: an epoch's validation.
    """
    kind = context.timeline.activity.kind
    if kind not in (INFERENCE, TRAINING):
        return np.zeros(0, np.int64)
    every = births(context)
    kept = (
        context.category("activation", "temporary", "unknown", "input")[every.rows]
        & ~context.without_python[every.stack]
    )
    epoch = np.zeros(len(every.rows), np.int64)
    if kind == TRAINING:
        epoch = born_in(context)[every.rows]
        kept &= _freed_by_program(context, every.rows)
        kept &= ~(unused_graphs(context) | retained_graphs(context))[every.rows]
        kept &= ~read_by_retained_graphs(context)[every.rows]
    table = context.table(every.rows, passes=np.cumsum(every.forward), outside=every.outside, epoch=epoch)
    table = table.filter(pl.Series(kept))
    lines = table.group_by("epoch", "stack", "size").agg(
        n=pl.len(), iterations=pl.col("outside").n_unique(), passes=pl.col("passes").n_unique(),
        alive=(pl.col("freed") > pl.col("born").max()).mean(), first=pl.col("born").min(), last=pl.col("born").max(),
    )  # fmt: skip
    # A loop over layers allocates nothing outside of the pass, and one that loads weights runs no pass.
    loops = (pl.col("n") >= _MIN_OUTPUTS) & (pl.min_horizontal("iterations", "passes") >= _MIN_SHARE * pl.col("n"))
    lines = lines.filter(loops & (pl.col("alive") >= _MIN_SHARE))
    if kind == TRAINING:
        lines = lines.filter(_without_graph(context, lines))
    lines = lines.filter(pl.col("n") * pl.col("size") >= _LIKE_MOST * (pl.col("n") * pl.col("size")).max())
    return table.join(lines, on=["epoch", "stack", "size"], how="semi")["row"].to_numpy()


def _over_steps(context: AdviceContext) -> np.ndarray:
    """Int64 rows of results that a program keeps over several training steps, and frees together: a metric's, until the
    epoch has ended; or over several passes that infer, as votes of an ensemble for each batch. Those that are alive at
    the end are of a line that has freed others so.
    """
    mine = context.traced("activation", "temporary", "unknown", "input") & context.has_python
    mine &= ~context.forward[context.stack] & (context.size >= LARGE)
    mine &= ~(dropped_graphs(context) | unused_graphs(context) | retained_graphs(context))
    mine &= ~read_by_retained_graphs(context)
    leaks = [leak.evidence.get("stacks", []) for leak in context.findings if leak.kind == "leak"]
    rows = np.flatnonzero(mine & ~is_among(context.stack, [row["stack"] for stacks in leaks for row in stacks]))
    rows = rows[_freed_by_program(context, rows)]
    kind, last = context.timeline.activity.kind, len(context.timeline.events)
    if kind not in (INFERENCE, TRAINING) or not len(rows):
        return np.zeros(0, np.int64)
    # Of passes that infer a line makes one result each.
    step, least = born_in(context)[rows], 0.0
    if kind == INFERENCE:
        step, least = np.searchsorted(forward_births(context), context.born[rows]), _MIN_SHARE
    end = np.where(context.is_freed[rows], births_until(context)[np.minimum(context.freed[rows], last - 1)], -1)
    table = context.table(rows, end=end, step=step)
    lines = table.group_by("stack", "size", "end").agg(n=pl.len(), steps=pl.col("step").n_unique())
    lines = lines.filter((pl.col("steps") >= _MIN_OUTPUTS) & (pl.col("steps") >= least * pl.col("n")))
    lines = lines.filter((pl.col("end") >= 0).any().over("stack", "size"))
    lines = lines.filter(pl.col("n") * pl.col("size") >= _LIKE_MOST * (pl.col("n") * pl.col("size")).max())
    found = table.join(lines, on=["stack", "size", "end"], how="semi")
    # A variable may refer to the last of them for longer.
    ends = found.group_by("stack", "size", "end").agg(first=pl.min("born"), until=pl.min("freed")).sort("first")
    lasts = table.join(lines, on=["stack", "size", "end"], how="anti").sort("born")
    lasts = lasts.join_asof(ends, left_on="born", right_on="first", by=["stack", "size"], check_sortedness=False)
    return np.union1d(found["row"].to_numpy(), lasts.filter(pl.col("born") < pl.col("until"))["row"].to_numpy())


def _without_graph(context: AdviceContext, lines: pl.DataFrame) -> pl.Series:
    """Boolean per row: whether another forward pass runs after the ``last`` of a line before the next backward pass
    begins, or none does: else that may be of the line's own graph. So are results of a loop whose passes the backward
    pass needs, as those of a world model, whose outputs of all time steps are stacked for the loss.
    """
    forward, never = forward_births(context), np.iinfo(np.int64).max
    first, last = (lines[name].to_numpy() for name in ("first", "last"))
    saved = context.forward[context.stack] & context.may_be_backward[context.free_stack] & saved_for_backward(context)
    needed = np.sort(context.born[saved & context.is_traced])
    is_needed = np.searchsorted(needed, last) - np.searchsorted(needed, first) >= lines["n"].to_numpy() - 1
    begins = following(backward_begins(context), last, never)
    start, end, after = (np.searchsorted(forward, events) for events in (first, last, begins))
    of_pass = (end - start) / (lines["n"].to_numpy() - 1)
    return pl.Series(((begins == never) | (after - end >= of_pass)) & ~is_needed)
