"""Which gradients nobody trains, and which stay too long: programs of a few events, at each limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tagged import KIB, context_of

from snapreport.findings import (
    advice_activations,
    advice_gradients,
    backward_each,
    collected_weights,
    untrained_gradients,
)

WEIGHTS = "w:p64 w:p32 "
"""Of the optimizer, and of a base model."""


def steps(count: int, pass_: str = "f:a8 b:g64 b:t32 z-#0", first: str = "f:a8 b:g64 b:g32 z-3") -> str:
    """Steps whose passes compute two gradients: the second one of the first pass stays."""
    words, number = first.split(), 5
    for _ in range(count - 1):
        words += pass_.replace("#0", str(number + 1)).split()
        number += 3
    return WEIGHTS + " ".join(words)


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (steps(3), [4]),
        (steps(2), []),  # two more passes add to it
        (steps(3, first="f:a8 b:g64 b:g32"), [4]),
        (steps(3, first="f:a8 b:g64 b:t32 z-3"), []),
        (steps(3) + " z-4", []),
        (steps(3).replace("w:p32", "w:p33"), []),  # no weight of its size
        (steps(3) + " o:s32", []),  # an optimizer has state for it
        (steps(3) + " o:s64", [4]),
        (steps(3) + " f:a8 b:g64 b:g32", [4]),
        (steps(3).replace("b:t32", "b:t33"), []),  # nothing is added to it
        (steps(3, pass_="f:a8 b:g64 b:g32 z-#0"), [4]),
    ],
)
def test_gradients_that_no_optimizer_uses(program: str, found: list[int], tmp_path: Path) -> None:
    mask = untrained_gradients.untrained(context_of(program, tmp_path))
    assert np.flatnonzero(mask).tolist() == found


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("w:p64 f:a8 b:g64 o:t8 f:a8", [2]),
        ("w:p64 f:a8 b:g64 o:t8 z-2 f:a8", []),
        ("w:p64 f:a8 b:g64 o:t8 f:a8 z-2", [2]),
        ("w:p64 f:a8 b:g64 f:a8", []),  # no step has used it
        ("w:p64 f:a8 b:g64 o:t8", []),
        ("w:p64 f:a8 b:t64 o:t8 f:a8", []),
    ],
)
def test_gradients_in_the_next_forward_pass(program: str, found: list[int], tmp_path: Path) -> None:
    context = context_of(program, tmp_path)
    old, begins = advice_gradients._old_gradients(context)
    assert np.flatnonzero(old).tolist() == found
    forward = context.born[[row for row, word in enumerate(w for w in program.split() if ":" in w) if word[0] == "f"]]
    if found:
        assert begins[2] == forward[-1]


STEP = "f:a8 b:g64 o:t8 "


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (STEP + "f:a8 z-1 b:g64", [1]),
        (STEP + "f:a8 d-1 b:g64", []),
        (STEP + "f:a8 ob-1 b:g64", []),
        (STEP + "f:a8 b-1 b:g64", [1]),  # by what no stack says
        (STEP + "f:a8 b-1 f:a8 b:g64", []),
        (STEP + "f:a8 b-1", []),
        ("b:g64 b-0 f:a8 b:g64", []),
        (STEP + "f:a8 b:g64", []),
    ],
)
def test_gradients_that_go_after_the_forward_pass(program: str, found: list[int], tmp_path: Path) -> None:
    """``b-1``: with the stack of the allocation, as a recorder may give it."""
    context = context_of(program, tmp_path)
    assert np.flatnonzero(advice_gradients._freed_after_forward(context)).tolist() == found


COPY = "w:p64 w:p32 f:a8 b:g64 "


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (COPY * 4, 8),
        (COPY * 3, 0),
        (COPY * 4 + "d-0", 0),
        (COPY * 3 + COPY.replace("32", "33"), 0),
        (COPY * 5 + "d-0", 10),
        (("w:p64 w:p32 f:a8 ") * 4 + "b:g64", 0),  # nothing trains between
        (COPY.replace("p", "i") * 4, 0),
    ],
)
def test_copies_of_a_model(program: str, count: int, tmp_path: Path) -> None:
    context = context_of(program + " d:t4096", tmp_path)  # the peak is last
    found = collected_weights.collected_weights(context)
    is_weight = context.category("parameter")
    assert int((found.mask & is_weight).sum() if found is not None and found.mask is not None else 0) == count


def test_half_of_a_batch_makes_all_gradients_twice(tmp_path: Path) -> None:
    """Those of the first half stay, and each of the second is beside them for a moment; of masks a quarter is left."""
    context = context_of("w:p64 f:a256 f:a128 b:g64 b:g32", tmp_path)
    most, missing = backward_each.missing_gradients(context)
    assert (most, missing.tolist()) == (96 * KIB, [size * KIB for size in (96, 96, 96, 96, 32, 0)])
    assert advice_activations._anew(context).tolist() == [size * KIB for size in (0, 0, 0, 0, 64, 32)]
    batch, masks = context.marked(np.array([1, 2])), context.marked(np.array([1]))
    gradients, share, peaks = advice_activations._halved(context, batch, masks)
    allocated, halves = [0, 64, 320, 448, 512, 544], [0, 0, 128, 192, 192, 192]
    half = [a - b + c + d for a, b, c, d in zip(allocated, halves, [96] * 4 + [32, 0], [0] * 4 + [64, 32], strict=True)]
    least = max(each - (64 if at > 1 else 0) for at, each in enumerate(half))
    assert (gradients, peaks) == (96 * KIB, (least * KIB, max(half) * KIB))
    assert share == 0.5
