"""Advice to halve the batch, held to programs that have no batch, compare its samples, or split it already."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

import snapreport
from snapreport.findings.advice_context import AdviceContext
from snapreport.findings.batch_limits import is_batch_fixed

REMEDIES = Path(__file__).parent.parent / ".." / "shared" / "remedies"


@pytest.mark.parametrize(
    ("program", "is_fixed"),
    [
        ("gnn", True),  # reads one graph in every step
        ("retrieval", True),  # compares each query with all documents of the batch
        ("moe_top2__accumulation", True),  # accumulates gradients
        ("vit__accumulation", True),  # with an optimizer whose steps allocate nothing
        ("ssm_scan__accumulation", True),
        ("vit", False),
        ("accum_retained", True),  # six forward passes wait for one backward pass
        ("moe_top2", False),
        ("one_hot_lm", False),
    ],
)
def test_is_batch_fixed(program: str, is_fixed: bool, tmp_path: Path) -> None:
    packed = REMEDIES / f"{program}.pickle.xz"
    if not packed.exists():
        pytest.skip("the recordings of ../shared/remedies are not here")
    path = tmp_path / f"{program}.pickle"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    snapshot = snapreport.load(path)
    assert is_batch_fixed(AdviceContext(snapshot, snapshot.timeline(0), [])) is is_fixed
