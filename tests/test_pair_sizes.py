"""Matrices of all pairs are known by their sizes alone: a broadcast, differences, distances and triplets, and what has
one number too few, one operand too many, or another order, by hand.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from scripted import Frame, Script
from test_findings_advice import FORWARD, TORCH

import snapreport
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.outer_product import broadcast, differences, distance_chunks, triplets

LOSS, MODEL, DATA = ("/app/loss.py", "loss"), ("/app/model.py", "encode"), ("/app/data.py", "load")
LINEAR = (TORCH + "nn/modules/linear.py", "forward")
Step = tuple[str, int, tuple[Frame, ...]]  # what it is called, numbers, by which frames; "-" before the name: freed


def context_of(steps: list[Step], folder: Path, bytes_of: int = 4) -> tuple[AdviceContext, list[str]]:
    """(the program at its peak, the name of each allocation)."""
    script, addresses, names = Script(), dict[str, int](), list[str]()
    for name, numbers, frames in steps:
        if name.startswith("-"):
            script.free(addresses[name[1:]], *frames)
        else:
            addresses[name] = script.alloc(name, numbers * bytes_of, *frames)
            names.append(name)
    path = folder / "pairs.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    snapshot = snapreport.load(path)
    return AdviceContext(snapshot, snapshot.timeline(0), []), names


def found(mask: np.ndarray | None, names: list[str]) -> set[str]:
    return {name for name, is_found in zip(names, mask if mask is not None else [], strict=False) if is_found}


N = 4096


def regression(
    *, count: int = N, vectors: int = 2, between: int = 0, linear: bool = True, by: tuple[Frame, ...] = (LOSS,)
) -> list[Step]:
    """A prediction of ``count`` numbers by a linear layer, of which all differences to a target are taken."""
    steps: list[Step] = [(f"target {number}", count, (DATA,)) for number in range(vectors - 1)]
    steps.append(("prediction", count, (LINEAR, *FORWARD) if linear else (MODEL,)))
    steps += [(f"number {number}", 1 << 10, (DATA,)) for number in range(between)]
    return [*steps, ("difference", count * count, by), ("square", count * count, by)]


@pytest.mark.parametrize(
    ("steps", "is_given"),
    [
        (regression(), True),
        (regression(between=7), True),
        (regression(between=8), False),
        (regression(vectors=1), False),
        (regression(by=(LINEAR, *FORWARD)), False),
    ],
)
def test_a_broadcast(steps: list[Step], is_given: bool, tmp_path: Path) -> None:
    advice = broadcast(context_of(steps, tmp_path)[0])
    assert (advice is not None) == is_given


def test_pairs_in_16_bits(tmp_path: Path) -> None:
    assert broadcast(context_of(regression(), tmp_path, 2)[0])
    assert differences(context_of(kernel(), tmp_path, 2)[0])[1] == 2 * 256 * 512
    assert distance_chunks(context_of(distances(), tmp_path, 2)[0])
    assert triplets(context_of(mined(), tmp_path, 2)[0]).any()


def test_all_that_is_as_large_after_a_broadcast_is_of_it(tmp_path: Path) -> None:
    steps = [("before", N * N, (DATA,)), ("-before", 0, (DATA,)), *regression(), ("gradient", N * N, ())]
    context, names = context_of(steps, tmp_path)
    advice = broadcast(context)
    assert advice is not None
    assert found(advice.mask, names) == {"difference", "square", "gradient"}


def test_squares_that_are_older_than_their_vectors_are_no_broadcast(tmp_path: Path) -> None:
    assert broadcast(context_of([("kept", N * N, (DATA,)), *regression()], tmp_path)[0]) is None


def kernel(
    *, n: int = 256, m: int = 512, d: int = 64, sums: int | None = None, beside: tuple[int, ...] = (),
    scale: bool | None = None, by: Frame = LOSS, after: int = 0, operands: int = 2,
) -> list[Step]:  # fmt: skip
    """All differences of n and m vectors of d numbers, and what is computed from them: their squares and sums. The
    first two as large may be the difference and what it is divided by, of ``scale`` numbers for each dimension.
    """
    steps: list[Step] = [(f"beside {number}", numbers, (DATA,)) for number, numbers in enumerate(beside)]
    steps += [("x", n * d, (MODEL,)), ("y", m * d, (MODEL,))][:operands]
    steps += [("scale", d, (MODEL,))] if scale else []
    steps += [("difference", n * m * d, (by,))]
    steps += [("scaled", n * m * d, (by,)), ("-difference", 0, (by,))] if scale is not None else []
    steps += [("square", n * m * d, (by,)), ("sums", n * m if sums is None else sums, (LOSS,))]
    steps += [(f"after {number}", n * m * d, (by,)) for number in range(after)]
    return steps + [(f"loss {number}", 1024, (LOSS,)) for number in range(3)]


@pytest.mark.parametrize(
    ("steps", "is_found"),
    [
        (kernel(), True),
        (kernel(n=2048, m=2048, d=8), True),
        (kernel(n=2048, m=2048, d=7), False),
        (kernel(n=64, m=512, d=4096), True),
        (kernel(n=64, m=512, d=4097), False),
        (kernel(n=63), False),
        (kernel(m=384, operands=1), False),
        (kernel(sums=256 * 512 + 1), False),  # no sums of them
        (kernel(beside=(256 * 512 * 64,)), False),  # computed from something as large
        (kernel(beside=(256 * 512 * 64 // 2,)), False),
        (kernel(beside=(256 * 512 * 64 * 2,)), False),
        (kernel(by=MODEL), False),  # another function sums
        (kernel(scale=True), True),
        (kernel(scale=False), False),
        (kernel(after=1), False),  # x² - 2xy + y²
        (kernel(after=2), True),
    ],
)
def test_differences_of_all_pairs(steps: list[Step], is_found: bool, tmp_path: Path) -> None:
    context, names = context_of(steps, tmp_path)
    mask, output = differences(context)
    assert found(mask, names) <= {
        name for name in names if name.startswith(("difference", "scaled", "square", "after"))
    }
    assert (output == 4 * next(numbers for name, numbers, _ in steps if name == "sums")) == is_found
    assert bool(found(mask, names)) == is_found


def distances(
    *, n: int = 256, m: int = 32_768, d: int = 64, norms: tuple[int, ...] | None = None, terms: int = 2,
    by: Frame = MODEL, kept: bool = False, index: int = 0,
) -> list[Step]:  # fmt: skip
    """``x² + y² - 2xy`` of n and m vectors of d numbers."""
    steps: list[Step] = [("x", n * d, (DATA,)), ("y", m * d, (DATA,))]
    steps += [
        (f"norm {number}", numbers, (MODEL,)) for number, numbers in enumerate((n, m) if norms is None else norms)
    ]
    for term in range(terms):
        steps.append((f"term {term}", n * m, (by,)))
        steps += [(f"-term {term - 1}", 0, (by,))] if term and not kept else []
    steps += [] if kept else [(f"-term {terms - 1}", 0, (by,))]
    steps += [("index", index, (by,))] if index else []
    steps += [(f"nearest {number}", 1, (DATA,)) for number in range(10)]
    return steps


@pytest.mark.parametrize(
    ("steps", "is_given"),
    [
        (distances(), True),
        (distances(d=8), True),
        (distances(d=7), False),
        (distances(d=4096), True),
        (distances(d=4097), False),
        (distances(n=64, m=1 << 16), True),
        (distances(n=63, m=1 << 16), False),
        (distances(n=1 << 16, m=63), False),
        (distances(norms=(256,)), False),
        (distances(norms=(32_768,)), False),
        (distances(terms=1), False),
        (distances(kept=True), False),  # activations that stay are of a layer
        (distances(by=FORWARD[0]), False),  # of a layer, too
        (distances(by=FORWARD[0], index=2 * 256), True),  # the index of the nearest, in 64 bits
        (distances(by=FORWARD[0], index=2 * 257), False),
    ],
)
def test_distances_to_all_others(steps: list[Step], is_given: bool, tmp_path: Path) -> None:
    context, names = context_of(steps, tmp_path)
    advice = distance_chunks(context)
    assert (advice is not None) == is_given
    if advice is not None:
        assert found(advice.mask, names) == {name for name in names if name.startswith("term")}
        assert advice.fraction == 7 / 8


def mined(
    *, n: int = 300, cubes: int = 2, pairs: int = 2, by: tuple[Frame, ...] = (LOSS,), kind: Frame = LOSS
) -> list[Step]:
    """``x[:, :, None] - x[:, None]`` of the distances of n to all n."""
    steps: list[Step] = [(f"pairs {number}", n**2, (kind,)) for number in range(pairs)]
    return steps + [(f"triplets {number}", n**3, by) for number in range(cubes)]


TRIPLET = (("/app/loss.py", "batch_TripletLoss"),)


@pytest.mark.parametrize(
    ("steps", "is_found"),
    [
        (mined(), True),
        (mined(pairs=1), False),
        (mined(n=256), False),  # a product of many things
        (mined(n=256, by=TRIPLET), True),
        (mined(by=FORWARD), False),  # scores of attention
        (mined(by=(TRIPLET[0], *FORWARD)), True),
        (mined(kind=(TORCH + "optim/adam.py", "step")), False),  # weights
        ([*mined(), ("layer", 300**3, (LINEAR, *FORWARD))], False),
        ([("pairs", 1, (LOSS,)), *mined(pairs=1)], False),
    ],
)
def test_triplets(steps: list[Step], is_found: bool, tmp_path: Path) -> None:
    context, names = context_of(steps, tmp_path)
    expected = {name for name in names if name.startswith("triplets")} if is_found else set[str]()
    assert found(triplets(context), names) == expected
