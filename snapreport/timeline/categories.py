"""The category of each allocation and its source: the recording, its stack, how it was freed, or inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import frames_at, innermost_places, stacks_with
from snapreport.timeline.category_rules import (
    ACTIVATION,
    GRADIENT,
    KV_CACHE,
    OPTIMIZER_STATE,
    PARAMETER,
    TEMPORARY,
    Rule,
    Rules,
    default_rules,
)
from snapreport.timeline.frame_search import frames_matching
from snapreport.timeline.life_phases import LifePhases
from snapreport.timeline.phases import (
    BACKWARD,
    FORWARD,
    INITIALISATION,
    LOADING,
    NOWHERE,
    OPTIMIZER_STEP,
    PHASES,
    ZERO_GRAD,
    StackPhases,
    stack_phases,
)
from snapreport.timeline.weight_stacks import applied_gradients, averaged_weights
from snapreport.vocabulary import CATEGORIES, CATEGORY_SOURCES

SOURCE_UNKNOWN, RECORDED, STACK, FREED_IN, INFERRED = range(len(CATEGORY_SOURCES))
# Other names for these in a snapshot's own ``category``, lower case.
_SYNONYMS = {
    "parameters": "parameter", "params": "parameter", "weight": "parameter", "weights": "parameter",
    "param": "parameter",
    "gradients": "gradient", "grad": "gradient", "grads": "gradient",
    "optimizer_state": "optimizer state", "optimizer": "optimizer state", "optimizer_states": "optimizer state",
    "activations": "activation", "temp": "temporary", "temporaries": "temporary", "inputs": "input",
    "autograd_detail": "temporary", "kv_cache": "kv cache", "kvcache": "kv cache", "buffer": "parameter",
    "workspaces": "workspace",
}  # fmt: skip


class StackCategories(Struct, frozen=True):
    """The result of the rules for each stack.

    long: UInt8 category; short: for allocations that do not outlive their phase, or, ``by_events``, live at most
    ``events`` (Int32) events; freed: for otherwise unknown allocations freed by the stack; phases: of the stacks.
    uncertain: whether ``long`` is only what such a stack makes in most programs.
    """

    long: np.ndarray
    short: np.ndarray
    by_events: np.ndarray
    events: np.ndarray
    freed: np.ndarray
    phases: StackPhases
    uncertain: np.ndarray


def stack_categories(recording: Recording, rules: Rules | None = None) -> StackCategories:
    """Applies the rules (by default ours) to each stack. Patterns run once per distinct frame."""
    rules = rules or default_rules()
    phases = stack_phases(recording)
    table = [rule for rule in rules.rules if not rule.phase]
    match, place = _innermost_match(recording, table)
    long = np.array([*(rule.category for rule in table), 0], np.uint8)[match]
    short = np.array([*(rule.short for rule in table), 0], np.uint8)[match]
    long = _first_lines(recording, table, match, place, long)
    # A module built inside a forward pass belongs to that forward pass.
    phase = np.where(
        np.isin(phases.innermost, (INITIALISATION, LOADING)) & phases.runs(FORWARD), FORWARD, phases.innermost
    )
    by_phase = {rule.phase: rule for rule in rules.rules if rule.phase}
    outer = phases.place < place
    for column, attribute in ((long, "category"), (short, "short")):
        of_phase = np.zeros(len(PHASES), np.uint8)
        of_phase[list(by_phase)] = [getattr(rule, attribute) for rule in by_phase.values()]
        column[outer] = of_phase[phase[outer]]
    weights = outer & (long == PARAMETER)
    long[weights & applied_gradients(recording)] = GRADIENT
    averaged = weights & averaged_weights(recording)
    long[averaged] = OPTIMIZER_STATE
    doubtful = np.array([*(not rule.certain for rule in table), False])[match] & ~outer
    uncertain = averaged | (weights & phases.uncertain) | doubtful
    events = np.full(len(long), rules.short_lived_events, np.int32)
    own = _first_match(recording, rules.own)
    by_events = own < len(rules.own)
    for column, attribute in ((long, "category"), (short, "short"), (events, "events")):
        column[by_events] = np.array([getattr(rule, attribute) for rule in rules.own])[own[by_events]]
    freed = np.array([*(rule.category for rule in rules.freed), 0], np.uint8)[_first_match(recording, rules.freed)]
    return StackCategories(long, short, by_events, events, freed, phases, uncertain & ~by_events)


def _innermost_match(recording: Recording, rules: Sequence[Rule]) -> tuple[np.ndarray, np.ndarray]:
    """(Int64 number of the rule of each stack's innermost frame that any rule matches, ``len(rules)`` if none does;
    Int32 position of that frame in the stack, or ``NOWHERE``).
    """
    of_frame = np.full(len(recording.frames), len(rules))
    for number, rule in reversed(list(enumerate(rules))):
        of_frame[frames_matching(recording, rule.file, rule.function)] = number
    place = innermost_places(recording, of_frame < len(rules))
    match = np.append(of_frame, len(rules))[frames_at(recording, place)]
    return match, np.where(place < 0, NOWHERE, place).astype(np.int32)


def _first_match(recording: Recording, rules: Sequence[Rule]) -> np.ndarray:
    """Int64 number of the first rule that matches any frame of each stack, ``len(rules)`` if none does."""
    stacks = len(recording.stack_offsets) - 1
    result = np.full(stacks, len(rules))
    for number, rule in reversed(list(enumerate(rules))):
        result[stacks_with(recording, frames_matching(recording, rule.file, rule.function))] = number
    return result


def _first_lines(
    recording: Recording, rules: Sequence[Rule], match: np.ndarray, place: np.ndarray, long: np.ndarray
) -> np.ndarray:
    """``long``, with the category of rules that distinguish a function's first line from its others."""
    for number, rule in enumerate(rules):
        mine = np.flatnonzero(match == number)
        if not rule.first or not len(mine):
            continue
        frame = recording.stack_frames[recording.stack_offsets[mine] + place[mine]]
        line = recording.frames["line"].to_numpy()[frame]
        if line.min() < line.max():
            long[mine[line == line.min()]] = rule.first
    return long


def stack_and_free_categories(
    by_stack: StackCategories, table: pl.DataFrame, lives: LifePhases
) -> tuple[np.ndarray, np.ndarray]:
    """(UInt8 category, UInt8 source) of each allocation of ``table``, from its stack, then from how it was freed. The
    source is ``INFERRED`` where the stack is uncertain: then other inference comes first.
    """
    columns = ("alloc_event", "free_event", "stack", "free_stack")
    alloc, free, stack, free_stack = (table[name].to_numpy() for name in columns)
    phases = by_stack.phases
    lived = np.where((alloc >= 0) & (free >= 0), free - alloc, 0)
    is_brief = (lived > 0) & (lived <= by_stack.events[stack])
    inner = np.where(lives.engine, BACKWARD, phases.innermost[stack])
    is_short = np.select(
        [by_stack.by_events[stack], inner == BACKWARD, inner == OPTIMIZER_STEP, inner == FORWARD],
        # Memory of a forward pass that a backward pass frees was saved for it, however short its life.
        [is_brief, lives.within, lives.within, is_brief & (lives.freed == FORWARD)],
        is_brief,
    )
    codes = np.where(is_short, by_stack.short[stack], by_stack.long[stack])
    source = np.where(codes > 0, STACK, SOURCE_UNKNOWN)
    source[by_stack.uncertain[stack] & ~is_short] = INFERRED

    def say(where: np.ndarray, category: int | np.ndarray) -> None:
        codes[where] = category[where] if isinstance(category, np.ndarray) else category
        source[where] = FREED_IN

    own = by_stack.by_events[stack]
    say((lives.freed == ZERO_GRAD) & ~own & (codes != GRADIENT) & (lives.born != ZERO_GRAD), GRADIENT)
    by_free = by_stack.freed[free_stack]
    say((codes == 0) & (by_free > 0) & (free_stack != stack), by_free)
    # A cache that the model fills during training is saved for the backward pass.
    say((codes == KV_CACHE) & ~own & (lives.freed == BACKWARD), ACTIVATION)
    nothing = (codes == 0) & ~lives.engine
    say(nothing & (lives.freed == BACKWARD), ACTIVATION)
    older = nothing & (lives.freed == OPTIMIZER_STEP) & (alloc < 0)
    say(older, np.where(lives.within, TEMPORARY, OPTIMIZER_STATE))
    return codes.astype(np.uint8), source.astype(np.uint8)


def apply_recorded(codes: np.ndarray, source: np.ndarray, recorded: pl.Series) -> None:
    """Set, in place, the categories stated in the recording: they take precedence over all rules.

    recorded: String for each allocation, null if none is stated; unrecognised texts become unknown.
    """
    rows = np.flatnonzero(recorded.is_not_null().to_numpy())
    if not len(rows):
        return
    known = {name: i for i, name in enumerate(CATEGORIES)}
    texts = recorded.drop_nulls()
    names = texts.unique().to_list()
    mapped = {name: known.get(_SYNONYMS.get(name.lower(), name.lower()), 0) for name in names}
    codes[rows] = texts.replace_strict(mapped, return_dtype=pl.UInt8).to_numpy()
    source[rows] = np.where(codes[rows] > 0, RECORDED, SOURCE_UNKNOWN)
