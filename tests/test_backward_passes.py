"""What lies between which passes, on random traces: by plain loops over the events that the test itself wrote."""

from __future__ import annotations

import pickle
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import MIB, Script
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, WEIGHTS

import snapreport
from snapreport.findings import graphs
from snapreport.findings.advice_births import births, growing_lines
from snapreport.findings.advice_context import AdviceContext

STACKS = {
    "forward": [(("/app/model.py", f"line{at}"), *FORWARD) for at in range(4)],
    "backward": [BACKWARD, (("/app/loss.py", "double"), *BACKWARD)],
    "optimizer": [OPTIMIZER],
    "outside": [(("/app/data.py", "load"),), (("/app/loss.py", "loss"),)],
    "engine": [()],
}
"""Frames of what allocates, by where it runs."""


class Trace:
    """Random passes of a model with three weights, of which a number may be dropped without a backward pass."""

    def __init__(self, seed: int, fails: bool = False) -> None:
        self.rng = random.Random(seed)
        self.script = Script()
        self.where: dict[int, str] = {}  # of each address
        self.live: list[int] = []
        for at in (2, 3, 5):
            self.where[self.script.alloc("weight", at * MIB, *WEIGHTS)] = "outside"
        for _ in range(4):
            self.make("outside", 2)
            for _ in range(self.rng.randint(1, 2)):
                self.make("forward", 8)
                self.make("outside", self.rng.randint(0, 1))
            if self.rng.random() < 0.8:
                self.make(self.rng.choice(["engine", "backward"]), 6, frees=0.6)
            self.make("optimizer", self.rng.randint(0, 2))
        self.make("forward", 3)
        for one in self.script.events:  # those of the engine have no stack trace
            if self.where.get(one["addr"]) == "engine" and one["action"] == "alloc":
                one["frames"] = []
        self.raw = self.script.raw()
        self.oom = len(self.script.events)
        if fails:
            last = self.script.events[-1]
            self.raw["device_traces"][0].append({**last, "action": "oom", "addr": 0, "device_free": MIB})

    def make(self, where: str, count: int, frees: float = 0.25) -> None:
        for _ in range(count):
            size = self.rng.choice([2, 3, 5, 7, 11]) * MIB if where != "outside" else self.rng.randint(1, 40) * 512
            address = self.script.alloc(where, size, *self.rng.choice(STACKS[where]))
            self.where[address] = where
            self.live.append(address)
            while self.live and self.rng.random() < frees:
                by = BACKWARD if where in ("engine", "backward") else self.rng.choice(STACKS["outside"])
                self.script.free(self.live.pop(self.rng.randrange(len(self.live))), *by)


class Plain:
    """The same by plain lists: of each event, where it allocates, or ""; of each allocation, by address, its events."""

    def __init__(self, trace: Trace) -> None:
        events = trace.raw["device_traces"][0]
        self.count = len(events)
        self.of_event = [trace.where[one["addr"]] if one["action"] == "alloc" else "" for one in events]
        self.born = {one["addr"]: at for at, one in enumerate(events) if one["action"] == "alloc"}
        self.freed = {one["addr"]: at for at, one in enumerate(events) if one["action"] == "free_completed"}
        self.begun, self.begins, was = [], [], False
        for at, where in enumerate(self.of_event):
            if where in ("engine", "backward") and not was:
                self.begins.append(at)
                was = True
            elif where == "forward":
                was = False
            self.begun.append(len(self.begins))

    def freed_in(self, address: int) -> int:
        return self.begun[self.freed.get(address, self.count - 1)]


@cache
def trace_of(seed: int, fails: bool = False) -> tuple[Trace, Plain, Any]:
    trace = Trace(seed, fails)
    return trace, Plain(trace), pickle.dumps(trace.raw)


def context_of(raw: bytes, folder: Path) -> AdviceContext:
    (folder / "trace.pickle").write_bytes(raw)
    snapshot = snapreport.load(folder / "trace.pickle")
    return AdviceContext(snapshot, snapshot.timeline(0), [])


def addresses(context: AdviceContext, trace: Trace) -> list[int]:
    """Of each allocation, of which none is from before the trace."""
    return [trace.raw["device_traces"][0][event]["addr"] for event in context.born.tolist()]


@pytest.mark.parametrize("seed", range(4))
def test_where_backward_passes_begin(seed: int, tmp_path: Path) -> None:
    _, plain, raw = trace_of(seed)
    context = context_of(raw, tmp_path)
    assert graphs.births_until(context).tolist() == np.cumsum([bool(each) for each in plain.of_event]).tolist()
    backward = [where in ("engine", "backward") for where in plain.of_event]
    assert graphs.backward_allocations(context).tolist() == backward
    assert graphs.backward_passes(context).tolist() == plain.begun
    assert graphs.backward_begins(context).tolist() == plain.begins
    forward = [at for at, where in enumerate(plain.of_event) if where == "forward"]
    assert graphs.forward_births(context).tolist() == forward


@pytest.mark.parametrize("seed", range(4))
def test_in_which_pass_each_tensor_is_made_and_freed(seed: int, tmp_path: Path) -> None:
    trace, plain, raw = trace_of(seed)
    context = context_of(raw, tmp_path)
    every = addresses(context, trace)
    assert graphs.born_in(context).tolist() == [plain.begun[plain.born[one]] for one in every]
    assert graphs.freed_in(context).tolist() == [plain.freed_in(one) for one in every]
    saved = [one in plain.freed and plain.freed_in(one) > plain.begun[plain.born[one]] for one in every]
    assert graphs.saved_for_backward(context).tolist() == saved
    chosen = np.arange(plain.count) % 7 == 2
    between = [any(chosen[at] for at in range(plain.born[one] + 1, plain.freed.get(one, plain.count))) for one in every]
    assert graphs._between(context, chosen).tolist() == between


@pytest.mark.parametrize("seed", range(6))
def test_what_a_step_computes_outside_of_modules(seed: int, tmp_path: Path) -> None:
    """Freed with the next backward pass at the latest, and its line runs after the first forward pass begins, or it is
    alive then, where there are several. Of the last step, which failed, what the program has not freed.
    """
    trace, plain, raw = trace_of(seed, fails=seed % 2 == 1)
    context = context_of(raw, tmp_path)
    every = addresses(context, trace)[: len(context.recorded.allocations)]
    unknown = dict(zip(every, context.traced("unknown").tolist(), strict=False))
    events = trace.raw["device_traces"][0]
    first = plain.of_event.index("forward")
    lasts: dict[str, int] = {}
    for at in plain.born.values():
        lasts[str(events[at]["frames"])] = max(at, lasts.get(str(events[at]["frames"]), -1))
    steps = [at for at, one in enumerate(events) if any(frame["name"] == "step" for frame in one["frames"])]
    after = min([at for at, where in enumerate(plain.of_event) if where == "forward" and at > steps[-1]])
    expected = []
    for one in every:
        born, by_program = plain.born[one], trace.where[one] != "engine"
        returns = lasts[str(events[born]["frames"])] > first or plain.freed.get(one, plain.count) > first
        soon = one in plain.freed and plain.freed_in(one) <= plain.begun[born] + 1
        cut = seed % 2 == 1 and one not in plain.freed and born >= after
        expected.append(unknown[one] and by_program and returns and (soon or cut))
    assert graphs.unknown_of_a_step(context)[: len(every)].tolist() == expected


@pytest.mark.parametrize("seed", range(6))
def test_what_a_backward_pass_adds_to_gradients(seed: int, tmp_path: Path) -> None:
    trace, plain, raw = trace_of(seed)
    context = context_of(raw, tmp_path)
    weights, forward = ({trace.raw["device_traces"][0][plain.born[one]]["size"] for one in each} for each in (
        [one for one, is_one in zip(addresses(context, trace), context.category("parameter"), strict=True) if is_one],
        [one for one, where in trace.where.items() if where == "forward"],
    ))  # fmt: skip
    temporary = context.traced("temporary").tolist()
    size = context.size.tolist()
    expected = [
        temporary[at] and trace.where[one] == "engine" and size[at] in weights - forward
        for at, one in enumerate(addresses(context, trace))
    ]
    assert graphs.added_to_gradients(context).tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_allocations_in_order_of_birth(seed: int, tmp_path: Path) -> None:
    trace, plain, raw = trace_of(seed)
    context = context_of(raw, tmp_path)
    every = addresses(context, trace)
    table, category = births(context), context.timeline.allocations["category"].to_list()
    ordered = sorted(plain.born, key=lambda one: plain.born[one])
    found = [every[row] for row in table.rows.tolist()]
    assert found == [one for one in ordered if category[every.index(one)] != "workspace"]
    assert table.forward.tolist() == [trace.where[one] == "forward" for one in found]
    outside = np.cumsum([trace.where[one] not in ("forward", "engine") for one in found])
    assert table.outside.tolist() == outside.tolist()
    assert table.size.tolist() == [trace.script.events[plain.born[one]]["size"] for one in found]


@pytest.mark.parametrize(("sizes", "grows"), [([1, 2, 3, 4], True), ([1, 2], False), ([2, 3, 3, 4, 5], False)])
def test_lines_that_grow(sizes: list[int], grows: bool, tmp_path: Path) -> None:
    script = Script()
    for size in sizes:
        script.alloc("cache", size * MIB, ("/app/cache.py", "extend"))
        script.alloc("other", (9 - size) * MIB, ("/app/cache.py", "shrink"))
    found = growing_lines(context_of(pickle.dumps(script.raw()), tmp_path))
    assert found.tolist() == [grows, False] * len(sizes)
