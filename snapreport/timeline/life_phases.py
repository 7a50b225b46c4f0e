"""The phases of the program in which each allocation began and ended."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.timeline.activity import engine_allocations
from snapreport.timeline.lifetimes import ALLOC, FREE_COMPLETED, FREE_REQUESTED, NEVER, action_codes, allocates
from snapreport.timeline.phases import BACKWARD, FORWARD, NONE, OPTIMIZER_STEP, ZERO_GRAD, StackPhases

_ENGINE_FREES = 8
_MAX_BRIEF_EVENTS = 12  # lifetime in events of one small operator's temporaries


class LifePhases(Struct, frozen=True):
    """Values per allocation, in table order.

    born, freed: UInt8 phases of its allocation and of its free (the request if recorded); ``NONE`` if the stack shows
    none, if there is no stack, and if it was not allocated or freed in the trace.
    within: bool, whether it was allocated and freed in one run of a phase, with no other phase in between; also what
      the optimizer's step in which a trace begins frees of what is older.
    engine: bool, whether a thread of the autograd engine allocated it, which has no Python stack.
    final: the phase in which the trace ends. own_frees: whether frees have their own stacks, see
      :func:`frees_have_own_stacks`; without them ``freed`` is the phase of the allocations around the free.
    before, after: UInt8, the last phase before the allocation and the first after it. next_event: Int32 per event (not
      per allocation), the next event with a phase (the number of events if there is none).
    """

    born: np.ndarray
    freed: np.ndarray
    within: np.ndarray
    engine: np.ndarray
    final: int
    own_frees: bool
    before: np.ndarray
    after: np.ndarray
    next_event: np.ndarray


class Evidence(Struct, frozen=True):
    """The inputs of inference: columns of the allocations as numpy arrays, in table order.

    allocated: Int64 bytes at each position. activity: of ``activity.KINDS``. reserved_start: bytes reserved when
    recording started. probable: UInt8, the category that an uncertain stack has in most programs, whose ``codes`` are
    0: what is built by a constructor. named: Bool, whether the recorder said what it is. loaded: Bool, from a file.
    """

    addr: np.ndarray
    size: np.ndarray
    alloc: np.ndarray
    free: np.ndarray
    stack: np.ndarray
    codes: np.ndarray
    lives: LifePhases
    allocated: np.ndarray
    activity: str
    reserved_start: int
    probable: np.ndarray
    named: np.ndarray
    loaded: np.ndarray

    @property
    def is_traced(self) -> np.ndarray:
        """Bool: allocated within the trace."""
        return self.alloc >= 0

    @property
    def is_freed(self) -> np.ndarray:
        """Bool: freed within the trace."""
        return self.free >= 0

    @property
    def end(self) -> np.ndarray:
        """Int64 events of the frees, after all others where there is none."""
        return np.where(self.is_freed, self.free, np.int64(NEVER))


def recorded_pairs(events: pl.DataFrame, alloc: np.ndarray, requested: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Bool per allocation: whether its alloc and a free of it are both in the trace."""
    if not len(events):
        return np.zeros(len(alloc), bool)
    # An alloc that ends an older lifetime did not free it.
    closes = ~allocates(events)
    is_pair: np.ndarray = (alloc >= 0) & ((requested >= 0) | ((free >= 0) & closes[free]))
    return is_pair


def frees_have_own_stacks(stack: np.ndarray, free_stack: np.ndarray) -> bool:
    """Whether frees have their own stacks, from the stacks of pairs (:func:`recorded_pairs`). PyTorch gives each
    free the stack of its allocation unless it records with ``context="all"``: then every pair has equal stacks.
    """
    return bool((free_stack != stack).any() and (free_stack > 0).any())


def life_phases(events: pl.DataFrame, table: pl.DataFrame, phases: StackPhases) -> LifePhases:
    """The phases of the allocations ``table`` (columns of :class:`DeviceTimeline`) among a device's ``events``."""
    alloc, requested, free, stack, free_stack = (
        table[name].to_numpy() for name in ("alloc_event", "free_requested_event", "free_event", "stack", "free_stack")
    )
    end = np.where(requested >= 0, requested, free)
    if not len(events):
        none, never = np.full(len(table), NONE, np.uint8), np.zeros(len(table), bool)
        born, nowhere = phases.stretch[stack], np.zeros(1, np.int32)
        return LifePhases(born, none, never, never, NONE, own_frees=False, before=none, after=none, next_event=nowhere)
    is_pair = recorded_pairs(events, alloc, requested, free)
    own_frees = frees_have_own_stacks(stack[is_pair], free_stack[is_pair])
    action, event_stack = action_codes(events), events["stack"].to_numpy()
    is_free = (action == FREE_REQUESTED) | (action == FREE_COMPLETED)
    bare_alloc = engine_allocations(events)
    bare_free = is_free & (event_stack == 0) & own_frees
    # Threads without Python are the engine's if a backward pass runs, or if they free tensors saved by forward passes.
    trains = any(phases.runs(phase)[event_stack].any() for phase in (BACKWARD, OPTIMIZER_STEP, ZERO_GRAD))
    if not trains and own_frees:
        saved = (phases.innermost[stack] == FORWARD) & (end >= 0)
        trains = bare_free[end[saved]].sum() >= _ENGINE_FREES
    phase = phases.stretch[event_stack]
    if trains:
        phase = np.where(bare_alloc | bare_free, np.uint8(BACKWARD), phase)
    # The phase of a free that repeats its allocation's stack is known only from the allocations around it.
    counts = (phase != NONE) & ((action == ALLOC) | (is_free & own_frees))
    ignored = pl.Series(~counts)
    latest = pl.Series(phase).set(ignored, None).fill_null(strategy="forward").fill_null(NONE)
    running, stretch = latest.to_numpy(), latest.rle_id().to_numpy()
    positions = pl.Series(np.arange(len(phase), dtype=np.int32))
    next_event = positions.set(ignored, None).fill_null(strategy="backward").fill_null(len(phase)).to_numpy()
    by_stack = np.where(bare_free[end] & trains, BACKWARD, phases.innermost[free_stack])
    freed = np.where(end >= 0, by_stack if own_frees else running[end], NONE)
    engine = (alloc >= 0) & bare_alloc[alloc] & trains
    born = np.where(engine, BACKWARD, phases.stretch[stack])
    # A trace that begins in an optimizer's step has those of its temporaries that were allocated before.
    is_life = ((alloc >= 0) | (running[0] == OPTIMIZER_STEP)) & (end >= 0)
    within = is_life & (stretch[np.maximum(alloc, 0)] == stretch[end])
    # A step that makes its state anew frees the old, which is as large as what it leaves.
    size = table["size"].to_numpy()
    leaves = (alloc >= 0) & (stretch[np.maximum(alloc, 0)] == stretch[0]) & ~within
    within &= (alloc >= 0) | ~np.isin(size, size[leaves])
    of_backward = born == BACKWARD
    if own_frees:
        # The engine frees its own temporaries; the program's code frees gradients.
        within &= ~of_backward | (freed != NONE)
    else:
        # Gradients may be freed before the first allocation of the next phase.
        is_amid = np.append(stretch, len(phase))[next_event[end]] == stretch[end]
        within &= ~of_backward | is_amid | (end - alloc <= _MAX_BRIEF_EVENTS)
    # What is gone before the next forward pass is no state, although the step may run a backward pass meanwhile.
    forward = np.cumsum(phase == FORWARD, dtype=np.int32)
    is_same = is_life & (forward[alloc] == forward[end])
    within |= (
        (born == OPTIMIZER_STEP) & is_same & ((forward[alloc] < forward[-1]) | (freed == OPTIMIZER_STEP) & own_frees)
    )
    return LifePhases(
        born.astype(np.uint8),
        freed.astype(np.uint8),
        within,
        engine,
        int(running[-1]),
        own_frees,
        before=np.where(alloc >= 0, running[alloc], NONE).astype(np.uint8),
        after=np.where(alloc >= 0, np.append(phase, np.uint8(NONE))[next_event[alloc]], NONE).astype(np.uint8),
        next_event=next_event,
    )
