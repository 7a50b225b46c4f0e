"""Which events a training step has, from names, times, numbers and calls of optimizers, on a few rows by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from snapreport.reading.event_columns import enum_series
from snapreport.reading.recording import ACTIONS
from snapreport.timeline import steps

CODES = {"a": "alloc", "f": "free_completed", "x": "oom", "s": "snapshot"}


def events_of(text: str, **columns: Any) -> pl.DataFrame:
    """``a`` for an allocation, ``f`` for a free; each by a line of its own, unless ``columns`` say more."""
    actions = np.array([ACTIONS.index(CODES[one]) for one in text], np.uint8)
    usual = {"stack": range(1, len(text) + 1), "time_us": range(0, 10 * len(text), 10)}
    return pl.DataFrame([enum_series("action", actions, ACTIONS)]).with_columns(
        pl.Series(name, list(values), pl.Int64) for name, values in (usual | columns).items()
    )


def rows(table: pl.DataFrame) -> list[tuple[Any, ...]]:
    return table.select("step", "name", "first_event", "last_event").rows()


@pytest.mark.parametrize("others", [0, 500])
def test_numbers_of_steps_in_names(others: int) -> None:
    """More names than a few are searched in another way."""
    numbers = {
        "step 7": 7, "step 0": 0, "a step": None, f"step {2**53 - 1}": 2**53 - 1, f"step {2**53}": None,
        f"step {10**400}": None, "step 7b": 7,
    }  # fmt: skip
    names = pl.Series([*numbers, None, *(f"request {number}" for number in range(others)), "step 7"])
    found = steps._numbers(names, r"step (\d+)").to_list()
    assert found == [*numbers.values(), None, *[None] * others, 7]
    assert steps._numbers(pl.Series(["a", None]), r"step (\d+)").to_list() == [None, None]


def counted(*spans: tuple[str, int, int], events: int = 100) -> list[tuple[Any, ...]]:
    names, first, last = zip(*spans, strict=True)
    return rows(steps._counted(pl.DataFrame({"name": names, "first_event": first, "last_event": last}), events))


def test_annotated_steps() -> None:
    one, two = ("ProfilerStep#3", 0, 9), ("ProfilerStep#4", 10, 19)
    expected = [(3, *one), (4, *two)]
    assert counted(two, ("epoch 1", 0, 99), one) == expected
    assert counted(("step 8", 0, 5), one, two) == expected  # PyTorch's own names come first
    assert counted(("step 8", 0, 5)) == [(8, "step 8", 0, 5)]
    assert counted(("epoch 1", 0, 99)) == []
    # A step ends with the next, at last with the trace; several threads name one.
    assert counted(("ProfilerStep#3", 0, 50), two) == expected
    assert counted(("ProfilerStep#3", 0, 500)) == [(3, "ProfilerStep#3", 0, 99)]
    assert counted(("ProfilerStep#3", 4, 9), ("ProfilerStep#3", 0, 6), two) == expected
    assert counted(("ProfilerStep#3", 10, 9), two) == [(3, "ProfilerStep#3", 10, 9), (4, *two)]


def test_steps_in_metadata() -> None:
    def found(*texts: str | None) -> list[tuple[Any, ...]]:
        return rows(steps._from_metadata(pl.DataFrame({"user_metadata": pl.Series(texts, dtype=pl.String)})))

    assert found(None, "step 4", None, "step 4", "x", "step 5", None) == [(4, "step 4", 1, 4), (5, "step 5", 5, 6)]
    assert found("step 4", "step 5", "step 4") == [(4, "step 4", 0, 0), (5, "step 5", 1, 1), (4, "step 4", 2, 2)]
    assert found("x", None) == found(None) == []


def recorded(ends: list[tuple[int, int]], text: str = "aaaaaa", **columns: Any) -> list[tuple[Any, ...]]:
    """``ends``: (number of steps that have ended, time in µs); the events are at 0, 10, 20 µs and so on."""
    table = pl.DataFrame(ends, {"step": pl.Int64, "time_us": pl.Int64}, orient="row")
    return rows(steps._from_recorder(table, events_of(text, **columns)))


def test_steps_of_the_recorder() -> None:
    assert recorded([(1, 10), (2, 35)]) == [
        (0, "step 0", 0, 1), (1, "step 1", 2, 3), (2, "step 2 (unfinished)", 4, 5),
    ]  # fmt: skip
    # Frees alone are the end of the program, a request that fails is work.
    assert recorded([(1, 10), (2, 35)], "aaaaff") == [(0, "step 0", 0, 1), (1, "step 1", 2, 5)]
    assert recorded([(1, 10), (2, 35)], "aaaafx")[-1] == (2, "step 2 (unfinished)", 4, 5)
    assert recorded([(1, 10), (2, 35)], "ffffff") == [(0, "step 0", 0, 1), (1, "step 1", 2, 5)]
    assert recorded([(1, 10), (2, 50)]) == [(0, "step 0", 0, 1), (1, "step 1", 2, 5)]
    # The trace has the end of step 4: when it began is not known.
    assert recorded([(5, 10), (6, 35)])[:2] == [(5, "step 5", 2, 3), (6, "step 6 (unfinished)", 4, 5)]
    assert recorded([(1, -5), (2, 35)])[0] == (1, "step 1", 0, 3)  # before the first event that is left
    assert recorded([]) == recorded([(1, 10)], time_us=[None] * 6) == []


@pytest.mark.parametrize(
    ("text", "ends", "found"),
    [
        ("aaaaaaaaaa", [3, 7], [(0, 3), (4, 7), (8, 9)]),
        ("aaaaaaaaff", [3, 7], [(0, 3), (4, 9)]),
        ("aaaaaaaafx", [3, 7], [(0, 3), (4, 7), (8, 9)]),
        ("aaaaaaaaaa", [-1, 3, 9], [(0, 3), (4, 9)]),
        ("aaaaaaaaaa", [0, 9], [(0, 0), (1, 9)]),
        ("aaaaaaaaaa", [], []),
        ("a" * 42, [19, 39], [(0, 19), (20, 39), (40, 41)]),  # a twentieth of a step, and more
        ("a" * 41, [19, 39], [(0, 19), (20, 39), (40, 40)]),
        ("a" * 43, [20, 41], [(0, 20), (21, 42)]),
    ],
)
def test_steps_end_with_their_optimizers(text: str, ends: list[int], found: list[tuple[int, int]]) -> None:
    table = steps._ending_at(np.array(ends, np.int64), events_of(text), "stack")
    assert table.select("first_event", "last_event").rows() == found
    is_open = len(found) > sum(end >= 0 for end in ends)
    names = [f"step {number}" for number in range(1, len(found) + 1)]
    assert table["name"].to_list() == [
        *names[:-1],
        *(f"{name} (unfinished)" if is_open else name for name in names[-1:]),
    ]


@pytest.mark.parametrize(("lines", "is_step"), [(20, True), (21, False)])
def test_few_lines_after_the_optimizer_are_no_step(lines: int, is_step: bool) -> None:
    """One line, after the second of two steps; the first has many."""
    stack = [*range(100, 200), *range(1, lines + 1), *[9] * 30]
    events = events_of("a" * len(stack), stack=stack)
    assert steps._begins(events, np.array([0, 100]), np.array([99, 99 + lines])) == is_step


@pytest.mark.parametrize(
    ("calls", "ends"),
    [
        ("aaaa", "xxxx"),
        ("ababab", ".x.x.x"),
        ("abab", "xxxx"),  # twice may be a coincidence
        ("aabaabaab", "..x..x..x"),
        ("babab", "xxxxx"),
        ("abcabcabc", "..x..x..x"),
        ("abcacbabc", "xxxxxxxxx"),
        ("abbababb", "xxxxxxxx"),
    ],
)
def test_the_last_of_several_optimizers_ends_a_step(calls: str, ends: str) -> None:
    caller = np.array([ord(letter) for letter in calls])
    assert "".join(".x"[int(one)] for one in steps._of_last_optimizer(caller)) == ends


@pytest.mark.parametrize(
    ("has", "source"),
    [
        (("recorder", "spans", "metadata"), "recorder"),
        (("spans", "metadata"), "annotation"),
        (("metadata",), "metadata"),
    ],
)
def test_what_says_most_of_steps_comes_first(has: tuple[str, ...], source: str) -> None:
    ends = pl.DataFrame({"step": [1], "time_us": [15]})
    recorder = SimpleNamespace(steps=ends) if "recorder" in has else None
    recording: Any = SimpleNamespace(recorder=recorder, annotations=pl.DataFrame())
    spans = pl.DataFrame({"name": ["step 1"], "first_event": [0], "last_event": [1]})
    events = events_of("aaaa").with_columns(user_metadata=pl.lit("step 5"))
    found = steps.device_steps(recording, events, spans if "spans" in has else spans.clear())
    assert found["source"].unique().to_list() == [source]
    assert not len(steps.device_steps(recording, events.clear(), spans))
