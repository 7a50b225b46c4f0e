"""The cause of a changed peak in words: of runs that differ in one option, and none where it is not proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import corpus
import pytest
from planted import planted

from snapreport.findings.diff import diff
from snapreport.findings.diff_cause import cause_of
from snapreport.findings.diff_document import diff_document
from snapreport.report.comparison import Comparison
from snapreport.report.diff_text import diff_text

SMALL: dict[str, Any] = {
    "layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "batch": 4, "vocabulary": 4096, "steps": 2,
}  # fmt: skip
CAUSES: list[tuple[str, dict[str, Any], str]] = [
    ("eager", {"sequence": 128}, "attention scores ×4: the sequence length doubled."),
    ("eager", {"sequence": 96}, "attention scores ×2.25: the sequence length is 1.5 times what it was."),
    ("eager", {"sequence": 32}, "attention scores ×0.25: the sequence length was halved."),
    ("eager", {"batch": 8}, "activations ×2, attention scores ×2: the batch size doubled."),
    (
        "flash",
        {"batch": 8},
        "activations ×2: the batch size, sequence length or another size of the inputs is twice what it was.",
    ),
    (
        "flash",
        {"sequence": 128},
        "activations ×2: the batch size, sequence length or another size of the inputs is twice what it was.",
    ),
    ("eager", {"hidden": 256}, "the width of the model is twice what it was."),
    (
        "eager",
        {"attention": "flash"},
        "attention scores are no longer in memory, as with scaled_dot_product_attention.",
    ),
    ("flash", {"attention": "eager"}, "attention scores are in memory, as without scaled_dot_product_attention."),
    ("flash", {"regression": 2.0}, ""),
    ("eager", {"seed": 1}, ""),
]


@pytest.mark.parametrize(("attention", "change", "expected"), CAUSES, ids=str)
def test_the_cause_of_a_changed_peak(attention: str, change: dict[str, Any], expected: str) -> None:
    options = {**SMALL, "attention": attention}
    result = diff(planted("training", **options), planted("training", **{**options, **change}))
    cause = cause_of(result, result.devices[0])
    assert cause.endswith(expected) if expected else cause == ""
    if expected:
        assert str(Comparison(result).headline[0]).startswith(f"cuda:0: {cause} The peak went from ")
        assert f"\n  {cause}\n  peak: " in diff_text(result)


RECORDINGS = Path(__file__).parent / "recordings" / "causes"
CHANGED = {
    "layers": ("the model has twice as many layers.", "the model has half as many layers."),
    "experts": ("the model has twice as many experts.", "the model has half as many experts."),
    "bfloat16": (
        "every number takes half the bytes, another precision.",
        "every number takes twice the bytes, another precision.",
    ),
    "autocast": ("autocast is on.", "autocast is off."),
    "checkpoint": ("activation checkpointing is on.", "activation checkpointing is off."),
    "sgd": ("an optimizer without state, before it was adam.", "the optimizer is adam, before it had no state."),
    "batch": (
        "the batch size, sequence length or another size of the inputs is twice what it was.",
        "the batch size, sequence length or another size of the inputs is half what it was.",
    ),
    "width": ("the width of the model is 1.5 times what it was.", "the width of the model is 0.67 times what it was."),
}
"""What ``fakecuda/programs/causes.py`` changed in a program of PyTorch 2.9 → the cause, and that of the way back."""


WITHOUT_CPP = {
    "vocabulary": (
        "the vocabulary or the number of classes is 4 times what it was.",
        "the vocabulary or the number of classes is 0.25 times what it was.",
    ),
    "frozen": (
        "fewer parameters are trained, with gradients of 2.00 MiB instead of 11.0 MiB.",
        "more parameters are trained, with gradients of 11.0 MiB instead of 2.00 MiB.",
    ),
    "average": (
        "the device has another copy of all parameters, as of an average (EMA) or a reference model.",
        "before, the device had another copy of all parameters, as of an average (EMA) or a reference model.",
    ),
    "accumulation": (
        "each optimizer step has twice as many forward and backward passes, as with gradient accumulation.",
        "each optimizer step has half as many forward and backward passes, as without gradient accumulation.",
    ),
    "dropout": ("dropout is on.", "dropout is off."),
    "zeroed": (
        "gradients stay from step to step, as with zero_grad(set_to_none=False).",
        "gradients are freed in each step, as with zero_grad(set_to_none=True).",
    ),
    "outputs": (
        "tensors of each step stay allocated, most of forward causes.py:59.",
        "tensors of each step no longer stay allocated, most of forward causes.py:59.",
    ),
}
"""The same of recordings without C++ frames."""


@pytest.mark.parametrize("change", [*CHANGED, *WITHOUT_CPP])
def test_the_cause_of_recordings_that_differ_in_one_option(change: str) -> None:
    names = ("none" if change in CHANGED else "plain", change)
    plain, changed = (corpus.loaded(RECORDINGS / f"{name}.pickle.xz") for name in names)
    for pair, expected in zip(((plain, changed), (changed, plain)), (CHANGED | WITHOUT_CPP)[change], strict=True):
        result = diff(*pair)
        cause = cause_of(result, result.devices[0])
        assert cause.split(": ")[-1] == expected
        assert diff_document(result).devices[0].cause == cause


@pytest.mark.parametrize("pair", [("views1024", "views2048"), ("buffered100", "buffered200")])
def test_a_batch_that_doubled(pair: tuple[str, str]) -> None:
    """Similarities of all samples are four times as large; and a data set on the device stays as it is. Recordings of
    tests/fakecuda/programs/sized.py.
    """
    smaller, larger = (corpus.loaded(RECORDINGS.parent / "fit" / f"{name}.pickle.xz") for name in pair)
    result = diff(smaller, larger)
    assert cause_of(result, result.devices[0]).endswith(
        "the batch size, sequence length or another size of the inputs is twice what it was."
    )
