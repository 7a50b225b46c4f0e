"""What a failed request says about the rest of its pass, against the same program on a device that is large enough."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from scripted import MIB, Script
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, TORCH, WEIGHTS

import snapreport
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.cut_off_pass import repeats_of_parameters
from snapreport.findings.model import Finding
from snapreport.findings.run import findings

LINES = (("attend", 16), ("expand", 40), ("contract", 10))
"""What each line of a layer allocates, in MiB."""
MATRICES = (20, 12, 24)
FREE = 2 * MIB


def whole(layers: int, steps: int) -> tuple[Script, dict[int, int]]:
    """(a model's steps, and another one; by event of a forward pass: the number of its layer, from 1)."""
    script, of_layer = Script(), {}
    script.alloc("embedding", 50 * MIB, *WEIGHTS)
    for _ in range(layers):
        for size in MATRICES:
            script.alloc("parameter", size * MIB, *WEIGHTS)
            script.alloc("parameter", MIB, *WEIGHTS)
    gradients: list[int] = []
    for _ in range(steps + 1):
        while gradients:
            script.free(gradients.pop(), (TORCH + "optim/optimizer.py", "zero_grad"))
        made = [script.alloc("activation", 30 * MIB, ("/app/model.py", "embed"), *FORWARD)]
        for layer in range(layers):
            for line, size in LINES:
                of_layer[len(script.events)] = layer + 1
                made.append(script.alloc("activation", size * MIB, ("/app/model.py", line), *FORWARD))
        made.append(script.alloc("activation", 64 * MIB, ("/app/model.py", "head"), *FORWARD))
        while made:
            gradients.append(script.alloc("gradient", 8 * MIB, *BACKWARD))
            script.free(made.pop(), *BACKWARD)
    return script, of_layer


def failed(script: Script, event: int, folder: Path) -> Finding:
    """The finding where the allocation at an event failed, with ``FREE`` bytes left."""
    live: dict[int, tuple[str, int]] = {}
    for one in script.events[:event]:
        if one["action"] == "alloc":
            live[one["addr"]] = "", one["size"]
        elif one["action"] == "free_completed":
            del live[one["addr"]]
    request = {**script.events[event], "action": "oom", "addr": 0, "device_free": FREE}
    path = folder / "failed.pickle"
    path.write_bytes(pickle.dumps(Script(events=[*script.events[:event], request], live=live).raw()))
    (found,) = (one for one in findings(snapreport.load(path)) if one.kind == "oom")
    return found


def allocated(script: Script) -> list[int]:
    """Bytes after each event."""
    sums = {"alloc": 1, "free_completed": -1}
    curve, now = [], 0
    for one in script.events:
        now += sums.get(one["action"], 0) * one["size"]
        curve.append(now)
    return curve


@pytest.mark.parametrize("layers", [3, 7])
@pytest.mark.parametrize("steps", [0, 2])
def test_the_layer_and_what_the_end_of_its_pass_needs(layers: int, steps: int, tmp_path: Path) -> None:
    """After whole steps exactly what the pass needs; without one a lower bound, less than two layers too low."""
    script, of_layer = whole(layers, steps)
    curve = allocated(script)
    for event in list(of_layer)[-layers * len(LINES) :: 2]:
        told = failed(script, event, tmp_path).evidence
        missing = max(curve[event:]) - curve[event - 1] - FREE
        layer = of_layer[event]
        if steps:
            assert (told["layer"], told["layers"], told["missing_bytes"]) == (layer, layers, missing)
        elif layer > 2 or (layer == 2 and script.events[event]["frames"][0]["name"] != "attend"):
            assert (told["layer"], told["layers"]) == (layer, layers)
            left = missing - told["missing_bytes"]
            assert 0 <= left <= (64 + 2 * sum(size for _, size in LINES)) * MIB
        else:  # no line has run twice: nothing tells a first layer from what runs once
            assert (told["layer"], told["layers"]) == (0, 0) and 0 <= told["missing_bytes"] <= missing


def counted(folder: Path, *runs: tuple[int, list[int]]) -> int:
    """The number of layers of a model whose runs of parameters, of these sizes in KiB, repeat so often."""
    script = Script()
    for times, sizes in runs:
        for size in sizes * times:
            script.alloc("parameter", size << 10, *WEIGHTS)
    (folder / "model.pickle").write_bytes(pickle.dumps(script.raw()))
    snapshot = snapreport.load(folder / "model.pickle")
    return repeats_of_parameters(AdviceContext(snapshot, snapshot.timeline(0), []))


LAYER = [4, 1024, 4, 1024, 512]


@pytest.mark.parametrize(
    ("runs", "layers"),
    [
        ([(1, [8000]), (6, LAYER), (1, [8000])], 6),
        # Two matrices and what is 32 times smaller: a layer may have them twice. 8 times smaller is a third one.
        ([(6, [4, 1024, 4, 1024, 32])], 0),
        ([(6, [4, 1024, 4, 1024, 128])], 6),
        # A decoder with as many layers is the same number, one with others leaves it unclear, unless it is small.
        ([(6, LAYER), (6, [2048, 16, 1024, 256])], 6),
        ([(6, LAYER), (4, [2048, 16, 1024, 512])], 0),
        ([(12, LAYER), (4, [512, 16, 256, 128])], 12),
    ],
)
def test_layers_by_their_parameters(runs: list[tuple[int, list[int]]], layers: int, tmp_path: Path) -> None:
    assert counted(tmp_path, *runs) == layers


def test_more_parameters_are_not_searched(tmp_path: Path) -> None:
    """The search takes the square of their number: 50 s for 45,000."""
    assert counted(tmp_path, (800, LAYER)) == 800
    assert counted(tmp_path, (801, LAYER)) == 0


def test_the_first_step_of_a_second_model_needs_what_that_of_the_first_did(tmp_path: Path) -> None:
    """The request and the one like it before are both of a step, which makes an optimizer's state."""
    script, kept = Script(), list[int]()
    for _ in range(2):
        for _ in range(4):
            script.alloc("parameter", 20 * MIB, *WEIGHTS)
        made = [script.alloc("activation", 8 * MIB, ("/app/model.py", "expand"), *FORWARD) for _ in range(4)]
        while made:
            script.alloc("gradient", 20 * MIB, *BACKWARD)
            script.free(made.pop(), *BACKWARD)
        kept += [len(script.events) + number for number in range(4)]
        for _ in range(4):
            script.alloc("state", 40 * MIB, *OPTIMIZER)
    event, curve = kept[5], allocated(script)
    oom = failed(script, event, tmp_path)
    assert oom.evidence["phase"] == "optimizer step"
    assert oom.evidence["missing_bytes"] == curve[-1] - curve[event - 1] - FREE
