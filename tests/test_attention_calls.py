"""Which allocations of a call of attention are scores: short programs of lines and sizes, at each limit."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from scripted import Script
from test_findings_advice import BACKWARD, FORWARD, TORCH

import snapreport
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.attention_scores import Scores, attention_scores

CALL = (TORCH + "nn/modules/module.py", "_call_impl")
LINES = {
    "in": ((TORCH + "nn/modules/linear.py", "forward"), CALL),  # a module within the function
    "soft": ((TORCH + "nn/functional.py", "softmax"),),
    "drop": ((TORCH + "nn/functional.py", "dropout"),),
    "ein": ((TORCH + "functional.py", "einsum"),),
    "math": (("at/native.cpp", "at::native::_scaled_dot_product_attention_math"),),
    "fused": (("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention"),),
}
"""Frames within the function of a call, by the name of a line; any other name is a line of the function itself."""


Programs = dict[str, str]  # lines and sizes: an x for each allocation that is one of scores, a dot for others


def found_in(
    programs: Programs, folder: Path, *, name: str = "mix", around: tuple[Any, ...] = FORWARD, trains: bool = False
) -> tuple[Programs, Scores]:
    """The same programs with what is found in them, if each is a function of its own in one trace; and all about it.

    A program: lines and KiB, ``in=64``. After ``|`` another function goes on, after the next the first; ``!`` frees
    all, ``-`` the oldest.
    """
    script = Script()
    places: dict[str, list[int]] = {}
    for number, program in enumerate(programs):
        own = [(f"/app/{name}{number}.py", f"{name}{number}"), *around]
        other = [(f"/app/other{number}.py", f"other{number}"), *FORWARD]
        live: list[int] = []
        places[program] = []
        for word in program.split():
            if word == "|":
                own, other = other, own
            elif word == "!":
                while live:
                    script.free(live.pop(0), *(BACKWARD if trains else own))
            elif word == "-":
                script.free(live.pop(0), *own)
            else:
                line, size = word.split("=")
                frames = BACKWARD if line == "back" else (*LINES.get(line, ()), *own)
                places[program].append(len(script.events))
                live.append(script.alloc(word, int(size) * 1024, *frames))
    (folder / "call.pickle").write_bytes(pickle.dumps(script.raw()))
    snapshot = snapreport.load(folder / "call.pickle")
    context = AdviceContext(snapshot, snapshot.timeline(0), [])
    scores = attention_scores(context)
    marked = set(context.born[scores.written | scores.math].tolist())
    return {one: "".join(".x"[at in marked] for at in events) for one, events in places.items()}, scores


QKV = "in=64 in=64 in=64"
BY_SIZE = {
    f"{QKV} p=256 p=256 p=64 !": "...xx.",
    f"{QKV} p=256 p=256 p=256 p=64 !": "...xxx.",
    "in=192 p=256 p=256 p=64 !": ".xx.",  # one tensor of queries, keys and values
    "in=64 p=256 p=256 p=64 !": "....",
    "in=64 in=64 p=256 p=256 p=64 !": "..xx.",
    "in=63 in=63 p=256 p=256 p=63 !": ".....",  # less than 64 KiB
    f"{QKV} p=256 p=256 p=32 !": "......",
    f"{QKV} p=256 p=64 p=256 p=64 !": ".......",
    f"{QKV} p=256 p=256 | p=64 !": "......",
    # A gate's inputs are not read again; the values are.
    "in=64 - p=256 p=256 in=64 - - p=256 - p=64 !": "......",
    "in=64 - in=64 - p=256 p=256 p=64 !": ".....",
    "in=64 - in=64 p=256 p=256 p=64 !": "..xx.",
    # Three others between them, and seven before the output, at most.
    f"{QKV} p=256 in=1 in=1 in=1 p=256 p=64 !": "...x...x.",
    f"{QKV} p=256 in=1 in=1 in=1 in=1 p=256 p=64 !": "..........",
    f"{QKV} p=256 p=256 {'in=1 ' * 7} p=64 !": "...xx" + 8 * ".",
    f"{QKV} p=256 p=256 {'in=1 ' * 8} p=64 !": 14 * ".",
    # Queries and keys are among the twelve before.
    f"in=64 in=64 {'in=1 ' * 10} p=256 p=256 p=64 !": 12 * "." + "xx.",
    f"in=64 in=64 {'in=1 ' * 11} p=256 p=256 p=64 !": 16 * ".",
    # Scores of 255 times the output.
    f"{QKV} p=16320 p=16320 p=64 !": "...xx.",
    f"{QKV} p=16384 p=16384 p=64 !": "......",
    # A picture in colours, and in gray.
    "p=192 p=192 p=192 p=64 !": "....",
    "in=192 p=192 p=192 p=64 !": ".xx.",
    # Another function ran between them, as between two layers that compute their weights.
    f"{QKV} p=256 p=256 | p=256 | p=64 !": 7 * ".",
    "p=64 p=64 | in=64 | p=256 p=256 p=64 !": 6 * ".",
    # Streams of text and image, joined for a call of fused attention.
    "in=192 in=300 p=256 p=256 p=64 !": 5 * ".",
    "in=192 in=256 p=256 p=256 p=64 !": "..xx.",
    "in=192 p=128 p=128 p=64 !": ".xx.",
    # What comes before the output has another type, or is something else.
    f"{QKV} p=256 p=256 p=512 p=64 !": "...xxx.",
    f"{QKV} p=256 p=256 p=300 p=64 !": ".......",
    # Without a backward pass they are freed before the 64th allocation after them.
    f"{QKV} p=256 p=256 p=64 {'in=1 ' * 61} !": "...xx" + 62 * ".",
    f"{QKV} p=256 p=256 p=64 {'in=1 ' * 62} !": 68 * ".",
}
FIRST = {one: BY_SIZE[one] for one in [*BY_SIZE][:3]}


def test_scores_by_their_sizes(tmp_path: Path) -> None:
    found, scores = found_in(BY_SIZE, tmp_path)
    assert found == BY_SIZE
    assert not scores.math.any()


@pytest.mark.parametrize(
    ("name", "around", "is_one"),
    [("mix", (), False), ("attend", (), True), ("mlp", FORWARD, False), ("normal", FORWARD, False)],
)
def test_scores_by_size_are_of_modules_or_of_attention(
    name: str, around: tuple[Any, ...], is_one: bool, tmp_path: Path
) -> None:
    found, _ = found_in(FIRST, tmp_path, name=name, around=around)
    assert found == (FIRST if is_one else {one: marks.replace("x", ".") for one, marks in FIRST.items()})


NAMED = {
    f"{QKV} p=256 soft=256 p=64 !": "...xx.",
    f"{QKV} p=256 p=256 soft=256 drop=256 p=64 !": "...xxxx.",
    "soft=256 p=64 !": "x.",
    # Casts, and masks of one byte: another number of bytes only if more follows.
    f"{QKV} p=128 soft=256 drop=64 p=64 !": "...xx..",
    f"{QKV} p=128 soft=256 drop=512 p=64 !": "...xxx.",
    "p=64 soft=256 drop=64 p=8 !": "xxx.",
    "p=32 soft=256 drop=128 !": ".x.",
    "p=300 soft=256 p=300 p=256 !": ".x..",
    # Row statistics are passed over.
    "p=256 p=8 soft=256 p=8 p=256 in=1 !": "x.x.x.",
    "p=256 p=9 soft=256 p=9 p=256 in=1 !": "..x...",
    f"p=256 {'p=8 ' * 11} soft=256 {'p=8 ' * 11} p=256 !": "x" + 11 * "." + "x" + 11 * "." + "x",
    f"p=256 {'p=8 ' * 12} soft=256 {'p=8 ' * 12} p=256 !": 13 * "." + "x" + 13 * ".",
    # An einsum copies what it reads.
    "ein=256 soft=256 ein=256 ein=64 !": "xxx.",
    "ein=64 soft=256 ein=64 ein=64 !": ".x..",
    "ein=128 soft=256 ein=128 ein=64 !": "xxx.",
    "p=256 soft=256 | p=256 p=256 !": "xx..",
    "p=256 fused=256 p=64 !": "...",
}


def test_scores_around_a_softmax_of_attention(tmp_path: Path) -> None:
    found, _ = found_in(NAMED, tmp_path, name="attend")
    assert found == NAMED


UNNAMED = {
    "p=256 soft=256 p=64 !": "xx.",
    "p=256 soft=256 p=256 !": "...",  # a gate
    "p=128 soft=256 p=64 !": "...",
    "p=256 soft=256 soft=256 p=64 !": "xxx.",
    "soft=256 p=64 !": "..",
    "p=256 soft=256 !": "..",
    "p=256 soft=256 p=2 !": "xx.",
    "p=256 soft=256 p=1 !": "...",
    f"p=256 {'in=1 ' * 11} soft=256 {'in=1 ' * 11} p=64 !": "x" + 11 * "." + "x" + 12 * ".",
    f"p=256 {'in=1 ' * 12} soft=256 p=64 !": 15 * ".",
    f"p=256 soft=256 {'in=1 ' * 12} p=64 !": 15 * ".",
    "p=256 soft=256 | p=64 !": "...",
    # Elsewhere equal sizes are of something else.
    f"{QKV} p=512 p=512 p=64 !": "......",
}


def test_a_softmax_between_a_product_and_an_output(tmp_path: Path) -> None:
    found, _ = found_in(UNNAMED, tmp_path)
    assert found == UNNAMED


ONE_LINE = {
    f"{QKV} p=64 p=64 p=256 p=256 p=64 !": ".....xx.",
    f"{QKV} p=64 p=128 p=256 p=256 p=64 !": "....xxx.",
    f"{QKV} p=64 p=256 p=256 p=64 !": "....xx.",
}


def test_one_line_that_makes_all(tmp_path: Path) -> None:
    found, scores = found_in(ONE_LINE, tmp_path)
    assert found == ONE_LINE
    assert (int(scores.math.sum()), int(scores.written.sum()), scores.is_recorded) == (2, 5, False)


def test_gradients_of_scores(tmp_path: Path) -> None:
    """As large as scores, and as nothing else in a forward pass."""
    program = {
        f"{QKV} p=300 soft=256 p=256 p=64 back=256 back=64 !": "....xx.x.",
        f"{QKV} p=512 soft=512 p=64 back=512 !": "...xx..",
        "in=512 !": ".",
        "p=64 soft=256 drop=64 p=8 back=8 back=64 !": "xxx...",
    }
    found, _ = found_in(program, tmp_path, name="attend", trains=True)
    assert found == program


MATH = {
    f"{QKV} math=64 math=64 math=256 math=256 math=64 !": "...xxxx.",
    "p=64 math=256 p=64 math=256 math=64": "...x.",  # the last of a run is an output
}


def test_the_math_kernel_of_pytorch(tmp_path: Path) -> None:
    found, scores = found_in(MATH, tmp_path)
    assert found == MATH
    assert (int(scores.math.sum()), int(scores.written.sum()), scores.is_recorded) == (5, 0, True)
