"""What stands behind the peak, recomputed by the brute-force oracle from the raw snapshot: on samples and on real ones."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import corpus
import oracle
import pytest
import strategies
from hypothesis import Phase, given, settings
from test_pipeline import load

import snapreport
from snapreport.findings.model import SEVERITIES
from snapreport.findings.peak import peak_findings
from snapreport.findings.run import findings
from snapreport.timeline.modules import ModulePaths


def peaks(snapshot: Any) -> dict[int, Any]:
    found = [f for device in snapshot.devices for f in peak_findings(snapshot, snapshot.timeline(device))]
    return {f.device: f for f in found}


def frames(snapshot: Any, stack: int) -> oracle.Frames:
    table = snapshot.recording.frames[snapshot.recording.stack(stack)]
    return tuple(table.select("filename", "line", "name").iter_rows())


def module_path(stack: oracle.Frames) -> str:
    """Dumb and slow: among Python's frames, every forward that nn.Module's own machinery called, from outside."""
    python = [f for f in stack if f[0].endswith(".py")]
    path = []
    for frame, caller in pairwise(python):
        machinery = caller[0].replace("\\", "/").endswith("torch/nn/modules/module.py") and caller[2] in (
            "_call_impl", "_wrapped_call_impl", "_slow_forward", "__call__",
        )  # fmt: skip
        if frame[2] == "forward" and machinery:
            path.append(f"{frame[0].replace(chr(92), '/').split('/')[-1]}:{frame[1]}")
    return " › ".join(reversed(path))


def test_every_number(snapshot_path: Path) -> None:
    snapshot = snapreport.load(snapshot_path)
    found = peaks(snapshot)
    for number, device in corpus.replayed(snapshot_path).items():
        if not device.peak_bytes:
            assert number not in found
            continue
        finding = found[number]
        evidence = finding.evidence
        json.dumps(finding.to_json())
        live = [device.allocations[i] for i in device.live_at(device.peak_event)]
        assert finding.bytes == evidence["peak_bytes"] == device.peak_bytes == sum(row["bytes"] for row in evidence["categories"])
        assert finding.event == evidence["peak_event"] == device.peak_event
        assert f"({device.peak_bytes:,} bytes)" in finding.title or device.peak_bytes < 1024
        assert evidence["reserved_bytes"] == device.reserved[device.peak_event + 1]
        assert evidence["count"] == len(live) == sum(row["count"] for row in evidence["categories"])
        assert evidence["before_trace_bytes"] == sum(a.size for a in live if a.alloc_event < 0)
        assert evidence["no_frames_bytes"] == sum(a.size for a in live if not a.stack)
        assert_stacks(snapshot, device, evidence["stacks"])
        assert_stretch(snapshot, device, evidence["last_stretch"], finding)
        assert_modules(snapshot, live, evidence)
        held: Counter[str] = Counter()
        category = snapshot.allocations(number)["category"].to_list()
        for i in device.live_at(device.peak_event):
            held[category[i]] += device.allocations[i].size
        assert {row["category"]: row["bytes"] for row in evidence["categories"]} == dict(held)
        assert evidence["unknown_bytes"] == held["unknown"]


def assert_stacks(snapshot: Any, device: oracle.Device, rows: list[dict[str, Any]]) -> None:
    want = device.top_stacks_at_peak()
    assert [row["bytes"] for row in rows] == [b for b, _, _ in want[:10]]  # equal ones are in an order of their own
    held = {stack: (b, c) for b, c, stack in want}
    few = 1 if len(device.events) > 10_000 else 4  # the oracle is slow
    for row in rows[:few]:
        stack = frames(snapshot, row["stack"])
        assert held[stack] == (row["bytes"], row["count"])
        others = oracle.curve([a for a in device.allocations if a.stack != stack], len(device.events))
        assert row["peak_without_bytes"] == max(others)
        assert row["peak_without_event"] == others.index(max(others)) - 1


def assert_stretch(snapshot: Any, device: oracle.Device, stretch: dict[str, Any], finding: Any) -> None:
    low = [i - 1 for i in range(device.peak_event + 1) if device.allocated[i] <= 0.75 * device.peak_bytes]
    start = low[-1] if low else -1
    added = [a for a in (device.allocations[i] for i in device.live_at(device.peak_event)) if a.alloc_event > start]
    assert stretch["from_event"] == start
    assert (stretch["added_bytes"], stretch["count"]) == (sum(a.size for a in added), len(added))
    assert sum(row["bytes"] for row in stretch["categories"]) == stretch["added_bytes"]
    by_stack: Counter[Any] = Counter()
    for a in added:
        by_stack[a.stack] += a.size
    assert [row["bytes"] for row in stretch["stacks"]] == sorted(by_stack.values(), reverse=True)[:5]
    for row in stretch["stacks"]:
        assert by_stack[frames(snapshot, row["stack"])] == row["bytes"]


def assert_modules(snapshot: Any, live: list[oracle.Allocation], evidence: dict[str, Any]) -> None:
    held: Counter[str] = Counter()
    for a in live:
        held[module_path(a.stack)] += a.size
    held.pop("", None)
    assert evidence["module_bytes"] == sum(held.values())
    assert {row["module"]: row["bytes"] for row in evidence["modules"]} == dict(
        sorted(held.items(), key=lambda kv: (-kv[1], kv[0]))[:10]
    )


def test_modules_are_found_where_a_model_runs() -> None:
    snapshot = snapreport.load(corpus.path_of("training"))
    evidence = peaks(snapshot)[0].evidence
    assert evidence["module_bytes"] > 0.2 * evidence["peak_bytes"]
    assert all(" › " in row["module"] for row in evidence["modules"][:3])
    functions = {row["function"]: row["bytes"] for row in evidence["functions"]}
    assert functions["compute_loss train.py"] >= 1.5 * 2**30
    assert list(functions.values()) == sorted(functions.values(), reverse=True)


def test_module_paths_ignore_frames_of_c(tmp_path: Path) -> None:
    """C++ frames between a forward and the machinery that calls it change nothing; a forward that none calls is no module."""
    module = "/x/site-packages/torch/nn/modules/module.py"
    call = {"filename": module, "line": 1751, "name": "_call_impl"}
    noise = {"filename": "", "line": 0, "name": "_PyEval_EvalFrameDefault"}
    stack = [
        {"filename": "/x/linear.py", "line": 7, "name": "forward"}, noise, call,
        {"filename": "/a/model.py", "line": 42, "name": "forward"}, noise, noise, call,
        {"filename": "/a/functions.py", "line": 5, "name": "forward"},
        {"filename": "/a/train.py", "line": 1, "name": "main"},
    ]  # fmt: skip
    raw = {"segments": [], "device_traces": [[{"action": "alloc", "addr": 512, "size": 5, "stream": 0, "frames": stack}]]}
    snapshot = load(raw, 4)
    stacks = snapshot.allocations(0)["stack"].to_list()
    assert ModulePaths(snapshot.recording).of([*stacks, 0]) == ["model.py:42 › linear.py:7", ""]


@pytest.mark.parametrize(
    ("name", "confidence", "words"),
    [
        ("training", "sure", None),
        ("truncated", "likely", "The trace overflowed: its oldest events are lost."),
        ("tiny_expandable_2gpu.pickle", "guess", "No allocation or free was recorded: an earlier peak would not be seen."),
        ("torch20_history_blocks.pickle", "guess", "No allocation or free was recorded: an earlier peak would not be seen."),
        ("trimmed_inconsistent.pickle", "likely", "The replay differs from the final blocks by 384 MiB."),
        (
            "synthetic_overlapping.pickle",
            "likely",
            "More is allocated than reserved at some positions: the record contradicts itself.",
        ),
    ],
)
def test_says_what_it_cannot_know(name: str, confidence: str, words: str | None) -> None:
    if name.endswith(".pickle") and name not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    finding = peaks(snapreport.load(corpus.path_of(name)))[0]
    assert finding.confidence == confidence
    assert words is None or words in finding.basis, finding.basis


@settings(max_examples=50, phases=[Phase.explicit, Phase.generate])
@given(strategies.snapshots, strategies.protocols)
def test_any_snapshot_has_findings_without_errors(snapshot: Any, protocol: int) -> None:
    """However contradictory: findings come, are plain JSON and in order; each names a device and a position that there are."""
    loaded = load(snapshot, protocol)
    found = findings(loaded)
    json.dumps([f.to_json() for f in found], allow_nan=False)
    ranks = [(SEVERITIES.index(f.severity), -f.bytes) for f in found]
    assert ranks == sorted(ranks)
    for f in found:
        assert f.device in loaded.devices and f.title and f.basis
        assert f.event is None or -1 <= f.event < len(loaded.events(f.device))
        parts = loaded.timeline(f.device).fragmentation
        timeline = loaded.timeline(f.device)
        assert (parts.rounding + parts.inactive_split + parts.wholly_free == timeline.reserved - timeline.allocated).all()
