"""What categories follow from sizes and lives, on tables of a few rows, at each limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_weights_by_size import PARAMETER, STATE, Row, evidence

from snapreport.timeline import inference, inferred_layers
from snapreport.timeline.phases import BACKWARD, FORWARD, NONE
from snapreport.vocabulary import CATEGORIES

ACTIVATION, TEMPORARY = (CATEGORIES.index(name) for name in ("activation", "temporary"))


@pytest.mark.parametrize(
    ("sizes", "several"),
    [
        ([1, 2, 3, 4], False),
        ([1, 2, 3, 4] * 2, True),
        ([1, 2, 3, 4] * 3, True),
        ([1, 2, 3, 4] * 4, True),
        ([1, 2, 3, 4] * 5, False),
        ([1, 2, 3] * 2, False),  # three sizes
        ([900, *range(1, 11)] * 2 + [1], True),
        ([900, *range(1, 10)] * 2 + [1, 2], False),
        ([100, *range(1, 11)] * 2 + [100], False),  # half of the bytes
    ],
)
def test_sizes_that_occur_in_twos(sizes: list[int], several: bool) -> None:
    assert inference._several_copies(np.array(sizes)) == several


def curve(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def returns(allocated: np.ndarray, *forward: tuple[int, int, int]) -> bool:
    """``forward``: (bytes, event, free) of what forward passes allocate."""
    rows: list[Row] = [(size, alloc, free, 1) for size, alloc, free in forward] or [(1, -1, -1, 1)]
    e = evidence(rows, born=[FORWARD if forward else NONE] * len(rows))
    e.allocated = allocated
    return inference._returns(e)


def test_memory_that_returns_to_where_it_started() -> None:
    one = (100, 0, 1)
    assert returns(curve(1000, 1100, 1000), one)
    assert not returns(curve(0, 100, 0), one)
    assert returns(curve(1000, 1100, 980), one) and not returns(curve(1000, 1100, 979), one)
    # It rises by half of what forward passes allocate at once.
    assert returns(curve(1000, 1050, 1000), one) and not returns(curve(1000, 1049, 1000), one)
    assert returns(curve(1000, 1100, 1004), (100, 0, -1))  # back to a two-hundredth
    assert not returns(curve(1000, 1100, 1006), (100, 0, -1))
    # Outputs stay: a quarter of the height.
    kept = [(25, 0, -1), (75, 1, 2)]
    assert returns(curve(1000, 1025, 1100, 1025), *kept)
    assert not returns(curve(1000, 1026, 1100, 1026), (26, 0, -1), (74, 1, 2))
    assert not returns(curve(1000, 1015, 1015)) and returns(curve(1000, 1030, 1000))


def weights_of(*widths: int) -> int:
    """How many blocks from before a trace of forward passes are weights: seven squares and vectors of each width."""
    older: list[Row] = [(size, -1, -1, 0) for w in widths for size in (w * w * 4, w * 4) for _ in range(7)]
    e = evidence([*older, (100, 0, 1, 1)], born=[NONE] * len(older) + [FORWARD])
    e.allocated, e.reserved_start = curve(1000, 1100, 1000), 0
    return int((inference._forward_only(e, np.zeros(len(e.size), np.uint8)) == PARAMETER).sum())


def test_weights_of_one_model_alone() -> None:
    assert weights_of(64) == 14 and weights_of(64, 96) == 0


def loaded(*rows: tuple[int, int, int, bool], state: tuple[int, ...] = ()) -> list[int]:
    """Events of what is state, of parameters: (bytes, event, free, whether a file had it); ``state``: events."""
    every: list[Row] = [(size, alloc, free, 1) for size, alloc, free, _ in rows]
    e = evidence(every + [(7, at, -1, 2) for at in state])
    e.codes = np.array([PARAMETER] * len(rows) + [STATE] * len(state))
    e.loaded = np.array([is_loaded for *_, is_loaded in rows] + [False] * len(state))
    found = inference._loaded_state(e, e.codes)
    assert set(found.tolist()) <= {0, STATE}
    return sorted(e.alloc[found == STATE].tolist())


def test_state_that_is_loaded() -> None:
    """After as many of each size as the model has."""
    model = [(64, 0, -1, False), (32, 1, -1, False)]
    both = [(64, 10, -1, True), (32, 11, -1, True), (64, 12, -1, True), (32, 13, -1, True)]
    assert loaded(*model, *both) == [12, 13]
    assert loaded(*model, *both, (32, 14, -1, True), (64, 15, -1, True)) == [12, 13, 14, 15]
    assert loaded(*model, *both[:2]) == []
    assert loaded(*model, *both[:3]) == []  # no whole copies
    assert loaded(*model, *both, state=(20,)) == []
    assert loaded(*model, *both, (33, 14, -1, True)) == []
    assert loaded(*both) == []
    assert loaded(*model, *both, (8, 14, -1, True)) == [12, 13]  # numbers of steps do not count
    assert loaded((64, 0, 5, False), (32, 1, 5, False), *both) == []  # a model before
    assert loaded((64, 0, 14, False), (32, 1, 14, False), *both) == [12, 13]


def test_lines_that_copy_weights() -> None:
    weights: list[Row] = [(64, 0, -1, 9), (32, 0, -1, 9)]

    def copied(*sizes: int) -> bool:
        e = evidence([*weights, *((size, 5, -1, 1) for size in sizes), (64, 6, -1, 2)])
        e.codes = np.array([PARAMETER] * 2 + [0] * (len(sizes) + 1))
        mine = np.arange(len(e.size)) >= 2
        found = inference._copies_of_weights(e, mine)
        assert not found[:2].any() and not found[-1] and len(set(found[2:-1].tolist())) == 1
        return bool(found[2])

    assert copied(*[64, 32] * 16) and not copied(*[64, 32] * 15, 64)
    assert copied(*[64] * 36, *[65] * 4) and not copied(*[64] * 35, *[65] * 4)


def engine(*rows: tuple[int, int, int, bool], final: int = NONE, freed: tuple[int, ...] = ()) -> list[str]:
    """Categories of the engine's (bytes, event, free, whether it is gone within its phase) beside a parameter of 100
    bytes. ``freed``: events of those that a backward pass frees.
    """
    every: list[Row] = [(size, alloc, free, 0) for size, alloc, free, _ in rows]
    e = evidence(
        [*every, (100, -1, -1, 1)],
        born=[BACKWARD] * len(rows) + [NONE],
        freed=[BACKWARD if alloc in freed else NONE for _, alloc, *_ in rows] + [NONE],
        engine=[True] * len(rows) + [False],
        within=[within for *_, within in rows] + [False],
    )
    e.codes = np.array([0] * len(rows) + [PARAMETER])
    e.lives.final, e.lives.own_frees = final, True
    found = inference._engine(e, e.codes)
    return [CATEGORIES[code] for code in found[: len(rows)].tolist()]


def test_what_the_engine_allocates() -> None:
    assert engine((50, 1, 3, True), (50, 2, 20, False)) == ["temporary", "gradient"]
    assert engine((100, 1, 20, False), (101, 2, 20, False), (101, 3, 4, True)) == [
        "gradient", "activation", "temporary",
    ]  # fmt: skip
    assert engine((50, 1, 20, False), (50, 2, 21, False), freed=(2,)) == ["gradient", "activation"]
    # The trace ends in a backward pass: what is alive, and as large as no weight or gradient, passes.
    alive = (50, 1, -1, False), (100, 2, -1, False), (60, 3, 9, False), (60, 4, -1, False)
    assert engine(*alive) == ["gradient"] * 4
    assert engine(*alive, final=BACKWARD) == ["temporary", "gradient", "gradient", "gradient"]
    assert engine(*alive, final=FORWARD) == ["gradient"] * 4


@pytest.mark.parametrize(
    ("lines", "unit"),
    [([1, 2, 1, 2], 2), ([1, 2, 1, 2, 1], 2), ([1, 2, 1], 3), ([1, 1], 1), ([1, 2, 3], 3), ([1, 2, 1, 3], 4), ([1], 1)],
)
def test_the_shortest_beginning_that_repeats(lines: list[int], unit: int) -> None:
    assert inferred_layers._period(lines) == unit


@pytest.mark.parametrize(
    ("lines", "at", "found"),
    [
        ([1, 2, 1, 2, 3], 0, (2, 4)),
        ([1, 2, 1, 2, 1], 0, (2, 5)),
        ([5, 1, 1, 2], 1, (1, 3)),
        ([1, 2, 3], 1, (1, 2)),
        ([1, 2, 1, 3], 0, (2, 3)),
    ],
)
def test_what_repeats_from_a_line_on(lines: list[int], at: int, found: tuple[int, int]) -> None:
    assert inferred_layers._repeated(lines, at) == found


def test_whole_iterations() -> None:
    def is_whole(count: int, last: int, of: int) -> bool:
        runs: Any = [(1, range(at, at + 1)) for at in range(count - 1)] + [(1, range(count - 1, last + 1))]
        return inferred_layers._is_whole([[]] * of, runs, 2)

    assert is_whole(4, 3, 9) and not is_whole(5, 4, 9) and is_whole(5, 8, 9)
