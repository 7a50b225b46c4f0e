"""Batches that wait, data and checkpoints on the device, weights that are computed or copied, evaluations: programs of
a few events, at each limit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tagged import KIB, context_of, marks

from snapreport.findings import (
    computed_weights,
    evaluation_batch,
    loaded_checkpoint,
    prefetched_batches,
    resident_data,
    router_masks,
    untrained_gradients,
    weight_copies,
)


def queue(first: int, steps: int, frees: list[int] | None = None, what: str = "d:i1024") -> str:
    """A loader that makes some batches, of which each step frees one."""
    order = list(range(steps)) if frees is None else frees
    return f"{what} " * first + " ".join(f"f:a8 b:g8 d-{number}" for number in order[:steps])


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (queue(8, 8), 8),
        (queue(6, 6), 6),
        (queue(5, 5) + " f:a8 b:g8", 0),  # five wait
        (queue(6, 5), 0),  # five steps
        (queue(8, 8, what="d:i1023"), 0),
        (queue(8, 8, what="d:t1024"), 0),
        (queue(8, 8, what="f2:i1024"), 0),
        (queue(8, 8, frees=[7, 6, 5, 4, 3, 2, 1, 0]), 0),
        (queue(12, 12, frees=[0, 1, 3, 2, 4, 5, 6, 7, 8, 9, 10, 11]), 12),  # nearly all
        (queue(8, 0) + "f:a8 b:g8 " * 8, 0),  # a data set
        (queue(8, 0) + "f:a8 b:g8 " * 8 + " ".join(f"d-{number}" for number in range(8)), 0),
        (queue(12, 8), 0),  # four are never used
    ],
)
def test_batches_that_wait(program: str, count: int, tmp_path: Path) -> None:
    assert len(prefetched_batches._queued(context_of(program, tmp_path))) == count


def test_where_forward_passes_begin(tmp_path: Path) -> None:
    context = context_of("d:i8 f:a8 f:a8 b:t1 f:a8 f2:a8", tmp_path)
    assert evaluation_batch.pass_begins(context).tolist() == [0, 1, 1, 3, 4, 4]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("f:a64 f2:a64 d-0 d-1 d:i8 f3:a64 b:t8 b-3 o:t8", "xx...."),
        ("f:a64 f2:a64 d-0 d:i8 d-1 f3:a64 b:t8 b-3 o:t8", "xx...."),
        ("f:a64 f2:a64 d-0 d:i8 f3:a64 d-1 b:t8 b-3 o:t8", "x....."),
        ("f:a64 f2:a64 d-0 d-1 f3:a64 b:t8 b-2 o:t8", "....."),  # of one pass
        ("f:a64 f2:a64 d-0 d-1 d:i8 f3:a64 b:t8 o:t8", "xx...."),
        ("f:a64 d:i8 f3:a64 b:t8 b-2 o:t8", "....."),  # alive at the end
        ("f:a64 d-0 d:i8 d-1 f3:a64 b:t8 b-2 o:t8", "xx..."),
        ("f:a64 d:i8 b:t8 b-0 f3:a64 b:t8 b-3 o:t8", "......"),
    ],
)
def test_passes_that_no_backward_pass_follows(program: str, found: str, tmp_path: Path) -> None:
    assert marks(evaluation_batch.evaluated(context_of(program, tmp_path))) == found


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("d:i64 " + "d2:i16 f:a8 " * 4, [0]),
        ("d:i64 " + "d2:i16 f:a8 " * 2, [0]),
        ("d:i64 " + "d2:i16 f:a8 ", []),  # no batch after the first pass
        ("d:i32 " + "d2:i16 f:a8 " * 4, [0]),
        ("d:i31 " + "d2:i16 f:a8 " * 4, []),
        ("d:u64 " + "d2:i16 f:a8 " * 4, []),
        ("d:i64 " + "d2:i16 f:a8 " * 3 + "d-0 " + "d2:i16 f:a8 ", []),
        ("d:i64 " + "d2:i16 f:a8 " * 4 + "d-0", [0]),
        ("d2:i16 f:a8 d:i64 " + "d2:i16 f:a8 " * 4, []),
        ("d:i64 " + "d2:i16 " * 4, []),
    ],
)
def test_data_on_the_device(program: str, found: list[int], tmp_path: Path) -> None:
    assert np.flatnonzero(resident_data.resident_data(context_of(program, tmp_path))).tolist() == found


LAYER = "f1:a64 f1:a8 "


@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        ("w:p64 " * 4 + LAYER * 4 + "f2:a8", [64]),
        ("w:p64 " * 3 + LAYER * 3 + "f2:a8", []),  # three
        ("w:p64 " * 4 + LAYER * 3 + "f2:a8", []),
        ("w:p64 " * 4 + LAYER * 8 + "f2:a8", [64]),  # computed again
        ("w:p64 " * 4 + LAYER * 12 + "f2:a8", []),
        ("w:p64 " * 4 + LAYER * 4 + "b:t8 " + LAYER * 4 + "f2:a8", [64]),
        ("w:p64 " * 4 + "d:i64 " + LAYER * 4 + "f2:a8", []),
        ("w:p64 " * 4 + LAYER.replace("f1:a8", "f2:a8") * 4 + "f2:a8", []),  # another function's output
        ("w:p64 " * 4 + "f1:a8 " + LAYER * 4 + "f2:a8", []),  # it makes something before
        ("w:p64 " * 4 + LAYER.replace("64", "128") * 4 + "f2:a8", [128]),
        ("w:p64 " * 4 + LAYER.replace("64", "256") * 4 + "f2:a8", [256]),
        ("w:p64 " * 4 + LAYER.replace("64", "192") * 4 + "f2:a8", []),
        ("w:p64 " * 4 + "lin:a64 lin:a8 " * 4 + "f2:a8", []),
        ("w:p63 " * 4 + LAYER.replace("64", "63") * 4 + "f2:a8", []),
        ("w:p64 " * 4 + "f1:a64 " * 4, []),
        # A function of its own unpacks a smaller type.
        ("w:p64 " * 4 + "f1:a128 f1:a256 f1:a256 f2:a8 " * 4, [128, 256]),
        ("w:p64 " * 4 + "f1:a128 f1:a256 f2:a8 " * 3, []),
        ("w:p64 " * 4 + "f1:a128 f1:a256 f2:a8 " * 4 + "f1:a264", [128]),  # it makes something larger
        ("w:p64 " * 4 + "f2:a128 f1:a256 f2:a8 " * 4, []),
        ("w:p64 " * 4 + "f1:a128 f1:a256 f1:a8 " * 4 + "f2:a8", []),
    ],
)
def test_weights_that_passes_compute(program: str, sizes: list[int], tmp_path: Path) -> None:
    found = computed_weights.computed_weights(context_of(program, tmp_path))
    assert (found // KIB).tolist() == sizes


@pytest.mark.parametrize(
    ("loads", "found"),
    [
        ("f1:a64 f1:a96", "xx"),
        ("f1:a64 f1:a64", ".."),  # of one size, as what it computes
        ("f1:a64 f1:a96 f1:a128", "..."),  # one of them is no parameter's
        ("f1:a64 f1:a96 f1:a8", "xx."),  # small ones may be anything
        ("f1:a64 f2:a96", ".."),
        ("f1:a64 f1:a96 f:a8 b:g64 b-14", "...."),  # a program that trains
    ],
)
def test_weights_that_each_pass_loads(loads: str, found: str, tmp_path: Path) -> None:
    passes = " ".join(f"f:a8 f-{number}" for number in range(2, 12))
    context = context_of(f"w:p64 w:p96 {passes} {loads}", tmp_path)
    assert marks(computed_weights.loaded_weights(context))[12:] == found


ROUTED = "f1:t2048 f1:a1024 f-{} f1:a3072 f1:a512 "


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (ROUTED.format(0) + ROUTED.format(4) + "f2:a1024", "xxx.xxx.."),
        (ROUTED.format(0) + "f2:a1024", "....."),  # one layer
        ("f2:a2048 " + ROUTED.format(1) + ROUTED.format(5), "." * 9),  # of a norm in 32 bits, with a gradient
        ((ROUTED.format(0) + ROUTED.format(4)).replace("2048", "2046").replace("1024", "1023"), "." * 8),
        ((ROUTED.format(0) + ROUTED.format(4)).replace("f1", "l"), "." * 8),  # in no module
        ("f1:t2048 f1:a1024 f1:a8 f-0 " * 2, "." * 6),
    ],
)
def test_masks_of_a_router(program: str, found: str, tmp_path: Path) -> None:
    if program.count("f-0") == 2:
        program = "f1:t2048 f1:a1024 f1:a8 f-0 f1:t2048 f1:a1024 f1:a8 f-3"
    assert marks(router_masks.router_masks(context_of(program, tmp_path))) == found


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("w:p64 " * 4 + "c:u64 " * 4, "....xxxx"),
        ("w:p64 " * 4 + "c:u64 " * 5, "....xxxx."),
        ("w:p64 " * 3 + "c:u64 " * 4, ""),
        ("w:p64 w:p64 w:p32 w:p32 c:u32 c:u64 c:u32 c:u64", "....xxxx"),
        ("w:p64 w:p64 w:p32 w:p33 c:u32 c:u64 c:u32 c:u64", ""),
        ("w:p64 " * 4 + "c:s64 " * 4, ""),
        ("c:p64 " * 4 + "c:u64 " * 4, ""),
        ("w:p64 " * 4 + "c:u64 " * 4 + "d-7 d:t4096", ""),
    ],
)
def test_a_checkpoint_beside_the_model(program: str, found: str, tmp_path: Path) -> None:
    advice = loaded_checkpoint.loaded_checkpoint(context_of(program, tmp_path))
    assert marks(advice and advice.mask) == found


@pytest.mark.parametrize(
    ("program", "reaches"),
    [
        ("w:p64 f:a8 b:g16 d-2 f:a8 b:g16 d-4", True),
        ("w:p64 f:a8 b:g16 b-2 f:a8 b:g16 b-4", True),  # the stacks of the frees are those of the allocations
        ("w:p64 f:a8 b:g16 o-2 f:a8 b:g16 o-4", False),
        ("w:p16 f:a8 b:g16 d-2 f:a8 b:g16 d-4", False),
        ("w:p64 f:a8 b:g16 d-2 f:a8 b:g16", False),  # half of the passes
        ("w:p64 f:a8 b:g16 d-2 f:a8 b:g16 d-4 f:a8 b:t8", True),
        ("w:p64 f:a8 b:t16 d-2 f:a8 b:t16 d-4", False),
    ],
)
def test_gradients_that_reach_inputs(program: str, reaches: bool, tmp_path: Path) -> None:
    assert untrained_gradients.reaches_inputs(context_of(program, tmp_path)) is reaches


MODEL = "w:p64 w:p64 w:p32 w:p32 f:a8 b:g8 o:s64 o:s32 "
COPY, STEP = "d:u64 d:u64 d:u32 d:u32 ", "f:a8 b:g8 o:t8 "


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (MODEL + (COPY + STEP) * 3, 12),
        (MODEL.replace("o:s64 o:s32", "o:t64 o:t32") + (COPY + STEP) * 3, 0),  # no state
        (MODEL + COPY.replace("d:u32 d:u32", "d:u64") * 1 + STEP, 0),
        (MODEL + (COPY.replace("u", "i") + STEP) * 3, 0),
        (MODEL + (COPY.replace("d:", "f2:") + STEP) * 3, 0),
        (MODEL + (COPY + STEP) * 2 + COPY.replace("u32 d:u32", "u32 d:u33") + STEP, 0),
        (MODEL + (COPY + STEP) * 2 + "o:s16 " + COPY + STEP, 0),  # a copy that is trained
    ],
)
def test_copies_of_weights(program: str, count: int, tmp_path: Path) -> None:
    assert len(weight_copies.copied_weights(context_of(program, tmp_path))) == count


@pytest.mark.parametrize(("second", "count"), [("t", 0), ("g", 16)])
def test_updates_of_an_optimizer_are_no_copies_of_an_earlier_step(second: str, count: int, tmp_path: Path) -> None:
    """They are replaced by those of the next step, or of the next but one: two backward passes are one step, of which
    the first makes gradients, or each is one.
    """
    steps = ""
    for number in range(4):
        replaced = "".join(f"d-{8 * number + i} " for i in range(4, 8)) if number else ""
        steps += f"f:a8 b:g8 f:a8 b:{second}8 " + COPY + replaced
    assert len(weight_copies.copied_weights(context_of(MODEL + steps, tmp_path))) == count


def test_copies_that_leak_have_the_remedy_of_the_leak(tmp_path: Path) -> None:
    context = context_of(MODEL + (COPY + STEP) * 3, tmp_path)
    context.__dict__["outlives_loop"] = context.category("unknown")
    assert len(weight_copies.copied_weights(context)) == 0
