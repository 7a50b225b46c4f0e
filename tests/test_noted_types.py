"""Advice that rests on types of numbers, and on what autograd saves, as a recorder noted them: in planted traces, and
in programs that PyTorch runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fake_torch
import pytest
from fake_torch import PROGRAMS, FakeTorch
from scripted import MIB, Script
from test_advice_rules import attention
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, TORCH, WEIGHTS, advised, rules_of

import snapreport
from snapreport.findings.model import Finding

LINEAR = ((TORCH + "nn/modules/linear.py", "forward"), *FORWARD)
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "int8": 1, "bool": 1}
UNKNOWN = "A snapshot does not record types"
ASSUMED = "This assumes that it is in 32 bits today."


def noting(script: Script, types: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """The snapshot of a script whose recorder noted the types of tensors with these tags, and the ``grad_fn`` that
    saved each; state of an optimizer by its address, as at the end.
    """
    raw, noted, tensors = script.raw(), {"outputs": [], "saved": []}, []
    for event in raw["device_traces"][0]:
        tag = script.tags.get(event["addr"], "")
        if event["action"] == "alloc" and tag in types:
            kind, saved_by = types[tag]
            shape = [event["size"] // BYTES[kind]]
            if tag == "state":
                tensors.append([0, event["addr"], "optimizer state", f"{len(tensors)}.exp_avg", shape, f"torch.{kind}"])
            row = [0, shape, f"torch.{kind}", BYTES[kind], *([saved_by] if saved_by else [])]
            noted["saved" if saved_by else "outputs"].append((event["time_us"] + 1, event["addr"], row))
    modules: dict[str, Any] = {"paths": [["", ""], ["net", "Net"]], "times": [1], "codes": [1]}
    for name, rows in noted.items():
        times, addresses = ([row[at] for row in rows] for at in (0, 1))
        modules[name] = {
            "kinds": [row[2] for row in rows], "codes": list(range(len(rows))),
            "times": differences(times), "addresses": differences(addresses),
        }  # fmt: skip
    end = raw["device_traces"][0][-1]["time_us"]
    marks = [{"time_us": end, "tensors": tensors}]
    return raw | {"snapreport": {"schema": "snapreport-recording/1", "modules": modules, "marks": marks}}


def differences(values: list[int]) -> list[int]:
    return [one - before for one, before in zip(values, [0, *values], strict=False)]


def steps(encoder: int = 0, state: int = 1) -> Script:
    """Four steps of twelve layers of 100 MiB, after an encoder's of so many; sizes in MiB."""
    script = Script()
    for _ in range(12):
        script.alloc("parameter", 50 * MIB, *WEIGHTS)
    for number in range(4):
        began = len(script.events)
        encoded = [script.alloc("encoded", encoder * MIB, *LINEAR) for _ in range(12) if encoder]
        held = [script.alloc("activation", 100 * MIB, *LINEAR) for _ in range(12)]
        gradients = [script.alloc("gradient", 50 * MIB, *BACKWARD) for _ in range(12)]
        for address in [*held[::-1], *encoded[::-1]]:
            script.free(address, *BACKWARD)
        if number == 0:
            for _ in range(12):
                script.alloc("state", state * MIB, *OPTIMIZER)
        for address in gradients:
            script.free(address, (TORCH + "optim/optimizer.py", "zero_grad"))
        script.step(number, began)
    return script


def text(finding: Finding) -> str:
    return " ".join(map(str, finding.detail))


@pytest.mark.parametrize("saved_by", ["", "AddmmBackward0", "ConvolutionBackward0"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_products_in_16_bits_have_no_use_for_autocast(tmp_path: Path, kind: str, saved_by: str) -> None:
    found = advised(noting(steps(), {"activation": (kind, saved_by)}), tmp_path)
    assert ("mixed-precision" in found) == (kind == "float32")
    if kind == "float32":
        assert "read and return is in 32 bits" in text(found["mixed-precision"])
        assert UNKNOWN not in text(found["mixed-precision"])


def test_nothing_noted(tmp_path: Path) -> None:
    assert UNKNOWN in text(advised(steps().raw(), tmp_path)["mixed-precision"])


def test_only_a_small_part_computes_in_16_bits(tmp_path: Path) -> None:
    """It stays as it is: half of the rest, less copies of half of all weights, is what autocast saves."""
    mixed = {"activation": ("float32", ""), "encoded": ("bfloat16", "")}
    found = advised(noting(steps(encoder=25), mixed), tmp_path)["mixed-precision"]
    assert "80% of what matrix products and convolutions read and return is in 32 bits" in text(found)
    assert found.evidence["saving"]["saves_bytes"] == pytest.approx((600 - 300) * MIB, rel=0.01)
    assert "mixed-precision" not in advised(noting(steps(encoder=110), mixed), tmp_path)


@pytest.mark.parametrize(("kind", "share"), [("float32", 3 / 4), ("bfloat16", 1 / 2), ("int8", 0), ("", 3 / 4)])
def test_state_of_an_optimizer_in_8_bits(tmp_path: Path, kind: str, share: float) -> None:
    found = advised(noting(steps(state=80), {"state": (kind, "")} if kind else {}), tmp_path)
    if not share:
        assert "optimizer-state" not in found
        return
    advice = found["optimizer-state"]
    assert advice.evidence["saving"]["saves_bytes"] == 12 * 80 * MIB * share
    assert (ASSUMED in text(advice)) == (not kind)


@pytest.mark.parametrize("saved_by", ["SoftmaxBackward0", "ExpBackward0", "PowBackward0", ""])
def test_what_no_softmax_saves_is_no_attention(tmp_path: Path, saved_by: str) -> None:
    """A norm of 16-bit numbers in 32 bits makes equal matrices before a smaller result, too. Where nothing was noted,
    sizes alone say what they are.
    """
    script = attention(256, (("/app/model.py", "attend"), *FORWARD))
    found = advised(noting(script, {"scores": ("float32", saved_by)}), tmp_path)
    assert ("sdpa-math-kernel" in found) == (saved_by != "PowBackward0")


@pytest.fixture(scope="module")
def torch() -> FakeTorch:
    if not fake_torch.FOLDERS:
        pytest.skip(fake_torch.NONE)
    return FakeTorch(fake_torch.FOLDERS[-1])


def recorded(torch: FakeTorch, folder: Path, *command: object) -> snapreport.Snapshot:
    done = torch.run(*command, is_new=True, FAKE_GPU_GIB=10, PYTHONPATH=fake_torch.package_folder(folder))
    assert done.code == 0, done.err
    (path,) = folder.glob("rank_*")
    return snapreport.load(path)


def adapters(torch: FakeTorch, folder: Path, *options: object) -> snapreport.Snapshot:
    (folder := folder / "-".join(map(str, options))).mkdir()
    return recorded(torch, folder, PROGRAMS / "adapters.py", folder, *options)


@pytest.mark.parametrize(("batch", "is_clear"), [(512, True), (2048, False)])
def test_frozen_weights_under_autocast(torch: FakeTorch, tmp_path: Path, batch: int, is_clear: bool) -> None:
    """Autocast copies them, and products save the copies: both go with weights in 16 bits. What a layer reads of 2,048
    rows has as many numbers as its weight: then only the range says that copies go.
    """
    before, mended = (adapters(torch, tmp_path, kind, "autocast", batch) for kind in ("float32", "bfloat16"))
    given = rules_of(before)["frozen-base"]
    assert given.confidence == "inferred" and UNKNOWN not in text(given)
    assert "frozen-base" not in rules_of(mended)
    saving, measured = given.evidence["saving"], mended.timeline(0).peak_bytes
    assert saving["low_bytes"] <= measured <= saving["high_bytes"]
    assert (saving["peak_bytes"] == pytest.approx(measured, rel=0.01)) == is_clear
    assert ("16-bit copies of them" in text(given)) == is_clear


def test_frozen_weights_without_autocast(torch: FakeTorch, tmp_path: Path) -> None:
    given = rules_of(adapters(torch, tmp_path, "float32", "plain", 512))["frozen-base"]
    assert given.confidence == "inferred" and UNKNOWN not in text(given)
    assert "activations too" in text(given) and "16-bit copies of them" not in text(given)


@pytest.mark.parametrize("program", ["words", "images"])
@pytest.mark.parametrize("remedy", ["", "autocast"])
def test_programs(torch: FakeTorch, tmp_path: Path, program: str, remedy: str) -> None:
    command = [PROGRAMS / "remedies.py", tmp_path / "own.pickle", program, remedy]
    done = torch.record("--output", tmp_path, "--at-exit", command=command)
    assert done.code == 0, done.err
    (path,) = tmp_path.glob("rank_*")
    found = rules_of(snapreport.load(path))
    assert ("mixed-precision" in found) == (not remedy)
    assert all(UNKNOWN not in text(finding) and ASSUMED not in text(finding) for finding in found.values())
