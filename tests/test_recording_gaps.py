"""A recording that lost events is recognised, with or without its recorder's word, and nothing is called measured."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import decoder
import pytest
import recorded
from cli import in_process
from planted import path_of

import snapreport
from snapreport.findings.gate import check
from snapreport.findings.gate_rules import Rules
from snapreport.findings.peak import peak_findings
from snapreport.findings.run import findings
from snapreport.jobs.digest import digest_of
from snapreport.number_format import bytes_text
from snapreport.report.about_recording import doubts
from snapreport.snapshot import Snapshot
from snapreport.trackers import numbers

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
    assert all(finding.confidence != "measured" for finding in findings(snapshot))


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
    assert all(finding.confidence != "measured" for finding in findings(snapshot))


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
    assert "full" not in keys(changed(tmp_path, last(460))), "a round number, but no limit that people set"


def noted(tmp_path: Path, peak: int, max_entries: int, count: int = 200) -> Snapshot:
    """The last events of a program, with what snapreport's recorder notes beside them."""

    def cut(content: dict[str, Any]) -> None:
        content["device_traces"][0] = content["device_traces"][0][-count:]
        content["allocator_settings"] = {}
        stats = {
            "requested_bytes.all.peak": peak,
            "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.peak": 2 * peak,
        }
        content["snapreport"] = {
            "schema": "snapreport-recording/1",
            "reason": "exit",
            "options": {"max_entries": max_entries},
            "devices": {0: {"name": "GPU", "uuid": "", "total_bytes": 80 << 30, "memory_stats": stats}},
        }

    return changed(tmp_path, cut)


def test_a_trace_that_overflowed_has_the_peak_that_the_recorder_noted(tmp_path: Path) -> None:
    snapshot = noted(tmp_path, 40 << 30, 200)
    timeline = snapshot.timeline(0)
    assert timeline.peak_bytes < 40 << 30
    (peak,) = peak_findings(snapshot, timeline)
    assert peak.title.startswith("Peak on cuda:0: 40.0 GiB allocated, 80.0 GiB reserved")
    assert peak.evidence["recorded_peak_bytes"] == 40 << 30
    for limit, status in ((40 << 30, "passed"), ((40 << 30) - 1, "failed")):
        assert [result.status for result in check(snapshot, Rules(max_peak=limit, max_reserved=2 * limit))] == [
            status, status,
        ]  # fmt: skip
    assert not any("before the model is built" in line for line in doubts(timeline))


def test_every_output_has_the_peak_that_the_recorder_noted(tmp_path: Path) -> None:
    """The line after a report, stats in every form, trackers and the digest; with the trace's own beside it."""
    snapshot = noted(tmp_path, 40 << 30, 200)
    timeline, path = snapshot.timeline(0), str(snapshot.recording.path)
    here = bytes_text(timeline.peak_bytes)
    done = in_process(path, "-o", str(tmp_path / "report.html"))
    assert "; peak on cuda:0: 40.0 GiB allocated before the first event\n" in done.err
    page = decoder.Report((tmp_path / "report.html").read_text(encoding="utf-8")).manifest["devices"][0]
    assert (page["lost_peak_bytes"], page["peak_bytes"]) == (40 << 30, timeline.peak_bytes)
    said = f"peaks at {here}, at event {timeline.peak_event:,}: "
    for form in ((), ("--brief",), ("--markdown",)):
        text = " ".join(in_process("stats", path, *form).out.split())
        assert "cuda:0: 40.0 GiB allocated, 80.0 GiB reserved, counted by PyTorch before the first event" in text
        assert said in text
        assert f"peak {here}" not in text
    assert "| cuda:0 | 40.0 GiB | 40.0 GiB | 80.0 GiB |" in in_process("stats", path, "--markdown").out
    for form in ((), ("--brief",)):
        (device,) = in_process("stats", path, "--json", *form).json["snapshots"][0]["devices"]
        assert (device["peak_allocated_bytes"], device["peak_reserved_bytes"]) == (40 << 30, 80 << 30)
        assert device["trace_peak_allocated_bytes"] == timeline.peak_bytes
    assert dict(numbers(snapshot))["cuda:0/peak_allocated_bytes"] == 40 << 30
    (rank,) = in_process("job", path, "--json").json["ranks"]
    assert (rank["peak_allocated_bytes"], rank["peak_reserved_bytes"]) == (40 << 30, 80 << 30)
    digest = digest_of(snapshot, path)
    assert (digest.highest_allocated, digest.peak_allocated) == (40 << 30, timeline.peak_bytes)


def test_a_program_with_a_round_number_of_events_has_not_filled_a_larger_ring(tmp_path: Path) -> None:
    assert "full" in keys(noted(tmp_path, 1, 200))
    assert "full" not in keys(noted(tmp_path, 1, 1_000_000))


def test_what_the_recorder_noted_after_a_reset_is_no_peak(tmp_path: Path) -> None:
    snapshot = noted(tmp_path, 1 << 10, 200)
    (peak,) = peak_findings(snapshot, snapshot.timeline(0))
    assert peak.title.startswith("Peak on cuda:0: at least ")


RING = Path(corpus.ROOT).parent / "shared" / "runs" / "ring_overflow.pickle.xz"


@pytest.mark.skipif(not RING.exists(), reason="no recording of a ring that overflowed")
def test_the_peak_of_a_real_ring() -> None:
    snapshot = snapreport.load(RING)
    (peak,) = peak_findings(snapshot, snapshot.timeline(0))
    assert "torch.cuda.max_memory_allocated() reported 75.6 MiB: it counts rounded blocks." in peak.detail
    assert "at least" not in peak.title
    assert [result.status for result in check(snapshot, Rules(max_peak=60 << 20))] == ["failed"]
