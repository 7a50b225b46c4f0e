"""What is said of numbers that two runs of a program measured: each change is proved by several of them, and not said
where one is missing or at a limit. Sentences and numbers are by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pytest
from scripted import MIB

from snapreport.findings.diff_program import number, program_changes, ratio_text, times
from snapreport.findings.diff_sides import Comparison, Lines

SIZES = [MIB // 4, 4 * MIB] * 3 + [3 * MIB]
STATE_OF_ADAM = 2 * sum(SIZES)
ANOTHER = "the device has another copy of all parameters, as of an average (EMA) or a reference model."
VOCABULARY = "the vocabulary or the number of classes is 4 times what it was."
STATELESS = "an optimizer without state, before it was adam."
STATEFUL = "the optimizer is adam, before it had no state."


@dataclass
class Numbers:
    """What a side of a comparison measures, of a program with seven parameters and Adam, in three steps."""

    sizes: Sequence[float] = field(default_factory=lambda: list(SIZES))
    trained: Sequence[float] | None = None  # all parameters
    bytes: dict[str, float] = field(default_factory=dict)
    whole_steps: int = 3
    rounds_of_gradients: float = 3.0
    saved_allocations: int = 40
    halved_weights: float = 0.0
    reads_inputs: bool = True
    optimizers: tuple[str, ...] = ("adam",)
    frames: tuple[str, ...] = ()
    loss: int = 8 * MIB
    peak_bytes: int = 100 * MIB
    scores: bool = False
    left: dict[str, int] = field(default_factory=dict)

    @property
    def parameters(self) -> np.ndarray:
        return np.sort(np.array(self.sizes).astype(np.int64))

    @property
    def gradients(self) -> Counter[int]:
        return Counter(int(size) for size in (self.sizes if self.trained is None else self.trained))

    @property
    def leftovers(self) -> pl.DataFrame:
        schema = {"line": pl.String, "bytes": pl.Int64}
        return pl.DataFrame({"line": list(self.left), "bytes": list(self.left.values())}, schema)

    def most(self, category: str) -> int:
        usual = {"input": 10 * MIB, "activation": 50 * MIB, "optimizer state": STATE_OF_ADAM}
        return int(self.parameters.sum()) if category == "parameter" else int(self.bytes.get(category, usual[category]))

    def runs(self, pattern: str) -> bool:
        return any(re.search(pattern, frame) for frame in self.frames)

    def bytes_of(self, pattern: str) -> int:
        return self.loss if re.search(pattern, "torch/nn/functional.py cross_entropy") else 0


def compared(
    before: Numbers,
    after: Numbers,
    many: list[float] | None = None,
    large: list[float] | None = None,
    weight: list[float] | None = None,
) -> Comparison:
    """``many``, ``large``, ``weight``: of ten lines, see ``Lines``; a line is as it was."""
    both: Any = Comparison.__new__(Comparison)
    both.before, both.after = before, after
    both.has_scores = before.scores, after.scores
    both.lines = Lines(*(np.array(column or [1.0] * 10) for column in (many, large, weight)))
    found: Comparison = both
    return found


def said(before: Numbers, after: Numbers, **lines: list[float]) -> str:
    """Without what the sums of the categories have become."""
    return program_changes(compared(before, after, **lines)).rpartition(": ")[2]


def scaled(factor: float, only: int = 7) -> list[float]:
    """The first ``only`` parameters are so many times as large."""
    return [size * factor if at < only else size for at, size in enumerate(SIZES)]


def test_runs_that_measure_the_same_have_no_change() -> None:
    assert program_changes(compared(Numbers(), Numbers())) == ""


def test_sums_of_categories_come_first() -> None:
    after = Numbers(scaled(0.5), bytes={"activation": 25 * MIB, "optimizer state": 0.75 * STATE_OF_ADAM, "input": MIB})
    assert program_changes(compared(Numbers(), after)) == (
        "parameters ×0.5, optimizer state ×0.75, activations ×0.5: "
        "every number takes half the bytes, another precision."
    )
    after = Numbers(scaled(0.5), bytes={"activation": 50.9 * MIB, "optimizer state": 0})
    assert program_changes(compared(Numbers(), after)).startswith("parameters ×0.5, optimizer state ×0: every number")


WIDER = [MIB // 4 * 1.5, 4 * MIB * 2.25] * 3 + [3 * MIB * 1.0]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (scaled(0.25), "every number takes 0.25 times the bytes, another precision."),
        (scaled(4), "every number takes 4 times the bytes, another precision."),
        (scaled(2), "every number takes twice the bytes, another precision."),
        # The last has a sixth of the bytes.
        (scaled(0.5, 6), "6 of 7 parameters are half as large."),
        (WIDER, "the width of the model is 1.5 times what it was."),
        ([MIB // 4 * 1.5, 4 * MIB * 2.25] * 3 + [3 * MIB * 2.25], "the width of the model is 1.5 times what it was."),
        ([MIB // 4 * 2.25, 4 * MIB * 2.25] * 3 + [3 * MIB * 1.0], "6 of 7 parameters are 2.25 times as large."),
        ([MIB // 4 * 1.5, 4 * MIB * 2.25] * 3 + [3 * MIB * 1.2], ""),
        ([*SIZES[:-1], 12 * MIB], "1 of 7 parameters is 4 times as large."),
        ([*SIZES[:-2], 16 * MIB, 12 * MIB], "2 of 7 parameters are 4 times as large."),
        ([*SIZES[:-2], 16 * MIB, 12 * MIB + 2048], "2 of 7 parameters are 4 times as large."),  # rounded to blocks
        ([*SIZES[:-2], 16 * MIB, 12 * MIB + 2052], ""),
        ([*SIZES[:-1], 3 * MIB * 1.019], ""),  # the same but for rounding
    ],
)
def test_parameters_of_other_sizes(sizes: list[float], expected: str) -> None:
    assert said(Numbers(), Numbers(sizes, trained=list(SIZES))) == expected


def test_a_narrower_model() -> None:
    larger = Numbers([*SIZES[:-2], 16 * MIB, 12 * MIB + 2048])
    assert said(larger, Numbers()) == "2 of 7 parameters are 0.25 times as large."
    assert said(Numbers(WIDER), Numbers()) == "the width of the model is 0.67 times what it was."


@pytest.mark.parametrize(
    ("loss", "inputs", "expected"),
    [
        (4 * 8, 10, VOCABULARY),
        (2 * 4 * 8, 20, f"{VOCABULARY[:-1]}; the inputs are twice as large."),
        (3 * 8, 10, "1 of 7 parameters is 4 times as large."),
        (4 * 8, 40, ""),  # a table of positions
    ],
)
def test_logits_tell_a_vocabulary(loss: int, inputs: int, expected: str) -> None:
    after = Numbers([*SIZES[:-1], 12 * MIB], list(SIZES), {"input": inputs * MIB}, loss=loss * MIB)
    lines = {"large": [inputs / 10] * 5 + [7.0] * 5}
    assert said(Numbers(), after, **lines) == expected
    longer = Numbers([*SIZES[:-1], 12 * MIB], list(SIZES), {"input": inputs * MIB}, loss=2 * loss * MIB, whole_steps=6)
    assert said(Numbers(), longer, **lines) == expected


@pytest.mark.parametrize(
    ("sizes", "trained", "expected"),
    [
        (SIZES * 2, SIZES, ANOTHER),
        (SIZES * 3, SIZES, "the device has 2 more copies of all parameters."),
        ([*SIZES, *SIZES[1:]], SIZES, "the device has another copy of all parameters, as of an average (EMA) or"),
        ([*SIZES, *SIZES[2:]], SIZES, ""),
        ([*SIZES, 3 * MIB], SIZES, ""),
        (SIZES * 2, SIZES * 2, ""),
        ([*SIZES, 3 * MIB, 5 * MIB], [*SIZES, 3 * MIB], "the model has 2 parameters more (8.00 MiB)."),
        ([*SIZES, 5 * MIB], [*SIZES, 5 * MIB], "the model has 1 parameter more (5.00 MiB)."),
        ([*SIZES, 5 * MIB], [], ""),
    ],
)
def test_more_parameters(sizes: list[float], trained: list[float], expected: str) -> None:
    more = Numbers(list(sizes), list(trained))
    assert said(Numbers(), more).startswith(expected) and bool(said(Numbers(), more)) == bool(expected)
    back = expected.replace("the device has", "before, the device had").replace(" more (", " fewer (")
    assert said(more, Numbers()).startswith(back) and bool(said(more, Numbers())) == bool(expected)


TWICE = SIZES * 2


@pytest.mark.parametrize(
    ("many", "large", "expected"),
    [
        ([2.0] * 8 + [1.0] * 2, [2.0] * 8 + [1.0] * 2, "the model has twice as many layers."),
        ([2.0] * 5 + [1.0] * 5, [2.0] * 3 + [1.0] * 7, "the model has twice as many layers."),
        ([2.0] * 8 + [1.0] * 2, [1.0] * 10, "the model has twice as many experts."),
        ([2.0] * 3 + [1.0] * 7, [1.0] * 10, "the model has twice as many experts."),
        ([2.0] * 4 + [3.0] * 4 + [1.0] * 2, [1.0] * 2 + [1.5] * 2 + [1.0] * 6, "the model has twice as many experts."),
        ([2.0] * 8 + [1.0] * 2, [2.0] * 4 + [1.5] * 4 + [1.0] * 2, "the model has twice as many layers."),
        ([2.0] * 4 + [1.0] * 6, [2.0] * 4 + [1.0] * 6, "another copy"),  # of few lines
        ([2.0] * 8 + [1.0] * 2, [3.0] * 10, "another copy"),
        ([2.0] * 4 + [3.0] * 3 + [5.0] * 3, [1.0] * 10, "another copy"),
        ([0.5] * 8 + [1.0] * 2, [0.5] * 8 + [1.0] * 2, "another copy"),  # the other way
    ],
)
def test_layers_and_experts(many: list[float], large: list[float], expected: str) -> None:
    found = said(Numbers(), Numbers(list(TWICE), list(SIZES)), many=many, large=large)
    assert found == expected if expected.startswith("the model") else expected in found
    inputs = Numbers(list(TWICE), list(SIZES), {"input": 30 * MIB})
    found = said(Numbers(), inputs, many=many, large=[3 * each for each in large])
    assert found.startswith(expected[:-1]) if expected.startswith("the model") else expected in found


LESS = [*SIZES[:3], SIZES[6]]
FEWER = "fewer parameters are trained, with gradients of 7.50 MiB instead of 15.8 MiB."


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Numbers(), Numbers(trained=list(LESS)), FEWER),
        (
            Numbers(trained=list(LESS)),
            Numbers(),
            "more parameters are trained, with gradients of 15.8 MiB instead of 7.50 MiB.",
        ),
        (Numbers(), Numbers(trained=[]), ""),
        (Numbers(whole_steps=0), Numbers(trained=list(LESS)), ""),
        (Numbers(), Numbers(trained=list(LESS), whole_steps=0), ""),
        (Numbers(), Numbers(trained=SIZES[1:]), ""),  # too few bytes
        (Numbers(rounds_of_gradients=3), Numbers(rounds_of_gradients=1), "as with zero_grad(set_to_none=False)."),
        (Numbers(rounds_of_gradients=1), Numbers(rounds_of_gradients=3), "as with zero_grad(set_to_none=True)."),
        (Numbers(rounds_of_gradients=1.6), Numbers(rounds_of_gradients=1.02), "as with zero_grad(set_to_none=False)."),
        (Numbers(rounds_of_gradients=1.5), Numbers(rounds_of_gradients=1.02), ""),
        (Numbers(rounds_of_gradients=3), Numbers(rounds_of_gradients=1.03), ""),
        (Numbers(rounds_of_gradients=3), Numbers(rounds_of_gradients=1, whole_steps=2), ""),
        (Numbers(rounds_of_gradients=3), Numbers(rounds_of_gradients=3), ""),
        (Numbers(rounds_of_gradients=1), Numbers(rounds_of_gradients=1), ""),
    ],
)
def test_gradients(before: Numbers, after: Numbers, expected: str) -> None:
    found = said(before, after)
    assert found.endswith(expected) and bool(found) == bool(expected)


@pytest.mark.parametrize(
    ("after", "many", "expected"),
    [
        (Numbers(saved_allocations=80), [2.0] * 10, "twice as many forward and backward passes, as with gradient"),
        (
            Numbers(saved_allocations=60),
            [1.5] * 9 + [1.0],
            "1.5 times as many forward and backward passes, as with gradient",
        ),
        (
            Numbers(saved_allocations=160, whole_steps=6),
            [2.0] * 10,
            "twice as many forward and backward passes, as with gradient",
        ),
        (Numbers(saved_allocations=20), [0.5] * 10, "half as many forward and backward passes, as without gradient"),
        (Numbers(saved_allocations=40), [2.0] * 10, ""),
        (Numbers(saved_allocations=56), [1.4] * 10, ""),
        (Numbers(saved_allocations=80), [2.0] * 8 + [1.0] * 2, ""),
        (Numbers(saved_allocations=80, trained=SIZES[1:]), [2.0] * 10, ""),
    ],
)
def test_passes_of_a_step(after: Numbers, many: list[float], expected: str) -> None:
    found = said(Numbers(), after, many=many)
    assert expected in found and bool(found) == bool(expected)


DROPOUT = ("torch/nn/functional.py dropout",)
FUSED = "attention scores are no longer in memory, as with scaled_dot_product_attention."
UNFUSED = "attention scores are in memory, as without scaled_dot_product_attention."
CHECKPOINT = ("torch/utils/checkpoint.py forward",)
AUTOCAST = ("torch/amp/autocast_mode.py decorate_autocast",)
HALF = ("most activations take half the bytes for inputs of one size, another precision.",)


@pytest.mark.parametrize(
    ("before", "after", "lines", "expected"),
    [
        (Numbers(), Numbers(frames=CHECKPOINT, bytes={"activation": 40 * MIB}), {}, "activation checkpointing is on."),
        (Numbers(frames=CHECKPOINT), Numbers(bytes={"activation": 60 * MIB}), {}, "activation checkpointing is off."),
        (Numbers(), Numbers(frames=CHECKPOINT), {}, ""),
        (Numbers(frames=CHECKPOINT), Numbers(), {}, ""),
        (Numbers(frames=CHECKPOINT), Numbers(frames=CHECKPOINT, bytes={"activation": 40 * MIB}), {}, ""),
        (Numbers(), Numbers(frames=AUTOCAST), {}, "autocast is on."),
        (Numbers(frames=AUTOCAST), Numbers(), {}, "autocast is off."),
        (Numbers(), Numbers(halved_weights=0.5), {"many": [2.0] * 5 + [1.0] * 5}, "autocast is on."),
        (Numbers(halved_weights=0.5), Numbers(), {"many": [0.5] * 5 + [1.0] * 5}, "autocast is off."),
        (Numbers(), Numbers(halved_weights=0.49), {"many": [2.0] * 5 + [1.0] * 5}, ""),
        (Numbers(), Numbers(halved_weights=0.5), {"many": [0.5] * 5 + [1.0] * 5}, ""),
        (Numbers(), Numbers(halved_weights=0.5), {"many": [2.0] * 9 + [3.0]}, ""),
        (Numbers(), Numbers(halved_weights=0.5, trained=SIZES[1:]), {"many": [2.0] * 5 + [1.0] * 5}, ""),
        (Numbers(), Numbers(), {"large": [0.5] * 6 + [1.0] * 4}, HALF[0]),
        (Numbers(), Numbers(), {"large": [4.0] * 6 + [0.5] * 4}, HALF[0].replace("half", "4 times")),
        (Numbers(), Numbers(), {"large": [0.5] * 4 + [1.0] * 6}, ""),
        (Numbers(), Numbers(), {"large": [0.6] * 6 + [1.0] * 4}, ""),
        (Numbers(), Numbers(), {"large": [1.0] * 5 + [0.5] * 5}, HALF[0]),
        (Numbers(), Numbers(), {"large": [0.5] * 10, "many": [1.0] * 4 + [2.0] * 3 + [3.0] * 3}, ""),
        (Numbers(), Numbers(bytes={"input": 12 * MIB}), {"large": [0.5] * 6 + [1.0] * 4}, ""),
        (Numbers(reads_inputs=False), Numbers(), {"large": [0.5] * 6 + [1.0] * 4}, ""),
        (Numbers(), Numbers(frames=DROPOUT, bytes={"activation": 60 * MIB}), {}, "dropout is on."),
        (Numbers(frames=DROPOUT), Numbers(bytes={"activation": 40 * MIB}), {}, "dropout is off."),
        (Numbers(), Numbers(frames=DROPOUT), {}, ""),
        (Numbers(scores=True), Numbers(bytes={"activation": 40 * MIB}), {}, FUSED),
        (Numbers(), Numbers(scores=True, bytes={"activation": 60 * MIB}), {}, UNFUSED),
        (Numbers(scores=True), Numbers(scores=True, bytes={"activation": 40 * MIB}), {}, ""),
        (Numbers(), Numbers(scores=True, bytes={"activation": 40 * MIB}), {}, ""),
        (Numbers(scores=True), Numbers(), {}, ""),
    ],
)
def test_activations(before: Numbers, after: Numbers, lines: dict[str, list[float]], expected: str) -> None:
    assert said(before, after, **lines) == expected


SGD = Numbers(bytes={"optimizer state": 0}, optimizers=("sgd",))
MOMENTUM = Numbers(bytes={"optimizer state": STATE_OF_ADAM // 2}, optimizers=("sgd",))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Numbers(), MOMENTUM, "the optimizer is sgd instead of adam."),
        (Numbers(), Numbers(optimizers=("adamw",)), ""),
        (Numbers(), Numbers(bytes={"optimizer state": STATE_OF_ADAM // 2}), ""),
        (Numbers(), Numbers(bytes={"optimizer state": 0}, optimizers=()), STATELESS),
        (Numbers(bytes={"optimizer state": 0}, optimizers=()), Numbers(), STATEFUL),
        (Numbers(), Numbers(bytes={"optimizer state": MIB}, optimizers=()), ""),
        (Numbers(bytes={"optimizer state": MIB}, optimizers=()), Numbers(), ""),
        (Numbers(optimizers=("adam", "muon")), MOMENTUM, "the optimizer is sgd instead of adam and muon."),
        (Numbers(), Numbers(bytes={"optimizer state": 0}, optimizers=("sgd",), trained=[]), ""),
    ],
)
def test_optimizers(before: Numbers, after: Numbers, expected: str) -> None:
    assert said(before, after) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"a.py:1": 4 * MIB, "b.py:2": MIB}, "tensors of each step stay allocated, most of a.py:1."),
        ({"a.py:1": MIB}, {"a.py:1": 6 * MIB, "b.py:2": MIB}, "tensors of each step stay allocated, most of b.py:2."),
        ({"a.py:1": MIB}, {"a.py:1": 6 * MIB}, ""),
        ({}, {"a.py:1": 4 * MIB}, ""),  # less than half of what the peak changed by
    ],
)
def test_leftovers(before: dict[str, int], after: dict[str, int], expected: str) -> None:
    less, more = Numbers(left=before), Numbers(left=after, peak_bytes=110 * MIB)
    assert said(less, more) == expected
    assert said(more, less) == expected.replace("stay", "no longer stay")
    assert said(less, Numbers(left=after)) == ""


def test_ratios_in_words() -> None:
    words = {2.03: "twice", 2.05: "2.05 times", 0.495: "half", 1.5: "1.5 times", 0.125: "0.125 times"}
    assert {ratio: ratio_text(ratio) for ratio in words} == words
    assert [number(value) for value in (0.2, 0.2001, 3.0, 1.256)] == ["0.2", "0.2", "3", "1.26"]
    assert times(0.0625) == "×0.062"


@pytest.mark.parametrize(
    ("inputs", "sizes", "lines", "factor"),
    [
        (2, 1, {"large": [2.0] * 10}, 2),
        (2, 1, {"large": [2.0] * 5 + [1.0] * 4 + [8.0]}, 2),  # copies of weights, and what follows nothing
        (2, 1, {"large": [4.0] * 5 + [2.0] * 5}, 2),
        (0.5, 1, {"large": [0.5] * 10}, 0.5),
        (2, 1, {"large": [2.0] * 4 + [1.0] * 6}, None),
        (2, 1, {"large": [2.0] * 8 + [8.0] * 2}, None),
        (2, 1, {"large": [2.0] * 8 + [0.5] * 2}, None),
        (2, 1, {"large": [2.0] * 10, "many": [1.0] * 8 + [2.0] * 2}, None),
        (2, 1, {"large": [2.0] * 10, "many": [1.0] * 9 + [2.0]}, 2),
        (1, 1, {}, None),
        (0, 1, {}, None),
        (2, 1.09, {"large": [2.0] * 10}, 2),
        (2, 1.11, {"large": [2.0] * 10}, None),
    ],
)
def test_inputs_that_grow(inputs: float, sizes: float, lines: dict[str, list[float]], factor: float | None) -> None:
    both = compared(Numbers(), Numbers(scaled(sizes), bytes={"input": inputs * 10 * MIB}), **lines)
    assert both.batch_factor == factor


def test_shares_of_lines() -> None:
    lines = Lines(np.array([1.0, 2, 2, 3]), np.array([1.0, 2.03, 2.05, 3]), np.array([1.0, 2, 3, 4]))
    assert lines.share(lines.many == 2) == 0.5 and lines.share(lines.many == 2, lines.many < 3) == 5 / 6
    assert lines.share(lines.many == 2, lines.many > 5) == 0.0
    assert lines.follow(2) == 1 and lines.follow(2.04) == 2
    assert lines.main(lines.many, lines.many > 0) == 2 and lines.main(lines.many, lines.many != 2) == 3
    assert lines.main(lines.many, lines.many > 5) == 1.0


def test_tokens_have_the_precision_that_they_had() -> None:
    after = Numbers(scaled(0.5), bytes={"input": 20 * MIB})
    expected = "every number takes half the bytes, another precision; the inputs are twice as large."
    assert said(Numbers(), after) == expected


def test_most_parameters_in_another_precision() -> None:
    before, after = [MIB] * 10, [MIB // 2] * 9 + [0.45 * MIB]
    assert said(Numbers(before), Numbers(after)) == "every number takes half the bytes, another precision."


def test_layers_of_a_program_without_inputs() -> None:
    sides = (Numbers(bytes={"input": 0}), Numbers(list(TWICE), list(SIZES), {"input": 0}))
    assert said(*sides, many=[2.0] * 10, large=[2.0] * 10) == "the model has twice as many layers."


def test_parameters_that_are_gone_are_not_frozen() -> None:
    fewer = Numbers(SIZES[:-1], trained=SIZES[:4])
    assert said(Numbers(), fewer) == "the model has 1 parameter fewer (3.00 MiB)."
