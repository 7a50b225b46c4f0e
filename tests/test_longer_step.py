"""A step whose tensors are larger than those of all others is named at its peak, and where memory runs out in it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from scripted import MIB, Script
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, TORCH, WEIGHTS

import snapreport
from snapreport.findings.longer_step import longer_step

ATTENTION = (("/app/attention.py", "attend"), *FORWARD)


def said(
    lengths: list[float], folder: Path, *, weights: int = 40, fails: bool = False, trains: bool = True
) -> str | None:
    """At the peak, or at a request of the last step that fails, of steps that save two tensors by these lengths."""
    script = Script()
    for _ in range(4):
        script.alloc("parameter", weights * MIB // 4, *WEIGHTS)
    for number, length in enumerate(lengths):
        began, size = len(script.events), int(20 * length * MIB)
        saved = [script.alloc("saved", size, *FORWARD), script.alloc("saved", size, *ATTENTION)]
        if fails and number == len(lengths) - 1:
            script._event("oom", 0, int(60 * length * MIB), (("/app/model.py", "head"), *FORWARD))
            script.events[-1]["device_free"] = 0
            script.step(number, began)
            break
        head = script.alloc("saved", int(60 * length * MIB), ("/app/model.py", "head"), *FORWARD)
        gradient = script.alloc("gradient", 10 * MIB, *BACKWARD) if trains else 0
        for address in (head, *saved[::-1]):
            script.free(address, *(BACKWARD if trains else FORWARD))
        if trains:
            script.free(script.alloc("temporary", 10 * MIB, *OPTIMIZER), *OPTIMIZER)
            script.free(gradient, (TORCH + "optim/optimizer.py", "zero_grad"))
        script.step(number, began)
    path = folder / "steps.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    timeline = snapreport.load(path).timeline(0)
    event = timeline.oom_events[0] if fails else timeline.peak_event
    return longer_step(timeline, event, "this" if fails else "the peak's")


TIMES = "Tensors of {} step are {} times as large as those of any other step: its batch has more or larger samples."


@pytest.mark.parametrize(
    ("lengths", "ratio"),
    [
        ([1, 1, 3, 1, 1], "3.0"),
        ([3, 1, 1, 1, 1], "3.0"),
        ([1, 1, 1, 1, 3], "3.0"),
        ([1, 1.5, 3, 1, 1], "2.0"),  # beside the largest of the others
        ([1, 1, 1.5, 1, 1], "1.5"),
        ([1, 1, 1.45, 1, 1], None),
        ([1, 1, 3, 1, 3], None),  # another is as large
        ([1, 1, 1, 1, 1], None),
    ],
)
def test_the_step_of_the_peak(lengths: list[float], ratio: str | None, tmp_path: Path) -> None:
    assert said(lengths, tmp_path) == (TIMES.format("the peak's", ratio) if ratio else None)


@pytest.mark.parametrize(("weights", "is_said"), [(880, True), (920, False)])
def test_its_tensors_are_a_quarter_of_what_is_allocated(weights: int, is_said: bool, tmp_path: Path) -> None:
    """300 MiB of the longer step, beside weights and 10 MiB of gradients."""
    assert bool(said([1, 1, 3, 1, 1], tmp_path, weights=weights)) is is_said


def test_the_step_of_a_failure_with_the_request(tmp_path: Path) -> None:
    """The request that failed is the largest of them: 180 MiB of 300."""
    assert said([1, 1, 1, 1, 3], tmp_path, fails=True) == TIMES.format("this", "3.0")
    assert said([1, 1, 1, 1, 3], tmp_path, fails=True, weights=880) is not None
    assert said([1, 1, 1, 1, 1.4], tmp_path, fails=True) is None


def test_no_step_of_a_program_that_does_not_train(tmp_path: Path) -> None:
    assert said([1, 1, 3, 1, 1], tmp_path, trains=False) is None
