"""Autograd graphs at the peak: those that no backward pass uses, and several that wait for one backward pass."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.findings.advice_context import BLOCK, AdviceContext, remembered
from snapreport.integers import following, is_among
from snapreport.memoize import memoize
from snapreport.timeline.activity import GRAPH_DROPPED, TRAINING, engine_allocations
from snapreport.timeline.lifetimes import allocates
from snapreport.timeline.phases import BACKWARD, FORWARD, OPTIMIZER_STEP

FEWEST_FREED, FEWEST_STACKS = 16, 5
"""A graph that is dropped frees tensors of many lines at once; a cache or a list of outputs those of few."""
FEWEST_DROPPED = 3
"""The same in a program that is known to drop graphs: see ``timeline/activity.py``."""
_ROOT = r"^_make_grads$"
"""Allocates the gradient of a loss, with which a backward pass begins."""
_PIPELINE = r"(?i)pipelin|gpipe|1f1b|/pipe/|p2p_communication|[/_]schedules\.py"
"""Stages of a pipeline hold the graphs of several micro-batches by design."""
_RECEIVES = r"(?i)torch/distributed/|[ _.]recv|receive"
"""The same where no file or function of the schedule is called so: gradients come from another rank."""
_SHARED = 0.01
"""Of the graphs' bytes: what a buffer takes that the first pass makes is less."""
MOST_PASSES = 4
"""Of one batch: the networks of a GAN have three."""
MOST_PARTS = 16
"""Of a batch: more passes of one step are time steps of a recurrence, as of a world model with a loss for each."""
_NUMBER = 8
"""Bytes of one, in the widest type."""
_MIN_SIMILARITY = 0.8
"""The share of the graphs' bytes that come from lines which made some in each graph."""
_MOST = 0.95
"""The same share where inner steps run lines several times in each graph. The steps of a single task share a graph:
with less, they would count as graphs that wait.
"""


@remembered
def births_until(context: AdviceContext) -> np.ndarray:
    """Int32 per event: allocations up to it. Frees with the same number have none between them."""
    events = context.timeline.events
    return np.cumsum(allocates(events) & ~context.beside_passes[events["stack"].to_numpy()], dtype=np.int32)


@remembered
def dropped_graphs(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: of a forward pass, and freed outside of it in one run of frees with many others, after no
    backward pass. None where the program neither trains nor drops graphs: a forward pass may have been cut off.
    """
    kind = context.timeline.activity.kind
    if kind not in (TRAINING, GRAPH_DROPPED):
        return context.marked()
    phase = context.phases.innermost
    events = context.timeline.events
    births = births_until(context)
    last = len(events)
    inside = is_among(phase, (FORWARD, BACKWARD))[context.free_stack]
    mine = (phase == FORWARD)[context.stack] & context.is_traced & ~inside
    if kind == TRAINING:
        # A forward pass that ran out of memory has no backward pass.
        ends = backward_allocations(context).copy()
        ends[context.timeline.oom_events] = True
        mine &= ~_between(context, ends)
    rows = np.flatnonzero(mine)
    requested = context.timeline.allocations["free_requested_event"].to_numpy()[rows]
    end = np.where(requested >= 0, requested, context.freed[rows])
    # Frees with no allocation between them belong together; what is alive at the end is a group of its own.
    group = np.where(end >= last, births[-1] + 1, births[np.minimum(end, last - 1)])
    table = context.table(rows, graph=group, end=end, line=context.lines[rows])
    table = table.filter(is_inner("end") | (pl.col("end") >= last))
    large = (
        table.group_by("graph")
        .agg(pl.len(), lines=pl.col("line").n_unique())
        .filter(
            (pl.col("len") >= FEWEST_FREED)
            & (pl.col("lines") >= (FEWEST_STACKS if kind == TRAINING else FEWEST_DROPPED))
        )
    )
    if kind == TRAINING:
        # What is alive at the end may still see its backward pass, but where the same lines dropped a graph before.
        dropped = table.filter(pl.col("graph").is_in(large["graph"].implode()) & (pl.col("end") < last))
        table = table.filter((pl.col("end") < last) | pl.col("stack").is_in(dropped["stack"].unique().implode()))
    return context.marked(table.filter(pl.col("graph").is_in(large["graph"].implode()))["row"].to_numpy())


def is_inner(freed: str) -> pl.Expr:
    """Whether a tensor is not the output of its ``graph``, which is made last, and freed last since it holds the graph.
    The output is needed without a graph, too.
    """
    made_last = pl.col("born") == pl.col("born").max().over("graph")
    freed_last = pl.col(freed) == pl.col(freed).max().over("graph")
    return ~(made_last & freed_last)


class WaitingGraphs(Struct, frozen=True):
    """Graphs of several forward passes that are alive at the peak.

    mask: Bool per allocation, activations of the lines that made some in each of them; none in a stage of a pipeline,
    which holds several micro-batches by design. passes: how many, 1 where there is only one. failed: memory ran out
    before any backward pass; else one backward pass frees them all, or one for each where ``calls`` is ``passes``.
    """

    mask: np.ndarray
    passes: int
    failed: bool = False
    calls: int = 1


@memoize
def waiting_graphs(context: AdviceContext) -> WaitingGraphs:
    """Between two passes the program allocates outside of any: a batch, a loss. A line of the model has then allocated
    in each stretch. Layers of one pass lie in one stretch.
    """
    nothing = WaitingGraphs(context.marked(), 1)
    mine = context.category("activation") & (context.phases.innermost == FORWARD)[context.stack]
    mine &= context.is_traced & ~dropped_graphs(context)
    rows = np.flatnonzero(mine & context.at_peak)
    if context.timeline.activity.kind != TRAINING or len(rows) < FEWEST_FREED:
        return nothing
    events = context.timeline.events
    is_alloc = allocates(events)
    stack = events["stack"].to_numpy()
    # No backward pass began between their births, only after the last of them.
    begun = backward_passes(context)
    before = int(born_in(context)[rows].max())
    rows, with_inner = rows[born_in(context)[rows] == before], rows[:0]
    ooms = [event for event in context.timeline.oom_events if event >= context.event and begun[event] == before]
    if ooms:
        rows, losses, is_each = rows[context.freed[rows] > ooms[0]], 0, False
        if context.occurs(context.frames(_PIPELINE)):
            return nothing
    else:
        last = freed_in(context)[rows].min()
        if begun[context.event] == last:  # a backward pass that is under way has freed some
            rows = np.flatnonzero(mine & (born_in(context) == before))
        rows = rows[(freed_in(context)[rows] == last) & context.is_freed[rows]]
        if not _freed_by_backward(context, rows):
            return nothing
        if len(with_inner := _around_inner_steps(context, mine, last)):
            rows = with_inner
        root = is_alloc & context.functions(_ROOT)[stack]
        roots = np.bincount(begun[root])
        losses = int(roots[last:][:1].sum())
        # A schedule calls backward() for the rest in another line than between two forward passes.
        is_each = losses > 1 and bool((roots[roots > 0] == losses).all()) and len(np.unique(stack[root])) == 1
    between = ~(context.without_python | context.phases.runs(FORWARD) | context.beside_passes)
    outside = np.cumsum(is_alloc & between[stack])
    table = context.table(rows, stretch=outside[context.born[rows]])
    lines = table.group_by("stack").agg(pl.col("size").sum(), passes=pl.col("stretch").n_unique().cast(pl.Int64))
    if not len(lines):
        return nothing
    by_passes = lines.group_by("passes").agg(pl.col("size").sum()).sort("size", "passes", descending=True)
    passes = int(by_passes["passes"][0])
    # A pass that was cut off has not reached every line.
    alike = (pl.col("passes") - passes).abs() <= (1 if ooms else 0)
    if len(with_inner):
        passes = _tasks(by_passes)
        alike = pl.col("passes") % passes == 0
    if passes < 2:
        return nothing
    # What a module made once, before all of them, is a graph that they share: one backward pass alone can free it.
    repeated = lines.filter(alike)["stack"].to_numpy()
    begins = table.filter(is_among(table["stack"].to_numpy(), repeated))["stretch"].min()
    shared = int(table.filter(pl.col("stretch") < begins)["size"].sum())
    if not ooms and shared >= _SHARED * int(lines["size"].sum()):
        return nothing
    # One loss begins it: a stage of a pipeline has one for each micro-batch, or gets their gradients. A schedule also
    # runs a backward pass between two forward passes.
    is_each &= losses == passes and not context.occurs(context.frames(f"{_PIPELINE}|{_RECEIVES}"))
    if not ooms and losses != 1 and not is_each:
        return WaitingGraphs(context.marked(), passes) if passes > MOST_PASSES else nothing
    # The same lines in every step: one step alone would leave the peak of the next.
    mask = context.category("activation") & is_among(context.stack, repeated)
    if len(with_inner):
        mask |= context.traced("activation") & context.without_python[context.stack]
    return WaitingGraphs(mask | _read_by(context, rows, passes), passes, bool(ooms), max(losses, 1))


def _around_inner_steps(context: AdviceContext, mine: np.ndarray, last: int) -> np.ndarray:
    """Int64 rows of graphs (``mine``, Bool per allocation) that wait for one backward pass, the ``last``, although
    others run between them; none where none do. Those are of inner steps, as in MAML: they free graphs of their own,
    or make graphs of gradients, which the last frees. With ``retain_graph=True`` they do neither.
    """
    run, ends = born_in(context), freed_in(context)
    rows = np.flatnonzero(mine & context.is_freed & (ends == last))
    first = run[rows].min(initial=last)
    between = context.traced("activation") & context.is_freed & (run >= first)
    frees = between & context.forward[context.stack] & (ends == run + 1) & (ends < last)
    makes = between & context.without_python[context.stack] & (run > first) & (run < last) & (ends == last)
    return rows if first < last - 1 and (frees | makes).any() else rows[:0]


def _tasks(by_passes: pl.DataFrame) -> int:
    """The largest of ``passes`` that most of ``size`` are a multiple of: lines of inner steps run several times in a
    task.
    """
    numbers, size = (by_passes[name].to_numpy() for name in ("passes", "size"))
    agree = [int(size[numbers % number == 0].sum()) >= _MOST * size.sum() for number in numbers.tolist()]
    return int(max(numbers[agree], default=1))


def waiting_passes(context: AdviceContext) -> int:
    """How many parts of a batch wait for one backward pass. Passes without a loss of their own are one part: steps of a
    solver are layers, and so are blocks of a video model, between which its own lines copy what they transpose. So are
    time steps.
    """
    waiting = waiting_graphs(context)
    if waiting.passes > MOST_PARTS:
        return 1
    is_graph = waiting.mask.any() and not waiting.failed
    if is_graph and not has_losses(context, waiting.mask & context.at_peak, waiting.passes):
        return 1
    return waiting.passes


def has_losses(context: AdviceContext, graphs: np.ndarray, passes: int) -> bool:
    """Whether each of ``passes`` but the last is followed by a number, its loss, before the last of ``graphs`` is made
    (Bool per allocation). Passes that read each other's output, as those of a solver, or share one loss have none.
    """
    born = context.born[graphs]
    between = (context.born > born.min()) & (context.born < born.max()) & context.has_python
    # Outside of modules one for each sample is a loss, too.
    outside = ~context.phases.runs(FORWARD)[context.stack]
    number = (context.size <= _NUMBER) | (outside & (context.size <= BLOCK))
    return int((between & number).sum()) >= passes - 1


def _read_by(context: AdviceContext, graphs: np.ndarray, passes: int) -> np.ndarray:
    """Bool per allocation: batches that the first layers of ``graphs`` (Int64 rows, of one peak) save: of lines that
    made one for each of the ``passes``, alive until the same backward pass frees them; a name may hold the last.
    """
    made = context.traced("activation", "input", "unknown") & context.has_python
    made &= ~context.phases.runs(FORWARD)[context.stack]
    ended = context.freed[graphs]
    mine = context.at_peak & (context.freed >= ended.min()) & (context.freed <= ended.max())
    every = context.table(np.flatnonzero(made), mine=mine[made])
    lines = every.filter("mine").group_by("stack", "size").len().filter(pl.col("len").is_between(passes - 1, passes))
    return context.marked(every.join(lines, on=["stack", "size"], how="semi")["row"].to_numpy())


def fails_in_backward(context: AdviceContext) -> bool:
    """Whether memory ran out in a backward pass, which leaves the rest of its graph alive at the end."""
    return context.is_cut_off and backward_begins(context).max(initial=-1) > forward_births(context).max(initial=-1)


def _freed_by_backward(context: AdviceContext, rows: np.ndarray) -> bool:
    """Whether a backward pass frees most bytes of these allocations, as the stacks of the frees show; True where the
    recorder gave every free the stack of its allocation.

    A validation pass without ``no_grad`` leaves graphs that go with the name of its output.
    """
    size = context.size[rows]
    return bool(size[context.freed_elsewhere[rows]].sum() <= (1 - _MIN_SIMILARITY) * size.sum())


@remembered
def backward_allocations(context: AdviceContext) -> np.ndarray:
    """Bool per event: an allocation of a backward pass."""
    events = context.timeline.events
    is_alloc = allocates(events)
    backward: np.ndarray = context.phases.runs(BACKWARD)[events["stack"].to_numpy()]
    found: np.ndarray = engine_allocations(events) | (is_alloc & backward)
    return found


@remembered
def added_to_gradients(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: what a backward pass adds to the gradient of a weight that is used several times, as of an
    embedding, 488 MiB for each of its calls: of a size that weights have, and that no forward pass allocates.
    """
    weights = np.unique(context.size[context.category("parameter")])
    forward = np.unique(context.size[context.forward[context.stack] & context.is_traced])
    of_engine = context.traced("temporary") & context.without_python[context.stack]
    return np.asarray(of_engine & np.isin(context.size, weights) & ~np.isin(context.size, forward))


@remembered
def backward_passes(context: AdviceContext) -> np.ndarray:
    """Int64 per event: how many backward passes have begun: a backward pass ends where a forward pass allocates."""
    events = context.timeline.events
    is_alloc = allocates(events)
    forward = is_alloc & context.forward[events["stack"].to_numpy()]
    backward = backward_allocations(context)
    at = np.flatnonzero(forward | backward)
    begins = np.zeros(len(events), np.int64)
    begins[at[backward[at] & ~np.append(False, backward[at][:-1])]] = 1
    return np.cumsum(begins)


@remembered
def backward_begins(context: AdviceContext) -> np.ndarray:
    """Int64 events with which backward passes begin, ascending."""
    return np.flatnonzero(np.diff(backward_passes(context), prepend=0))


@remembered
def born_in(context: AdviceContext) -> np.ndarray:
    """Int64 per allocation: how many backward passes had begun at its birth."""
    return np.asarray(backward_passes(context)[np.maximum(context.born, 0)])


@remembered
def freed_in(context: AdviceContext) -> np.ndarray:
    """The same at its free, or at the end of the trace."""
    begun = backward_passes(context)
    return np.asarray(begun[np.minimum(context.freed, len(begun) - 1)])


@remembered
def forward_births(context: AdviceContext) -> np.ndarray:
    """Int64 events at which forward passes allocate, ascending."""
    return np.sort(context.born[context.forward[context.stack] & context.is_traced])


@remembered
def possible_weights(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: parameters, and what a trace that begins late does not know: allocated before it, and alive
    over all of its forward passes.
    """
    lasts = context.freed > forward_births(context)[-1:].max(initial=0)
    return np.asarray(context.category("parameter") | (context.category("unknown") & ~context.is_traced & lasts))


@remembered
def saved_for_backward(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: a backward pass begins while it is alive, and it is freed then or later."""
    return np.asarray(context.is_freed & (freed_in(context) > born_in(context)))


@remembered
def unknown_of_a_step(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: of unknown category, made by the program and freed with the next backward pass at the
    latest, as what a loss or a function outside of any module computes. Not by lines that run before the first of
    several forward passes alone, and prepare data.
    """
    made = context.traced("unknown") & context.has_python
    lasts = np.full(len(context.calls), -1)
    np.maximum.at(lasts, context.stack, context.born)
    first = forward_births(context)[:1].max(initial=0)
    if backward_passes(context)[-1] > 1:
        made &= (lasts[context.stack] > first) | (context.freed > first)
    events = context.timeline.events["stack"].to_numpy()
    found = made & context.is_freed & (freed_in(context) <= born_in(context) + 1)
    if context.is_cut_off:
        # Nothing frees what the last step made: the program died in it.
        steps = np.flatnonzero(context.phases.runs(OPTIMIZER_STEP)[events])
        if len(steps):
            after = int(following(forward_births(context), steps[-1], len(events)))
        else:
            # The first step: what is made before anything is freed may be weights.
            after = int(context.freed[context.free_stack > 0].min(initial=len(events)))
        found |= made & ~context.is_freed & (context.born >= after)
    return np.asarray(found)


@remembered
def after_backward(context: AdviceContext) -> np.ndarray:
    """Bool per allocation: made by the program after a backward pass, before the next forward pass."""
    forward, backward = (
        np.append(-1, events)[np.searchsorted(events, context.born)]
        for events in (forward_births(context), np.flatnonzero(backward_allocations(context)))
    )
    return np.asarray(context.has_python & (backward > forward))


def _between(context: AdviceContext, events: np.ndarray) -> np.ndarray:
    """Bool per allocation: whether any of ``events``, a Bool per event, lies between its birth and its free."""
    count = np.append(0, np.cumsum(events))
    return np.asarray(count[context.freed] > count[context.born + 1])
