"""Marked frames of stacks, and stacks as the page stores them, against loops over each stack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreport.reading.stack_marks import innermost_marked, stacks_with
from snapreport.report import stack_columns

# Few distinct frames, so that neighbours share outer ones; empty stacks between them.
STACKS = st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=12)


def flat(stacks: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, stacks)])
    return offsets, np.array([frame for stack in stacks for frame in stack], np.int32)


@given(STACKS, st.sets(st.integers(0, 4)))
@settings(max_examples=150, deadline=None)
def test_marked_frames_are_those_of_a_loop(stacks: list[list[int]], marked: set[int]) -> None:
    offsets, frames = flat(stacks)
    hits = np.isin(frames, list(marked))
    assert stacks_with(offsets, hits).tolist() == [bool(marked & set(stack)) for stack in stacks]
    numbers, at = innermost_marked(offsets, hits)
    expected = {n: [f in marked for f in stack].index(True) for n, stack in enumerate(stacks) if marked & set(stack)}
    assert dict(zip(numbers.tolist(), (at - offsets[numbers]).tolist(), strict=True)) == expected


@pytest.mark.parametrize("at_a_time", [1, 7, 1 << 20])
@given(STACKS)
@settings(max_examples=60, deadline=None)
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


@given(st.lists(st.integers(0, 6), max_size=30))
@settings(max_examples=100, deadline=None)
def test_frames_are_numbered_as_they_appear(sequence: list[int]) -> None:
    order, numbers = stack_columns._numbered_by_appearance(np.array(sequence, np.int64), 8)
    seen = list(dict.fromkeys(sequence))
    assert order.tolist() == seen + [frame for frame in range(8) if frame not in seen]
    assert numbers.tolist() == [seen.index(frame) for frame in sequence]
