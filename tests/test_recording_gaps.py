"""A recording that lost events is recognised, with or without its recorder's word, and nothing is called measured."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
import recorded
from planted import path_of

import snapreport
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot

SMALL = {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "batch": 4, "vocabulary": 4096}
KEPT = {
    "rec_enabled_state": "earlier peak",
    "t29_rec_enabled_state": "earlier peak",
    "rec_overflow": "full",
    "t29_rec_overflow": "full",
    "t29_rec_stop_then_free": "no history",
}


def keys(snapshot: Snapshot, device: int = 0) -> list[str]:
    return [gap.key for gap in snapshot.timeline(device).recording_gaps]


@pytest.mark.parametrize("name", recorded.cases())
def test_a_peak_without_gaps_is_the_true_one(name: str) -> None:
    snapshot = recorded.load(name)
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        true = recorded.memory_stats(name, device).get("requested_bytes.all.peak")
        if true is not None and timeline.kind != "host":
            assert timeline.peak_bytes == true or (timeline.recording_gaps and timeline.peak_bytes < true)
        complete = len(timeline.events) and timeline.reserved[0] == 0
        if complete:
            assert timeline.recording_gaps == [] or keys(snapshot, device) == ["no history"]


@pytest.mark.parametrize("name", KEPT)
def test_recordings_that_lost_events(name: str) -> None:
    snapshot = recorded.load(name)
    assert keys(snapshot) == [KEPT[name]]
    assert all(finding.confidence != "sure" for finding in findings(snapshot))


@pytest.mark.parametrize(
    ("name", "key"),
    [("trimmed_inconsistent.pickle", "final state"), ("synthetic_overlapping.pickle", "contradiction"),
     ("two_models_alive.pickle", "earlier peak"), ("torch20_history_blocks.pickle", "no history")],
)  # fmt: skip
def test_real_files_that_lost_events(name: str, key: str) -> None:
    if name not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    snapshot = snapreport.load(corpus.path_of(name))
    assert key in keys(snapshot)
    assert all(finding.confidence != "sure" for finding in findings(snapshot))


def changed(tmp_path: Path, change: Callable[[dict[str, Any]], None], **options: Any) -> Snapshot:
    content = copy.deepcopy(corpus.raw(path_of("small", **SMALL, **options)))
    change(content)
    path = tmp_path / "changed.pickle"
    path.write_bytes(pickle.dumps(content, 2))
    return snapreport.load(path)


def test_nothing_is_missing_from_a_whole_trace(tmp_path: Path) -> None:
    assert keys(changed(tmp_path, lambda content: None)) == []


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kinds", [("alloc",), ("free_requested", "free_completed")])
def test_what_was_cut_from_the_middle_is_noticed(tmp_path: Path, kinds: tuple[str, ...], seed: int) -> None:
    """A few allocations or frees are removed from a complete trace, with nothing that says so."""
    dice = random.Random(seed)

    def cut(content: dict[str, Any]) -> None:
        trace = content["device_traces"][0]
        freed = {event["addr"] for event in trace if event["action"] == "free_completed"}
        victims = set(dice.sample(sorted(freed), min(5, len(freed))))
        trace[:] = [e for e in trace if not (e["action"] in kinds and e.get("addr") in victims)]

    assert keys(changed(tmp_path, cut))


def test_a_full_ring_is_noticed(tmp_path: Path) -> None:
    """The recorder's limit, recorded or a round number; one entry less than the limit is a trace that fits."""

    def last(count: int, **settings: Any) -> Callable[[dict[str, Any]], None]:
        def cut(content: dict[str, Any]) -> None:
            content["device_traces"][0] = content["device_traces"][0][-count:]
            kept = {
                k: v for k, v in (content.get("allocator_settings") or {}).items() if not k.startswith("trace_alloc")
            }
            content["allocator_settings"] = {**kept, **settings}

        return cut

    assert "full" in keys(changed(tmp_path, last(200)))
    assert "full" not in keys(changed(tmp_path, last(201)))
    assert "full" in keys(changed(tmp_path, last(201, trace_alloc_max_entries=201)))
    assert "full" not in keys(changed(tmp_path, last(200, trace_alloc_max_entries=201)))
    assert "full" not in keys(changed(tmp_path, last(200, trace_alloc_overflowed=False)))
    assert "overflowed" in keys(changed(tmp_path, last(201, trace_alloc_overflowed=True)))
