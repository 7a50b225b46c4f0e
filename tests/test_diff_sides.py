"""What is measured of a run that is compared, against plain loops over its allocations and events."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import corpus
import numpy as np
import pytest
from msgspec.structs import replace

from snapreport.findings.diff_sides import Side
from snapreport.findings.program_stacks import ProgramStacks
from snapreport.timeline.own_code import own_places
from snapreport.timeline.phases import BACKWARD, FORWARD, OPTIMIZER_STEP, stack_phases

CAUSES = Path(__file__).parent / "recordings" / "causes"
OF_STATE = ("parameter", "gradient", "optimizer state")


class Row(NamedTuple):
    stack: int
    size: int
    born: int
    freed: int
    category: str

    def lives(self, event: int) -> bool:
        return self.born <= event and (self.freed < 0 or self.freed > event)


def side_of(name: str) -> Side:
    snapshot = corpus.loaded(CAUSES / f"{name}.pickle.xz")
    timeline = snapshot.timeline(0)
    return Side(snapshot.recording, timeline, timeline.peak_event)


def rows_of(side: Side) -> list[Row]:
    """What an optimizer's step shows to be state is; what is older and looks like it is a parameter."""
    columns = ("stack", "size", "alloc_event", "free_event", "category")
    rows = [Row(*row) for row in side.timeline.allocations.select(columns).rows()]
    steps = stack_phases(side.recording).runs(OPTIMIZER_STEP)
    if any(steps[row.stack] and row.category == "optimizer state" for row in rows):
        for at, row in enumerate(rows):
            looks = row.category == "optimizer state" or (row.category == "unknown" and row.freed < 0)
            if row.born < 0 and looks:
                rows[at] = row._replace(category="parameter")
    return rows


def fullest(rows: list[Row], category: str) -> int | None:
    """The first event after which a category has most bytes."""
    change: dict[int, int] = defaultdict(int)
    mine = [row for row in rows if row.category == category]
    for row in mine:
        change[max(row.born, -1)] += row.size
        if row.freed >= 0:
            change[row.freed] -= row.size
    now, most, found = 0, -1, None
    for event in sorted(change):
        now += change[event]
        if now > most:
            most, found = now, event
    return found if mine else None


@pytest.fixture(params=["accumulation", "outputs", "zeroed", "autocast"])
def side(request: pytest.FixtureRequest) -> Side:
    return side_of(request.param)


def test_sizes_when_they_take_most(side: Side) -> None:
    rows = rows_of(side)
    at_most = {}
    for category in ("gradient", "activation", "input", "optimizer state"):
        event = fullest(rows, category)
        live = [row.size for row in rows if event is not None and row.category == category and row.lives(event)]
        assert side.most(category) == sum(live)
        at_most[category] = Counter(live)
    event = fullest(rows, "gradient")
    parameters = sorted(
        row.size for row in rows if row.category == "parameter" and row.lives(side.event if event is None else event)
    )
    assert side.parameters.tolist() == parameters and side.most("parameter") == sum(parameters)

    steps = [name for name in side.timeline.steps["name"].to_list() if not name.endswith("(unfinished)")]
    assert side.whole_steps == len(steps)
    made = [row.size for row in rows if row.category == "gradient" and row.born >= 0]
    expected = {
        size: max(at_most["gradient"][size], count // max(1, len(steps))) for size, count in Counter(made).items()
    }
    assert side.gradients == at_most["gradient"] | Counter(expected)
    assert side.rounds_of_gradients * side.most("gradient") == pytest.approx(sum(made))
    assert side.peak_bytes == sum(row.size for row in rows if row.lives(side.event))
    inputs = sum(row.category == "input" and row.born >= 0 for row in rows)
    assert side.reads_inputs == (inputs >= 3 and inputs >= len(side.timeline.steps))


def test_what_steps_leave(side: Side) -> None:
    begins = side.timeline.steps["first_event"].to_list()
    bytes_of, steps = Counter[str](), defaultdict[str, set[int]](set)
    places = own_places(side.recording).to_list()
    for row in rows_of(side):
        goes = 0 <= row.freed <= max(begins, default=0)
        if row.born >= 0 and not goes and row.category not in OF_STATE and places[row.stack]:
            steps[places[row.stack]].add(sum(begin <= row.born for begin in begins))
            bytes_of[places[row.stack]] += row.size * (row.born <= side.event)
    left = [line for line in steps if len(steps[line]) >= max(3, side.whole_steps - 1)]
    expected = sorted(((line, bytes_of[line], len(steps[line])) for line in left), key=lambda one: (-one[1], one[0]))
    assert side.leftovers.rows() == expected


def test_what_passes_save_and_cast(side: Side) -> None:
    phases = stack_phases(side.recording)
    forward, backward = phases.runs(FORWARD), phases.runs(BACKWARD)
    without_python = ProgramStacks(side.recording).without_python
    frees = side.timeline.events["stack"].to_list()
    rows = rows_of(side)
    freed = [row for row in rows if row.freed >= 0 and forward[row.stack]]
    of_backward = [row for row in freed if backward[frees[row.freed]] or without_python[frees[row.freed]]]
    assert side.saved_allocations == len(of_backward)

    made = Counter(row.size for row in rows if forward[row.stack])
    weights = Counter(size for size in side.parameters.tolist() if size >= 4096)
    often = [size * n for size, n in weights.items() if made[size // 2] >= n * max(1, side.whole_steps)]
    assert side.halved_weights == pytest.approx(sum(often) / sum(size * n for size, n in weights.items()))

    frames = side.recording.frames.select("filename", "name").rows()
    texts = [{f"{frames[at][0]} {frames[at][1]}" for at in side.recording.stack(row.stack)} for row in rows]
    for pattern in (r"torch/nn/functional\.py", "autocast", r"optim/\w+\.py"):
        hit = [any(re.search(pattern, text) for text in each) for each in texts]
        assert side.runs(pattern) == any(hit)
        assert side.bytes_of(pattern) == sum(row.size for row, is_hit in zip(rows, hit, strict=True) if is_hit)
    modules = {
        found[1] for each in texts for text in each if (found := re.search(r"torch/optim/([a-z0-9]+)\.py", text))
    }
    assert side.optimizers == sorted(modules - {"optimizer"})


def test_a_run_without_gradients_or_steps() -> None:
    """The same recording, of which only the parameters are looked at."""
    side = side_of("none")
    kept = side.timeline.allocations.filter(side.timeline.allocations["category"].cast(str) == "parameter")
    bare = Side(side.recording, replace(side.timeline, allocations=kept), side.event)
    assert np.isnan(bare.rounds_of_gradients) and bare.most("gradient") == 0 and not bare.gradients
    assert not bare.reads_inputs and bare.saved_allocations == 0 and bare.halved_weights == 0.0
