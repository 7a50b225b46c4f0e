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


def annotated_steps(calls: str, folder: Path) -> list[int]:
    """Last events of steps, of a program with a forward pass and a call of an optimizer for each letter, annotated as
    the profiler does: ``s`` is of SGD; ``h`` is called by a hook in a backward pass, after which nothing but such runs.
    Each takes ten events, the call is the last two of them.
    """
    script = Script()
    backward = ("/env/site-packages/torch/autograd/graph.py", "_engine_run_backward")
    model = ("/app/model.py", "forward")
    for letter in calls:
        around = (backward,) if letter == "h" else ()
        for _ in range(2):
            script.free(script.alloc("activation", MIB, model, *around), model, *around)
        script.free(script.alloc("other", MIB, model, *around), model)
        del script.events[-1:]
        began = len(script.events)
        update = (*ADAM, ("/app/train.py", f"update_{letter}"), *around)
        state = script.alloc("state", MIB, *update)
        script.free(state, *update)
        del script.events[-1:]
        name = f"Optimizer.step#{'SGD' if letter == 's' else 'Adam'}.step"
        for stage, event in (("START", began), ("END", len(script.events))):
            script.notes.append({"name": name, "stage": stage, "device": 0, "time_us": 10 * event + 5})
    path = folder / "calls.pickle"
    path.write_bytes(pickle.dumps(script.raw()))
    steps = snapreport.load(path).steps(0)
    assert steps["source"].unique().to_list() == ["optimizer"]
    assert steps["first_event"].to_list() == [0, *(last + 1 for last in steps["last_event"][:-1])]
    return [last + 1 for last in steps["last_event"].to_list()]


@pytest.mark.parametrize(
    ("calls", "ends"),
    [
        ("aaaa", [10, 20, 30, 40]),
        ("ababab", [20, 40, 60]),
        ("asas", [20, 40]),  # as often: that which comes last
        ("aasaa", [10, 20, 40, 50]),
        ("ahhahh", [30, 60]),
    ],
)
def test_steps_end_with_annotated_calls(calls: str, ends: list[int], tmp_path: Path) -> None:
    assert annotated_steps(calls, tmp_path) == ends
