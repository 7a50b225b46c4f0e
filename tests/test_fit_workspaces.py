"""Convolutions on a device with cuDNN: other algorithms at other sizes, with other workspaces."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import cli
import corpus
import msgspec
import numpy as np
import planted_trace
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import snapreport
from snapreport.allocator.placement import Ascending
from snapreport.allocator.replay import replay
from snapreport.allocator.whatif import WhatIf
from snapreport.contracts.fit import FitDocument
from snapreport.forecast.convolution_workspaces import fit_workspaces, workspaces
from snapreport.forecast.prediction import ROOM
from snapreport.forecast.size_laws import size_laws
from snapreport.report.fit_text import fit_text

MIB = 1 << 20
RECORDINGS = corpus.ROOT / "tests" / "recordings" / "fit"
# unet_batch of tests/fakecuda/programs/sized.py on an H200 with PyTorch 2.11: batch → requested_bytes.all.peak and
# reserved_bytes.all.peak of torch.cuda.memory_stats.
RAN = {8: (43579523, 54525952), 16: (79362179, 111149056), 24: (115144835, 163577856), 32: (150923387, 213909504)}
MODULE, CPP = ("/venv/torch/nn/modules/conv.py", "_conv_forward"), ("??", "at::native::cudnn_convolution(at::Tensor)")
OTHERS = [("/venv/torch/_dynamo/symbolic_convert.py", "convert"), ("/w/model.py", "forward")]


def unet(batch: int) -> Path:
    return RECORDINGS / f"unet{batch}.pickle.xz"


def device_of(at: list[float], to: list[float], **more: Any) -> Any:
    (device,) = snapreport.fit([unet(int(value)) for value in at], at, to=to, **more)["devices"]
    return device


@pytest.mark.parametrize("at", [[8], [16], [8, 16], [16, 24], [8, 16, 24]])
def test_peaks_of_a_real_device_are_within_their_range(at: list[float]) -> None:
    for row in device_of(at, list(RAN))["predictions"]:
        allocated, reserved = RAN[row["value"]]
        assert row["low_bytes"] <= row["peak_reserved_bytes"] <= row["high_bytes"]
        assert row["low_bytes"] <= reserved <= row["high_bytes"], row
        assert row["allocated_low_bytes"] <= row["peak_allocated_bytes"] <= row["allocated_high_bytes"]
        assert row["allocated_low_bytes"] <= allocated <= row["allocated_high_bytes"], row
        assert (row["low_bytes"] == row["high_bytes"]) == (row["value"] in at)
        if len(at) > 1:
            # A parabola through 8, 16 and 32 KiB of another algorithm was up to 35% above.
            assert row["peak_reserved_bytes"] == pytest.approx(reserved, rel=0.02)


def test_within_the_range_nothing_is_decided() -> None:
    low, high = (device_of([8, 16], [32])["predictions"][-1][key] for key in ("low_bytes", "high_bytes"))
    for memory, fits, status in [
        (high + MIB, True, "passed"), ((low + high) // 2, None, "unknown"), (low - MIB, False, "failed"),
    ]:  # fmt: skip
        assert device_of([8, 16], [32], memory=memory)["predictions"][-1]["fits"] is fits
        arguments = ("--fits", f"{memory}B", "--at", "batch=8,16", "--to", "32", unet(8), unet(16))
        (found,) = json.loads(cli.in_process("check", *arguments, "--json").out)["checks"]
        assert found["status"] == status


@pytest.mark.parametrize("share", [0.7, 0.8, 0.9, 1.0, 1.1])
def test_the_largest_value_is_within_its_range(share: float) -> None:
    """Against replays of what ran at 24 and 32."""
    memory = int(share * RAN[32][1])
    (largest,) = device_of([8, 16], [], memory=memory)["largest"]
    assert largest["low_value"] <= largest["value"] <= largest["high_value"]
    for value in (24, 32):
        trace = WhatIf(snapreport.load(unet(value)).timeline(0)).trace
        done = replay(trace, WhatIf(snapreport.load(unet(value)).timeline(0)).own, Ascending(memory), start=None)
        runs = done.oom_event is None and not done.failed
        assert value <= largest["high_value"] if runs else value > largest["low_value"]


def test_the_answer_says_why_it_is_a_range() -> None:
    text = fit_text(msgspec.convert(snapreport.fit([unet(8), unet(16)], [8, 16], to=[32]), FitDocument))
    # 12,779,664 bytes at batch 16: the largest request that is freed at once.
    assert "Workspaces of convolutions take up to 12.2 MiB at once. cuDNN chooses an algorithm for each shape" in text
    alone = fit_text(msgspec.convert(snapreport.fit([unet(8)], [8], to=[32]), FitDocument))
    assert "cuDNN chooses an algorithm" in alone
    without = fit_text(msgspec.convert(snapreport.fit([corpus.path_of("small")], [8], to=[32]), FitDocument))
    assert "cuDNN" not in without


class Planted(planted_trace.Recording):
    """Requests of line 9 have a frame more, and those of line 0 no stack, as in autograd's threads."""

    def __init__(self, inner: tuple[str, str]) -> None:
        self.inner = inner
        super().__init__()

    def event(self, action: str, address: int, size: int, line: int, **more: object) -> None:
        super().event(action, address, size, line, **more)
        frames = self.trace[-1]["frames"]
        if line == 9:
            frames.insert(0, {"filename": self.inner[0], "line": 1, "name": self.inner[1]})
        if not line:
            frames.clear()


def planted(folder: Path, batch: int, forward: int, backward: int, inner: tuple[str, str] = MODULE) -> Path:
    """A result of 8 * batch MiB, beside which a workspace is freed at once in the forward and the backward pass."""
    record = Planted(inner)
    weight = record.request(100)
    activation = record.request(8 * batch, 9)
    record.drop(record.request(forward, 9))
    record.drop(record.request(backward, 0))
    record.drop(activation)
    record.drop(weight)
    path = folder / f"{batch}.{forward}.{backward}.pickle"
    path.write_bytes(pickle.dumps(record.snapshot(), 4))
    return path


@pytest.mark.parametrize("inner", [MODULE, CPP])
def test_an_algorithm_of_twice_the_memory_grows_no_faster(tmp_path: Path, inner: tuple[str, str]) -> None:
    """1 MiB and 4 a unit at 8, and 8 a unit at 16: the forecast is 129 / 16 a unit. In the backward pass 1 and 2."""
    paths = [planted(tmp_path, 8, 33, 17, inner), planted(tmp_path, 16, 129, 33, inner)]
    (device,) = snapreport.fit(paths, [8, 16], to=[32])["devices"]
    row = device["predictions"][-1]
    assert row["peak_allocated_bytes"] == (100 + 8 * 32 + 2 * 129) * MIB
    assert row["allocated_low_bytes"] == (100 + 8 * 32 + 129) * MIB
    assert row["allocated_high_bytes"] == (100 + 8 * 32 + 4 * 129) * MIB
    assert row["confidence"] == "estimate"
    assert device["workspace_bytes"] == 129 * MIB


@pytest.mark.parametrize("inner", OTHERS)
def test_without_convolutions_nothing_changes(tmp_path: Path, inner: tuple[str, str]) -> None:
    paths = [planted(tmp_path, 8, 32, 17, inner), planted(tmp_path, 16, 128, 33, inner)]
    assert not any(workspaces(WhatIf(snapreport.load(path).timeline(0)).trace).any() for path in paths)
    (device,) = snapreport.fit(paths, [8, 16], to=[32])["devices"]
    row = device["predictions"][-1]
    assert row["peak_allocated_bytes"] == (100 + 8 * 32 + 512) * MIB  # the square of the value
    assert row["low_bytes"] == row["peak_reserved_bytes"] == row["high_bytes"]
    assert not device["workspace_bytes"]
    (alone,) = snapreport.fit(paths[:1], [8], to=[32])["devices"]
    row = alone["predictions"][-1]
    assert row["high_bytes"] <= row["peak_reserved_bytes"] * (1 + ROOM) + 1


def test_what_is_constant_or_proportional_is_no_workspace_of_cudnn(tmp_path: Path) -> None:
    """Without cuDNN a convolution unfolds one sample, or all."""
    paths = [planted(tmp_path, 8, 64, 20), planted(tmp_path, 16, 128, 20)]
    (device,) = snapreport.fit(paths, [8, 16], to=[20, 32])["devices"]
    assert device["aligned"]["exact"]
    assert {row["value"]: row["confidence"] for row in device["predictions"]} == {
        8: "measured", 16: "measured", 20: "inferred", 32: "estimate",
    }  # fmt: skip
    assert all(row["low_bytes"] == row["high_bytes"] for row in device["predictions"])


@given(
    start=st.integers(1, 10**7),
    slope=st.integers(1, 10**6),
    values=st.lists(st.integers(1, 64), min_size=2, max_size=3, unique=True).map(sorted),
    to=st.integers(1, 300),
    power=st.sampled_from([1, 2]),
)
def test_a_workspace_of_one_algorithm_follows_the_images(
    start: int, slope: int, values: list[int], to: int, power: int
) -> None:
    """Which are squares, where the value is a side."""
    sizes = np.array([[1000 * value**power, start + slope * value**power] for value in values])
    at, own = np.array(values, float), len(values) - 1
    laws = size_laws(at, sizes, own)
    found = fit_workspaces(laws, at, sizes, own, np.array([False, True]))
    assume(found[1])  # two sizes can be proportional to the value by chance
    assert laws.sizes(to).tolist() == [1000 * to**power, pytest.approx(start + slope * to**power, rel=1e-6)]


@pytest.mark.parametrize(
    ("recorded", "foretold"),
    [
        ([1400, 1800, 2600], 4200),  # 1,000 and 50 a unit
        ([1400, 1800, 5200], 10400),  # more than the line from 8 to 16 can explain
        ([9000, 5000, 3000], 6000),  # less at more
        ([1400, -1, 2600], 4200),  # the nearest recording lacks it
    ],
)
def test_a_workspace_of_another_algorithm_is_proportional(recorded: list[int], foretold: int) -> None:
    at, sizes = np.array([8.0, 16.0, 32.0]), np.array([[8000, 16000, 32000], recorded]).T
    laws = size_laws(at, sizes, 2)
    assert fit_workspaces(laws, at, sizes, 2, np.array([False, True])).tolist() == [False, True]
    assert laws.sizes(64).tolist() == [64000, foretold]
    assert not laws.is_proven[1]
