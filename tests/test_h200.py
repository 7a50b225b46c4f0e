"""Recordings of an NVIDIA H200 with PyTorch 2.11, driver 580: what a driver without a GPU cannot show.

``recordings/h200/truth.json`` has what PyTorch said there: ``memory_stats``, its message of a failure, and the peaks of
reserved memory of runs under other settings.
"""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

import snapreport
from snapreport.allocator.settings import parse_settings
from snapreport.allocator.whatif import WhatIf
from snapreport.findings.run import findings

FOLDER = Path(__file__).parent / "recordings" / "h200"
TRUTH = json.loads((FOLDER / "truth.json").read_text())
RECORDED = [name for name, truth in TRUTH.items() if "stats" in truth]
RERUNS = [(name, text) for name, truth in TRUTH.items() for text in truth.get("reruns", ())]
GIB, MIB = 1 << 30, 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("h200")
    for name in TRUTH:
        (folder / f"{name}.pickle").write_bytes(lzma.decompress((FOLDER / f"{name}.pickle.xz").read_bytes()))
    return folder


@pytest.mark.parametrize("name", RECORDED)
def test_numbers_are_those_of_pytorch(folder: Path, name: str) -> None:
    stats = TRUTH[name]["stats"]
    timeline = snapreport.load(folder / f"{name}.pickle").timeline(0)
    assert timeline.peak_bytes == stats["requested_bytes.all.peak"]
    assert timeline.reserved.max() == stats["reserved_bytes.all.peak"]
    whatif = WhatIf(timeline, start="recorded")
    assert whatif.check.exact, whatif.check.reason


@pytest.mark.parametrize(("name", "settings"), RERUNS)
def test_replays_under_other_settings_are_what_ran(folder: Path, name: str, settings: str) -> None:
    whatif = WhatIf(snapreport.load(folder / f"{name}.pickle").timeline(0))
    run = whatif.run(parse_settings([settings], replace(whatif.own, since_2_10=True)))
    assert run.peak_reserved_bytes == TRUTH[name]["reruns"][settings]


def test_what_stays_beside_the_model_are_workspaces(folder: Path) -> None:
    """Of the program's thread, with cuBLASLt's; of autograd's; there with cuBLASLt's, if it runs layers again."""
    first, beside = [32 * MIB, MIB], [32 * MIB]
    for name, expected in (("autocast", [first, beside]), ("dropout", [first, first]), ("scaler", [first, beside])):
        allocations = snapreport.load(folder / f"{name}.pickle").allocations(0)
        found = allocations.filter(pl.col("category") == "workspace")
        assert sorted(found["size"].to_list()) == sorted(size for one in expected for size in one), name
        assert (found["free_event"] < 0).all()
        wide = allocations.filter((pl.col("free_event") < 0) & (pl.col("size") == 32 * MIB))
        assert len(wide) == 2 and wide["category"].unique().to_list() == ["workspace"], name


def test_a_failure_names_the_neighbour_as_pytorch_does(folder: Path) -> None:
    (failure,) = (one for one in findings(snapreport.load(folder / "neighbour.pickle")) if one.kind == "oom")
    said = re.search(r"Process \d+ has ([\d.]+) GiB", TRUTH["neighbour"]["message"])
    assert said and failure.evidence["other_processes_bytes"] == pytest.approx(float(said[1]) * GIB, abs=0.05 * GIB)
    assert failure.detail[0] == "Other processes hold 137 of 140 GiB of the device."


def test_updates_that_a_scaler_skips_are_no_leak(folder: Path) -> None:
    """The last of six steps is the first to update: it builds the optimizer's state. It freed its gradients, too."""
    snapshot = snapreport.load(folder / "scaler.pickle")
    state = snapshot.allocations(0).filter((pl.col("category") == "optimizer state") & (pl.col("size") > MIB))
    assert state["alloc_event"].min() > snapshot.steps(0)["first_event"][-1]
    (end,) = (one for one in findings(snapshot) if one.kind == "live_at_end")
    assert end.detail[0] == "No leak found over 6 steps."
    assert not any(one.evidence.get("rule") == "keep-gradients" for one in findings(snapshot))


def test_checkpoints_with_dropout_ran_to_their_end(folder: Path) -> None:
    """Without stack traces of frees, which break such programs on 2.11."""
    snapshot = snapreport.load(folder / "dropout.pickle")
    assert len(snapshot.steps(0)) == 4
    pairs = snapshot.allocations(0).filter((pl.col("alloc_event") >= 0) & (pl.col("free_event") >= 0))
    assert pairs["free_stack"].to_list() == pairs["stack"].to_list()
