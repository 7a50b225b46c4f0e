"""Sentences about training that a trace proves, on programs for which the easy guess is wrong.

``fakecuda/programs/validation.py``, recorded by PyTorch 2.15 over the driver of tests/fakecuda.
"""

from __future__ import annotations

import lzma
import pickle
from pathlib import Path

import corpus
import polars as pl
import pytest
from scripted import MIB, Script

import snapreport
from snapreport.findings.live_at_end import leaks_of
from snapreport.findings.run import findings
from snapreport.report.activity_text import activity_text
from snapreport.snapshot import Snapshot
from snapreport.timeline.activity import GRAPH_DROPPED, INFERENCE

RECORDINGS = Path(__file__).parent / "recordings"
WORKSPACE = 8_519_680
MODULE = ("/env/site-packages/torch/nn/modules/module.py", "_call_impl")
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


def saved(raw: dict[str, object], folder: Path) -> Snapshot:
    path = folder / "claim.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    return snapreport.load(path)


def test_state_that_a_function_keeps_until_it_returns_is_no_reference_cycle(tmp_path: Path) -> None:
    """An optimizer of the program's own, whose states come in the first two steps and go with the function."""
    script, step, kept = Script(), ("/app/own.py", "advance"), list[int]()
    for number in range(12):
        began = len(script.events)
        hidden = [script.alloc("hidden", 6 * MIB, ("/app/layer.py", "forward"), MODULE) for _ in range(3)]
        for address in hidden[::-1]:
            script.free(address, ("/env/torch/autograd/graph.py", "_engine_run_backward"))
        if number < 2:
            kept += [script.alloc("state", 4 * MIB, ("/app/own.py", "start"), step) for _ in range(8)]
        script.step(number, began)
    for address in kept:
        script.free(address, ("/app/own.py", "train"))
    snapshot = saved(script.raw(), tmp_path)
    assert [finding.title for finding in leaks_of(snapshot, snapshot.timeline(0))[0]] == []


def test_a_workspace_from_before_the_trace_shows_no_training(tmp_path: Path) -> None:
    script = Script()
    script.alloc("workspace", WORKSPACE)
    script.events.clear()
    forward = [("/app/net.py", "forward"), MODULE]
    for _ in range(6):
        hidden = [script.alloc("hidden", (3 + i) * MIB, (f"/app/layer{i}.py", "forward"), *forward) for i in range(4)]
        for address in hidden:
            script.free(address, *forward)
    snapshot = saved(script.raw(), tmp_path)
    (older,) = snapshot.allocations(0).filter(pl.col("alloc_event") < 0)["category"].to_list()
    activity = snapshot.timeline(0).activity
    assert (older, activity.kind) == ("workspace", INFERENCE)
    assert "train" not in activity_text(activity).replace("trace", "")


def test_a_program_may_have_7600_events(tmp_path: Path) -> None:
    script = Script()
    script.alloc("weights", 64 * MIB)
    script.events.clear()
    for _ in range(2533):
        script.free(script.alloc("hidden", MIB, ("/app/net.py", "forward"), MODULE))
    script.alloc("output", MIB, ("/app/net.py", "forward"), MODULE)
    timeline = saved(script.raw(), tmp_path).timeline(0)
    assert len(timeline.events) == 7600 and int(timeline.reserved[0]) > 0
    assert [gap.key for gap in timeline.recording_gaps] == []


def test_only_the_stack_of_a_free_shows_that_a_graph_was_dropped(tmp_path: Path) -> None:
    """A recording, and the same without context="all": then each free has the stack of its allocation."""
    path = corpus.WITNESSES / "evaluated_words.pickle.xz"
    with_stacks = snapreport.load(path)
    raw = pickle.loads(lzma.decompress(path.read_bytes()))  # our own file
    made: dict[int, object] = {}
    for event in raw["device_traces"][0]:
        if event["action"] == "alloc":
            made[event["addr"]] = event["frames"]
        elif event["action"].startswith("free"):
            event["frames"] = made.get(event["addr"], [])
    without = saved(raw, tmp_path)
    assert "no-grad" in {found.evidence.get("rule") for found in findings(with_stacks)}
    assert "no-grad" not in {found.evidence.get("rule") for found in findings(without)}
    dropped = "Forward passes ran without a backward pass, and their graphs were dropped, 415 MiB at once."
    assert activity_text(with_stacks.timeline(0).activity) == dropped
    for snapshot in (with_stacks, without):
        told = [activity_text(snapshot.timeline(0).activity), *(line for f in findings(snapshot) for line in f.detail)]
        assert not [line for line in told if "no graph" in line]
    assert not [line for found in findings(without) for line in found.detail if "together" in line]


def test_what_goes_at_once_when_a_name_is_bound_again_was_a_graph(tmp_path: Path) -> None:
    """34 blocks of a pass without ``no_grad`` go together, when ``out`` gets the next pass's output."""
    script, forward = Script(), [("/app/net.py", "forward"), MODULE]
    before: list[int] = []
    for _ in range(5):
        layers = [(f"/app/layer{i % 6}.py", "forward") for i in range(34)]
        hidden = [script.alloc("hidden", MIB, layer, *forward) for layer in layers]
        for address in before:
            script.free(address)
        before = hidden
    activity = saved(script.raw(), tmp_path).timeline(0).activity
    assert (activity.kind, activity.graph_bytes) == (GRAPH_DROPPED, 34 * MIB)
