"""Planted fragmentation is found with the right bytes; the same run without it has none."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import allocator_oracle
import corpus
import generator
import numpy as np
import pytest
from test_findings_oom import SMALL_MODEL, holes

import snapreport
from snapreport.findings.fragmentation import expandable_setting, fragmentation_findings, growths
from snapreport.findings.run import findings
from snapreport.timeline.fragmentation import live_ids, parts_at

MIB = 2**20


def found(path: Path) -> list[Any]:
    snapshot = snapreport.load(path)
    return [f for device in snapshot.devices for f in fragmentation_findings(snapshot, snapshot.timeline(device))]


def saved(raw: dict[str, Any], folder: Path) -> Path:
    path = folder / "fragmentation.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    return path


def test_planted(tmp_path: Path) -> None:
    """The last of the growths has the most bytes in holes: all of 46 MiB except for those that the training left."""
    raw = generator.make("fragmentation", **SMALL_MODEL)
    (finding,) = found(saved(raw, tmp_path))
    trace, e = raw["device_traces"][0], finding.evidence
    json.dumps(finding.to_json())
    assert finding.kind == "fragmentation" and finding.severity == "warning" and finding.confidence == "measured"
    _, states, parts = allocator_oracle.states(trace[: e["event"]], None)
    now = [s for s in states[-1] if any(b[3] != "free" for b in s.blocks)]
    request = trace[e["event"] + 1]
    want = holes(now, request)
    assert finding.bytes == e["usable_free_bytes"] == want["own"] and e["largest_free_bytes"] == want["largest"]
    assert (e["rounding_bytes"], e["inactive_split_bytes"], e["free_segment_bytes"]) == parts[-1]
    assert e["requested_bytes"] == request["size"] == 96 * MIB and trace[e["event"]]["action"] == "segment_alloc"
    assert e["reserved_bytes"] == sum(s.size for s in states[-1]) and finding.event == e["event"] - 1
    top = e["segments"][0]
    assert top["free"] == max(sum(b[1] for b in s.blocks if b[3] == "free") for s in now)
    pin = e["pinning_stacks"][0]
    pinned = [s for s in now if s.size == 96 * MIB and any(b[2] == 50 * MIB for b in s.blocks)]
    assert pin["function"] == "keep_prediction evaluate.py" and pin["segments"] == len(pinned)
    assert pin["free_bytes"] == 46 * MIB * len(pinned)
    # Blocks in use lie between the free ranges: placed side by side, segments would join none of them.
    assert e["expandable_segments"] is False and e["joined_bytes"] == want["largest"]
    assert any("live blocks lie between their free ranges" in line for line in finding.detail)


@pytest.mark.parametrize("recorded", [True, False])
def test_what_alone_occupies_segments_begins_its_sentence(recorded: bool, tmp_path: Path) -> None:
    raw = generator.make("fragmentation", **SMALL_MODEL)
    for event in raw["device_traces"][0]:
        if not recorded and any(frame["name"] == "keep_prediction" for frame in event["frames"]):
            event["frames"] = []
    (finding,) = found(saved(raw, tmp_path))
    begins = "keep_prediction evaluate.py:" if recorded else "Allocations without a stack trace alone occupy "
    assert finding.detail[0].startswith(begins) and ("alone occupies" in finding.detail[0]) is recorded


def test_not_without_the_cause(tmp_path: Path) -> None:
    path = saved(generator.make("fragmentation", **{**SMALL_MODEL, "oom": "none"}), tmp_path)
    assert [
        f for f in findings(snapreport.load(path)) if f.kind in ("fragmentation", "oom") and f.severity != "info"
    ] == []


@pytest.mark.parametrize(
    "name", ["training", "small", "serving", "leak", "churn", "expandable", "oom", "compiled", "overlap"]
)
def test_ordinary_runs_have_none(name: str) -> None:
    assert [f for f in found(corpus.path_of(name)) if f.severity != "info"] == []


def test_a_cache_far_above_the_need_is_told() -> None:
    """Sizes that vary from step to step leave segments of all sizes behind: no warning, but information."""
    (finding,) = found(corpus.path_of("pools"))
    timeline = snapreport.load(corpus.path_of("pools")).timeline(0)
    e = finding.evidence
    assert finding.severity == "info" and finding.bytes == max(timeline.reserved) - max(timeline.allocated)
    assert (
        e["rounding_bytes"] + e["inactive_split_bytes"] + e["free_segment_bytes"]
        == e["reserved_bytes"] - timeline.allocated[e["event"] + 1]
    )


def test_growths_are_records(snapshot_path: Path) -> None:
    for device, replayed in corpus.replayed(snapshot_path).items():
        timeline = corpus.loaded(snapshot_path).timeline(device)
        want, most = [], replayed.reserved[0]
        for i, event in enumerate(replayed.events):
            if replayed.reserved[i + 1] > most:
                most = replayed.reserved[i + 1]
                if event["action"] in ("segment_alloc", "segment_map"):
                    want.append(i)
        assert growths(timeline).tolist() == want


@pytest.mark.parametrize(
    ("layout", "expandable", "want"),
    [("2.12", True, True), ("2.12", False, False), ("2.1", True, True), ("2.1", False, None)],
)
def test_whether_segments_were_expandable(layout: str, expandable: bool, want: bool | None, tmp_path: Path) -> None:
    """As recorded; an old recorder does not say, but mapped ranges show it."""
    raw = generator.make("small", steps=1, layout=layout, expandable=expandable)
    timeline = snapreport.load(saved(raw, tmp_path)).timeline(0)
    assert expandable_setting(timeline) is want


def test_blocks_of_one_position_are_those_of_all(snapshot_path: Path) -> None:
    """The direct computation for one position, from the blocks live there alone, equals that over all of them."""
    snapshot, other = snapreport.load(snapshot_path), corpus.loaded(snapshot_path)
    for device in snapshot.devices:
        timeline, whole = snapshot.timeline(device), other.timeline(device)
        every, positions = whole.blocks, len(timeline.events)
        for position in sorted({-1, positions - 1, *range(0, positions, max(1, positions // 12))}):
            assert parts_at(timeline, position) == parts_at(whole, position)
            live = live_ids(timeline, position)
            few = timeline.blocks_at(position)
            for name in ("size", "segment", "source", "pending_from"):
                assert np.array_equal(getattr(few, name), getattr(every, name)[live]), (position, name)
        assert "blocks" not in timeline.__dict__, "the short way took the long one"
