"""cuBLAS's workspaces on Hopper, which are as large as many tensors: planted, and by PyTorch over the fake driver."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from fake_torch import PROGRAMS, FakeTorch

import snapreport
from snapreport.timeline.workspaces import HOPPER_WORKSPACE, beside_kept, beside_products, kept_workspaces

MIB = 1 << 20
WIDE = HOPPER_WORKSPACE
Row = tuple[str, int, int, int]  # line or thread, bytes, events of allocation and free


def table(rows: list[Row], parameters: frozenset[int] = frozenset()) -> pl.DataFrame:
    """Of lines "a" to "z", "engine", and rows whose numbers are those of parameters."""
    stack = [0 if line == "engine" else ord(line) for line, *_ in rows]
    return pl.DataFrame({
        "size": [row[1] for row in rows], "alloc": [row[2] for row in rows], "free": [row[3] for row in rows],
        "stack": stack, "engine": [row[0] == "engine" for row in rows],
        "is_parameter": [number in parameters for number in range(len(rows))],
        "is_named": [line == "p" for line, *_ in rows],
    })  # fmt: skip


def kept(rows: list[Row], parameters: frozenset[int] = frozenset()) -> list[int]:
    return kept_workspaces(table(rows, parameters)).nonzero()[0].tolist()


# A line of three steps whose result the backward pass frees: the first product allocates a workspace beside it.
STEPS: list[Row] = [("a", 6 * MIB, 10, 40), ("a", WIDE, 12, -1), ("a", 6 * MIB, 110, 140), ("a", 6 * MIB, 210, 240)]


def test_the_first_run_of_a_line_allocates_it() -> None:
    assert kept(STEPS) == [1]
    # Of other sizes, as with batches that differ, and freed when the program ends.
    assert kept([("a", 6 * MIB, 10, 40), ("a", WIDE, 12, 300), ("a", 7 * MIB, 110, 140)]) == [1]
    # Beside one that passes in each step, too.
    assert kept([*STEPS, ("a", WIDE, 112, 141), ("a", WIDE, 212, 241)]) == [1]


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 6 * MIB, 10, 40), ("a", WIDE, 12, 41), *STEPS[2:]],  # freed before the line runs again
        [STEPS[0], *STEPS[2:], ("a", WIDE, 212, -1)],  # in a later step: alive at a failure
        [("a", 6 * MIB, 10, -1), ("a", WIDE, 12, -1)],  # of one step, in which nothing was freed
        [("a", 6 * MIB, 10, 40), ("a", WIDE, 12, -1), ("a", WIDE, 14, -1), *STEPS[2:]],  # two tensors that stay
        [("a", 6 * MIB, 10, 11), ("a", WIDE, 12, -1), ("a", 6 * MIB, 13, 14)],  # of a loop in which all is passing
        [("a", WIDE, 12, -1), ("b", 6 * MIB, 13, 40), ("b", 6 * MIB, 110, 140)],  # a buffer with a line of its own
        [("engine", WIDE, 12, -1), ("engine", 6 * MIB, 13, 40), ("engine", 6 * MIB, 110, 140)],  # no line has one
    ],
)  # fmt: skip
def test_what_only_looks_like_it(rows: list[Row]) -> None:
    assert kept(rows) == []


def test_the_engine_has_its_own() -> None:
    engine: list[Row] = [("engine", 6 * MIB, 30, 50), ("engine", WIDE, 31, -1), ("engine", WIDE, 130, 150)]
    assert kept([*STEPS, *engine]) == [1, 5]
    # A gradient, where a parameter has that size; two that stay are none, either.
    parameter: Row = ("p", WIDE, 1, -1)
    assert kept([*STEPS, *engine, parameter], frozenset({len(STEPS) + len(engine)})) == [1]
    assert kept([*STEPS, *engine, ("engine", WIDE, 33, -1)]) == [1]
    # Freed when the program ends; a temporary of the last pass outlives what the engine allocates, too.
    freed: list[Row] = [("engine", WIDE, 31, 300), ("engine", 6 * MIB, 130, 150), ("engine", 6 * MIB, 230, 250)]
    assert kept([*STEPS, *freed]) == [1, 4]
    passing: list[Row] = [("engine", 6 * MIB, 30, 50), ("engine", 6 * MIB, 130, 150), ("engine", WIDE, 230, 250)]
    assert kept([*STEPS, *passing]) == [1]


def test_one_from_before_the_trace() -> None:
    """Where the recorder named the parameters, what has no name is none of them."""
    named: Row = ("p", 3 * MIB, -1, -1)
    older: list[Row] = [("b", WIDE, -1, -1), ("b", MIB, -1, -1), ("b", 2 * MIB, -1, -1)]
    engine: Row = ("engine", WIDE, 31, -1)
    assert kept([named, *older, engine]) == [1, 2, 4]
    assert kept([*older, engine]) == []
    assert kept([named, *older, ("b", WIDE, -1, -1), engine]) == []


def test_cublaslt_has_one_directly_after() -> None:
    rows: list[Row] = [*STEPS, ("a", MIB, 13, -1), ("a", MIB, 113, -1), ("b", MIB, 14, -1)]
    assert beside_kept(table(rows), kept_workspaces(table(rows))).nonzero()[0].tolist() == [4]
    # It tells a workspace where nothing else does: compiled code has results in lines of their own.
    assert kept([("a", WIDE, 12, -1), ("a", MIB, 14, -1)]) == [0]
    assert kept([("a", WIDE, 12, -1), ("a", 2 * MIB, 14, -1)]) == []


def test_cublaslt_has_one_after_the_first_result_of_another_line() -> None:
    first: list[Row] = [("b", 3 * MIB, 50, 60), ("b", MIB, 52, -1), ("b", 3 * MIB, 150, 160)]
    assert beside_kept(table(STEPS + first), kept_workspaces(table(STEPS + first))).nonzero()[0].tolist() == [5]
    later: Row = ("b", MIB, 152, -1)  # the line keeps one of each run
    once: Row = ("c", MIB, 71, -1)
    for rows in ([*first, later], first[:2], [("b", MIB, 52, -1), first[2]], [*first, ("c", 2 * MIB, 70, 80), once]):
        found = beside_kept(table(STEPS + rows), kept_workspaces(table(STEPS + rows))).nonzero()[0].tolist()
        assert found == ([5] if once in rows else [])


def test_one_beside_each_product() -> None:
    rows: list[Row] = [
        ("a", 6 * MIB, 10, 40), ("a", WIDE, 11, 12), ("b", 9 * MIB, 20, 41), ("b", WIDE, 21, 22),
        ("c", 5 * MIB, 30, 42), ("c", 10 * MIB, 31, 32),  # a temporary of one result
        ("d", 7 * MIB, 33, 43), ("d", WIDE, 34, -1), ("e", 8 * MIB, 35, 44), ("d", WIDE, 36, 37),
    ]  # fmt: skip
    every = (table(rows)[name].to_numpy() for name in ("size", "stack", "alloc", "free"))
    assert beside_products(*every).nonzero()[0].tolist() == [1, 3]


def test_pytorch_on_hopper(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Up to 2.12 a workspace stays, up to 2.11 with cuBLASLt's; no other tensor is taken for it."""
    path = tmp_path / "gpt.pickle"
    done = torch_cuda.run(PROGRAMS / "sized.py", path, "gpt_batch", 8, FAKE_GPU_CC=90)
    assert done.code == 0, done.err
    allocations = snapreport.load(path).allocations(0)
    kept_sizes = allocations.filter((pl.col("free_event") < 0) & (pl.col("alloc_event") >= 0))["size"].to_list()
    found = allocations.filter(pl.col("category") == "workspace")
    assert found["size"].to_list() == kept_sizes  # the program has freed everything else
    release = tuple(map(int, torch_cuda.run("-c", "import torch; print(torch.__version__)").out.split(".")[:2]))
    assert kept_sizes == ([WIDE, MIB] if release < (2, 12) else [WIDE] if release < (2, 13) else [])
