"""Programs whose batch cannot be halved, in a few events each, whose categories the test itself gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tagged import context_of, marks

from snapreport.findings import batch_limits
from snapreport.findings.advice_activations import _accumulation, batch_sized

STEP = "f:a64 f:a64 b:g64 "


@pytest.mark.parametrize(
    ("program", "accumulates"),
    [
        (STEP + "o:s64 " + STEP + "o:t8 " + STEP + "o:t8", False),
        (STEP * 2 + "o:s64 " + STEP * 2 + "o:t8 " + STEP * 2 + "o:t8", True),
        (STEP * 2 + "o:s64 " + STEP * 2, False),  # the first step shows nothing: a scaler may have skipped one
        (STEP * 2 + "o:t8 " + STEP * 2, True),
        (STEP + "o:t8 " + STEP * 2, False),
        (STEP * 2 + "o:s64 " + STEP * 1 + "o:t8 " + STEP + "o:t8", False),
        # Gradients that every second pass makes, but for a twentieth.
        ("f:a64 b:g64 f:a64 b:t64 " * 3, True),
        ("f:a64 b:g40 f:a64 b:g2 " * 3, True),
        ("f:a64 b:g40 f:a64 b:g3 " * 3, False),
    ],
)
def test_accumulation(program: str, accumulates: bool, tmp_path: Path) -> None:
    assert batch_limits._accumulates(context_of(program, tmp_path)) == accumulates


@pytest.mark.parametrize(
    ("program", "is_single"),
    [
        ("w:p64 w:p4 f:a4 lin:a4", True),
        ("w:p64 w:p4 f:a8 lin:a8", False),  # a batch of two
        ("w:p64 w:p4 lin:a8 lin:a4", True),  # the last layer's
        ("w:p66 w:p4 lin:a4", False),  # no weight of this bias
        ("w:p4 w:p4 lin:a4", False),
        ("w:p64 w:p4 f:a4", False),
        ("w:p64 w:p4 w:p64 w:p2 lin:a4", False),  # a part of what it makes
        ("w:p64 w:p4 w:p64 w:p3 lin:a4", True),
        ("w:p64 w:p4 w:p64 w:p4 lin:a4", True),
    ],
)
def test_a_batch_of_one(program: str, is_single: bool, tmp_path: Path) -> None:
    assert batch_limits._is_single(context_of(program, tmp_path)) == is_single


@pytest.mark.parametrize(
    ("program", "is_optimized"),
    [
        ("w:p64 d:i32 f:a64 b:g32 o:s32", True),
        ("w:p64 d:i32 f:a64 b:g64 o:s32", False),
        ("w:p32 d:i32 f:a64 b:g32 o:s32", False),
        ("w:p64 d:i32 f:a64 b:g32 b:g16 o:s32", False),
        ("d:i32 f:a64 b:g32 o:s32", False),
        ("w:p64 f:a64 d:i32 b:g32 o:s32", False),  # no input of the first pass
        ("w:p64 d:i32 f:a64 o:s32", False),
        ("w:p64 d:i32 f:a64 f:a64", False),
    ],
)
def test_an_image_is_trained(program: str, is_optimized: bool, tmp_path: Path) -> None:
    assert batch_limits._is_optimized(context_of(program, tmp_path)) == is_optimized


DIFFERENTIATED = "f:a64 b:g64 o:t8 ob:t64 o:t8 "


@pytest.mark.parametrize(
    ("program", "differentiates"),
    [
        (DIFFERENTIATED * 2, True),
        (DIFFERENTIATED, False),
        ("f:a64 b:g64 o:t8 b:t64 o:t8 " * 2, False),  # a second loss's backward pass
        ("f:a64 b:g64 o:t8 f:a8 ob:t64 o:t8 " * 2, False),
        ("f:a64 b:g64 o:t8 " * 3, False),
        ("o:t8 ob:t64 o:t8 f:a8 " * 3, False),
    ],
)
def test_optimizers_that_differentiate_gradients(program: str, differentiates: bool, tmp_path: Path) -> None:
    assert batch_limits._optimizer_differentiates(context_of(program, tmp_path)) == differentiates


NODES = "d:i64 d:i96 d:i96 "
MESSAGES = "f:a64 f:a96 f:a96 f:a64 "


@pytest.mark.parametrize(
    ("program", "is_graph"),
    [
        (NODES + MESSAGES * 2, True),
        (NODES + MESSAGES, False),
        (NODES + MESSAGES * 2 + "b:g64 " + MESSAGES * 2, True),
        (NODES + MESSAGES * 2 + "b:g64 " + MESSAGES, False),
        (NODES + MESSAGES * 2 + "d:i64 " + MESSAGES, False),  # another batch
        ("d:i64 d:i96 " + MESSAGES * 2, False),  # edges have two ends
        (NODES + "f:a128 f:a192 f:a192 f:a128 " * 2, True),
        (NODES + "f:a128 f:a191 f:a191 f:a128 " * 2, False),
        (NODES + "f:a96 f:a96 f:a64 " * 2, False),
        ("d:i32 d:i48 d:i48 f:a64 f:a96 f:a96 f:a64 f:a64 f:a96 f:a96 f:a64 ", False),  # smaller than 64 KiB
        (NODES + "f:a32 f:a48 f:a48 f:a32 " * 2, False),
        (NODES + "d:i96 " + MESSAGES + "-3 " + MESSAGES, True),
        (NODES + MESSAGES + "-2 " + MESSAGES, False),  # freed between
        (NODES, False),
        # Libraries of graphs need no messages.
        ("d:i64 g:a96 g:a96 ", True),
        ("d:i63 g:a96 g:a96 ", False),
        ("d:u64 g:a96 g:a96 ", True),  # one step does not show what is an input
        ("d:u64 g:a96 d:u64 g:a96 ", False),
        ("d:i64 g:a96 -0 g:a96 ", False),
    ],
)
def test_a_graph_has_no_batch(program: str, is_graph: bool, tmp_path: Path) -> None:
    assert batch_limits._is_one_graph(context_of(program, tmp_path)) == is_graph


@pytest.mark.parametrize(
    ("program", "grows"),
    [
        # Updates that an optimizer step by hand computes.
        ("w:p64 f:a8 b:g64 l:u64 -3 w:p2 f:a8 b:g64 l:u64 -7", ".x...x.."),
        ("w:p64 f:a8 b:g64 l:u63 -3 w:p2 f:a8 b:g64 l:u63 -7", ".x.x.x.x"),  # no weight is as large
        ("w:p64 f:a8 l:u64 b:g64 -2 w:p2 f:a8 l:u64 b:g64 -6", ".xx..xx."),  # of the loss
    ],
)
def test_what_grows_with_the_batch(program: str, grows: str, tmp_path: Path) -> None:
    assert marks(batch_sized(context_of(program, tmp_path))) == grows


@pytest.mark.parametrize(("samples", "at_once", "grows"), [(6, 1, 1), (5, 1, 6), (3, 2, 1), (2, 3, 7), (3, 3, 10)])
def test_a_loss_that_loops_over_samples(samples: int, at_once: int, grows: int, tmp_path: Path) -> None:
    made = range(1, 1 + samples * at_once)
    loops = (made[begin : begin + at_once] for begin in range(0, len(made), at_once))
    loss = (" ".join(["l:u16"] * at_once + [f"-{one}" for one in loop]) for loop in loops)
    mask = batch_sized(context_of(" ".join(["f:a8", *loss, "b:g1"]), tmp_path))
    assert mask.sum() == grows


PASS = "f:a64 f-1 f:a64 f-2 f:a64 f-3 f:a64 f-4 f:a64 f-5 f:a64 f-6 f:a64 f-7 f:a64 f-8 f:a64 f-9 f:a64 f-10 "


@pytest.mark.parametrize(
    ("program", "rule", "grows"),
    [
        ("w:p32 " + PASS + "d:i64 d:u16 d:u32 f:a80 d-11 d-12 d-13", "inference-batch", "xx.x"),
        ("w:p32 " + PASS + "b:g32 d:i64 d:u16 d:u32 f:a80 b:g32 d-12 d-13 d-14 b-15", "accumulation", "xx.x."),
    ],
)
def test_half_a_batch(program: str, rule: str, grows: str, tmp_path: Path) -> None:
    """Of a program that infers it needs no gradients. What is as large as a weight may be of an update by hand."""
    advice = _accumulation(context_of(program, tmp_path))
    assert advice and advice.rule == rule
    assert marks(advice.mask)[-len(grows) :] == grows


@pytest.mark.parametrize(
    ("last", "is_said"),
    [
        ("f:a25 b:g32 d:t230 -5 -4 b-3", False),
        ("f:a26 b:g32 d:t230 -5 -4 b-3", True),
        ("f:a25 d:t230 -4 b:g32 b-3", True),  # of its loss
    ],
)
def test_what_no_pass_computes_is_no_batch(last: str, is_said: bool, tmp_path: Path) -> None:
    """A program that trains computes something else at its peak: a tenth of that is of a pass, or one waits for it."""
    assert (_accumulation(context_of(f"w:p32 f:a64 b:g32 b-1 -2 {last}", tmp_path)) is not None) == is_said
