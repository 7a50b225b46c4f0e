"""Which tensors have which type under autocast: tables of a few rows, by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from tagged import context_of

from snapreport.findings import autocast_replay
from snapreport.findings.attention_scores import Scores
from snapreport.findings.operator_kinds import HALF, NORM, SAME


def table(sizes: list[int], **more: Any) -> pl.DataFrame:
    count = len(sizes)
    usual: dict[str, Any] = {"is_kept": [True] * count, "run": [0] * count, "kind": [SAME] * count}
    return pl.DataFrame({"at": range(count), "row": range(count), "size": sizes, **(usual | more)})


def factors(sizes: list[int], marks: str, *, math: str = "", is_recorded: bool = True, **more: Any) -> list[float]:
    """``marks``: an x for each matrix of scores that the program wrote out; ``math``: those of PyTorch's kernel."""
    written, kernel = (np.array([mark == "x" for mark in one]) for one in (marks, math or "." * len(sizes)))
    scores = Scores(kernel, written, is_recorded)
    context: Any = SimpleNamespace(trains=True, remember=lambda key, compute: scores)
    return autocast_replay._of_scores(context, table(sizes, **more)).tolist()


def test_types_of_scores() -> None:
    """Alone a softmax's result and a cast of it; of several the last is read by the product."""
    assert factors([4, 64, 4], ".x.") == [0, 1.5, 0]
    assert factors([4, 64, 64, 64, 4], ".xxx.") == [0, 1, 1, 0.5, 0]
    assert factors([64, 64, 33, 32], "xxxx") == [1, 0.5, 1.5, 0]  # a dropout's mask is smaller
    assert factors([64, 64, 64], "xxx", is_kept=[True, False, True]) == [1, 0, 0.5]
    # Layers: seven tensors apart, or of other sizes.
    near, far = [64, *[1] * 5, 64], [64, *[1] * 6, 64]
    assert factors(near, "x.....x") == [1, 0, 0, 0, 0, 0, 0.5]
    assert factors(far, "x......x") == [1.5, 0, 0, 0, 0, 0, 0, 1.5]
    assert factors([64, 60, 60], "xxx") == [1.5, 1, 0.5]
    # Of another pass, smaller ones are the largest.
    assert factors([64, 20], "xx", run=[0, 1]) == [1.5, 1.5]
    assert factors([64, 64], "..", math="xx") == [0, 0]
    assert factors([64, 64], "..", math="xx", is_recorded=False) == [1, 0.5]


@pytest.mark.parametrize(
    ("sizes", "is_mask"),
    [
        ([40_000, 10_512], [False, True]),
        ([40_000, 10_513], [False, False]),
        ([40_000, 9_000], [False, True]),
    ],
)
def test_masks_of_a_dropout(sizes: list[int], is_mask: list[bool]) -> None:
    """A quarter of what its call makes beside it, but for rounding."""
    rows = table([*sizes, 1], call=[0, 0, 1], stack=[1, 1, 2])
    context: Any = SimpleNamespace(frames=lambda pattern: np.array([False, True, False]))
    assert autocast_replay._is_mask(context, rows).tolist() == [*is_mask, False]
    none: Any = SimpleNamespace(frames=lambda pattern: np.zeros(3, bool))
    assert not autocast_replay._is_mask(none, rows).any()


def normed(sizes: list[int], kinds: list[int], **more: Any) -> list[int]:
    return np.flatnonzero(autocast_replay._is_normed(table(sizes, kind=kinds, **more))).tolist()


def test_inputs_of_norms() -> None:
    """The last before it that is as large, and that a backward pass needs."""
    assert normed([8, 8, 8], [SAME, HALF, NORM]) == [1]
    assert normed([8, 9, 8], [SAME, HALF, NORM]) == [0]
    assert normed([8, 8, 8], [SAME, HALF, NORM], is_kept=[True, False, True]) == [0]
    assert normed([8, 8, 8], [SAME, HALF, NORM], run=[0, 1, 0]) == [0]
    assert normed([8, 8], [NORM, SAME]) == [] == normed([8, 9], [SAME, NORM])
    assert normed([8, 8, 8], [SAME, NORM, NORM]) == [0]  # what its call makes beside it


def test_gradients_of_activations_have_their_types(tmp_path: Path) -> None:
    context = context_of("w:p64 f:a32 f:a32 f:a16 b:t32 b:t16 b:g64 b:t8", tmp_path)
    rows = np.array([1, 2, 3])
    found = autocast_replay._with_backward(context, rows, np.array([0.5, 0.25, 2]), np.array([0.5, 1, 0.5]))
    assert found.tolist() == [1, 0.5, 0.25, 2, 0.75, 0.5, 1, 1]
