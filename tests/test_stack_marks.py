"""Marked frames of stacks, and stacks as the page stores them, against loops over each stack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import breadth
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreport.reading import stack_marks
from snapreport.reading.stack_marks import frames_at, innermost_places, stacks_with
from snapreport.report import stack_columns

# Few distinct frames, so that neighbours share outer ones; empty stacks between them.
STACKS = st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=12)


def flat(stacks: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, stacks)])
    return offsets, np.array([frame for stack in stacks for frame in stack], np.int32)


class Recorded:
    """The stacks of a recording, of frames 0 to 4."""

    def __init__(self, stacks: list[list[int]]) -> None:
        self.stack_offsets, self.stack_frames = flat(stacks)
        self.frames = range(5)


@pytest.mark.parametrize(("deep", "at_once"), [(200, 1), (0, 1), (0, 13), (0, 1 << 20)])
@given(STACKS, st.sets(st.integers(0, 4)))
@settings(max_examples=breadth.examples(100), deadline=None)
def test_marked_frames_are_those_of_a_loop(deep: int, at_once: int, stacks: list[list[int]], marked: set[int]) -> None:
    recording: Any = Recorded(stacks)
    marks = np.isin(np.arange(5), list(marked))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack_marks, "_DEEP", deep)
        patch.setattr(stack_marks, "_AT_ONCE", at_once)
        assert stacks_with(recording, marks).tolist() == [bool(marked & set(stack)) for stack in stacks]
        place = innermost_places(recording, marks)
    expected = [[f in marked for f in stack].index(True) if marked & set(stack) else -1 for stack in stacks]
    assert place.tolist() == expected
    rows = [stack[at] if at >= 0 else -1 for stack, at in zip(stacks, expected, strict=True)]
    assert frames_at(recording, place).tolist() == rows


@pytest.mark.parametrize("at_a_time", [1, 7, 1 << 20])
@given(STACKS)
@settings(max_examples=breadth.examples(60), deadline=None)
def test_front_coded_stacks_are_the_stacks(at_a_time: int, stacks: list[list[int]]) -> None:
    offsets, frames = flat(stacks)
    recording: Any = SimpleNamespace(stack_offsets=offsets, stack_frames=frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack_columns, "_AT_A_TIME", at_a_time)
        shared, lengths, sequence = stack_columns._front_coded(recording)
    place, before = 0, []
    for stack, common, length in zip(stacks, shared.tolist(), lengths.tolist(), strict=True):
        outer = stack[::-1]
        new = sequence[place : place + length - common].tolist()
        assert before[:common] + new == outer
        assert common == min(len(before), len(outer)) or before[common] != outer[common]  # as much as they share
        place, before = place + length - common, outer
    assert place == len(sequence)
