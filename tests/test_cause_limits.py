"""The cause of a rank's excess from the bytes and the numbers of its allocations beside the others', at each limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from snapreport.jobs.causes import Cause, find_cause

MIB = 1 << 20


@dataclass(frozen=True)
class Line:
    """A stack: what its allocations are, their MiB and number on the other ranks, and on this one."""

    category: str
    expected: float
    expected_count: int
    most: float
    count: int
    name: str = "forward model.py:31"


def rank(lines: Sequence[Line], *, is_own: bool, scores: int = 0, findings: Sequence[Any] = ()) -> Any:
    stacks = [
        SimpleNamespace(identity=f"{at:x}", name=line.name, file="model.py", callers=(), category=line.category)
        for at, line in enumerate(lines, 1)
    ]
    most = np.array([line.most if is_own else line.expected for line in lines]) * MIB
    digest = SimpleNamespace(
        stacks=stacks, findings=findings, scores=scores, peak_allocated=int(1.25 * most.sum()), categories=()
    )
    packed = SimpleNamespace(
        stack_ids=np.arange(1, len(lines) + 1, dtype=np.uint64),
        stack_most=most,
        stack_most_count=np.array([float(line.count if is_own else line.expected_count) for line in lines]),
        findings=[(("leak", one.rule, one.stack), "") for one in findings],
        digest=digest,
        read=lambda: digest,
    )
    return SimpleNamespace(packed=packed, stacks=stacks)


def cause(
    lines: Sequence[Line], scores: tuple[int, int] = (0, 0), findings: Sequence[Any] = (), leaking: int = 0
) -> Cause | None:
    """``scores``: bytes of a matrix of attention scores on the other ranks and on this one. ``findings``: of this rank;
    so many of the seven others have them, too.
    """
    others = [rank(lines, is_own=False, scores=scores[0], findings=findings if at < leaking else ()) for at in range(7)]
    own = rank(lines, is_own=True, scores=scores[1], findings=findings)
    rows: Any = [own, *others]
    group: Any = SimpleNamespace(rows=list(range(8)), kind="level")
    outlier: Any = SimpleNamespace(row=0, bytes_above=100 * MIB)
    return find_cause(rows, own.packed.stack_ids, own.stacks, outlier, group)


def model(times: float = 1, inputs: float | None = None, more: Sequence[Line] = ()) -> list[Line]:
    """Parameters with their gradients and state, and activations that are so many times as large."""
    return [
        Line("parameter", 100, 10, 100, 10, "__init__ model.py:5"),
        Line("gradient", 100, 10, 100, 10, "backward train.py:9"),
        Line("optimizer state", 200, 20, 200, 20, "step adam.py:3"),
        Line("activation", 300, 30, 300 * times, 30),
        Line("activation", 90, 9, 90 * times, 9),
        Line("input", 10, 1, 10 * (times if inputs is None else inputs), 1, "collate data.py:2"),
        *more,
    ]


def rounded(found: Cause | None) -> tuple[str, float, int] | None:
    return None if found is None else (found.kind, round(found.factor, 3), found.count)


def grown(size: float, times: float, category: str = "activation", count: int = 10, more: int = 0, **name: str) -> Line:
    return Line(category, size, count, size * times, count + more, **name)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (model(1), None),
        (model(1.5), ("batch", 1.5, 0)),
        (model(1.05), ("batch", 1.05, 0)),
        (model(1.03), None),
        (model(0.5), None),
        (model(1.5, more=[grown(30, 1.5, name="forward attention.py:1")]), ("batch or sequence", 1.5, 0)),
        (model(1.5, more=[grown(90, 1)]), ("batch", 1.5, 0)),
        (model(1.5, more=[grown(110, 1)]), None),  # only a part of the activations
        (model(1.5, more=[grown(5, 3)]), ("batch", 1.5, 0)),
        (model(1.5, more=[grown(6, 3)]), None),  # of another factor
        (model(1.5, more=[grown(13, 0.1)]), None),
        (model(1.5, more=[grown(9, 0.1)]), ("batch", 1.5, 0)),
        (model(1.5, more=[grown(90, 1.2, "temporary")]), ("batch", 1.5, 0)),  # with gradients, which stay
        (model(1.5, more=[grown(90, 1.2, "activation")]), None),
        (model(1.5, more=[grown(90, 1.7, "temporary")]), None),
        (model(1.5, more=[grown(90, 0.5, "temporary")]), None),
        (model(1.5, more=[grown(90, 1.5, more=1)]), None),  # more of them
        (model(1.5, more=[grown(1, 30, "parameter")]), None),
        (model(1.5, more=[grown(1, 2, "parameter")]), ("batch", 1.5, 0)),
        (model(1.5, more=[Line("activation", 41, 10, 61, 10)]), ("batch", 1.5, 0)),  # a workspace of 1 MiB
        (model(1.5, more=[Line("activation", 41, 10, 57, 10)]), None),
        # What the others have too little of to list it: a hundredth of the peak at most.
        (model(1.5, more=[Line("activation", 0, 0, 12, 1)]), ("batch", 1.5, 0)),
        (model(1.5, more=[Line("activation", 0, 0, 16, 1)]), None),
    ],
)
def test_a_larger_batch(lines: list[Line], expected: tuple[str, float, int] | None) -> None:
    assert rounded(cause(lines)) == expected


@pytest.mark.parametrize(
    ("lines", "scores", "expected"),
    [
        (model(2, more=[grown(30, 2)]), (400, 800), ("batch", 2, 0)),
        (model(2, more=[grown(30, 2)]), (400, 820), None),
        (model(2, more=[grown(30, 4)]), (400, 1600), ("sequence", 2, 0)),
        (model(2, more=[grown(300, 4)]), (400, 1600), ("sequence", 2, 0)),
        (model(2, more=[grown(90, 3)]), (400, 1600), ("sequence", 2, 0)),  # scores, and what is as large as its input
        (model(2, more=[grown(90, 4.2)]), (400, 1600), None),
        (model(2, more=[grown(90, 1.5)]), (400, 1600), None),
        (model(2, more=[grown(90, 1.5, "temporary"), grown(30, 4)]), (400, 1600), ("sequence", 2, 0)),
        (model(2, more=[grown(90, 4)]), (400, 1200), None),
    ],
)
def test_longer_sequences(lines: list[Line], scores: tuple[int, int], expected: tuple[str, float, int] | None) -> None:
    assert rounded(cause(lines, scores)) == expected


def parts(
    more: int = 1, *, of: Sequence[int] = (20, 30), times: float = 1, beside: Sequence[Line] = (),
    name: str = "forward m.py:3",
) -> list[Line]:  # fmt: skip
    """Of ten layers so many more: their parameters, and activations in two lines."""

    def layers(category: str, size: int, count: int, name: str) -> Line:
        added = more * count // 10
        return Line(category, size * count, count, size * (count + added), count + added, name)

    return [
        layers("parameter", 10, 10, "__init__ m.py:1"),
        layers("gradient", 10, 10, "backward t.py:9"),
        layers("optimizer state", 10, 20, "step adam.py:3"),
        *(
            replace(layers("activation", 10, count, name), most=10 * times * (count + more * count // 10))
            for count in of
        ),
        Line("input", 10, 1, 10, 1, "collate d.py:2"),
        *beside,
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (parts(), ("layers", 1.1, 1)),
        (parts(2), ("layers", 1.2, 0)),  # two more, or one of twice as much
        (parts(3), ("layers", 1.3, 0)),
        (parts(of=(20,)), ("layers", 1.1, 1)),
        (parts(of=(30,)), ("layers", 1.1, 1)),
        (parts(beside=[Line("activation", 50, 5, 51.5, 5)]), ("layers", 1.1, 1)),
        (parts(beside=[Line("activation", 50, 5, 53.5, 5)]), None),  # something else grew
        (parts(beside=[Line("activation", 50, 5, 46.5, 5)]), None),
        (parts(times=1.03), None),
        (parts(name="forward experts.py:3"), ("experts", 1.1, 1)),
        (parts(name="forward moe.py:3"), ("experts", 1.1, 1)),
        (parts(name="forward moebius.py:3"), ("layers", 1.1, 1)),
        # The optimizer's temporaries are as many as the parameters.
        (parts(beside=[Line("temporary", 50, 10, 55, 11)]), ("layers", 1.1, 1)),
        (parts(beside=[Line("temporary", 50, 12, 55, 14)]), None),
        # As many bytes of activations in more tensors.
        (parts(times=10 / 11), ("experts", 1.1, 1)),
        (parts(times=10 / 11, beside=[grown(50, 1.2)]), None),
        (parts(of=()), None),
    ],
)
def test_more_layers_and_experts(lines: list[Line], expected: tuple[str, float, int] | None) -> None:
    assert rounded(cause(lines)) == expected


def again(size: float, count: int, category: str = "parameter", gradients: float = 100) -> list[Line]:
    lines = model(more=[Line(category, 0, 0, size, count, "copy train.py:3")])
    lines[1] = replace(lines[1], most=gradients)
    return lines


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (again(100, 10), ("model", 2, 1)),
        (again(400, 40), ("model", 5, 4)),
        (again(500, 50), None),
        (again(101.9, 10), ("model", 2, 1)),
        (again(102.1, 10), None),
        (again(97.9, 10), None),
        (again(100, 11), None),
        (again(200, 20, "unknown"), ("model", 3, 2)),
        (again(200, 20, "activation"), None),
        (again(100, 10, gradients=101), ("model", 2, 1)),
        (again(100, 10, gradients=110), None),
        (again(50, 5), None),
    ],
)
def test_a_second_model(lines: list[Line], expected: tuple[str, float, int] | None) -> None:
    assert rounded(cause(lines)) == expected


def leak(size: int, *, kind: str = "leak", severity: str = "warning", stack: str = "forward model.py") -> Any:
    return SimpleNamespace(kind=kind, severity=severity, rule="", stack=stack, bytes=size * MIB)


@pytest.mark.parametrize(
    ("finding", "leaking", "row"),
    [
        (leak(10), 0, 6),
        (leak(10), 3, 6),
        (leak(10), 4, None),  # of most others, too
        (leak(10, severity="info"), 0, None),
        (leak(10, kind="churn"), 0, None),
        (leak(10, stack="backward train.py"), 0, None),
        (leak(49, stack="elsewhere lib.py"), 0, None),
        (leak(50, stack="elsewhere lib.py"), 0, -1),  # half of the excess, of no line that is listed
    ],
)
def test_a_leak_of_this_rank_alone(finding: Any, leaking: int, row: int | None) -> None:
    lines = model(more=[Line("activation", 10, 2, 60, 12, "forward model.py:77 · linear")])
    lines[3], lines[4] = replace(lines[3], name="encode model.py:3"), replace(lines[4], name="encode model.py:4")
    found = cause(lines, findings=[finding], leaking=leaking)
    assert (found is None) == (row is None)
    if found is not None:
        assert (found.kind, found.stack) == ("leak", None if row == -1 else row)


def test_half_of_the_excess_is_of_the_leak() -> None:
    lines = model(more=[Line("activation", 10, 2, 59, 12, "encode lib.py:77")])
    assert cause(lines, findings=[leak(10, stack="encode lib.py")]) is None
