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


def test_what_follows_logits_is_a_few_of_their_rows() -> None:
    """Neither they in another type nor others of their size."""
    size = np.array([100, 7, 50, 3, 60, 30, 100, 1, 1, 1, 1, 50])
    linear, function = np.zeros(12, bool), np.zeros(12, np.int64)
    linear[[0, 1]] = True
    # 100: half of it follows; 60: 30 does; the second 100 is followed by few; the last has nothing after it.
    found = full_logits._few_follow(size, linear, function)
    plain = []
    for at in range(12):
        after = range(at + 1, min(at + 5, 12))
        few = [size[n] <= size[at] / 2 and not linear[n] for n in after]
        plain.append(any(few) and not any(size[n] in (size[at], size[at] / 2, 2 * size[at]) for n in after))
    assert found.tolist() == plain and any(plain) and not all(plain)
    assert not full_logits._few_follow(np.array([9, 1]), np.zeros(2, bool), np.array([0, 1])).any()
    assert full_logits._few_follow(np.array([9, 1]), np.array([True, False]), np.array([0, 1])).tolist() == [
        True,
        False,
    ]
