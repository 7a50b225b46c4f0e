"""The last dimension of activations, by sizes whose shapes are known."""

from __future__ import annotations

import polars as pl
import pytest

from snapreport.timeline.inferred_shapes import inferred_shapes

WIDTH, HIDDEN, WORDS, TOKENS = 512, 1408, 32000, 3000
LAYER = [(WIDTH, WIDTH)] * 4 + [(HIDDEN, WIDTH), (WIDTH, HIDDEN), (WIDTH, 1), (WIDTH, 1)]
WEIGHTS = LAYER * 6 + [(WORDS, WIDTH)]
COMPUTED = [WIDTH] * 30 + [HIDDEN] * 12 + [WORDS]


def table(weights: list[tuple[int, int]], outputs: list[int], element: int) -> pl.DataFrame:
    sizes = [rows * columns * element for rows, columns in weights] + [count * element for count in outputs]
    categories = ["parameter"] * len(weights) + ["activation", "temporary"] * len(outputs)
    columns = {"size": sizes, "category": categories[: len(sizes)], "stack": [0] * len(sizes)}
    return pl.DataFrame(columns, schema_overrides={"category": pl.String})


def inferred(allocations: pl.DataFrame, operator: str = "linear") -> pl.Series:
    return inferred_shapes(allocations, lambda: pl.Series([operator]))


@pytest.mark.parametrize("element", [4, 2])
def test_activations_of_a_transformer(element: int) -> None:
    """Masks, scores and scalars among them have no shape that sizes say, and weights none at all."""
    others = [TOKENS // 2, 16 * 300 * 300, 1, 7 * WIDTH]
    outputs = [TOKENS * side for side in COMPUTED] + others
    said = inferred(table(WEIGHTS, outputs, element)).to_list()
    expected = [f"*x{side}" for side in COMPUTED] + [None] * len(others)
    assert said == [None] * len(WEIGHTS) + expected


def test_what_may_be_split_into_heads() -> None:
    """The sizes of queries that are rotated and of a sum are equal, and the last dimensions are not."""
    said = inferred(table(WEIGHTS, [TOKENS * side for side in COMPUTED], 4), "mul").drop_nulls()
    assert set(said) == {f"*x{HIDDEN}", f"*x{WORDS}"}


def test_two_batches_have_no_one_number_of_tokens() -> None:
    outputs = [tokens * side for tokens in (TOKENS, 1700) for side in COMPUTED]
    assert not inferred(table(WEIGHTS, outputs, 4)).drop_nulls().len()


@pytest.mark.parametrize("other", [1024, 384])
def test_two_models_have_no_one_width(other: int) -> None:
    """A teacher beside a student, whose width may be a multiple of the student's."""
    weights = WEIGHTS + [
        (rows * other // WIDTH, columns * other // WIDTH if columns > 1 else 1) for rows, columns in LAYER
    ]
    outputs = [TOKENS * side for side in [*COMPUTED, other, other * HIDDEN // WIDTH]]
    assert not inferred(table(weights, outputs, 4)).drop_nulls().len()


def test_too_little_to_say() -> None:
    assert not inferred(table(WEIGHTS, [TOKENS * WIDTH, TOKENS * HIDDEN], 4)).drop_nulls().len()
    twice = [(WIDTH, WIDTH)] * 2 + [(WIDTH, 1)] * 2 + [(HIDDEN, WIDTH), (WORDS, WIDTH)]
    assert not inferred(table(twice, [TOKENS * side for side in COMPUTED], 4)).drop_nulls().len()
    assert not inferred(table([(7, 3)], [TOKENS * WIDTH], 4)).drop_nulls().len()
    assert not inferred(table([], [], 4)).len()
