"""A program with several optimizers takes one step for all of them, where it calls them in a fixed order."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from scripted import MIB, Script

import snapreport

ADAM = (("/env/site-packages/torch/optim/adam.py", "_init_group"), ("/env/site-packages/torch/optim/adam.py", "step"))


def steps_of(calls: str, folder: Path) -> list[int]:
    """Of a program that calls an optimizer for each letter, from a line of its own: the letters in each step."""
    script = Script()
    ends = []
    for letter in calls:
        for _ in range(20):
            script.free(script.alloc("activation", MIB, ("/app/model.py", "forward")), ("/app/model.py", "forward"))
        script.free(script.alloc("state", MIB, *ADAM, ("/app/train.py", f"update_{letter}")), *ADAM)
        ends.append(len(script.events) - 1)
    path = folder / "calls.pickle"
    path.write_bytes(pickle.dumps(script.raw()))
    steps = snapreport.load(path).steps(0)
    assert steps["source"].unique().to_list() == ["stack"]
    assert steps["first_event"].to_list() == [0, *(last + 1 for last in steps["last_event"][:-1])]
    return [
        sum(first <= end <= last for end in ends) for first, last in steps.select("first_event", "last_event").rows()
    ]


@pytest.mark.parametrize(
    ("calls", "in_each"),
    [
        ("aaaa", [1, 1, 1, 1]),
        ("abababab", [2, 2, 2, 2]),
        ("cccgcccgcccg", [4, 4, 4]),
        ("babababab", [2, 2, 2, 2, 1]),  # recorded from the middle of a step on: where steps end is unknown
        ("abababa", [2, 2, 2, 1]),
        ("abab", [1, 1, 1, 1]),  # may be a coincidence
        ("aabbabab", [1] * 8),  # no fixed order
        ("aaaaaaab", [1] * 8),  # once, after training
    ],
)
def test_steps_end_with_the_last_optimizer(calls: str, in_each: list[int], tmp_path: Path) -> None:
    assert steps_of(calls, tmp_path) == in_each
