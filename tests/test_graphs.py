"""Graphs that no backward pass uses, and several that wait for one: what advice says about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted import MIB, Script
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, TORCH, WEIGHTS, advised

LINES = ("embed", "attend", "normalise", "project", "head")
LAYERS = 4
PASS = len(LINES) * LAYERS * 10 * MIB
"""Bytes that one forward pass saves."""


def forward(script: Script, tag: str, caller: str = "train_step") -> list[int]:
    """A batch of 1 MiB, then what a forward pass saves."""
    held = [script.alloc("batch", MIB, ("/app/train.py", "next_batch"))]
    for _ in range(LAYERS):
        held += [
            script.alloc(tag, 10 * MIB, ("/app/model.py", line), *FORWARD, ("/app/run.py", caller)) for line in LINES
        ]
    return held


def backward(script: Script, held: list[int], *, of_loss: bool = True) -> None:
    if of_loss:
        held = [*held, script.alloc("root", 512, (TORCH + "autograd/__init__.py", "_make_grads"), *BACKWARD)]
    grads = [script.alloc("gradient", 5 * MIB, *BACKWARD) for _ in range(4)]
    for address in [*held[::-1], *grads]:
        script.free(address, *BACKWARD)


def steps(script: Script, count: int, passes: int, *, together: bool, of_loss: bool = True, loss: int = 4) -> None:
    """``loss``: bytes of what the program computes from each pass."""
    for number in range(count):
        began, waiting = len(script.events), []
        for _ in range(passes):
            waiting += forward(script, "activation")
            waiting.append(script.alloc("loss", loss, ("/app/train.py", "loss_of")))
            if not together:
                backward(script, waiting)
                waiting = []
        if waiting:
            backward(script, waiting, of_loss=of_loss)
        script.free(script.alloc("update", MIB, *OPTIMIZER), *OPTIMIZER)
        script.step(number, began)


def evaluate(script: Script, count: int, *, keeps: bool) -> None:
    """Forward passes after training. ``keeps``: gradients are on, and the graph is freed with the output."""
    for _ in range(count):
        held = forward(script, "evaluation", "evaluate")
        for address in held[:-1]:
            script.free(address, *(() if keeps else FORWARD))
        script.free(held[-1])


def model() -> Script:
    script = Script()
    for _ in range(12):
        script.alloc("parameter", 5 * MIB, *WEIGHTS)
    return script


def test_four_graphs_that_wait_for_one_backward_pass(tmp_path: Path) -> None:
    script = model()
    steps(script, 4, 4, together=True)
    advice = advised(script.raw(), tmp_path)
    found = advice["backward-each"]
    assert found.title.startswith("Call backward() after each forward pass: peak ") and found.confidence == "estimate"
    assert found.evidence["passes"] == 4
    assert found.evidence["saving"]["saves_bytes"] == pytest.approx(3 * PASS, rel=0.01)
    # No number: neither parameters nor calls of other lines prove it.
    assert advice["checkpointing"].detail[0].startswith("Activations of repeated layers hold ")


def test_passes_that_read_the_output_of_the_last_have_no_loss_of_their_own(tmp_path: Path) -> None:
    """A solver's steps, a decoder's words, both sides of a contrastive loss."""
    script = model()
    steps(script, 4, 4, together=True, loss=MIB)
    assert "backward-each" not in advised(script.raw(), tmp_path)


@pytest.mark.parametrize(("passes", "together"), [(4, False), (1, True)])
def test_one_graph_at_a_time(tmp_path: Path, passes: int, together: bool) -> None:
    script = model()
    steps(script, 4, passes, together=together)
    advice = advised(script.raw(), tmp_path)
    assert not {"backward-each", "no-grad"} & advice.keys()
    assert advice["checkpointing"].detail[0].startswith("Activations of repeated layers hold ")


def test_a_stage_of_a_pipeline_holds_its_micro_batches(tmp_path: Path) -> None:
    """It receives gradients from the next stage, and has no loss of its own."""
    script = model()
    steps(script, 4, 4, together=True, of_loss=False)
    assert "backward-each" not in advised(script.raw(), tmp_path)


@pytest.mark.parametrize("passes", [1, 4])
def test_gradients_zeroed_in_place_are_needed_by_further_micro_batches(tmp_path: Path, passes: int) -> None:
    """With one pass a step, its forward pass can do without them; of four, the last three cannot."""
    script, gradients = model(), 0
    for number in range(4):
        began = len(script.events)
        for _ in range(passes):
            held = forward(script, "activation")
            root = script.alloc("root", 512, (TORCH + "autograd/__init__.py", "_make_grads"), *BACKWARD)
            for at, address in enumerate([root, *held[::-1]]):
                script.free(address, *BACKWARD)
                if at % 2 and gradients < 12:
                    script.alloc("gradient", 5 * MIB, *BACKWARD)
                    gradients += 1
        script.free(script.alloc("update", MIB, *OPTIMIZER), *OPTIMIZER)
        script.step(number, began)
    found = advised(script.raw(), tmp_path)["keep-gradients"]
    if passes == 1:
        needed = (12 * 5 + 1) * MIB + PASS + 512
        assert "peak" in found.title and 0 <= found.evidence["saving"]["peak_bytes"] - needed <= 5 * MIB
    else:
        assert "peak" not in found.title and "further micro-batches need them" in found.detail[1]


def test_evaluation_with_gradients_after_training(tmp_path: Path) -> None:
    script = model()
    steps(script, 2, 1, together=True)
    script.alloc("results", 100 * MIB, ("/app/run.py", "evaluate"))  # moves the peak into the evaluation
    evaluate(script, 3, keeps=True)
    advice = advised(script.raw(), tmp_path)
    found = advice["no-grad"]
    assert found.title.startswith("Wrap evaluation in torch.no_grad(): peak")
    assert found.evidence["at_peak_bytes"] == PASS - 10 * MIB, "all but the output"
    assert "checkpointing" not in advice, "what no backward pass uses needs no checkpoint"


def test_what_a_pass_without_gradients_needs_stays(tmp_path: Path) -> None:
    """Weights, a batch, four activations in use and the output; a share of all bytes is rounded down to 1 / 4096."""
    script = model()
    evaluate(script, 3, keeps=True)
    found = advised(script.raw(), tmp_path)["no-grad"]
    needed = (12 * 5 + 1 + 4 * 10 + 10) * MIB
    assert found.title.startswith("Wrap inference in torch.no_grad(): peak")
    assert 0 <= found.evidence["saving"]["peak_bytes"] - needed <= PASS / 4096


def test_evaluation_without_gradients_after_training(tmp_path: Path) -> None:
    script = model()
    steps(script, 2, 1, together=True)
    evaluate(script, 3, keeps=False)
    assert "no-grad" not in advised(script.raw(), tmp_path)


def test_a_forward_pass_that_ran_out_of_memory_is_no_evaluation(tmp_path: Path) -> None:
    script = model()
    steps(script, 2, 1, together=True)
    held = [address for _ in range(3) for address in forward(script, "activation")]
    event = {"action": "oom", "addr": 0, "device_free": 0, "size": 1 << 30, "stream": 0, "frames": []}
    script.events.append({**event, "time_us": 10 * (len(script.events) + 1)})
    for address in held:
        script.free(address)
    assert "no-grad" not in advised(script.raw(), tmp_path)


def test_graphs_of_an_evaluation_that_runs_out_of_memory(tmp_path: Path) -> None:
    script = model()
    steps(script, 2, 1, together=True)
    held = [address for _ in range(4) for address in forward(script, "evaluation", "evaluate")]
    event = {"action": "oom", "addr": 0, "device_free": 0, "size": 1 << 30, "stream": 0, "frames": []}
    script.events.append({**event, "time_us": 10 * (len(script.events) + 1)})
    for address in held:
        script.free(address)
    found = advised(script.raw(), tmp_path)["backward-each"]
    assert found.title.startswith("Free the graph of each forward pass before the next: 1.84 → ")
    assert found.title.endswith(" or more at the failure") and found.confidence == "estimate"
    assert found.evidence["passes"] == 4 and "memory ran out before any backward pass" in found.detail[0]


def test_half_of_what_a_loss_made_is_a_part_of_the_bound(tmp_path: Path) -> None:
    """The program dies before anything frees what its loss made outside of any module."""
    script = model()
    steps(script, 2, 1, together=True)
    forward(script, "activation")
    for _ in range(20):
        script.alloc("of the loss", 10 * MIB, ("/app/loss.py", "focal"), ("/app/run.py", "train_step"))
    event = {"action": "oom", "addr": 0, "device_free": 0, "size": 10 * MIB, "stream": 0, "frames": []}
    script.events.append({**event, "time_us": 10 * (len(script.events) + 1)})
    saving = advised(script.raw(), tmp_path)["accumulation"].evidence["saving"]
    assert saving["is_lower_bound"] and saving["peak_bytes"] <= 12 * 5 * MIB + (PASS + 21 * 10 * MIB) // 2 + 25 * MIB


def zeroing(when: str) -> Script:
    """A loop that calls ``zero_grad`` before the forward pass, after it as Lightning does, or never."""
    script, gradients = model(), list[int]()

    def zero(now: str) -> None:
        while gradients and when == now:
            script.free(gradients.pop(), (TORCH + "optim/optimizer.py", "zero_grad"))

    for number in range(4):
        began = len(script.events)
        zero("before")
        held = forward(script, "activation")
        zero("after")
        has_gradients = bool(gradients)
        root = script.alloc("root", 512, (TORCH + "autograd/__init__.py", "_make_grads"), *BACKWARD)
        for at, address in enumerate([root, *held[::-1]]):
            script.free(address, *BACKWARD)
            if at % 2 and not has_gradients:
                gradients.append(script.alloc("gradient", 5 * MIB, *BACKWARD))
        script.free(script.alloc("update", MIB, *OPTIMIZER), *OPTIMIZER)
        script.step(number, began)
    return script


@pytest.mark.parametrize("has_stacks", [True, False])
@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_gradients_that_are_freed_after_a_forward_pass(tmp_path: Path, when: str, has_stacks: bool) -> None:
    """PyTorch 2.11 records no stack traces of frees: then their place between both passes says so."""
    script = zeroing(when)
    raw = script.raw()
    for event in raw["device_traces"][0]:
        if not has_stacks and event["action"].startswith("free"):
            event["frames"] = []
    given = advised(raw, tmp_path).get("keep-gradients")
    assert (given is None) == (when == "before")
    if given is None:
        return
    is_late = "are freed only after the forward pass of the next step" in given.detail[0]
    assert is_late == (when == "after") and is_late != ("zeroed in place, or never" in given.detail[0])
    assert given.title.startswith("Call zero_grad() before the forward pass" if is_late else "Free gradients between")
    if is_late:
        mended = zeroing("before")
        assert given.evidence["saving"]["peak_bytes"] == mended.total(mended.peak) < script.total(script.peak)
        assert bool(given.evidence["where"]) == has_stacks
        assert has_stacks or given.evidence["where_unknown"] == "directly after the optimizer's step"
