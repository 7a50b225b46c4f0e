"""What advice promises, and what the same program takes with the remedy: both recorded with PyTorch's own allocator."""

from __future__ import annotations

import functools
from pathlib import Path

import fake_torch
import pytest
from fake_torch import PROGRAMS

import snapreport
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot

TORCH = fake_torch.FakeTorch(fake_torch.FOLDERS[-1]) if fake_torch.FOLDERS else None
# Program, remedy, rule; the least and the most that may be promised of what the remedy really saves. The replay of
# checkpointing assumes that one layer is being recomputed at the peak, which often is at the loss, when none is.
CASES = [
    ("words", "half", "accumulation", 0.95, 1.03),
    ("images", "half", "accumulation", 0.95, 1.05),
    ("words", "checkpoint", "checkpointing", 0.7, 1.03),
    ("images", "checkpoint", "checkpointing", 0.7, 1.03),
    ("words", "autocast", "mixed-precision", 0.85, 1.03),
    ("images", "autocast", "mixed-precision", 0.95, 1.03),
    ("words", "chunks", "chunked-loss", 0.95, 1.03),
    ("words", "sdpa", "sdpa-math-kernel fused-attention", 0.95, 1.03),  # without C++ frames they look alike
    ("passes", "each", "backward-each", 0.95, 1.03),
    ("resumed", "del", "loaded-checkpoint", 0.95, 1.03),
    ("evaluated words", "no_grad", "no-grad", 0.9, 1.03),
    ("evaluated images", "no_grad", "no-grad", 0.9, 1.03),
    ("outputs", "del", "previous-outputs", 0.95, 1.03),
    ("outputs", "half", "inference-batch", 0.95, 1.03),
    ("zeroed", "none", "keep-gradients", 0.95, 1.03),
    ("wide", "fused", "foreach-optimizer", 0.95, 1.03),
    ("stored", "detach", "retained-graphs", 0.95, 1.03),
    ("cast", "no cache", "autocast-copies", 0.95, 1.03),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("remedies")


@functools.cache
def recorded(folder: Path, program: str, remedy: str) -> Snapshot:
    assert TORCH
    out = folder / f"{program} {remedy}.pickle"
    done = TORCH.run(PROGRAMS / "remedies.py", out, program, remedy)
    assert done.code == 0, done.err
    return snapreport.load(out)


@pytest.mark.skipif(TORCH is None, reason=fake_torch.NONE)
@pytest.mark.parametrize(
    ("program", "remedy", "rule", "least", "most"), CASES, ids=lambda v: v if type(v) is str else ""
)
def test_advice_keeps_its_promise(
    folder: Path, program: str, remedy: str, rule: str, least: float, most: float
) -> None:
    without = recorded(folder, program, "")
    advice = {f.evidence["rule"]: f for f in findings(without) if f.kind == "advice"}
    (given,) = (advice[name] for name in rule.split() if name in advice)
    saving, measured = given.evidence["saving"], recorded(folder, program, remedy).timeline(0).peak_bytes
    saved = without.timeline(0).peak_bytes - measured
    assert least * saved <= saving["saves_bytes"] <= most * saved
    if "low_bytes" in saving:
        assert saving["low_bytes"] <= measured <= saving["high_bytes"]
