"""One-hot vectors and logits of which few rows are used, in programs of a few events, at each limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tagged import context_of, marks

from snapreport.findings import full_logits, one_hot

LOGITS = "f:a4096 "
STEP = "b:g512 o:s64"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (LOGITS + "l:u8192 m:u4096 m:t4096 " + STEP, ".xxx.."),
        (LOGITS + "l:u8192 l:t4096 " + STEP, ".xx.."),  # read as it is
        (LOGITS + "l:u16384 l:u4096 " + STEP, ".xx.."),  # a type of 16 bits
        (LOGITS + "l:u8192 d:t4096 " + STEP, ""),  # another function
        ("f:a2048 l:u8192 l:u4096 " + STEP, ""),  # no logits
        (LOGITS + "-0 l:u8192 l:u4096 " + STEP, ""),
        ("f:g4096 l:u8192 l:u4096 " + STEP, ""),
        ("f:a1024 l:u2048 l:u1024 " + STEP, ".xx.."),
        ("f:a1023 l:u2046 l:u1023 " + STEP, ""),
        (LOGITS + "l:u8192 l:u4096 b:t8192 " + STEP, ""),  # it has a gradient
        (LOGITS + "l:u8192 d:t1 d:t1 d:t1 d:t1 d:t1 l:u4096 " + STEP, ".x.....x.."),
        (LOGITS + "l:u8192 d:t1 d:t1 d:t1 d:t1 d:t1 d:t1 l:u4096 " + STEP, ""),
        ((LOGITS + "l:u8192 m:u4096 ") * 2 + STEP, ".xx.xx.."),
        ((LOGITS + "l:u8192 m:u4096 ") * 3 + STEP, ""),  # in each layer
        (LOGITS + "f2:u8192 f2:u4096 -1 f2:t4096 " + STEP, ".xxx.."),  # in a module
        (LOGITS + "f2:u8192 f2:u4096 f2:t4096 " + STEP, ""),
        (LOGITS + "f2:u8192 f2:u4096 d:t1 -1 " + STEP, ""),
        (LOGITS + "l:u8192 l:u4096 l:t4096", ""),  # nothing trains
    ],
)
def test_one_hot_vectors(program: str, found: str, tmp_path: Path) -> None:
    advice = one_hot.one_hot(context_of(program, tmp_path))
    assert marks(advice and advice.mask) == found


SMOOTHED = "f:a4096 l:a4096 l:u4096 kl:a4096 kl:t64 b:g2048 "


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (SMOOTHED + "b-1 d-2", "..xx.."),
        (SMOOTHED + "b-1 b-2", "......"),  # two that a backward pass needs
        (SMOOTHED + "d-1 d-2", "......"),
        ("f:a4096 " + SMOOTHED + "b-2 d-3", "......."),  # a teacher's logits
        (SMOOTHED.replace("kl:t64", "d-2 kl:t64") + "b-1", "......"),
        (SMOOTHED.replace("l:u4096 ", "l:u4095 ") + "b-1 d-2", "......"),
        (SMOOTHED + "b-1 d-2 " + SMOOTHED + "b-7 d-8", "..xx....xx.."),
    ],
)
def test_smoothed_labels(program: str, found: str, tmp_path: Path) -> None:
    assert marks(one_hot._smoothed_labels(context_of(program, tmp_path))) == found


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("d:i1 l:u2048 l:u2048 l:u4096 l:t2048 -3", ".xxxx"),
        ("d:i1 l:u2048 l:u2048 l:u4096 l:t1024 -3", ".xxxx"),
        ("d:i1 l:u2048 l:u2048 l:u4096 l:t2048 d:t1", ""),  # it is read again
        ("d:i1 l:u4096 l:u4096 l:t2048 -2", ""),  # one part
        ("d:i1 l:u2048 l:u2047 l:u4096 l:t2048 -3", ""),
        ("d:i1 l:u2048 d:u2048 l:u4096 l:t2048 -3", ""),
        ("d:g1 l:u2048 l:u2048 l:u4096 l:t2048 -3", ""),  # no indices
        ("d:i3 l:u2048 l:u2048 l:u4096 l:t2048 -3", ""),
        ("d:i2048 l:u2048 l:u2048 l:u4096 l:t2048 -3", ".xxxx"),  # all columns in one tensor
        ("d:i4096 l:u2048 l:u2048 l:u4096 l:t2048 -3", ""),
        ("d:i1 l:u1024 l:u1024 l:u2048 l:t1024 -3", ".xxxx"),
        ("d:i1 l:u1023 l:u1023 l:u2046 l:t1023 -3", ""),
    ],
)
def test_one_hot_vectors_of_several_columns(program: str, found: str, tmp_path: Path) -> None:
    advice = one_hot.one_hot_inputs(context_of(program, tmp_path))
    assert marks(advice and advice.mask) == found


@pytest.mark.parametrize("seed", range(3))
def test_what_follows_logits_is_a_few_of_their_rows(seed: int) -> None:
    """Among the next four, of the function's own lines or after a linear layer; and neither they in another type nor
    others of their size.
    """
    rng = np.random.default_rng(seed)
    size, function = rng.integers(1, 60, 80), rng.integers(0, 2, 80)
    size[rng.random(80) < 0.1] *= 2
    linear = rng.random(80) < 0.3
    plain = []
    for at in range(80):
        after = range(at + 1, min(at + 5, 80))
        few = [not linear[n] and (linear[at] or function[n] == function[at]) and 2 * size[n] <= size[at] for n in after]
        plain.append(any(few) and not any(size[n] in (size[at], size[at] / 2, 2 * size[at]) for n in after))
    assert full_logits._few_follow(size, linear, function).tolist() == plain and any(plain)
    assert not full_logits._few_follow(size[:1], linear[:1], function[:1]).any()


@pytest.mark.parametrize(
    ("program", "row"),
    [
        # 262,144 words of width 64, 1,024 positions.
        ("w:p65536 f:a256 lin:a1048576", 262_144 * 4),
        ("w:p65536 f:a256 f:t1 lin:a1048576", 262_144 * 4),
        ("w:p65536 f:a256 f:a8 lin:a1048576", 262_144 * 4),  # statistics
        ("w:p65536 f:a256 f:a16500 lin:a1048576", 0),  # another layer's
        ("w:p65536 f:a256 -1 lin:a1048576", 0),
        ("w:p65536 f:i256 lin:a1048576", 0),
        ("f:a256 lin:a1048576", 0),
        ("w:p65536 f:a256 lin:a1048575", 0),
        ("w:p65536 f:a256 lin:a524288", 262_144 * 2),  # 128 wide, in 16 bits
        # Eight words per unit of width are too few: 512 words of width 64 and 576.
        ("w:p8192 f:a8192 lin:a8192", 0),
    ],
)
def test_bytes_of_the_logits_of_one_position(program: str, row: int, tmp_path: Path) -> None:
    context = context_of(program, tmp_path)
    last = len(context.size) - 1
    assert full_logits.row_of_logits(context, last, int(context.size[last])) == row
