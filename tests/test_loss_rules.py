"""Tensors of a loss, masks that are stored for each sequence, sums of results and numbers of layers, at each limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tagged import context_of, marks

from snapreport.findings import advice_attention, chunked_loss, element_size, expanded_mask, layer_count
from snapreport.findings.batch_pairs import side
from snapreport.findings.joined_results import _born_during


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("f:a16384 f:a8 ce:a16384 b:t16384 b:t8", "x.xx."),
        ("f:a16384 d:t1 d:t1 d:t1 d:t1 ce:a16384 b:t8", "x....x."),  # as large, wherever
        ("f:p16384 ce:a16384 o:t16384", ".x."),
        ("f:a64 ce:a64 b:t64", ".x."),  # less than 8 MiB
        ("f:a8192 ce:a16384 b:t8", "xx."),  # in 16 bits
        ("f:a8192 d:t1 d:t1 d:t1 ce:a16384 b:t8", "x...x."),
        ("f:a8192 d:t1 d:t1 d:t1 d:t1 ce:a16384 b:t8", ".....x."),
        ("ce:a16384 d:t1 d:t1 d:t1 b:t8192 o:t8", "x...x."),
        ("f:a17408 ce:a16384 b:t8", "xx."),  # of 17 positions the loss has 16
        ("f:a17476 ce:a16384 b:t8", ".x."),
        ("f:a8704 ce:a16384 b:t8", "xx."),  # and in 16 bits
        ("f:a16400 ce:a16384 b:t8", "xx."),
        ("f:a16383 ce:a16384 b:t8", ".x."),
        ("f:a32768 ce:a16384 b:t8", ".x."),
        # The engine sums a bias's gradient beside that of the logits.
        ("f:a8 ce:a16384 e:t16384 e:t32768 b:t8", ".xxx."),
        ("f:a8 ce:a16384 e:t16384 e:t32767 b:t8", ".xx.."),
        ("f:a8 ce:a16384 e:t32768 e:t16384 b:t8", ".x.x."),
        ("f:a8 ce:a16384 b:t16384 e:t32768 b:t8", ".xx.."),
        ("f:a16384 bce:a16384 b:t16384 b:t8", "...."),  # of each class alone
    ],
)
def test_tensors_as_large_as_logits(program: str, found: str, tmp_path: Path) -> None:
    context = context_of(program, tmp_path)
    assert marks(chunked_loss._loss_sized(context, chunked_loss._by_name(context))) == found


LOGITS = "w:p65536 f:a256 lin:a1048576 "  # 262,144 words of width 64, 1,024 positions


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (LOGITS + "l:a1048576 l:t4", "...x."),
        (LOGITS + "l:a1048576 l:t2", "...x."),  # in 16 bits
        (LOGITS + "l:a1048576 l:t8", "....."),  # the index of a token that is sampled
        (LOGITS + "lin:a1048576 l:t4", "....."),
        ("w:p65536 f:a32 lin:a1048576 l:a1048576 l:t4", "....."),  # of another layer
    ],
)
def test_one_probability_of_each_position_is_used(program: str, found: str, tmp_path: Path) -> None:
    assert marks(chunked_loss._scores_of_tokens(context_of(program, tmp_path))) == found


def masks(between: int = 16, square: int = 1024, copies: int = 4, line: str = "l", again: int = 0) -> str:
    """A square, which goes, and its copies, which go after so many allocations, four of them of a forward pass."""
    others = " ".join(["d:t1"] * (between - 4) + ["f:a8"] * 4)
    return f"l:u{square} {line}:u{square * copies} d-0 {others} d-1 " + f"l:u{square * copies} d:t1" * again


@pytest.mark.parametrize(
    ("program", "is_one"),
    [
        (masks(), True),
        (masks(between=15), True),  # with itself 16
        (masks(between=14), False),
        (masks(copies=3), False),
        (masks(copies=5), True),
        (masks(line="d"), False),  # of another function
        (masks(square=1023, copies=5), False),  # no square
        (masks(square=961, copies=5), True),
        (masks(square=256, copies=16), True),
        (masks(square=256, copies=15), False),  # less than 4 MiB
        (masks().replace("f:a8", "d:t1", 1), False),  # three of a forward pass
        (masks().replace("d-0 ", ""), False),  # the square stays: nodes, and edges between all of them
        (masks().replace("d-0 d:t1", "d:t1 d-0"), False),
        ("w:p1024 " + masks().replace("d-1", "d-2").replace("d-0", "d-1"), False),  # as large as a weight
        ("d:t4096 " + masks().replace("d-1", "d-2").replace("d-0", "d-1"), False),  # something else is as large
    ],
)
def test_masks_that_are_stored_for_each_sequence(program: str, is_one: bool, tmp_path: Path) -> None:
    context = context_of(program, tmp_path)
    found = expanded_mask.expanded_mask(context)
    assert (found is not None) == is_one
    if found is not None:
        assert found.mask is not None and int(found.mask.sum()) == 1
        copies = max(int(size) for size in context.size) // int(context.size[0])
        assert found.fraction == 1 - 1 / copies and f" {copies} times: " in str(found.why[0])


def test_sides_of_squares() -> None:
    assert [side(size) for size in (4 * 9, 2 * 9, 4 * 9 + 1, 2 * 49, 4 * 16, 0)] == [3, 3, 0, 7, 4, 0]


@pytest.mark.parametrize("seed", range(4))
def test_sums_are_born_while_their_parts_are_alive(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, born = rng.integers(1, 6, 30), rng.choice(60, 30, replace=False)
    sizes, begin = rng.integers(1, 9, 8), rng.integers(0, 50, 8)
    end = begin + rng.integers(0, 12, 8)
    expected = [
        any(one == s and b <= at < e for s, b, e in zip(sizes, begin, end, strict=True))
        for one, at in zip(size, born, strict=True)
    ]
    assert _born_during(size, born, sizes, begin, end).tolist() == expected
    none = np.zeros(0, np.int64)
    assert not _born_during(size, born, none, none, none).any()


@pytest.mark.parametrize(
    ("lines", "cut", "layers"),
    [
        ([(6, 10), (6, 10), (12, 10)], 0, 6),
        ([(6, 10), (4, 10), (4, 5)], 0, 4),
        ([(6, 10), (4, 10)], 0, 6),  # of equals the larger number
        ([(6, 10), (5, 10), (5, 10)], 1, 6),  # a layer that is cut off
        ([(6, 10), (5, 10), (5, 10)], 0, 5),
        ([(6, 200), (3, 1)], 0, 6),  # a line with little decides on nothing
        ([(6, 99), (3, 1)], 0, 3),
        ([(7, 10), (14, 10), (13, 10)], 1, 7),
    ],
)
def test_how_many_layers_lines_agree_on(lines: list[tuple[int, int]], cut: int, layers: int) -> None:
    table = pl.DataFrame(lines, {"n": pl.Int64, "bytes": pl.Int64}, orient="row")
    assert layer_count._of_family(table, cut) == layers


FAMILY = "f1:a64 f2:a64 "


@pytest.mark.parametrize(
    ("program", "passes", "layers"),
    [
        (FAMILY * 4, 1, 4),
        (FAMILY * 2, 1, 0),  # two are none
        (FAMILY * 8, 2, 4),
        (FAMILY * 4 + "f3:a32 f4:a32 " * 5, 1, 9),  # an encoder and a decoder
        (FAMILY * 4 + "f3:a1 f4:a1 " * 3, 1, 4),  # little
        (FAMILY * 4 + "f3:a64 " * 6, 1, 4),  # one line is a loop
        (FAMILY * 4 + "b:t8 " + FAMILY * 3, 1, 3),
        (FAMILY * 200, 1, 200),
        (FAMILY * 201, 1, 0),
    ],
)
def test_layers_of_a_pass(program: str, passes: int, layers: int, tmp_path: Path) -> None:
    context = context_of(program, tmp_path)
    rows = np.flatnonzero(context.category("activation"))
    assert layer_count.layer_count(context, rows, passes) == layers


def test_chunks_of_a_loss(tmp_path: Path) -> None:
    training, scoring = "f:a16384 ce:a16384 b:t16384 b:t8", "f9:t1 f-0 " + "f:a16384 ce:a16384 f-1 d-2"
    found = chunked_loss.chunked_loss(context_of(training, tmp_path))
    assert found is not None and marks(found.mask) == "xxx." and found.fraction == 7 / 8
    assert "gradients of both" in str(found.why[0]) and "With 8 chunks" in str(found.why[0])
    assert chunked_loss.chunked_loss(context_of(scoring, tmp_path)) is None  # too short to tell
    passes = "".join(f"f9:t1 f-{at} " for at in range(12))
    found = chunked_loss.chunked_loss(context_of(passes + "f:a16384 ce:a16384 f-12 d-13", tmp_path))
    assert found is not None and marks(found.mask) == "." * 12 + "xx" and "gradients" not in str(found.why[0])
    assert chunked_loss.chunked_loss(context_of(passes + "f:a16384 d:a16384 f-12 d-13", tmp_path)) is None


def biased(program: str, folder: Path) -> tuple[float, int]:
    """Of scores of 64 KiB, lines ``f1``; a bias is of another line."""
    context = context_of(program, folder)
    scores = np.array([word.startswith("f1:") for word in program.split() if ":" in word])
    return advice_attention._with_biases(context, scores)


def test_a_bias_is_alive_while_several_scores_are_made(tmp_path: Path) -> None:
    calls, after = "f1:a64 " * 4, "b:t8 b-1 b-2 b-3 b-4"
    share, bias = biased(f"d:u64 {calls} d-0 {after}", tmp_path)
    assert bias == 64 << 10 and 0 < share < 1
    three = f"d:u64 {'f1:a64 ' * 3} d-0 f1:a64 {after}"
    later = f"d:u64 {calls} b:t8 b-1 b-2 b-3 b-4 d-0"
    other = f"d:u65 {calls} d-0 {after}"
    for program in (three, later, other, f"d:u64 {calls} {after}"):
        assert biased(program, tmp_path) == (1.0, 0)


def products(element: int, count: int = 4, rows: int = 1024) -> str:
    """Linear layers of widths 256 and 512 with so many bytes a number, and labels of 64 bits."""
    weight, narrow, wide = (256 * 512 * element >> 10, rows * 256 * element >> 10, rows * 512 * element >> 10)
    return f"w:p{weight} d:i{rows * 8 >> 10} " + f"f:a{narrow} lin:a{wide} " * count


def test_sizes_that_show_32_bits(tmp_path: Path) -> None:
    assert element_size._computes_in_32_bits(context_of(products(4), tmp_path))
    assert not element_size._computes_in_32_bits(context_of(products(2), tmp_path))
    assert not element_size._computes_in_32_bits(context_of(products(4, count=3), tmp_path))
    assert not element_size._computes_in_32_bits(context_of(products(4).replace("d:i", "d:t"), tmp_path))
    far = products(4).replace("lin:", "d:t1 d:t1 d:t1 d:t1 d:t1 d:t1 lin:")
    assert not element_size._computes_in_32_bits(context_of(far, tmp_path))
    assert element_size._computes_in_32_bits(context_of(far.replace("d:t1 lin:", "lin:"), tmp_path))
