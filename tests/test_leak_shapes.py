"""Growth by shape: programs written by hand that leak, cache, replace or collect, and the right answer for each.

The expected bytes are sums over what the script itself allocated.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import planted
from scripted import MIB, Script

import snapreport
from snapreport.findings.allocation_growth import theil_sen
from snapreport.findings.gate import leak_check
from snapreport.findings.growth_pattern import SingleGrowth, added_bytes, growth_of, single_growth
from snapreport.findings.live_at_end import leaks_of
from snapreport.findings.model import Finding
from snapreport.findings.repetition import growth_repetitions
from snapreport.number_format import bytes_text
from snapreport.report.page_remedies import page_remedies
from snapreport.report.sentence_html import Links
from snapreport.report.verdict import chips

TRAIN = ("/app/train.py", "main")
CALL = ("/env/site-packages/torch/nn/modules/module.py", "_call_impl")
KEEP, WORK, INPUT = ("/app/hooks.py", "remember"), ("/app/model.py", "forward"), ("/app/data.py", "batch")
Body = Callable[[Script, int], None]


def program(body: Body, count: int, *, annotate: bool = True) -> Script:
    """A loop with an input, two activations of a module, and ``body``."""
    script = Script()
    script.alloc("weights", 40 * MIB, ("/app/model.py", "__init__"), TRAIN)
    for number in range(count):
        began = len(script.events)
        batch = script.alloc("input", 2 * MIB, INPUT, TRAIN)
        hidden = [
            script.alloc(f"hidden {i}", (6 + i) * MIB, (f"/app/layer{i}.py", "run"), WORK, CALL, TRAIN) for i in (0, 1)
        ]
        body(script, number)
        for address in (*hidden, batch):
            script.free(address, TRAIN)
        if annotate:
            script.step(number, began)
    return script


def found_in(script: Script, folder: Path) -> tuple[list[Finding], str]:
    path = folder / "shape.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    snapshot = snapreport.load(path)
    leaks, verdict, _ = leaks_of(snapshot, snapshot.timeline(0))
    return leaks, verdict.status


def every(k: int, size: int = 3 * MIB) -> Body:
    def body(script: Script, number: int) -> None:
        if number % k == k - 1:
            script.alloc("leak", size, KEEP, TRAIN)

    return body


def queue(length: int) -> Body:
    """A replay buffer: it fills, then the oldest entry is freed."""
    held: list[int] = []

    def body(script: Script, number: int) -> None:
        held.append(script.alloc("buffer", 3 * MIB, KEEP, TRAIN))
        if len(held) > length:
            script.free(held.pop(0), TRAIN)

    return body


def concatenated(script: Script, number: int, last: list[int]) -> None:
    new = script.alloc("history", (number + 1) * 4 * MIB, KEEP, TRAIN)
    if last:
        script.free(last.pop(), TRAIN)
    last.append(new)


@pytest.mark.parametrize("annotate", [True, False])
@pytest.mark.parametrize(("k", "count"), [(1, 12), (2, 20), (3, 24)])
def test_a_leak_of_every_kth_step(k: int, count: int, annotate: bool, tmp_path: Path) -> None:
    script = program(every(k), count, annotate=annotate)
    (leak,), status = found_in(script, tmp_path)
    assert status == "leak" and leak.severity == "warning"
    assert leak.bytes == sum(size for tag, size in script.live.values() if tag == "leak") == count // k * 3 * MIB
    evidence = leak.evidence
    if annotate:
        often = "step" if k == 1 else f"{k} steps"
        assert (evidence["every"], evidence["unit"]) == (k, "step") and evidence["bytes_per_step"] == 3 * MIB // k
        assert f"remember hooks.py:7 keeps 3.00 MiB every {often}, " in leak.title
    else:
        # An iteration is whatever repeats at regular intervals: the loop's, or one from leak to leak.
        assert evidence["unit"] == "iteration" and evidence["steps"] * evidence["bytes_per_step"] == leak.bytes


def test_a_leak_that_begins_late(tmp_path: Path) -> None:
    (leak,), _ = found_in(program(lambda s, n: every(1)(s, n) if n >= 8 else None, 20), tmp_path)
    assert leak.bytes == 12 * 3 * MIB and leak.evidence["bytes_per_step"] == 3 * MIB


def test_a_tensor_that_is_replaced_by_a_larger_one(tmp_path: Path) -> None:
    last: list[int] = []
    (leak,), status = found_in(program(lambda s, n: concatenated(s, n, last), 12), tmp_path)
    assert status == "leak" and leak.evidence["replaced"] and leak.evidence["bytes_per_step"] == 4 * MIB
    assert leak.bytes == 12 * 4 * MIB


def test_without_a_tensor_that_is_replaced_the_request_that_failed_goes_too(tmp_path: Path) -> None:
    """The 13th tensor does not fit beside the 12th: without both a step is left, and with 4 MiB each that much more."""
    last: list[int] = []
    script = program(lambda s, n: concatenated(s, n, last), 12)
    script.alloc("hidden", 6 * MIB, WORK, CALL, TRAIN)
    script._event("oom", 0, 13 * 4 * MIB, (KEEP, TRAIN))
    script.events[-1] |= {"device_free": 8 * MIB}
    (leak,), _ = found_in(script, tmp_path)
    saving, step = leak.evidence["saving"], (40 + 2 + 6 + 7) * MIB
    assert saving["saves_bytes"] == max(40 + 6 + 12 * 4 + 13 * 4, step // MIB + 11 * 4 + 12 * 4) * MIB - step
    assert saving["is_lower_bound"] and saving["failed_events"] == [len(script.events) - 1]
    assert (saving["peak_bytes"], leak.evidence["needed_peak_bytes"]) == (step, step + 2 * 4 * MIB)
    assert leak.detail[-1].startswith("Preallocate the tensor: 103 MiB or more are needed (replayed). Or ")


def test_what_is_computed_from_a_tensor_that_grows_is_no_leak_of_its_own(tmp_path: Path) -> None:
    """Scores over all that a bank holds stay until the next ones are made. Both are little beside the model's output:
    else inputs become longer.
    """
    last: list[int] = []
    scores: list[int] = []

    def step(script: Script, number: int) -> None:
        output = script.alloc("output", 400 * MIB, ("/app/head.py", "forward"), CALL, TRAIN)
        script.free(output, TRAIN)
        new = script.alloc("scores", (number + 1) * 5 * MIB, ("/app/loss.py", "loss"), TRAIN)
        means = [script.alloc("mean", 512, ("/app/loss.py", "loss"), TRAIN) for _ in range(3)]
        if scores:
            script.free(scores.pop(), TRAIN)
        scores.append(new)
        for mean in means:
            script.free(mean, TRAIN)
        concatenated(script, number, last)

    (leak,), status = found_in(program(step, 12), tmp_path)
    assert (
        status == "leak" and "remember hooks.py:7 replaces its tensor by one 4.00 MiB larger every step" in leak.title
    )
    assert "The allocations of loss loss.py:7 grow with it, by 5.00 MiB every step." in leak.detail
    saving, constant = leak.evidence["saving"], (40 + 2 + 6 + 7 + 400) * MIB
    assert saving["peak_bytes"] == constant and saving["saves_bytes"] == 11 * (4 + 5) * MIB
    assert leak.evidence["needed_peak_bytes"] == constant + (4 + 5) * MIB, "one step's part of each"
    assert leak.evidence["preallocated_peak_bytes"] == constant + (12 * 4 + 11 * 5) * MIB
    assert leak.detail[-1].startswith("Preallocate the tensor, or "), "the peak is where nothing is copied"


def test_what_many_stacks_leave_behind_together_is_one_leak(tmp_path: Path) -> None:
    def graph(script: Script, number: int) -> None:
        for i in range(4):
            script.alloc("graph", (i + 1) * MIB, (f"/app/block{i}.py", "attend"), WORK, CALL, TRAIN)

    (leak,), _ = found_in(program(graph, 10), tmp_path)
    assert leak.bytes == 10 * 10 * MIB and leak.evidence["bytes_per_step"] == 10 * MIB
    assert [row["bytes"] for row in leak.evidence["stacks"]] == [i * 10 * MIB for i in (4, 3, 2, 1)]
    assert "store loss.item()" in leak.detail[-1]


@pytest.mark.parametrize(
    ("is_used", "is_freed", "remedy"),
    [(False, True, "store its text"), (True, True, "loss.item()"), (False, False, "loss.item()")],
)
def test_what_an_exception_holds_is_no_graph_that_an_output_refers_to(
    is_used: bool, is_freed: bool, remedy: str, tmp_path: Path
) -> None:
    """Every second step fails before its backward pass (else after it), and leaves what others free."""

    def attempt(script: Script, number: int) -> None:
        graph = [
            script.alloc("graph", (i + 1) * MIB, (f"/app/block{i}.py", "attend"), WORK, CALL, TRAIN) for i in range(4)
        ]
        fails = number % 2 == 1
        if is_used or not fails:
            script.free(nameless(script, 3), TRAIN)
        for address in graph if is_freed and not fails else []:
            script.free(address, TRAIN)

    (leak,), _ = found_in(program(attempt, 16), tmp_path)
    assert remedy in leak.detail[-1]


def test_what_two_stacks_of_one_line_leave_behind_is_one_leak(tmp_path: Path) -> None:
    """Of two lines it is two: what they keep may have two owners."""

    def both(*lines: str) -> Body:
        def body(script: Script, number: int) -> None:
            for i, line in enumerate(lines):
                inner = (f"/env/site-packages/torch/optim/part{i}.py", "step")
                script.alloc("kept", (i + 1) * MIB, inner, ("/app/train.py", line), TRAIN)

        return body

    (leak,), _ = found_in(program(both("update", "update"), 10), tmp_path)
    assert leak.title.startswith("Leak: update train.py:7 keeps 3.00 MiB every step, 30.0 MiB")
    assert [row["bytes"] for row in leak.evidence["stacks"]] == [20 * MIB, 10 * MIB]
    assert not any(line.startswith("Each step:") for line in leak.detail)
    leaks, _ = found_in(program(both("update", "average"), 10), tmp_path)
    assert [leak.bytes for leak in leaks] == [20 * MIB, 10 * MIB]


@pytest.mark.parametrize(("weights", "most"), [(3, "part"), (4, "most")])
def test_models_that_stay_keep_their_gradients(weights: int, most: str, tmp_path: Path) -> None:
    """The engine makes gradients without a stack trace: they are no leak of their own, nor what the title names."""

    def trained(script: Script, number: int) -> None:
        script.alloc("weights", weights * MIB, KEEP, TRAIN)
        nameless(script, 3)

    (leak,), _ = found_in(program(trained, 10), tmp_path)
    place = f"{most} of it in remember hooks.py:7, "
    assert leak.title.startswith(f"Leak: {weights + 3}.00 MiB stay allocated every step, {place}")
    assert leak.bytes == 10 * (weights + 3) * MIB
    (alone,), _ = found_in(program(lambda script, _: nameless(script, 3), 10), tmp_path)
    assert alone.title.startswith("Leak: allocations without a stack trace keep 3.00 MiB every step, ")


def nameless(script: Script, mib: int) -> int:
    address = script.alloc("gradient", mib * MIB)
    script.events[-1]["frames"] = []
    return address


@pytest.mark.parametrize("annotate", [True, False])
@pytest.mark.parametrize(
    "name", ["nothing", "replay buffer", "levels off", "first step only", "replaced by its like", "inputs grow"]
)
def test_what_is_no_leak(name: str, annotate: bool, tmp_path: Path) -> None:
    last: list[int] = []

    def like(script: Script, number: int) -> None:
        new = script.alloc("ema", 12 * MIB, KEEP, TRAIN)
        if last:
            script.free(last.pop(), TRAIN)
        last.append(new)

    def inputs(script: Script, number: int) -> None:
        """Previous outputs live until the next ones are there, and everything becomes longer."""
        for i in range(3):
            script.free(
                script.alloc("work", (number + 1) * 4 * MIB, (f"/app/long{i}.py", "run"), WORK, CALL, TRAIN), TRAIN
            )
        concatenated(script, number, last)

    bodies: dict[str, Body] = {
        "nothing": lambda s, n: None,
        "replay buffer": queue(6),
        "levels off": lambda s, n: every(1)(s, n) if n < 7 else None,
        "first step only": lambda s, n: every(1, 50 * MIB)(s, n) if n == 0 else None,
        "replaced by its like": like,
        "inputs grow": inputs,
    }
    leaks, status = found_in(program(bodies[name], 20, annotate=annotate), tmp_path)
    assert [leak.title for leak in leaks if leak.severity == "warning"] == [] and status == "none"


def test_a_kv_cache_grows_and_is_no_leak(tmp_path: Path) -> None:
    """Each of six layers replaces its keys by longer ones with every token; nothing trains."""
    keys: dict[int, int] = {}

    def decode(script: Script, number: int) -> None:
        for layer in range(6):
            new = script.alloc("keys", (number + 8) * MIB, ("/app/attention.py", "attend"), WORK, CALL, TRAIN)
            if layer in keys:
                script.free(keys[layer], TRAIN)
            keys[layer] = new

    (cache,), status = found_in(program(decode, 16, annotate=False), tmp_path)
    assert (cache.severity, status) == ("info", "none")
    assert cache.evidence["bytes_per_step"] == 6 * MIB and cache.bytes == 6 * 23 * MIB
    assert cache.title.startswith("The KV cache grows by 6.00 MiB every iteration in ")
    snapshot = snapreport.load(tmp_path / "shape.pickle")
    assert page_remedies(snapshot, [cache], {0: 0}, 0, Links()) == [], "no leak to fix"
    (chip,) = chips([cache], {0: 0}, 0, Links())
    assert "Without it" not in chip.remedy
    check = leak_check(snapshot, snapshot.timeline(0))
    assert (check.passed, check.value, check.evidence) == (True, 0, [])


@pytest.mark.parametrize("by", ["collector", "list"])
def test_bursts_in_order_are_cycles_and_others_are_not(by: str, tmp_path: Path) -> None:
    """The collector frees the oldest first; a dropped list frees the newest first."""
    piled: list[int] = []

    def body(script: Script, number: int) -> None:
        piled.append(script.alloc("holder", 4 * MIB, KEEP, TRAIN))
        if number % 6 == 5:
            for address in piled if by == "collector" else piled[::-1]:
                script.free(address, TRAIN)
            piled.clear()

    leaks, status = found_in(program(body, 24), tmp_path)
    assert status == "none"
    assert [(f.severity, f.evidence["burst_bytes"]) for f in leaks] == (
        [("info", 24 * MIB)] if by == "collector" else []
    )
    assert all("Possible reference cycle: remember hooks.py:7" in f.title for f in leaks)


def test_one_burst_of_a_loop_that_only_allocates(tmp_path: Path) -> None:
    """Twenty tensors in reference cycles, freed by one gc.collect()."""
    script = Script()
    piled = [script.alloc("holder", 16 * MIB, KEEP, TRAIN) for _ in range(20)]
    for address in piled:
        script.free(address, TRAIN)
    (cycle,), status = found_in(script, tmp_path)
    assert status == "unknown" and cycle.severity == "info" and cycle.evidence["burst_bytes"] == 20 * 16 * MIB
    (chip,) = chips([cycle], {0: 0}, 0, Links())
    assert chip.cause == cycle.title and chip.remedy == cycle.detail[-1], "no peak without it was replayed"


def test_loading_weights_is_no_leak_and_decides_nothing(tmp_path: Path) -> None:
    """Shards copied to the device one after the other, all of which stay."""
    script = Script()
    for number in range(30):
        whole = script.alloc("shard", (4 + number % 5) * MIB, ("/app/load.py", "read"), TRAIN)
        script.alloc("weight", (2 + number % 5) * MIB, ("/app/load.py", "cast"), TRAIN)
        script.free(whole, TRAIN)
    leaks, status = found_in(script, tmp_path)
    assert leaks == [] and status == "unknown"


def test_layers_of_one_forward_pass_are_no_iterations(tmp_path: Path) -> None:
    """Each layer leaves its activations for a backward pass after the end of the trace."""
    script = Script()
    for _ in range(24):
        for i in range(4):
            address = script.alloc("hidden", (3 + i) * MIB, (f"/app/layer{i}.py", "forward"), CALL, TRAIN)
            if i == 3:
                script.free(address, TRAIN)
    leaks, status = found_in(script, tmp_path)
    assert leaks == [] and status == "unknown"


def test_the_saving_is_the_peak_without_what_leaked(tmp_path: Path) -> None:
    script = program(every(1), 12)
    (leak,), _ = found_in(script, tmp_path)
    saving = leak.evidence["saving"]
    snapshot = snapreport.load(tmp_path / "shape.pickle")
    rows = snapshot.query(saving["query"])
    assert int(rows["size"].sum()) == leak.bytes and len(rows) == leak.evidence["live_count"]
    curve = [0]
    for event in script.raw()["device_traces"][0]:
        of_leak = any(frame["name"] == "remember" for frame in event["frames"])
        sign = {"alloc": 1, "free_completed": -1}.get(event["action"], 0)
        curve.append(curve[-1] + (0 if of_leak else sign * event["size"]))
    assert saving["peak_bytes"] == max(curve) and saving["peak_event"] == curve.index(max(curve)) - 1
    assert saving["saves_bytes"] == snapshot.timeline(0).peak_bytes - max(curve)


def test_what_each_step_needs_of_a_leak(tmp_path: Path) -> None:
    """A list of outputs: without it two of them are alive at once, where the next one takes the name of the last."""

    def output(script: Script, number: int) -> None:
        script.alloc("leak", 10 * MIB, KEEP, TRAIN)

    (leak,), _ = found_in(program(output, 12), tmp_path)
    saving, step = leak.evidence["saving"], (40 + 2 + 6 + 7) * MIB
    assert (saving["peak_bytes"], leak.evidence["needed_peak_bytes"]) == (step, step + 2 * 10 * MIB)
    told = "Without the leak the peak would be 55.0 MiB, and 75.0 MiB if each step needs its part (replayed)."
    assert told in leak.detail


@given(st.lists(st.integers(0, 50), min_size=4, max_size=30), st.integers(1, 9))
def test_growth_does_not_depend_on_the_unit(levels: list[int], scale: int) -> None:
    one, other = (growth_of(np.array(levels) * k, 8 * k) for k in (1, scale))
    assert (one is None) == (other is None)
    if one and other:
        assert other.per_repetition == pytest.approx(one.per_repetition * scale)
        assert (one.every, one.status, one.count) == (other.every, other.status, other.count)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=20))
def test_what_a_repetition_adds_is_more_than_ever_before_and_stays(levels: list[int]) -> None:
    expected = [max(0, min(levels[k:]) - max(levels[:k])) for k in range(1, len(levels))]
    assert added_bytes(np.array(levels)).tolist() == expected


@pytest.mark.parametrize(
    ("levels", "status"),
    [
        ([0, 2, 4, 6, 8], "grows"),
        ([0, 0, 2, 2, 4, 4, 6, 6, 8], "grows"),
        ([0, 2, 4, 6], "suspect"),
        ([0, 0, 0, 3, 3, 3, 6], "suspect"),
        ([0, 2, 4, 6, 8, 10, 10, 10, 10, 10, 10, 10], None),  # full
        ([0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6], None),  # a sawtooth
        ([0, 40, 40, 40, 40, 40], None),  # the first step's
        ([9, 7, 9, 8, 9, 7, 8, 9, 7], None),  # varies
        ([0, 40, 42, 44, 46, 48, 50], "grows"),  # after a first step that builds up
    ],
    ids=str,
)
def test_patterns_of_growth(levels: list[int], status: str | None) -> None:
    found = growth_of(np.array(levels), 1)
    assert (found.status if found else None) == status


@pytest.mark.parametrize(("levels", "count"), [([0, 1, 2, 3, 4], 4), ([0, 1, 2, 3, 5], 5), ([0, 1, 2, 4], 4)], ids=str)
def test_a_last_repetition_that_holds_two_steps_counts_twice(levels: list[int], count: int) -> None:
    found = growth_of(np.array(levels) * 8, 8)
    assert found is not None and (found.count, found.per_repetition) == (count, 8.0)


def test_growth_in_two_steps_each_time_is_one_growth() -> None:
    """Of a model that is made anew after every fourth step, part is made before each loop ends; not of the first."""
    found = growth_of(np.array([4, 6, 6, 6, 6, 10, 12, 12, 12, 16, 18, 18, 18, 22, 24, 24, 24]) * 8, 8)
    assert found is not None and (found.status, found.every, found.per_repetition) == ("grows", 4, 12.0)


@given(st.integers(-5, 5), st.integers(3, 90), st.integers(0, 1000))
def test_theil_sen_is_exact_on_a_line_and_ignores_one_outlier(slope: int, count: int, where: int) -> None:
    values = np.arange(count) * slope + 7
    assert theil_sen(values) == slope
    if 8 <= count <= 60:
        values[where % count] += 10_000
        assert theil_sen(values) == slope


def test_steps_go_before_what_the_curve_repeats() -> None:
    found = growth_repetitions(planted("leak").timeline(0))
    assert found is not None and found.unit == "step" and found.is_loop


def test_a_copy_that_the_next_one_replaces_is_no_cycle(tmp_path: Path) -> None:
    """The best weights so far, copied again every third step: the older copy is freed in one burst, from one step."""
    best: list[int] = []

    def body(script: Script, number: int) -> None:
        if number % 3 == 0:
            copy = [script.alloc("copy", 2 * MIB, KEEP, TRAIN) for _ in range(12)]
            for address in best:
                script.free(address, TRAIN)
            best[:] = copy

    leaks, _ = found_in(program(body, 15), tmp_path)
    assert [leak.title for leak in leaks] == []


@pytest.mark.parametrize(("step", "status"), [(3, "none"), (6, "unknown"), (9, "unknown")])
def test_one_growth_decides_nothing_unless_a_second_would_have_been_seen(
    step: int, status: str, tmp_path: Path
) -> None:
    """What grows after every seven or ten of twelve steps has grown once; after every four, three times."""

    def once(script: Script, number: int) -> None:
        if number == step:
            script.alloc("kept", 5 * MIB, KEEP, TRAIN)

    path = tmp_path / "once.pickle"
    path.write_bytes(pickle.dumps(program(once, 12).raw(), 4))
    snapshot = snapreport.load(path)
    leaks, verdict, _ = leaks_of(snapshot, snapshot.timeline(0))
    assert not leaks and verdict.status == status
    assert verdict.reason.startswith("No leak found over") == (status == "none")
    parts = "remember hooks.py", f"grew once, by 5.00 MiB, in the {step + 1}th step of 1"
    assert all(part in verdict.reason for part in parts)


def test_optimizer_state_of_a_late_first_update_is_no_growth(tmp_path: Path) -> None:
    """A gradient scaler skips the first updates: of four steps the third builds the optimizer's state."""
    adam = ("/env/site-packages/torch/optim/adam.py", "_init_group")

    def late(script: Script, number: int) -> None:
        if number == 2:
            script.alloc("moments", 50 * MIB, adam, TRAIN)

    path = tmp_path / "late.pickle"
    path.write_bytes(pickle.dumps(program(late, 4).raw(), 4))
    snapshot = snapreport.load(path)
    leaks, verdict, _ = leaks_of(snapshot, snapshot.timeline(0))
    assert not leaks and (verdict.status, verdict.reason) == ("none", "No leak found over 4 steps.")


def test_gradients_that_a_validation_leaves_alone_are_no_growth(tmp_path: Path) -> None:
    """Each step replaces those of the last, four times; the validation after them frees none."""
    last: list[int] = []

    def train_then_validate(script: Script, number: int) -> None:
        if number < 4:
            for address in last:
                script.free(address, TRAIN)
            last[:] = [script.alloc("gradient", 5 * MIB, TRAIN)]

    path = tmp_path / "validated.pickle"
    path.write_bytes(pickle.dumps(program(train_then_validate, 6).raw(), 4))
    snapshot = snapreport.load(path)
    leaks, verdict, _ = leaks_of(snapshot, snapshot.timeline(0))
    assert not leaks and (verdict.status, verdict.reason) == ("none", "No leak found over 6 steps.")


def test_gradients_of_a_last_step_that_is_cut_short_are_no_growth(tmp_path: Path) -> None:
    """zero_grad() frees them after the forward pass of the next step, which only the last one lacks."""
    backward = ("/env/site-packages/torch/autograd/graph.py", "_engine_run_backward")
    adam = ("/env/site-packages/torch/optim/adam.py", "step")
    gradients: list[int] = []

    def train(script: Script, number: int) -> None:
        while gradients:
            script.free(gradients.pop(), ("/env/site-packages/torch/optim/optimizer.py", "zero_grad"), TRAIN)
        for _ in range(20):
            script.free(script.alloc("temporary", MIB, backward, TRAIN), TRAIN)
        gradients.append(script.alloc("gradient", 20 * MIB, backward, TRAIN))
        script.free(script.alloc("square root", 4 * MIB, adam, TRAIN), adam, TRAIN)

    script = program(train, 5, annotate=False)
    for _ in range(40):
        script.free(script.alloc("average", MIB, ("/app/average.py", "update"), TRAIN), TRAIN)
    path = tmp_path / "short.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    snapshot = snapreport.load(path)
    found = growth_repetitions(snapshot.timeline(0))
    assert found is not None and found.unfinished
    leaks, verdict, _ = leaks_of(snapshot, snapshot.timeline(0))
    assert not leaks and (verdict.status, verdict.reason) == ("none", "No leak found over 5 steps.")


def test_growth_that_is_none_or_a_pattern_is_no_single_growth() -> None:
    assert single_growth(np.array([0, 0, 4, 4, 4, 4, 4]), 1) == SingleGrowth(1, 4, is_open=False)
    assert single_growth(np.array([0, 0, 0, 4, 4, 4]), 1) == SingleGrowth(2, 4, is_open=True)
    assert single_growth(np.array([0, 7, 7, 7, 11, 11]), 1) == SingleGrowth(3, 4, is_open=True), "after warm-up"
    assert single_growth(np.array([0, 0, 0, 0, 4]), 1, uncertain=0) == SingleGrowth(3, 4, is_open=True)
    assert single_growth(np.array([0, 0, 0, 4, 4]), 1, uncertain=2) is None, "freed in whole repetitions alone"
    for levels in ([0] * 6, [0, 4, 4, 4, 4, 4], [0, 0, 0, 0, 4], [0, 0, 4, 4, 8, 8], [0, 4, 8, 12, 16]):
        assert single_growth(np.array(levels), 1) is None


@pytest.mark.parametrize("late", [False, True])
def test_when_a_leak_fills_the_device(late: bool, tmp_path: Path) -> None:
    """A request that failed in an early step shows the limit; in one of the last two, the program has met it."""
    script = program(every(1), 12)
    last = len(script.events)
    at = last * (11 if late else 2) // 12
    size = 200 * MIB
    script.events.insert(at, {**script.events[at], "action": "oom", "addr": 0, "size": 1 << 40, "device_free": size})
    path = tmp_path / "limit.pickle"
    path.write_bytes(pickle.dumps(script.raw()))
    timeline = snapreport.load(path).timeline(0)
    (leak,), _ = found_in(script, tmp_path)
    assert leak.evidence["device_limit"] == size + int(timeline.reserved[at + 1])
    said = [str(line) for line in leak.detail if "emory ran out" in str(line) or "Memory runs out" in str(line)]
    if late:
        live = 3 * MIB * sum(tag == "leak" for tag in script.tags.values()) * 11 // 12
        allocated = int(timeline.allocated[at + 1])
        assert said == [
            f"When memory ran out, {bytes_text(live)} of the {bytes_text(allocated)} allocated came from it."
        ]
    else:
        more = (leak.evidence["device_limit"] - timeline.peak_bytes) // (3 * MIB)
        assert said == [f"Memory runs out after {more} more steps at 3.00 MiB each."]
