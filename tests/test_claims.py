"""Sentences about training that a trace proves, on programs for which the easy guess is wrong.

``fakecuda/programs/validation.py``, recorded by PyTorch 2.15 over the driver of tests/fakecuda.
"""

from __future__ import annotations

from pathlib import Path

import corpus
import polars as pl
import pytest

import snapreport
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot

RECORDINGS = Path(__file__).parent / "recordings"
REMEDIES = Path(corpus.ROOT).parent / "shared" / "remedies"


def names_of(snapshot: Snapshot, stack: int) -> list[str]:
    recording = snapshot.recording
    names: list[str] = recording.frames["name"].gather(recording.stack(stack)).to_list()
    return names


@pytest.mark.parametrize("when", ["before", "after"])
def test_no_backward_pass_frees_what_a_validation_leaves(when: str) -> None:
    snapshot = snapreport.load(RECORDINGS / f"validation_{when}.pickle.xz")
    timeline = snapshot.timeline(0)
    graphs = timeline.allocations.filter(pl.col("size") == 1024 * 256 * 4, pl.col("free_stack") > 0)
    freed_in = {name for stack in graphs["free_stack"].unique() for name in names_of(snapshot, stack)}
    assert len(graphs) > 100 and "main" in freed_in and "backward" not in freed_in
    assert not [found for found in findings(snapshot) if found.evidence.get("rule") == "backward-each"]


@pytest.mark.skipif(not REMEDIES.is_dir(), reason="no recordings of remedies")
def test_graphs_that_one_backward_pass_frees_are_still_named() -> None:
    found = findings(snapreport.load(REMEDIES / "accum_retained.pickle.xz"))
    assert "backward-each" in [finding.evidence.get("rule") for finding in found]


@pytest.mark.skipif(not REMEDIES.is_dir(), reason="no recordings of remedies")
def test_state_that_goes_with_its_function_is_no_reference_cycle() -> None:
    found = findings(snapreport.load(REMEDIES / "shampoo.pickle.xz"))
    assert [finding.title for finding in found if finding.kind == "leak"] == []
