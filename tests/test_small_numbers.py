"""Sums, searches and limits of timelines and findings on arrays of a few numbers, by hand or by plain loops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import allocator_oracle
import numpy as np
import polars as pl
import pytest

from snapreport.errors import SnapshotError
from snapreport.findings.advice import _range
from snapreport.findings.cut_off_pass import _repeats
from snapreport.findings.growth_pattern import added_bytes, growth_of, single_growth
from snapreport.findings.leaks import _ordinal
from snapreport.findings.live import main_parts
from snapreport.findings.loop_lines import _is_regular
from snapreport.findings.saving import SavingRow
from snapreport.reading.recording import ACTIONS
from snapreport.timeline.curves import allocated_curve, reserved_curve
from snapreport.timeline.inferred_shapes import _named, _widths
from snapreport.timeline.model_widths import _width_of, model_widths, unused_models
from snapreport.timeline.neighbours import Lifetimes, ends_of
from snapreport.timeline.own_code import _bytes_of_stacks
from snapreport.timeline.part import PartChoice
from snapreport.timeline.rounding import AllocatorRules, allocator_rules
from snapreport.timeline.transformer_weights import transformer_weights

MIB = 1 << 20


@pytest.mark.parametrize("divisions", [[0] * 16, [4] * 16, [1, 2, 4, 8] * 4, [0] * 15 + [2], [16] + [0] * 15])
def test_blocks_are_rounded_as_integers_say(divisions: list[int]) -> None:
    rng = np.random.default_rng(1)
    powers = 1 << np.arange(37)
    sizes = np.concatenate([powers, powers + 1, np.maximum(powers - 1, 1), rng.integers(1, 1 << 36, 500)])
    table = {str(1 << n): steps for n, steps in enumerate(divisions)}
    expected = [allocator_oracle.rounded(int(size), table) for size in sizes]
    assert AllocatorRules(tuple(divisions)).rounded(sizes).tolist() == expected


def test_settings_that_are_no_numbers_have_their_defaults() -> None:
    given = {"1": 4, "2": 1 << 20, "4": (1 << 20) + 1, "8": True, "16": "2", "32": -1, "64": 0}
    rules = allocator_rules({"roundup_power2_divisions": given, "max_split_size": 1, "expandable_segments": True})
    assert rules == AllocatorRules((4, 1 << 20, *[0] * 14), 1, True)
    for limit in (0, -1, True, 1 << 62, "9", None):
        assert allocator_rules({"max_split_size": limit, "expandable_segments": 1}) == AllocatorRules()
    assert allocator_rules({"max_split_size": (1 << 62) - 1}).max_split_size == (1 << 62) - 1


def test_curves_are_running_sums() -> None:
    """Rows: event of the allocation and of the free, bytes; -1 is before the trace, and never."""
    rows = [(-1, 2, 5), (-1, -1, 7), (0, 3, 11), (1, -1, 13), (4, 5, 17), (6, -1, 19)]
    alloc, free, size = (np.array(column) for column in zip(*rows, strict=True))
    live = [sum(s for a, f, s in rows if a <= event and (f < 0 or f > event)) for event in range(-1, 7)]
    assert allocated_curve(alloc, free, size, 7).tolist() == live
    actions = ["segment_alloc", "alloc", "segment_map", "segment_free", "oom", "segment_unmap", "segment_alloc"]
    codes = np.array([*map(ACTIONS.index, actions), len(ACTIONS), len(ACTIONS) + 3])
    sizes = np.array([100, 5, 30, 20, 9, 40, 1, 50, 60])
    # 200 at the end: 200 - 1 before the last segment, and so on.
    assert reserved_curve(codes, sizes, 200).tolist() == [129, 229, 229, 259, 239, 239, 199, 200, 200, 200]


@pytest.mark.parametrize(("sizes", "is_refused"), [([2**53 - 1], False), ([2**53], True), ([2**61, 2**61], True)])
def test_more_than_a_double_holds_is_refused(sizes: list[int], is_refused: bool) -> None:
    none = np.full(len(sizes), -1)
    if is_refused:
        with pytest.raises(SnapshotError, match="more than any memory"):
            allocated_curve(none, none, np.array(sizes), 1)
    else:
        assert allocated_curve(none, none, np.array(sizes), 1).tolist() == [2**53 - 1] * 2


@pytest.mark.parametrize("seed", range(6))
def test_what_lives_beside_an_address(seed: int) -> None:
    """Against a walk over all ranges; at one address they live one after another."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, int]] = []
    for address in sorted(rng.choice(40, 9, replace=False).tolist()):
        ends = np.sort(rng.choice(np.arange(-1, 20), 2 * int(rng.integers(1, 4)), replace=False)).tolist()
        rows += [(address, begin, end) for begin, end in zip(ends[::2], ends[1::2], strict=True)]
        if rng.integers(2):
            rows[-1] = (*rows[-1][:2], -1)
    rows = [rows[at] for at in rng.permutation(len(rows)).tolist()]
    addresses, begins, ends = (np.array(column) for column in zip(*rows, strict=True))
    found = Lifetimes(addresses.astype(np.uint64), begins, ends)
    assert found.addresses.tolist() == sorted(set(addresses.tolist()))

    def lives(row: int, position: int) -> bool:
        return bool(begins[row] <= position and (ends[row] < 0 or ends[row] > position))

    asked = np.array([(a, p, a + width) for a in range(42) for p in range(-1, 22, 3) for width in (0, 4, 50)])
    low, position, high = asked[:, 0].astype(np.uint64), asked[:, 1], asked[:, 2].astype(np.uint64)
    following, last, born = [], [], []
    for a, p, limit in asked.tolist():
        live = [row for row in range(len(rows)) if lives(row, p)]
        following.append(min((r for r in live if a <= addresses[r] <= limit), key=lambda r: addresses[r], default=-1))
        last.append(max((r for r in live if addresses[r] <= a), key=lambda r: addresses[r], default=-1))
        made = [row for row in range(len(rows)) if a <= addresses[row] <= limit and 0 <= begins[row] < p]
        born.append(min(made, key=lambda r: (addresses[r], begins[r]), default=-1))
    assert found.next_from(low, position, high).tolist() == following
    assert found.last_to(low, position).tolist() == last
    assert found.first_born_from(low, high, position).tolist() == born


def test_ranges_end_at_the_last_address() -> None:
    ends = ends_of(np.array([5, 2**64 - 2, 2**64 - 3], np.uint64), np.array([3, 1, 9]))
    assert ends.tolist() == [8, 2**64 - 1, 2**64 - 1]


def levels_of(length: int, at: dict[int, int] | list[int]) -> np.ndarray:
    """Lowest live bytes: each repetition in ``at`` adds so many, or 10."""
    added = np.zeros(length, int)
    for place in at:
        added[place] = at[place] if isinstance(at, dict) else 10
    return np.append(0, np.cumsum(added))


def test_what_comes_down_again_was_not_added() -> None:
    assert added_bytes(np.array([0, 10, 4, 12, 15, 13, 13])).tolist() == [4, 0, 2, 1, 0, 0]
    assert added_bytes(np.array([5, 5, 9])).tolist() == [0, 4]


@pytest.mark.parametrize(
    ("length", "at", "found"),
    [
        (5, [0, 1, 2, 3, 4], ("grows", 5, 10, 1)),
        (8, [1, 3, 5, 7], ("grows", 4, 5, 2)),
        (3, [0, 1, 2], ("suspect", 3, 10, 1)),
        (3, [1, 2], ("suspect", 2, 10, 1)),
        (2, [0, 1], None),  # warm-up, and one
        (3, [1], None),
        (4, {0: 10, 1: 10, 2: 10, 3: 20}, ("grows", 5, 10, 1)),  # the last has two of them
        # The first and the last repetition count if they are of the size of the others, two and a half times at most.
        (5, {0: 25, 1: 10, 2: 10, 3: 10, 4: 10}, ("grows", 5, 10, 1)),
        (5, {0: 26, 1: 10, 2: 10, 3: 10, 4: 10}, ("grows", 4, 10, 1)),
        (5, {0: 4, 1: 10, 2: 10, 3: 10, 4: 10}, ("grows", 5, 10, 1)),
        (5, {0: 3, 1: 10, 2: 10, 3: 10, 4: 10}, ("grows", 4, 10, 1)),
        (5, {0: 10, 1: 10, 2: 10, 3: 10, 4: 100}, ("grows", 4, 10, 1)),
        # Regular: the longest pause is twice the shortest, and one, at most. Six are enough without.
        (6, [0, 1, 4, 5], ("grows", 4, 10, 1)),
        (7, [0, 1, 5, 6], ("suspect", 4, 10, 1)),
        (6, [0, 1, 5], None),
        (9, [0, 1, 5, 6, 7, 8], ("grows", 6, 10, 1)),
        # Growth that ended: a cache that is full.
        (10, [0, 1, 2, 3], None),
        (17, [0, 3, 6, 9, 12], ("suspect", 5, 10 / 3, 3)),
        (19, [0, 3, 6, 9, 12], ("suspect", 5, 10 / 3, 3)),
        (20, [0, 3, 6, 9, 12], None),
        # Mostly early growth is a build-up, and so is growth in less than the last quarter.
        (6, {0: 25, 1: 25, 2: 25, 3: 10, 4: 10, 5: 10}, ("suspect", 6, 17.5, 1)),
        (6, {0: 18, 1: 18, 2: 18, 3: 10, 4: 10, 5: 10}, ("grows", 6, 14, 1)),
        (20, [16, 17, 18, 19], ("suspect", 4, 10, 1)),
        (16, [12, 13, 14, 15], ("grows", 4, 10, 1)),
    ],
)
def test_which_levels_grow(length: int, at: Any, found: tuple[str, int, float, int] | None) -> None:
    growth = growth_of(levels_of(length, at), 1)
    own = growth and (growth.status, growth.count, growth.per_repetition, growth.every)
    assert own == (found and (*found[:2], pytest.approx(found[2]), found[3]))


def test_growth_below_a_limit_is_not_reported() -> None:
    levels = levels_of(4, [0, 1, 2, 3])
    assert growth_of(levels, 40) is not None and growth_of(levels, 41) is None
    assert growth_of(levels_of(5, {0: 99, 1: 10, 2: 10, 3: 10, 4: 10}), 41) is None  # without its warm-up


def test_a_line_that_grows_once() -> None:
    def single(length: int, at: dict[int, int], least: float = 10, **options: int) -> Any:
        found = single_growth(levels_of(length, at), least, **options)
        return found and (found.at, found.bytes, found.is_open)

    assert single(4, {1: 10}) == (1, 10, False) and single(3, {1: 10}) == (1, 10, True)
    assert single(4, {1: 9}) is None and single(4, {0: 10}) is None and single(4, {1: 10, 2: 10}) is None
    assert single(4, {0: 50, 1: 10, 2: 9}) == (1, 10, False)
    assert single(4, {3: 10}) is None and single(4, {3: 10}, uncertain=0) == (3, 10, True)


def test_sizes_that_repeat() -> None:
    """(repeats, their bytes, where they begin and end) of the run that covers most."""
    layer = [4, 2]
    assert _repeats(np.array([9, *layer * 6, 7])) == (6, 36, (1, 13))
    assert _repeats(np.array([*layer * 6, *[100] * 5])) == (5, 500, (12, 17))
    assert _repeats(np.array([*layer * 6, 4])) == (6, 36, (0, 12))  # the last is no whole one
    assert _repeats(np.array([1, 2, 3, 4, 5, 6])) == _repeats(np.array([], int)) == (0, 0, (0, 0))


def weights(width: int, count: int = 6, element: int = 4) -> list[int]:
    """Square matrices and vectors of a transformer."""
    return [width * width * element] * count + [width * element] * count


def test_widths_of_transformers() -> None:
    def widths(*sizes: int, element: int = 4) -> list[int]:
        return model_widths(np.array(sizes), element)

    assert widths(*weights(64), *weights(96), 0) == [64, 96]
    assert widths(*weights(64, 5)) == [] and widths(*weights(63)) == []
    assert widths(*weights(64)[:6]) == [] and widths(*weights(64)[6:]) == []
    assert widths(*weights(64), *weights(128)) == [64]  # times four widths: a square of twice the width
    assert widths(*weights(64, element=2), element=2) == [64] and widths(*weights(65, element=2)) == []
    simple = {64 * 256: 64, 64 * 96: 64, 96 * 32: 96, 64: 64, 100: None, 64 * 60: None, 64 * 56: 64, 96 * 96: 96}
    assert {elements: _width_of(elements, [64, 96]) for elements in simple} == simple


def test_a_model_whose_width_no_pass_has_is_not_used() -> None:
    older = np.array([*weights(64), *weights(96), 64 * 256 * 4])

    def unused(*made: int) -> list[tuple[int, int, list[int]]]:
        return [(one.width, one.used, one.sizes.tolist()) for one in unused_models(older, np.array(made))]

    rows = [96 * 4 + 0] * 10
    assert unused(*rows) == [(64, 96, [64 * 4, 64 * 64 * 4, 64 * 256 * 4])]
    assert unused(*rows, 64 * 4)[0][0] == 64 and unused(*rows, 64 * 4, 64 * 4) == []  # a tenth
    assert unused_models(np.array(weights(64)), np.array(rows)) == []


ROW = 1024 * 2
"""Bytes of a vector of 1,024 numbers in 16 bits."""


def blocks(*, layers: int = 8, vectors: int = 17, outside: int = 2, rows: int = 32_000, **more: int) -> np.ndarray:
    """Each layer has four square matrices, three of 2,816 rows and two vectors; ``outside``: embeddings.
    more: blocks of so many rows (``of_7=3``).
    """
    sizes = [1024 * ROW] * 4 * layers + [2816 * ROW] * 3 * layers + [ROW] * vectors + [rows * ROW] * outside
    return np.array([*sizes, *(int(name[3:]) * ROW for name, count in more.items() for _ in range(count)), 12_345])


@pytest.mark.parametrize(
    ("sizes", "others"),
    [
        (blocks(), 1),  # one of another width
        (blocks(vectors=20, outside=1), 1),
        (blocks(vectors=18), None),  # all even: two copies
        (blocks(vectors=16), None),  # a last layer has a norm
        (blocks(vectors=21), None),
        (blocks(layers=6, vectors=13), 1),
        (blocks(layers=5, vectors=11), None),
        (blocks(outside=0), None),
        (blocks(outside=5), None),
        (np.tile(blocks(), 2), None),  # a model and its copy, or its gradients
        (np.tile(blocks(outside=1), 3), None),
        (blocks(of_1025=1), 1),
        (blocks(of_1023=1), 2),  # too small for an embedding, once
        (blocks(of_1025=5), 6),
        (blocks(of_16=16), 1),  # adapters
        (blocks(of_4000=16), 17),  # no whole granules
        (blocks(of_3968=16), 1),
        (blocks(rows=50_167), 1),  # layers have 100,352 rows
        (blocks(rows=50_168), None),
    ],
)
def test_weights_of_one_transformer(sizes: np.ndarray, others: int | None) -> None:
    found = transformer_weights(sizes)
    assert int((~found).sum()) == (len(sizes) if others is None else others)


def test_a_few_megabytes_are_no_transformer() -> None:
    assert not transformer_weights(blocks() // 8).any()  # 24 MiB in its layers


@pytest.mark.parametrize(
    ("choice", "is_some"),
    [
        ({"events": (0, 1)}, True),
        ({"events": (None, 1)}, True),
        ({"events": (3, None)}, True),
        ({"events": (-1, 5)}, False),
        ({"events": (None, 0)}, False),
        ({"steps": (5, 5)}, False),
        ({"steps": (5, 6)}, True),
        ({"last": 1}, True),
        ({"last": 0}, False),
        ({"last": 1, "events": (0, 1)}, False),
    ],
)
def test_a_part_has_an_event(choice: Any, is_some: bool) -> None:
    if is_some:
        assert PartChoice(**choice)
    else:
        with pytest.raises(ValueError, match=r"are none|different parts"):
            PartChoice(**choice)
    assert not PartChoice()


def test_sides_of_weights_name_activations() -> None:
    assert _widths(np.array([*weights(64, 2), *weights(31, 2), *weights(96, 1)]), 4) == [64]
    assert _widths(np.array(weights(32, 2, 2)), 2) == [32]
    row, sides = 64 * 4, [64, 128, 256]
    matrices = np.array([side * row for side in [*sides, 31]])

    def named(tokens: list[int], of: list[int] = sides) -> dict[int, str]:
        return _named(matrices, np.unique([count * side * 4 for count in tokens for side in of]), row, 4)

    assert named([11]) == {11 * side * 4: f"*x{side}" for side in sides}
    assert named([9]) and not named([8])
    assert not named([11], [64, 128]) and not named([11, 13])
    assert not _named(np.array([100]), np.array([11 * row]), row, 4)


def test_bytes_of_stacks_are_those_of_allocations() -> None:
    """And of blocks in the final state; frees have the stack of their allocation."""
    events = pl.DataFrame(
        {"action": ["alloc", "free_completed", "alloc", "oom"], "stack": [1, 1, 3, 2], "size": [5, 5, 7, 9]}
    )
    blocks = pl.DataFrame({"stack": [3, 0], "requested_size": [4, 2]})
    records = {
        0: SimpleNamespace(events=events, blocks=blocks),
        1: SimpleNamespace(events=events, blocks=blocks.clear()),
    }
    recording: Any = SimpleNamespace(devices=records, stack_offsets=np.arange(6))
    assert _bytes_of_stacks(recording).tolist() == [2, 10, 0, 18, 0]


def test_ordinal_numbers() -> None:
    numbers = (1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 101, 111, 112, 113, 122)
    assert [_ordinal(number) for number in numbers] == [
        "1st", "2nd", "3rd", "4th", "10th", "11th", "12th", "13th", "14th", "20th", "21st", "22nd", "23rd", "24th",
        "101st", "111th", "112th", "113th", "122nd",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("at", "is_regular"),
    [
        (range(0, 100, 10), True),
        (range(0, 50, 10), True),  # five tens
        (range(0, 40, 10), False),  # four of them: less than half of the trace
        (range(60, 100, 10), False),
        ([0, 10, 15, 30, 50, 60, 70, 80, 90], True),  # within a factor of two of ten
        ([0, 10, 14, 24, 34, 38, 48, 58, 68, 78, 88], True),  # nine of eleven intervals
        ([0, 10, 14, 24, 28, 38, 42, 52, 62, 72], False),  # six of ten, and a last one of 28
    ],
)
def test_iterations_of_a_loop_are_regular(at: Any, is_regular: bool) -> None:
    """Of 100 allocations, those of one line."""
    assert _is_regular(np.array(at), 100) is is_regular


def test_the_largest_categories_are_named() -> None:
    """Of 1% at least, four of them, and then what is unknown."""

    def parts(**sizes: int) -> list[tuple[str, int]]:
        return main_parts([{"category": name, "bytes": size, "count": 1} for name, size in sizes.items()])

    assert parts(parameter=90, gradient=9, input=1) == [("parameters", 90), ("gradients", 9), ("inputs", 1)]
    assert [name for name, _ in parts(parameter=900, gradient=91, input=9)] == ["parameters", "gradients"]
    every = parts(unknown=50, parameter=40, gradient=30, activation=20, input=10, temporary=5)
    assert [size for _, size in every] == [40, 30, 20, 10, 50]


def test_a_range_of_peaks_in_words() -> None:
    def said(low: int, high: int, saves: int = 40) -> list[str]:
        row = SavingRow("", 1.0, 60 * MIB, 5, saves * MIB, False, [], low_bytes=low * MIB, high_bytes=high * MIB)
        return [str(one) for one in _range(row)]

    assert said(50, 99) == ["The peak is between 50.0 MiB and 99.0 MiB."]
    assert said(50, 100) == ["The peak is 50.0 MiB at best; at worst nothing is saved."]
    assert said(50, 50) == [] == _range(SavingRow("", 1.0, 60, 5, 40, False, []))
