"""What newer PyTorch writes: names given to tensors later, snapshots without traces, bare lists, other back ends."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import recorded

import snapreport
from snapreport.findings.oom import oom_findings
from snapreport.report.summary import shown_settings
from snapreport.snapshot import Snapshot

BLOCK = {"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": []}
SEGMENT = {
    "device": 0, "address": 4096, "total_size": 2048, "allocated_size": 1024, "active_size": 1024,
    "requested_size": 1000, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 1), "is_expandable": False,
    "frames": [], "blocks": [BLOCK, BLOCK | {"address": 5120, "state": "inactive", "requested_size": 0}],
}  # fmt: skip


def entry(action: str, addr: int, size: int = 512, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1, "frames": [], **more}


def loaded(tmp_path: Path, content: Any) -> Snapshot:
    path = tmp_path / "snap.pickle"
    path.write_bytes(pickle.dumps(content))
    return snapreport.load(path)


def test_annotate_names_the_allocation_that_lives_there_then(tmp_path: Path) -> None:
    trace = [
        entry("annotate", 4096, user_metadata="nobody"),
        entry("alloc", 4096, user_metadata='{"step":0}'),
        entry("annotate", 4096, user_metadata="kept #0"),
        entry("annotate", 4096, user_metadata="second note"),
        entry("annotate", 4096, user_metadata="kept #0"),
        entry("annotate", 4096),
        entry("free_completed", 4096),
        entry("alloc", 4096),
        entry("alloc", 8192),
        entry("annotate", 8192, user_metadata="next"),
    ]
    snapshot = loaded(tmp_path, {"segments": [], "device_traces": [trace]})
    assert snapshot.allocations(0)["user_metadata"].to_list() == ['{"step":0}; kept #0; second note', None, "next"]
    assert snapshot.query('meta:"kept #0"')["id"].to_list() == [0]
    assert snapshot.query("meta:next")["id"].to_list() == [2]


def test_names_of_a_recording_reach_search_details_and_table(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    if "annotate" not in recorded.names():
        pytest.skip(recorded.NONE)
    allocations = recorded.load("annotate").allocations(0)
    assert allocations["user_metadata"][0] == "outer; kept #0; second note"
    opened = borrow_report(report_of(recorded.ROOT / "annotate.pickle"))
    found = opened.js("snapreport.search(0, 'meta:\"second note\"')")
    assert found["ids"] == [0]
    opened.set_view(view="table", select=0)
    assert "kept #0" in opened.page.locator(".details").inner_text()


def test_states_without_traces(tmp_path: Path) -> None:
    """``_snapshot(include_traces=False)``: what is live is known, not how it came about."""
    for content in ({"segments": [SEGMENT], "device_traces": []}, {"segments": [SEGMENT]}):
        timeline = loaded(tmp_path, content).timeline(0)
        assert (timeline.peak_bytes, timeline.reserved.tolist()) == (1000, [2048])
        assert [gap.key for gap in timeline.recording_gaps] == ["no history"]


def test_the_bare_list_of_a_pool(tmp_path: Path) -> None:
    """``MemPool.snapshot()``."""
    snapshot = loaded(tmp_path, [SEGMENT])
    assert snapshot.allocations(0).select("size", "pool", "origin").rows() == [(1000, "(0, 1)", "ghost")]


def test_newer_settings_are_shown_where_they_are_set(tmp_path: Path) -> None:
    """2**63 - 1 entries is what PyTorch writes where the program set no limit."""
    settings = {
        "large_segment_size_mb": 64, "max_non_split_rounding_mb": 40, "expandable_segments_reserve": 0.5,
        "trace_alloc_max_entries": 2**63 - 1,
    }  # fmt: skip
    snapshot = loaded(tmp_path, {"segments": [SEGMENT], "device_traces": [], "allocator_settings": settings})
    assert shown_settings(snapshot.recording.settings) == [
        ("large_segment_size_mb", "64"), ("max_non_split_rounding_mb", "40"), ("expandable_segments_reserve", "0.5"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mtia"])
def test_back_ends_of_the_same_layout(tmp_path: Path, kind: str) -> None:
    settings = {f"PYTORCH_{kind.upper()}_ALLOC_CONF": "expandable_segments:True"}
    snapshot = loaded(tmp_path, {"segments": [SEGMENT], "device_traces": [], "allocator_settings": settings})
    assert snapshot.stats()["devices"][0]["kind"] == kind


def test_what_no_trace_shows_is_named(tmp_path: Path) -> None:
    """Its size too, where the recorder recorded the device's."""
    trace = [entry("segment_alloc", 4096, 2048), entry("alloc", 4096, 1000)]
    trace += [{"action": "oom", "size": 1 << 30, "device_free": 1 << 20, "stream": 0, "time_us": 2, "frames": []}]
    content = {"segments": [SEGMENT], "device_traces": [trace]}
    snapshot = loaded(tmp_path, content)
    (finding,) = oom_findings(snapshot, snapshot.timeline(0))
    assert any(
        line.startswith("Memory outside PyTorch's caching allocator is not recorded: ") for line in finding.basis
    )
    total = (1 << 30) + (1 << 20) + 2048
    written = {"schema": "snapreport-recording/1", "memory_at_dump": {0: {"free_bytes": 0, "total_bytes": total}}}
    snapshot = loaded(tmp_path, content | {"snapreport": written})
    (finding,) = oom_findings(snapshot, snapshot.timeline(0))
    assert any(line.startswith("1.00 GiB of the device's 1.00 GiB were outside ") for line in finding.basis)


@pytest.mark.parametrize("name", recorded.cases())
def test_pinned_memory_is_that_of_host_memory_stats(name: str) -> None:
    """PyTorch calls active what the program has, and allocated what it has or can reuse: our reserved."""
    stats = recorded.truth(name).get("host_stats") or {}
    snapshot = recorded.load(name)
    if -1 not in snapshot.devices or not stats or not len(snapshot.events(-1)):
        return
    timeline = snapshot.timeline(-1)
    assert timeline.reconciliation_bytes == 0
    assert timeline.peak_bytes == stats["active_bytes.peak"]
    assert timeline.allocated[-1] == stats["active_bytes.current"]
    assert timeline.reserved[-1] == stats["allocated_bytes.current"]


@pytest.mark.parametrize("name", recorded.cases())
def test_every_recording_is_reconciled(name: str) -> None:
    """The replay ends with the final blocks, or the report says that events are missing; other differences are
    PyTorch's.
    """
    snapshot = recorded.load(name)
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        assert timeline.reconciliation_bytes == 0 or timeline.recording_gaps
        stats = recorded.memory_stats(name, device)
        if timeline.kind != "host" and stats.get("requested_bytes.all.current") is not None:
            assert timeline.allocated[-1] == stats["requested_bytes.all.current"]
            assert timeline.reserved[-1] == stats["reserved_bytes.all.current"]
