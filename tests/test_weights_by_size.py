"""Which ranges are at an address, and which blocks are copies of weights: by plain loops, or by hand at each limit."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from snapreport.timeline import parameter_copies, program_state, repeated_tensors
from snapreport.timeline.neighbours import Lifetimes, containing
from snapreport.timeline.phases import BACKWARD, FORWARD, NONE, OPTIMIZER_STEP, ZERO_GRAD
from snapreport.vocabulary import CATEGORIES

MIB = 1 << 20
PARAMETER, GRADIENT, STATE = (CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer state"))


@pytest.mark.parametrize("seed", range(3))
def test_which_range_contains_an_address(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = np.unique(rng.integers(5, 90, 12)).astype(np.uint64)
    length = np.minimum(rng.integers(0, 9, len(start)), np.diff(start, append=np.uint64(99)).astype(np.int64))
    asked = np.arange(100, dtype=np.uint64)
    expected = [
        next((row for row, (a, n) in enumerate(zip(start, length, strict=True)) if int(a) <= at < int(a) + n), -1)
        for at in range(100)
    ]
    assert containing(start, length, asked).tolist() == expected
    assert containing(start[:0], length[:0], asked[:3]).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("seed", range(6))
def test_which_range_is_live_at_an_address(seed: int) -> None:
    """Ranges of one address follow each other in time; one may be there before the trace, and one to its end."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, int]] = []
    for address in rng.choice(30, 9, replace=False).tolist():
        moments = np.sort(rng.choice(40, 2 * int(rng.integers(1, 4)), replace=False)).tolist()
        for begin, end in zip(moments[::2], moments[1::2], strict=True):
            rows.append((address, begin, end))
        if rng.integers(2):
            last = max(at for at, row in enumerate(rows) if row[0] == address)
            rows[last] = (address, rows[last][1], -1)
        if rng.integers(2):
            first = min(at for at, row in enumerate(rows) if row[0] == address)
            rows[first] = (address, -1, rows[first][2])
    rng.shuffle(rows)
    address, begin, end = (np.array(column) for column in zip(*rows, strict=True))
    found = Lifetimes(address.astype(np.uint64), begin, end)
    assert [int(one) for one in found.addresses] == sorted({row[0] for row in rows})

    def live(at: int, position: int) -> int:
        for row, (start, born, gone) in enumerate(rows):
            if start == at and born <= position and (gone < 0 or gone > position):
                return row
        return -1

    asked = [(at, position) for at in range(31) for position in range(0, 44, 3)]
    addresses, positions = (np.array(column) for column in zip(*asked, strict=True))
    known = np.isin(addresses, address)
    rank = np.searchsorted(found.addresses, addresses[known].astype(np.uint64))
    assert found.at(rank, positions[known]).tolist() == [
        live(*one) for one, is_one in zip(asked, known, strict=True) if is_one
    ]


def test_nothing_is_live_without_ranges() -> None:
    none = np.zeros(0, np.int64)
    empty = Lifetimes(none.astype(np.uint64), none, none)
    assert empty.at(np.zeros(2, np.int64), np.zeros(2, np.int64)).tolist() == [-1, -1]


Row = tuple[int, int, int, int]  # bytes, event of its allocation, of its free, stack


def evidence(rows: list[Row], **lives: Any) -> Any:
    size, alloc, free, stack = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    usual = {name: np.full(len(rows), NONE) for name in ("born", "freed", "before", "after")}
    given = {name: np.array(values) for name, values in lives.items()}
    return SimpleNamespace(
        size=size, alloc=alloc, free=free, stack=stack, addr=np.arange(len(rows)), is_traced=alloc >= 0,
        is_freed=free >= 0, end=np.where(free < 0, 2**31 - 1, free),
        lives=SimpleNamespace(**(usual | given)),
    )  # fmt: skip


def test_bytes_that_are_alive_together() -> None:
    size, alloc = np.array([5, 7, 5, 9, 100]), np.array([0, 1, 2, 3, 0])
    end = np.array([3, 99, 99, 5, 99])
    mine = np.array([True, True, True, True, False])
    sizes, counts = parameter_copies._alive_together(size, alloc, end, mine)
    assert (sizes.tolist(), counts.tolist()) == ([5, 7, 9], [1, 1, 1])  # after the free at the same event
    sizes, _ = parameter_copies._alive_together(size, alloc, end, mine & (size == 5))
    assert sizes.tolist() == [5]
    assert not len(parameter_copies._alive_together(size, alloc, end, np.zeros(5, bool))[0])


@pytest.mark.parametrize(
    ("sizes", "fits"),
    [
        ({100: 1, 50: 2}, 1),
        ({100: 2, 50: 4}, 2),
        ({100: 2, 50: 3}, 1),
        ({100: 6, 50: 12}, 6),
        ({100: 9, 50: 18}, 6),
        ({100: 1}, 0),
        ({99: 1, 50: 2}, 0),
        ({200: 9}, 0),
    ],
)
def test_how_many_copies_fit(sizes: dict[int, int], fits: int) -> None:
    reference = np.array([50, 100]), np.array([2, 1])
    there = np.array(sorted(sizes)), np.array([sizes[size] for size in sorted(sizes)])
    assert parameter_copies._fits(reference, there) == fits


def test_a_copy_may_lack_a_twentieth() -> None:
    reference = np.array([5, 95]), np.array([1, 1])
    assert parameter_copies._fits(reference, (np.array([95]), np.array([1]))) == 1
    reference = np.array([6, 94]), np.array([1, 1])
    assert parameter_copies._fits(reference, (np.array([94]), np.array([1]))) == 0


def test_roles_of_blocks_in_order() -> None:
    reference = np.array([5, 7]), np.array([2, 1])
    size = np.array([5, 7, 9, 5, 5, 7, 5, 7, 5])
    found = parameter_copies._assign_roles(size, reference, np.array([1, 2], np.uint8))
    assert found.tolist() == [1, 1, 0, 1, 2, 2, 2, 0, 0]


def copies(
    open_: list[int], gradients: list[int], where: str = "made", extra: int = 0, also: Sequence[int] = ()
) -> list[int]:
    """Categories of blocks of so many MiB from before the trace. ``where``: the trace makes these gradients or frees
    them in ``zero_grad``, they are alive all the time, or a line of the optimizer makes as much, and the trace ``also``
    these gradients; "older": blocks that a backward pass freed.
    """
    rows: list[Row] = [(size * MIB, -1, -1, 0) for size in open_]
    for at, size in enumerate(gradients):
        rows.append((size * MIB, at if where in ("made", "step") else -1, at if where in ("freed", "older") else -1, 3))
    rows += [(size * MIB, 50 + at, -1, 4) for at, size in enumerate(also)]
    rows.append((extra * MIB, -1, -1, 0))
    code = GRADIENT if where in ("made", "alive") and not also else 0
    codes = np.array([0] * len(open_) + [code] * len(gradients) + [GRADIENT] * len(also) + [0], np.uint8)
    is_step = where == "step" or also
    middle = len(gradients) * [OPTIMIZER_STEP if is_step else BACKWARD] + len(also) * [BACKWARD]
    born = [NONE] * len(open_) + middle + [NONE]
    freed = [NONE] * len(open_) + [ZERO_GRAD if where == "freed" else BACKWARD] * (len(middle)) + [NONE]
    mask = np.zeros(len(rows), bool)
    mask[: len(open_)] = True
    mask[-1] = extra > 0
    found = parameter_copies.parameter_copies(evidence(rows, born=born, freed=freed), codes, mask)
    return found[: len(open_)].tolist()


MODEL = [30, 20, 20, 10]
P, G, S = [PARAMETER] * 4, [GRADIENT] * 4, [STATE] * 4


@pytest.mark.parametrize(
    ("open_", "gradients", "more", "expected"),
    [
        (MODEL, MODEL, {}, P),
        (MODEL * 2, MODEL, {}, P + S),
        (MODEL * 3, MODEL, {}, P + S + S),
        (MODEL * 2, MODEL, {"where": "freed"}, P + S),
        (MODEL * 3, MODEL, {"where": "step"}, P + G + S),
        (MODEL, MODEL, {"where": "step"}, P),
        (MODEL * 2, MODEL, {"where": "alive"}, P + S),
        (MODEL * 2, MODEL, {"where": "older"}, [0] * 8),
        (MODEL * 4, MODEL, {}, P + S * 3),
        (MODEL * 5, MODEL, {}, [0] * 20),
        (MODEL, MODEL[:3], {}, [0] * 4),  # three blocks are too few
        ([16] * 4, [16] * 4, {}, P),
        # Ten of a hundred of another kind.
        (MODEL, MODEL, {"extra": 8}, P),
        (MODEL, MODEL, {"extra": 9}, [0] * 4),
        (MODEL * 3, MODEL, {"extra": 240}, P + S + S),
        (MODEL * 3, MODEL, {"extra": 241}, [0] * 12),
        # What the step makes shows all; the trace makes the rest of the gradients.
        (MODEL * 3, MODEL, {"also": MODEL[:3]}, P + S + S),
        (MODEL * 2, MODEL, {"also": [1, 1, 1, 1]}, P + S),
    ],
)
def test_copies_of_the_parameters(
    open_: list[int], gradients: list[int], more: dict[str, Any], expected: list[int]
) -> None:
    assert copies(open_, gradients, **more) == expected


def lasting(*rows: tuple[int, int, int, int, int], forward: tuple[int, ...] = (10, 30, 50)) -> list[bool]:
    """Of (event, free, stack, phase, phase before): what a program's own optimizer keeps, beside forward passes."""
    others = [(at - 5, -1, 90, BACKWARD, FORWARD) for at in forward] + [(at, -1, 91, FORWARD, NONE) for at in forward]
    every = [*rows, *others]
    e = evidence(
        [(MIB, alloc, free, stack) for alloc, free, stack, _, _ in every],
        born=[phase for *_, phase, _ in every],
        before=[phase for *_, phase in every],
    )
    return program_state.own_optimizer_state(e)[: len(rows)].tolist()


def test_state_of_an_optimizer_that_the_program_wrote() -> None:
    assert lasting((7, -1, 1, NONE, BACKWARD)) == [True]
    assert lasting((7, -1, 1, NONE, OPTIMIZER_STEP)) == [True]
    assert lasting((7, -1, 1, NONE, FORWARD)) == [False] == lasting((7, -1, 1, FORWARD, BACKWARD))
    assert lasting((7, -1, 0, NONE, BACKWARD)) == [False]
    # Alive after the next two forward passes have begun.
    assert lasting((7, 31, 1, NONE, BACKWARD)) == [True] and lasting((7, 30, 1, NONE, BACKWARD)) == [False]
    assert lasting((27, -1, 1, NONE, BACKWARD)) == [True] and lasting((37, -1, 1, NONE, BACKWARD)) == [False]
    # A line that keeps something in every step collects results.
    assert lasting((7, -1, 1, NONE, BACKWARD), (8, -1, 1, NONE, BACKWARD)) == [True, True]
    assert lasting((7, -1, 1, NONE, BACKWARD), (27, -1, 1, NONE, BACKWARD)) == [False, False]
    assert lasting((7, -1, 1, NONE, BACKWARD), (27, -1, 2, NONE, BACKWARD)) == [True, True]


def resident(*rows: tuple[int, int, int, int], forward: tuple[int, ...] = (10, 30)) -> list[bool]:
    """Of (bytes, event, free, stack)."""
    others = [(MIB, at - 1, -1, 90) for at in forward] + [(MIB, at, -1, 91) for at in forward]
    born = [NONE] * len(rows) + [BACKWARD] * len(forward) + [FORWARD] * len(forward)
    return program_state.resident_data(evidence([*rows, *others], born=born))[: len(rows)].tolist()


def test_data_that_stays_on_the_device() -> None:
    assert resident((MIB, 0, -1, 1), (MIB - 1, 1, -1, 2), (MIB, 2, 31, 3), (MIB, 3, 30, 4)) == [
        True, False, True, False,
    ]  # fmt: skip
    assert resident((MIB, 0, -1, 0), (MIB, -1, -1, 1), (MIB, 10, -1, 2)) == [False, False, False]
    assert resident((MIB, 0, -1, 1), (MIB, 20, -1, 1)) == [False, False]  # it collects something
    assert resident((MIB, 0, -1, 1), forward=(10,)) == [False]


def clones(*lines: list[int], weights: list[int]) -> list[int]:
    """The lines whose tensors have the sizes of the weights."""
    rows: list[Row] = [(size, -1, -1, 0) for size in weights]
    rows += [(size, 5, -1, number) for number, line in enumerate(lines, 1) for size in line]
    e = evidence(rows)
    is_weight = np.arange(len(rows)) < len(weights)
    found = program_state.weight_clones(e, ~is_weight, is_weight)
    assert all(len(set(found[e.stack == number].tolist())) == 1 for number in range(1, len(lines) + 1))
    return sorted({int(stack) for stack in e.stack[found]})


def test_clones_of_the_weights() -> None:
    weights = [100, 100, 50, 60]
    assert clones([100, 100, 50, 60], [200, 200, 100, 120], [300, 300, 150, 180], weights=weights) == [1, 2]
    assert clones([100, 50, 60], [100, 100, 50, 61], weights=weights) == []
    assert clones([100, 100, 50, 60, 1], [100, 100, 50, 60, 90], weights=weights) == [1]  # but for a twentieth
    assert clones([50, 60], [100] * 2, weights=[100] * 4 + [50] * 2 + [60] * 2) == []
    assert clones([100, 100, 50, 60], weights=weights * 2) == [1]  # of one of two models
    assert clones([100] * 4, weights=[100] * 4) == [] == clones([100, 50, 60], weights=[100, 50, 60])


def batches(*rows: tuple[int, int, int], own: bool = True, **lives: Any) -> list[bool]:
    """Of (event, free, stack), where a forward pass begins at 10, 30, 50 and 70."""
    usual = {"before": [BACKWARD] * len(rows), "after": [FORWARD] * len(rows)}
    e = evidence([(MIB, *row) for row in rows], **(usual | lives))
    e.lives.next_event = np.array([next((at for at in (10, 30, 50, 70) if at >= event), 80) for event in range(80)])
    e.lives.own_frees = own
    return repeated_tensors.input_batches(e).tolist()


def test_batches_of_inputs() -> None:
    steps = (5, 15, 1), (25, 35, 1)
    assert batches(*steps) == [True, True] and batches(steps[0]) == [False]
    assert batches((5, 10, 1), steps[1]) == [False, False] and batches((5, 11, 1), steps[1]) == [True, True]
    assert batches((5, -1, 1), (25, -1, 1)) == [True, True]
    # Two of each step, and another line.
    assert batches(*steps, (6, 16, 1), (7, 17, 2)) == [True, True, True, False]
    # Older ones than two steps are freed.
    assert batches((5, 45, 1), steps[1], (45, 55, 1)) == [True] * 3
    assert batches((5, 46, 1), steps[1], (45, 55, 1)) == [False] * 3 == batches((5, -1, 1), steps[1], (45, 55, 1))
    assert batches((5, 15, 0), (25, 35, 0)) == [False, False] == batches((-1, 15, 1), (-1, 35, 1))
    for name, other in (("born", FORWARD), ("before", FORWARD), ("after", BACKWARD)):
        assert batches(*steps, **{name: [other] * 2}) == [False, False], name
    assert (
        batches(*steps, freed=[BACKWARD] * 2) == [False, False] and batches(*steps, freed=[FORWARD] * 2) == [True] * 2
    )
    assert batches(*steps, own=False, freed=[BACKWARD] * 2) == [True, True]


def grown(*lines: list[tuple[int, int]]) -> list[list[int]]:
    """By line of (event, KiB): the events at which its next run begins, of those that grow; 0 after the last."""
    rows = [(kib << 10, event, -1, number) for number, line in enumerate(lines, 1) for event, kib in line]
    e = evidence(rows)
    found = repeated_tensors._growing(np.arange(len(rows)), e)
    result: list[list[int]] = [[] for _ in lines]
    for row, limit in found.sort("row").rows():
        result[rows[row][3] - 1].append(limit or 0)
    return result


def test_lines_that_grow_by_a_constant() -> None:
    """Three runs of one line, each larger by as much."""
    assert grown([(1, 64), (9, 72), (17, 80)]) == [[9, 17, 0]]
    assert grown([(1, 64), (2, 64), (9, 72), (17, 80)]) == [[9, 9, 17, 0]]
    assert grown([(1, 64), (9, 72)]) == [[]] == grown([(1, 64), (9, 72), (17, 81)])
    assert grown([(1, 80), (9, 72), (17, 64)]) == [[]] == grown([(1, 64), (9, 64), (17, 64)])
    assert grown([(1, 64), (9, 72)], [(17, 80), (25, 88)]) == [[], []]
    assert grown([(1, 9), (2, 64), (9, 72), (17, 80), (25, 7)]) == [[9, 17, 25]]


def built(*blocks: tuple[int, int, bool], parameters: Sequence[int] = ()) -> list[bool]:
    """Of (event, KiB, whether a constructor made it)."""
    rows = [(kib << 10, event, -1, 1) for event, kib, _ in blocks] + [(kib << 10, -1, -1, 0) for kib in parameters]
    e = evidence(rows)
    e.probable = np.array([int(is_built) for *_, is_built in blocks] + [0] * len(parameters))
    e.codes = np.array([0] * len(blocks) + [PARAMETER] * len(parameters))
    return repeated_tensors.built_caches(e)[: len(blocks)].tolist()


def test_caches_that_a_constructor_allocates() -> None:
    """Two for each of four layers, directly after one another."""
    cache = [(at, 64, True) for at in range(8)]
    layers = [1000] * 4
    assert built(*cache, parameters=layers) == [True] * 8
    assert built(*cache[:7], parameters=layers) == [False] * 7 == built(*cache, parameters=layers[:3])[:7]
    assert built(*cache, (8, 64, True), parameters=layers) == [False] * 9
    assert built(*cache, (8, 64, False), (9, 65, True), parameters=layers) == [True] * 8 + [False] * 2
    assert built(*((at, 63, True) for at in range(8)), parameters=layers) == [False] * 8
    assert built(*((at, 64, False) for at in range(8)), parameters=layers) == [False] * 8
    assert built(*((at - 4, 64, True) for at in range(8)), parameters=layers) == [False] * 8  # four before the trace
