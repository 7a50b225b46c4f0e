"""What the program does according to its trace: training, inference, or forward passes whose graph is never used.

Decided from phases that actually run (``phases.py``), never from file names.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from snapreport.integers import distinct, is_among
from snapreport.reading.recording import ACTIONS
from snapreport.timeline.lifetimes import IS_TRACED, NEVER, action_codes, allocates
from snapreport.timeline.phases import BACKWARD, FORWARD, NONE, OPTIMIZER_STEP, PHASES, ZERO_GRAD, StackPhases

TRAINING = "training"
INFERENCE = "inference"
GRAPH_DROPPED = "forward without backward"
UNKNOWN = "unknown"
KINDS = (TRAINING, INFERENCE, GRAPH_DROPPED, UNKNOWN)

# Dropping a graph frees everything that a forward pass saved at once: many allocations from many lines. A cache or a
# list of outputs comes from few lines, and inference frees its temporaries as it goes.
_GRAPH_ALLOCATIONS, _GRAPH_STACKS = 16, 5
# A graph of fewer lines holds tensors of most lines that its pass ran; outputs come from few of them.
_FEW_STACKS, _MOST_STACKS = 3, 0.6
# Fewer allocations in forward passes may come from code that a framework compiles or traces.
_FORWARD_ALLOCATIONS = 10
# If earlier forward passes ended, the last one's live memory is a small part of all that they allocated.
_OPEN_SHARE = 0.1
# The autograd engine's threads have no Python stack. C++ libraries also make single allocations without one.
_ENGINE_ALLOCATIONS = 8


class Activity(Struct, frozen=True):
    """What the program does according to one device's trace.

    kind: ``TRAINING`` (a backward pass, an optimizer step or ``zero_grad`` runs in the trace); ``INFERENCE`` (forward
      passes run and free their activations as they go); ``GRAPH_DROPPED`` (forward passes save activations for a
      backward pass that never runs: ``torch.no_grad()`` is missing); ``UNKNOWN`` (no forward pass is recorded, or the
      trace ends or runs out of memory before one of the above is seen).
    events: phase (of ``PHASES``, without "none") → its number of events, by the innermost frame with a phase; the
      allocations of autograd's threads, which have no Python stack, count as backward.
    graph_bytes: the most bytes that a dropped graph freed at once; 0 unless ``GRAPH_DROPPED``.
    outer: phases that run in the trace but are innermost for no event: Lightning's forward pass runs in a closure
      inside the optimizer's step.
    """

    kind: str
    events: dict[str, int]
    graph_bytes: int = 0
    outer: tuple[str, ...] = ()

    @property
    def trains(self) -> bool:
        return self.kind == TRAINING


def device_activity(events: pl.DataFrame, allocations: pl.DataFrame, phases: StackPhases) -> Activity:
    """The activity of one device, from its ``events`` and ``allocations`` (see :class:`DeviceTimeline`)."""
    stack = events["stack"].to_numpy()
    counts = np.bincount(phases.innermost[stack], minlength=len(PHASES))
    counts[NONE] = 0
    by_phase = {PHASES[phase]: int(counts[phase]) for phase in np.flatnonzero(counts)}
    runs = [phase for phase in (BACKWARD, OPTIMIZER_STEP, ZERO_GRAD) if phases.runs(phase)[stack].any()]
    engine = int(engine_allocations(events).sum())
    if engine >= _ENGINE_ALLOCATIONS:
        by_phase[PHASES[BACKWARD]] = by_phase.get(PHASES[BACKWARD], 0) + engine
    if runs or engine >= _ENGINE_ALLOCATIONS:
        outer = tuple(PHASES[phase] for phase in runs if PHASES[phase] not in by_phase)
        return Activity(TRAINING, by_phase, outer=outer)
    if not counts[FORWARD]:
        return Activity(UNKNOWN, by_phase)
    dropped, is_open = _graphs(events, allocations, phases)
    if dropped:
        return Activity(GRAPH_DROPPED, by_phase, dropped)
    if not is_open:
        computed = (phases.innermost[allocations["stack"].to_numpy()] == FORWARD).sum()
        return Activity(INFERENCE if computed >= _FORWARD_ALLOCATIONS else UNKNOWN, by_phase)
    # A forward pass that never ended. Memory left by an earlier backward pass is also evidence.
    ghosts = allocations.filter(~IS_TRACED)["stack"].to_numpy()
    earlier = is_among(phases.innermost[ghosts], (BACKWARD, OPTIMIZER_STEP)).any()
    return Activity(TRAINING if earlier else UNKNOWN, by_phase)


def program_activity(own: Activity, others: Iterable[Activity]) -> Activity:
    """A device's activity, given those of the file's other devices: the same program runs on all of them.

    A device that only infers may hold a teacher, one without forward passes the data of a program that trains. If a
    device's forward pass never ended, the purpose of the others' forward passes stays open.
    """
    forward = [activity.kind for activity in others if activity.trains or PHASES[FORWARD] in activity.events]
    kinds = [own.kind, *forward]
    if PHASES[FORWARD] not in own.events or (own.kind == INFERENCE and TRAINING in kinds):
        return own
    kind = next(kind for kind in (TRAINING, GRAPH_DROPPED, UNKNOWN, INFERENCE) if kind in kinds)
    return replace(own, kind=kind)


def engine_allocations(events: pl.DataFrame) -> np.ndarray:
    """Bool per event: whether it is an allocation by a thread without Python, such as autograd's.

    All False if the recorder did not record stack traces of allocations.
    """
    is_alloc = allocates(events)
    stack = events["stack"].to_numpy()
    return is_alloc & (stack == 0) if (stack[is_alloc] > 0).any() else np.zeros(len(events), bool)


def _graphs(events: pl.DataFrame, allocations: pl.DataFrame, phases: StackPhases) -> tuple[int, bool]:
    """(bytes of the largest dropped graph, whether one is still alive at the end or was cut off by an OOM)."""
    table = allocations.filter(IS_TRACED).select(
        "alloc_event", "free_requested_event", "free_event", "size", "stack", "free_stack"
    )
    alloc, requested, free, size, stack, free_stack = (column.to_numpy() for column in table)
    end = np.where(requested >= 0, requested, free)
    # What is alive at the end has no stack of a free, which is of no phase.
    alive, elsewhere = end < 0, ~is_among(phases.innermost, (FORWARD, BACKWARD))[free_stack]
    mine = (phases.innermost[stack] == FORWARD) & elsewhere
    alloc, end, size, stack, alive = alloc[mine], end[mine], size[mine], stack[mine], alive[mine]
    # Frees without an allocation between them form a group; allocations still alive are the last group.
    births = np.cumsum(allocates(events))
    group = np.append(births, NEVER)[end]
    ooms = np.cumsum(action_codes(events) == ACTIONS.index("oom"))
    cut_off = ooms[end] > ooms[alloc]
    graphs = (
        pl.DataFrame({"group": group, "size": size, "stack": stack, "alloc": alloc, "alive": alive, "cut": cut_off})
        .group_by("group")
        .agg(
            bytes=pl.col("size").sum(),
            count=pl.len(),
            stacks=pl.col("stack").n_unique(),
            open=pl.col("alive").any() | pl.col("cut").any(),
            first=pl.col("alloc").min(),
            last=pl.col("alloc").max(),
        )
        .filter((pl.col("count") >= _GRAPH_ALLOCATIONS) & (pl.col("stacks") >= _FEW_STACKS))
    )
    passes = phases.innermost[table["stack"].to_numpy()] == FORWARD
    born, lines = (table[name].to_numpy()[passes] for name in ("alloc_event", "stack"))
    ran = [
        len(distinct(lines[np.searchsorted(born, first) : np.searchsorted(born, last, "right")]))
        for first, last in graphs.select("first", "last").rows()
    ]
    most = (pl.col("stacks") >= _MOST_STACKS * pl.Series(ran, dtype=pl.Float64)) & ~pl.col("open")
    graphs = graphs.filter((pl.col("stacks") >= _GRAPH_STACKS) | most)
    dropped = int(graphs.filter(~pl.col("open"))["bytes"].to_numpy().max(initial=0))
    return dropped, bool((graphs.filter("open")["count"] >= _OPEN_SHARE * len(born)).any())
