"""Which tensors are of graphs that are dropped, retained or used by nothing, or are results that a loop keeps: programs
of a few events, at each limit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tagged import context_of, marks

from snapreport.findings import (
    advice_activations,
    advice_inference,
    collected_outputs,
    graphs,
    retained_graphs,
    unused_graphs,
)


def frees(first: int, last: int, by: str = "d") -> str:
    return " ".join(f"{by}-{number}" for number in range(first, last + 1)) + " "


RETAINED = "f1:a64 f1:a64 f2:a64 f2:a64 f2:a64 b:t8 o:t8 "


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (RETAINED + frees(0, 4), "xxxxx.."),
        (RETAINED + frees(0, 4, "b"), "......."),
        (RETAINED + frees(0, 4, "f"), "......."),
        (RETAINED.replace("o:t8 ", "") + frees(0, 4), "......"),  # the backward pass may not have ended
        (RETAINED.replace("f2:a64 b", "f2:g64 b") + frees(0, 4), "......."),  # four
        (RETAINED.replace("f1", "f2") + frees(0, 4), "......."),  # of one line
        ("f1:a6400 f1:a6400 f2:a64 f2:a63 f2:a63 b:t8 o:t8 " + frees(0, 4), "xxxxx.."),
        ("f1:a6400 f1:a6400 f2:a63 f2:a63 f2:a63 b:t8 o:t8 " + frees(0, 4), "......."),  # two are large
        (RETAINED + frees(0, 2) + "d:t1 " + frees(3, 4), "........"),  # not at once
        # Half of what a line makes.
        ("f1:a64 f1:a64 " + RETAINED + frees(0, 1, "b") + frees(2, 6), "..xxxxx.."),
        ("f1:a64 f1:a64 f1:a64 " + RETAINED + frees(0, 2, "b") + frees(3, 7), ".....xxx.."),
        (RETAINED.replace("f1:a64 f1:a64", "f1:a64 f2:a64") + frees(0, 4), ".xxxx.."),  # once is by chance
        (RETAINED + frees(0, 4) + "f1:a64 f3:a64 b:t8", "xxxxx..x.."),  # alive at the end
        (RETAINED.replace("b:t8 ", "") + frees(0, 4) + "b:t8", "......."),
    ],
)
def test_graphs_that_outlive_their_backward_pass(program: str, found: str, tmp_path: Path) -> None:
    assert marks(retained_graphs.retained_graphs(context_of(program, tmp_path))) == found


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("d:i64 " + RETAINED + frees(0, 5), "x......."),
        ("d:i64 " + RETAINED + frees(1, 5) + "d:t1 d-0", "........."),
        ("d:a64 " + RETAINED + frees(0, 5), "........"),
        ("d:i64 " + RETAINED + frees(0, 5) + "d:i64 f3:a64 b:t8 o:t8", "x.......x..."),
        ("d:i64 " + RETAINED + frees(0, 5) + "d:i64", "x........"),
        ("d:i64 " + RETAINED + frees(0, 5) + "l:i64 f3:a64 b:t8 o:t8", "x..........."),
    ],
)
def test_inputs_of_graphs_that_are_retained(program: str, found: str, tmp_path: Path) -> None:
    assert marks(retained_graphs.read_by_retained_graphs(context_of(program, tmp_path))) == found


UNUSED = "f1:a64 f2:a64 " * 3
TRAINED = "f3:a64 b:t8 b-6 o:t8 "
OTHERS = "f1:a64 f5:t1 f-1 f6:t1 f-2 f7:t1 f-3 {}" + UNUSED[7:]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (UNUSED + frees(0, 5) + TRAINED, "xxxxx...."),  # the last is the output
        (UNUSED + "d-5 " + frees(0, 4) + TRAINED, "xxxxxx..."),
        (UNUSED.replace("f2", "f1") + frees(0, 5) + TRAINED, "........."),  # of one line
        (UNUSED.replace("f1:a64", "d:t64", 1) + frees(0, 5) + TRAINED, "........."),  # five
        (UNUSED + frees(0, 2) + "d:t1 " + frees(3, 5) + TRAINED.replace("6", "7"), ".........."),
        (UNUSED + frees(0, 5) + TRAINED + "f1:a64 b:t8 b-9", "..........."),  # a backward pass uses that line
        (UNUSED + frees(0, 5, "f") + TRAINED, "........."),
        (UNUSED + TRAINED.replace("f3:a64 ", "f3:a64 " + frees(0, 5)), "xxxxx...."),
        (UNUSED + TRAINED + frees(0, 5), "xxxxx...."),  # the other graph is released meanwhile
        (UNUSED + TRAINED.replace("b-6 ", "") + frees(0, 5), "........."),
        # Of five lines of a forward pass, or six.
        (OTHERS.format("") + "f3:a64 b:t8 b-9 o:t8 d-0 " + frees(4, 8), "x...xxxx...."),
        (OTHERS.format("f8:t1 f-4 ") + "f3:a64 b:t8 b-10 o:t8 d-0 " + frees(5, 9), "............."),
        (UNUSED + frees(0, 5) + TRAINED + "f1:a64 b:t8", "xxxxx....x."),
        (UNUSED + frees(0, 5) + "f3:a64 f3:a64", "........"),  # nothing trains
    ],
)
def test_graphs_that_no_backward_pass_uses(program: str, found: str, tmp_path: Path) -> None:
    assert marks(unused_graphs.unused_graphs(context_of(program, tmp_path))) == found


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("d:i64 " + UNUSED + "d:i64 " + frees(0, 6) + "f3:a64 b:t8 b-8 o:t8", [(0, 7)]),
        ("d:i64 " + UNUSED + frees(0, 6) + "d:i64 f3:a64 b:t8 b-8 o:t8", []),
        ("d:i64 " + UNUSED + "l:i64 " + frees(0, 6) + "f3:a64 b:t8 b-8 o:t8", []),
        ("d:a64 " + UNUSED + "d:i64 " + frees(0, 6) + "f3:a64 b:t8 b-8 o:t8", []),
        ("d:i64 " + UNUSED + "d:i64 " + frees(1, 6) + "f3:a64 d-0 b:t8 b-8 o:t8", []),
        # From before another backward pass.
        ("d:i64 f3:a64 b:t8 b-1 o:t8 " + UNUSED + "d:i64 d-0 " + frees(4, 9) + "f3:a64 b:t8 b-10 o:t8", []),
    ],
)
def test_batches_of_graphs_that_no_backward_pass_uses(
    program: str, found: list[tuple[int, int]], tmp_path: Path
) -> None:
    assert unused_graphs.inputs_of_unused_graphs(context_of(program, tmp_path)).rows() == found


FIVE = "f1:a64 f2:a64 f3:a64 f4:a64 f5:a64 "


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (FIVE * 3 + "f1:a64 f2:a64 " + frees(0, 16) + "f6:a64 b:t8", "x" * 16 + "..."),
        (FIVE * 3 + "f1:a64 " + frees(0, 15) + "f6:a64 b:t8", "." * 18),
        (FIVE.replace("5", "4") * 3 + "f1:a64 f2:a64 " + frees(0, 16) + "f6:a64 b:t8", "." * 19),
        (FIVE * 3 + "f1:a64 f2:a64 b:t8 " + frees(0, 16) + "f6:a64 b:t8", "." * 20),
        (FIVE * 3 + "f1:a64 f2:a64 " + frees(0, 16, "b") + "f6:a64 b:t8", "." * 19),
        (FIVE * 3 + "f1:a64 f2:a64 " + frees(0, 9) + "d:t1 " + frees(10, 16) + "f6:a64 b:t8", "." * 20),
        # Where nothing trains: three lines.
        ("f1:a64 f2:a64 f3:a64 " * 6 + frees(0, 17), "x" * 17 + "."),
        ("f1:a64 f2:a64 " * 9 + frees(0, 17), "." * 18),
        # Alive at the end: where the same lines have dropped another.
        ((FIVE * 3 + "f1:a64 f2:a64 " + frees(0, 16)) + "f6:a64 b:t8 " + FIVE * 4, "x" * 16 + "..." + "x" * 20),
        (FIVE * 4 + "f6:a64 b:t8 " + FIVE * 4, "." * 42),
    ],
)
def test_graphs_that_are_dropped(program: str, found: str, tmp_path: Path) -> None:
    assert marks(graphs.dropped_graphs(context_of(program, tmp_path))) == found


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ([1, 1, 1, 1], 0),
        ([1, 1, 1, 0], 0),
        ([1, 1, 0, 0], 32),  # a validation
    ],
)
def test_graphs_that_half_of_a_batch_does_not_halve(steps: list[int], count: int, tmp_path: Path) -> None:
    words, made = list[str](), 0
    for is_dropped in steps:
        if is_dropped:
            words.append(FIVE * 3 + "f1:a64 f2:a64 " + frees(made, made + 16))
            made += 17
        words.append("f6:a64 b:t8")
        made += 2
    context = context_of(" ".join(words), tmp_path)
    assert int(advice_activations._dropped_for_good(context).sum()) == count


def loop(times: int, body: str, each: int) -> str:
    """A body so many times, in which ``#0`` is the number of its first allocation."""
    return "".join(
        " ".join(
            f"{word.partition('#')[0]}{at * each + int(word.partition('#')[2])}" if "#" in word else word
            for word in body.split()
        )
        + " "
        for at in range(times)
    )


RESULT = "f1:a64 l:u2048 d-#0"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (loop(4, RESULT, 2), ".x" * 4),
        (loop(3, RESULT, 2), ".." * 3),
        (loop(3, RESULT, 2) + "d-1 f1:a64 l:u2048 d-6 ", "." * 8),
        (loop(9, RESULT, 2) + "d-1 f1:a64 l:u2048 d-18 ", ".x" * 10),  # nearly all
        (loop(4, RESULT.replace("l:u", "l:p"), 2), ".." * 4),
        (loop(4, "f1:a64 l:u2048 m:u410 d-#0", 3), ".xx" * 4),  # a fifth of the most
        (loop(4, "f1:a64 l:u2048 m:u409 d-#0", 3), ".x." * 4),
        ("f1:a64 " + "l:u2048 " * 4, "....."),  # no pass between
        (loop(4, "f1:a64 f2:a2048 d-#0", 2), ".." * 4),  # layers
        (loop(4, "d:i8 f1:a64 f2:a2048 d-#0 d-#1", 3), "..x" * 4),
        # Where the program trains, those of a validation.
        (loop(4, RESULT, 2) + "f3:a64 b:t8 b-8", ".x" * 4 + ".."),
        (loop(4, "f1:a64 l:u2048 b:t8 d-#0", 3), "..." * 4),
    ],
)
def test_results_that_a_loop_collects(program: str, found: str, tmp_path: Path) -> None:
    """After it a forward pass that ends, so that the program is known to infer."""
    count = len(found)
    ended = "".join(f"f9:t1 f-{count + at} " for at in range(10)) if "b:" not in program else ""
    context = context_of(program + ended, tmp_path)
    assert marks(context.marked(collected_outputs._collected(context)))[:count] == found


OVER = "f1:a64 l:u2048 b:t8 o:t8 d-#0"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (loop(4, OVER, 4) + frees(1, 1) + "d-5 d-9 d-13", ".x.." * 4),
        (loop(3, OVER, 4) + "d-1 d-5 d-9", "...." * 3),
        (loop(4, OVER, 4), "...." * 4),  # alive at the end, as of a leak
        (loop(4, OVER, 4) + "b-1 b-5 b-9 b-13", "...." * 4),
        (loop(4, OVER, 4) + "d-1 d-5 d:t1 d-9 d-13", "...." * 4 + "."),
        (loop(4, OVER.replace("2048", "1023"), 4) + "d-1 d-5 d-9 d-13", "...." * 4),
        (loop(4, OVER.replace("l:", "f2:"), 4) + "d-1 d-5 d-9 d-13", "...." * 4),
    ],
)
def test_results_that_are_kept_over_steps(program: str, found: str, tmp_path: Path) -> None:
    context = context_of(program, tmp_path)
    assert marks(context.marked(collected_outputs._over_steps(context))) == found


def extended(times: int, wait: int = 1, factor: int = 1) -> str:
    """A validation that concatenates each result to those before, which go ``wait`` allocations later."""
    words, last, count = list[str](), None, 0
    for number in range(1, times + 1):
        words += ["f1:a64", f"d-{count}", f"l:u{2048 * (number if factor else 1)}", *["d:t1"] * (wait - 1)]
        if last is not None:
            words.append(f"d-{last}")
        last = count + 1
        count += 1 + wait
    return " ".join(words) + " f3:a64 b:t8"


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (extended(5), 5),
        (extended(4), 0),  # three are larger than the one before
        (extended(5, wait=7), 5),
        (extended(5, wait=8), 0),
        (extended(5, factor=0), 0),
        (extended(5).replace(" f3:a64 b:t8", ""), 0),  # nothing trains
    ],
)
def test_results_that_are_extended(program: str, count: int, tmp_path: Path) -> None:
    context = context_of(program, tmp_path)
    rows = collected_outputs.extended_results(context)
    assert len(rows) == count and np.all(context.size[rows] >= 2 << 20)


def late(times: int, after: int, size: int = 2048) -> str:
    """Iterations of eight allocations, whose output goes so many after that of the next one."""
    words: list[str] = []
    for at in range(8 * times):
        words.append(f"f2:a{size}" if at % 8 == 0 else "d:t1")
        if at % 8 == after and at > 8:
            words.append(f"d-{at - after - 8}")
    return " ".join(words)


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (late(3, 0), 0),
        (late(3, 1), 3),
        (late(3, 2), 3),
        (late(3, 5), 0),  # half of an iteration
        (late(3, 1, 1023), 0),
        (late(2, 1), 2),
        (late(1, 1), 0),
        (late(3, 1).replace("f2:a", "f2:i"), 0),
        (late(6, 1).replace("d-24", ""), 6),
        (late(6, 1).replace("d-24", "").replace("d-16", ""), 0),
    ],
)
def test_outputs_of_the_iteration_before(program: str, count: int, tmp_path: Path) -> None:
    mask = advice_inference._late_outputs(context_of(program, tmp_path))
    assert int(mask.sum()) == count


@pytest.mark.parametrize("seed", range(4))
def test_lists_that_one_line_makes(seed: int, tmp_path: Path) -> None:
    """Between two of a line are more than 16 times as many events as between most of its tensors; in a forward pass,
    and where there is one list alone, each tensor is its own.
    """
    rng = np.random.default_rng(seed)
    words: list[str] = []
    for _ in range(4):
        for line in ("d1:u8", "d2:u8", "f1:a8"):
            words += [line, *["d9:t1"] * int(rng.integers(0, 2))] * int(rng.integers(1, 5))
        words += ["d9:t1"] * int(rng.integers(20, 60))
    words += ["d3:u8"] * 4
    context = context_of(" ".join(words), tmp_path)
    expected: list[object] = list(range(len(words)))
    for line in {"d1:u8", "d2:u8", "d3:u8", "d9:t1"}:
        at = [place for place, word in enumerate(words) if word == line]
        gaps = np.diff(at)
        number = np.append(0, np.cumsum(gaps > 16 * np.median(gaps)))
        if number[-1]:
            for place, one in zip(at, number.tolist(), strict=True):
                expected[place] = line, one
    found = advice_inference._generations(context).tolist()
    assert [found.index(one) for one in found] == [expected.index(one) for one in expected]
    assert len(set(found)) < len(words)


@pytest.mark.parametrize(
    ("after", "is_one"),
    [
        ("f1:a64 b:t8", True),  # another forward pass, of one line
        ("b:t8", False),
        ("", True),
        ("f1:a64", True),
        ("d:t1 b:t8 f1:a64", False),
    ],
)
def test_results_that_are_not_of_the_graph_of_the_next_backward_pass(after: str, is_one: bool, tmp_path: Path) -> None:
    context = context_of("f1:a64 l:u8 " * 4 + after, tmp_path)
    events = context.born[1:8:2]
    lines = pl.DataFrame({"first": events[:1], "last": events[-1:], "n": [4]})
    assert collected_outputs._without_graph(context, lines).to_list() == [is_one]
    twice = pl.DataFrame({"first": context.born[:1], "last": context.born[7:8], "n": [3]})  # two lines in each pass
    expected = not after.endswith("b:t8") and "b:t8" not in after
    assert collected_outputs._without_graph(context, twice).to_list() == [expected]


@pytest.mark.parametrize(
    ("program", "needed"),
    [
        ("{} b:t8 o:t8", False),
        ("{} f3:a320 b:t8 b-5 o:t8", True),  # the backward pass is of another graph, as large
        ("{} f3:a319 b:t8 b-5 o:t8", False),
        ("{} f3:a320 b:t8 o:t8", False),  # it frees nothing
        ("{} f3:a320 b:t8 o:t8 f4:a8 b:t8 b-5", False),
        ("{} f3:p320 b:t8 b-5 o:t8", False),
        ("f1:a64 f3:a320 f1:a64 f2:a64 f2:a64 f2:a64 b:t8 b-1 o:t8", False),  # layers make both
        ("f1:a64 f3:a100 f1:a64 f2:a64 f2:a64 f2:a64 f3:a220 b:t8 b-1 b-6 o:t8", True),
        ("f1:a64 f3:a160 f1:a64 f2:a64 f2:a64 f2:a64 f3:a160 b:t8 b-1 b-6 o:t8", False),
    ],
)
def test_graphs_that_the_next_backward_pass_does_not_use(program: str, needed: bool, tmp_path: Path) -> None:
    """Where another graph is all that it frees: from the end of their forward pass, else from that of the backward."""
    context = context_of(program.format("f1:a64 f1:a64 f2:a64 f2:a64 f2:a64") + " d:t8", tmp_path)
    words = [word for word in program.format("f1:a64 f1:a64 f2:a64 f2:a64 f2:a64").split() if ":" in word]
    rows = np.flatnonzero([word.endswith("a64") for word in words])
    found = retained_graphs._not_needed_from(context, rows)
    last = int(context.born[rows].max()) + 1
    after = int(context.born[words.index("o:t8")])
    assert found.tolist() == [last if needed else after] * len(rows)


BLOCKS = "d:u16 " + "f1:a64 f2:a64 f3:a64 f4:a64 f5:a64 "


@pytest.mark.parametrize(
    ("between", "passes", "parts"), [("d:u16", 4, 1), ("l:u0", 4, 4), ("l:u0", 16, 16), ("l:u0", 17, 1)]
)
def test_blocks_between_which_the_program_copies_are_no_parts_of_a_batch(
    between: str, passes: int, parts: int, tmp_path: Path
) -> None:
    """Parts of a batch have a number each, their loss. So do time steps, of which there are more."""
    made = (BLOCKS + between + " ") * passes
    frees = " ".join(f"b-{place}" for place in range(1, 7 * passes + 1) if place % 7)
    context = context_of("w:p64 " + made + "r:g1 b:g64 " + frees + " f1:a64", tmp_path)
    assert graphs.waiting_graphs(context).passes == passes
    assert graphs.waiting_passes(context) == parts


@pytest.mark.parametrize(
    ("backward", "more", "calls"),
    [
        ("r:g1 b:g64 {}", "", 1),
        ("r:g1 r:g1 r:g1 r:g1 b:g64 {}", "", 4),
        ("r:g1 r:g1 r:g1 b:g64 {}", "", 0),  # one has none
        ("r:g1 r2:g1 r2:g1 r2:g1 b:g64 {}", "", 0),  # a schedule has another line for the rest
        ("r:g1 r:g1 r:g1 r:g1 b:g64 {}", " f1:a64 r:g1 b:g64 b-34 f1:a64", 0),  # a schedule runs another between
    ],
)
def test_each_of_the_graphs_that_wait_has_a_backward_pass(backward: str, more: str, calls: int, tmp_path: Path) -> None:
    frees = " ".join(f"b-{place}" for place in range(1, 29) if place % 7)
    made = (BLOCKS + "l:u0 ") * 4
    waiting = graphs.waiting_graphs(context_of("w:p64 " + made + backward.format(frees) + more + " f1:a64", tmp_path))
    assert (waiting.calls if waiting.mask.any() else 0) == calls
