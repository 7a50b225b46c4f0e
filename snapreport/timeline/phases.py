"""Phases of a program, from stacks: forward, backward, optimizer step, zero_grad, initialisation, loading.

The innermost frame with a phase decides: Lightning runs the forward pass inside ``optimizer.step``, and a module built
inside a forward pass is being initialised. The rules are data, ``phases.toml``.
"""

from __future__ import annotations

import functools
import tomllib
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from snapreport.memoize import memoize
from snapreport.reading.recording import Recording
from snapreport.reading.stack_marks import innermost_frames

PHASES = ("none", "forward", "backward", "optimizer step", "zero_grad", "initialisation", "loading")
NOWHERE = np.iinfo(np.int32).max
NONE, FORWARD, BACKWARD, OPTIMIZER_STEP, ZERO_GRAD, INITIALISATION, LOADING = range(len(PHASES))


class StackPhases(Struct, frozen=True, dict=True):
    """The phases of each stack.

    innermost: UInt8, the phase (an index into ``PHASES``) of the innermost frame that belongs to one.
    running: UInt8 bits, ``1 << phase`` for every phase that any frame of the stack belongs to.
    place: Int32, the number of frames inside that innermost one; ``NOWHERE`` for a stack without one.
    uncertain: Bool, whether the rule of that innermost one is not ``certain``: a constructor builds anything.
    """

    innermost: np.ndarray
    running: np.ndarray
    place: np.ndarray
    uncertain: np.ndarray

    @cached_property
    def stretch(self) -> np.ndarray:
        """UInt8 phase per stack, of the enclosing part of the program: a forward pass recomputed in a backward pass is
        part of the backward pass, a module built in a forward pass is part of the forward pass, and loading counts as
        initialisation.
        """
        phase = np.where((self.innermost == FORWARD) & self.runs(BACKWARD), BACKWARD, self.innermost)
        building = np.isin(phase, (INITIALISATION, LOADING))
        return np.where(building, np.where(self.runs(FORWARD), FORWARD, INITIALISATION), phase).astype(np.uint8)

    def runs(self, phase: int) -> np.ndarray:
        """Bool per stack: whether any of its frames belongs to the phase."""
        return np.asarray(self.running & (1 << phase) != 0)


@memoize
def stack_phases(recording: Recording) -> StackPhases:
    """The phases of every stack of a recording. Patterns run once per distinct frame."""
    frame_phase, marked = _frame_phases(recording.frames)
    stacks = len(recording.stack_offsets) - 1
    innermost, running = np.zeros(stacks, np.uint8), np.zeros(stacks, np.uint8)
    depth, uncertain = np.full(stacks, NOWHERE, np.int32), np.zeros(stacks, bool)
    if not len(recording.stack_frames):
        return StackPhases(innermost, running, depth, uncertain)
    found = innermost_frames(recording)
    stack, place = found.marked(frame_phase > 0)
    frames = found.frames[place]
    phase = frame_phase[frames]
    first, at = np.unique(stack, return_index=True)
    innermost[first] = phase[at]
    uncertain[first] = ~marked["certain"][frames[at]]
    depth[first] = found.entry(place[at]) - recording.stack_offsets[first]
    if len(at):
        running[first] = np.bitwise_or.reduceat(np.left_shift(1, phase).astype(np.uint8), at)
    # A helper is of the optimizer's step that it runs in directly.
    own = np.flatnonzero(~marked["helper"][frames])
    inner, outer = np.unique(stack[own], return_index=True)
    steps = inner[phase[own[outer]] == OPTIMIZER_STEP]
    innermost[steps] = OPTIMIZER_STEP
    always = marked["always"][frames]
    innermost[stack[always]] = phase[always]
    return StackPhases(innermost, running, depth, uncertain)


def _frame_phases(frames: pl.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """UInt8 phase per row of ``frames``, by the first rule that matches, and Bool per row what that rule is:
    ``always``, ``certain`` or ``helper``.
    """
    text = {"file": pl.col("filename").str.replace_all("\\", "/", literal=True), "function": pl.col("name")}
    asked = {f"{of} {rule[of]}": text[of].str.contains(rule[of]) for rule in _rules() for of in text if of in rule}
    contains = frames.select(**asked)
    phase = np.zeros(len(frames), np.uint8)
    marked = {flag: np.full(len(frames), flag == "certain") for flag in ("always", "certain", "helper")}
    is_open = np.ones(len(frames), bool)
    for rule in _rules():
        matches = is_open.copy()
        for of in rule.keys() & text.keys():
            matches &= contains[f"{of} {rule[of]}"].to_numpy()
        phase[matches] = PHASES.index(rule["phase"])
        for flag, of_frame in marked.items():
            of_frame[matches] = rule.get(flag, flag == "certain")
        is_open &= ~matches
    return phase, marked


@functools.cache
def _rules() -> list[dict[str, Any]]:
    text = resources.files(__package__).joinpath("phases.toml").read_text(encoding="utf-8")
    rules: list[dict[str, Any]] = tomllib.loads(text)["rule"]
    return rules
