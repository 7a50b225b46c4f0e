"""What makes up the peak, and what is unknown about it. Its numbers are recomputed in test_findings_numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import breadth
import corpus
import pytest
import strategies
from hypothesis import Phase, given, settings
from msgspec.structs import astuple
from test_pipeline import load

import snapreport
from snapreport.findings.model import SEVERITIES
from snapreport.findings.peak import peak_findings
from snapreport.findings.run import findings
from snapreport.timeline.fragmentation import parts_at
from snapreport.timeline.modules import ModulePaths
from snapreport.timeline.recording_gaps import has_history


def peaks(snapshot: Any) -> dict[int, Any]:
    found = [f for device in snapshot.devices for f in peak_findings(snapshot, snapshot.timeline(device))]
    return {f.device: f for f in found}


def test_modules_are_found_where_a_model_runs() -> None:
    snapshot = snapreport.load(corpus.path_of("training"))
    evidence = peaks(snapshot)[0].evidence
    assert evidence["module_bytes"] > 0.2 * evidence["peak_bytes"]
    assert all(" › " in row["module"] for row in evidence["modules"][:3])
    functions = {row["function"]: row["bytes"] for row in evidence["functions"]}
    assert functions["compute_loss train.py"] >= 1.5 * 2**30
    assert list(functions.values()) == sorted(functions.values(), reverse=True)


def test_module_paths_ignore_frames_of_c(tmp_path: Path) -> None:
    """C++ frames between a forward and the machinery that calls it change nothing; a forward without such a caller is
    no module.
    """
    module = "/x/site-packages/torch/nn/modules/module.py"
    call = {"filename": module, "line": 1751, "name": "_call_impl"}
    noise = {"filename": "", "line": 0, "name": "_PyEval_EvalFrameDefault"}
    stack = [
        {"filename": "/x/linear.py", "line": 7, "name": "forward"}, noise, call,
        {"filename": "/a/model.py", "line": 42, "name": "forward"}, noise, noise, call,
        {"filename": "/a/functions.py", "line": 5, "name": "forward"},
        {"filename": "/a/train.py", "line": 1, "name": "main"},
    ]  # fmt: skip
    raw = {
        "segments": [],
        "device_traces": [[{"action": "alloc", "addr": 512, "size": 5, "stream": 0, "frames": stack}]],
    }
    snapshot = load(raw, 4)
    stacks = snapshot.allocations(0)["stack"].to_list()
    assert ModulePaths(snapshot.recording).of([*stacks, 0]) == ["model.py:42 › linear.py:7", ""]


@pytest.mark.parametrize(
    ("name", "confidence", "words"),
    [
        ("training", "measured", None),
        ("truncated", "inferred", "The trace overflowed: its oldest events are lost."),
        (
            "tiny_expandable_2gpu.pickle",
            "measured",
            "Recorded without history: only the final state is known.",
        ),
        (
            "torch20_history_blocks.pickle",
            "measured",
            "Recorded without history: only the final state is known.",
        ),
        (
            "trimmed_inconsistent.pickle",
            "inferred",
            "The replay ends with 384 MiB more than the final blocks: events are missing.",
        ),
        (
            "synthetic_overlapping.pickle",
            "inferred",
            "At some events more is allocated than reserved, which is impossible: the record contradicts itself.",
        ),
    ],
)
def test_says_what_it_cannot_know(name: str, confidence: str, words: str | None) -> None:
    if name.endswith(".pickle") and name not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    finding = peaks(snapreport.load(corpus.path_of(name)))[0]
    assert finding.confidence == confidence
    assert words is None or words in finding.basis, finding.basis


@settings(max_examples=breadth.examples(25), phases=[Phase.explicit, Phase.generate])
@given(strategies.snapshots, strategies.protocols)
def test_any_snapshot_has_findings_without_errors(snapshot: Any, protocol: int) -> None:
    """However contradictory: findings are produced, are plain JSON and in order; each names an existing device and
    position.
    """
    loaded = load(snapshot, protocol)
    found = findings(loaded)
    json.dumps([f.to_json() for f in found], allow_nan=False)
    ranks = [(SEVERITIES.index(f.severity), f.evidence.get("priority", 0), -f.bytes) for f in found]
    assert ranks == sorted(ranks)
    for f in found:
        assert f.device in loaded.devices and f.title and f.basis
        assert f.event is None or -1 <= f.event < len(loaded.events(f.device))
        timeline = loaded.timeline(f.device)
        at = timeline.peak_event
        assert sum(astuple(parts_at(timeline, at))) == timeline.reserved[at + 1] - timeline.allocated[at + 1]


def test_history_is_any_allocation_or_free_recorded(telling_path: Path) -> None:
    snapshot = corpus.loaded(telling_path)
    for number, device in corpus.replayed(telling_path).items():
        assert has_history(snapshot.timeline(number)) == any(a.origin != "ghost" for a in device.allocations)


def test_one_event_measures_no_peak() -> None:
    """What came before and after it is not recorded."""
    block = {"address": 1 << 40, "size": 2 << 20, "state": "active_allocated", "frames": []}
    segment = {"address": 1 << 40, "total_size": 2 << 20, "allocated_size": 2 << 20, "stream": 0, "blocks": [block]}
    event = {"action": "alloc", "addr": 1 << 40, "size": 2 << 20, "stream": 0, "time_us": 5, "frames": []}
    (peak,) = peaks(load({"segments": [segment], "device_traces": [[event]]}, 4)).values()
    assert peak.confidence == "inferred" and "at least 2.00 MiB" in peak.title
