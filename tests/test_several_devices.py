"""What one of several GPUs holds says nothing of another; which layers of a model on several should move is known."""

from __future__ import annotations

import functools
import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any

import beside
import corpus
import fake_torch
import pytest
from fake_torch import PROGRAMS

import snapreport
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot

CLOSE = 0.06
"""A promised peak is at most so far from the highest that was measured."""
RECORDINGS = sorted((Path(__file__).parent / "recordings").rglob("*.pickle.xz"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("devices")


@functools.cache
def recorded(torch: fake_torch.FakeTorch, folder: Path, program: str, remedy: str = "") -> Snapshot:
    out = folder / f"{torch.version} {program} {remedy}.pickle"
    settings = {"FAKE_GPU_GIB": 24, "FAKE_GPU_COUNT": 2}
    done = torch.run(PROGRAMS / "remedy_pairs.py", out, program, remedy, **settings)
    assert done.code == 0, done.err
    return snapreport.load(out)


def advice(snapshot: Snapshot, device: int) -> dict[str, Finding]:
    return {one.evidence["rule"]: one for one in findings(snapshot, [device]) if one.kind == "advice"}


@pytest.mark.parametrize("torch", fake_torch.parameters())
@pytest.mark.parametrize(
    ("program", "device", "layers", "how"),
    [
        ("layered", 0, 10, "with 4 on cuda:1"),
        ("layered_second", 1, 10, "with 4 on cuda:0"),
        ("layered_inference", 0, 10, "with 4 on cuda:1"),
    ],
)
def test_layers_to_move(
    torch: fake_torch.FakeTorch, folder: Path, program: str, device: int, layers: int, how: str
) -> None:
    even = recorded(torch, folder, program, "even")
    given = advice(recorded(torch, folder, program), device)["device-imbalance"]
    measured = max(even.timeline(each).peak_bytes for each in (0, 1))
    assert given.evidence["saving"]["peak_bytes"] == pytest.approx(measured, rel=CLOSE)
    assert given.evidence["layers"] == layers and how in given.detail[1]
    assert not any("device-imbalance" in advice(even, each) for each in (0, 1))


@pytest.mark.parametrize("torch", fake_torch.parameters())
@pytest.mark.parametrize("program", ["taught", "at_once", "stored_beside", "replicated", "replicated_half"])
def test_no_layer_of_these_moves(torch: fake_torch.FakeTorch, folder: Path, program: str) -> None:
    """A teacher, another training, a data set, gradients and state that only the first device has."""
    snapshot = recorded(torch, folder, program)
    assert not any("device-imbalance" in advice(snapshot, device) for device in (0, 1))


@pytest.mark.parametrize("torch", fake_torch.parameters())
def test_each_device_does_its_own(torch: fake_torch.FakeTorch, folder: Path) -> None:
    """A teacher's batch is halved as any inference's; a data set is no batch of a program that trains elsewhere."""
    taught = recorded(torch, folder, "taught")
    assert "accumulation" in advice(taught, 0) and "accumulation" not in advice(taught, 1)
    assert taught.timeline(1).activity.kind == "inference"
    assert not advice(recorded(torch, folder, "stored_beside"), 1)


@pytest.mark.parametrize("torch", fake_torch.parameters())
def test_gradients_of_data_parallel_are_those_of_many_weights(torch: fake_torch.FakeTorch, folder: Path) -> None:
    assert "frozen-base" not in advice(recorded(torch, folder, "replicated"), 0)


@pytest.mark.parametrize("torch", fake_torch.parameters())
def test_copies_compute_in_the_type_of_the_first(torch: fake_torch.FakeTorch, folder: Path) -> None:
    snapshot = recorded(torch, folder, "replicated_half")
    assert not any("mixed-precision" in advice(snapshot, device) for device in (0, 1))


def said(path: Path, device: int) -> list[tuple[Any, ...]]:
    """Findings without the device's name."""
    return [
        (one.kind, one.confidence, *(text.replace(f"cuda:{device}", "cuda") for text in (one.title, *one.detail)))
        for one in findings(snapreport.load(path), [device])
    ]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name.partition('.')[0]}")
def test_an_idle_device_changes_nothing(tmp_path: Path, path: Path) -> None:
    """As a rank has on the first device, which it should not use."""
    raw = deepcopy(corpus.raw(path))
    traces = raw["device_traces"]
    if len(traces) != 1 or any(raw.get("host_traces", [])) or not traces[0]:
        pytest.skip("on no or several devices")
    if "snapreport" in raw:
        pytest.skip("our recorder noted types by the number of the device")
    for name, content in (("alone", corpus.raw(path)), ("beside", beside.an_idle_device(raw))):
        (tmp_path / name).write_bytes(pickle.dumps(content, 4))
    assert said(tmp_path / "beside", 1) == said(tmp_path / "alone", 0)
