"""Leaks, cycles and churn: found where they were planted, with the right stack and bytes, and nowhere else."""

from __future__ import annotations

import pickle
from pathlib import Path

import corpus
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import frames_text, path_of, planted, rewritten

import snapreport
from snapreport.findings.allocation_growth import loop_memory
from snapreport.findings.churn import churn, churn_findings
from snapreport.findings.live_at_end import end_findings
from snapreport.findings.lowest_live import lowest_live
from snapreport.findings.model import Finding
from snapreport.findings.repetition import repetitions
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

MIB = 1 << 20


def leak_findings(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    return [f for f in end_findings(snapshot, timeline) if f.kind == "leak"]


@pytest.mark.parametrize("leak", [3 * MIB, 20 * MIB])
@pytest.mark.parametrize("steps", [8, 12])
def test_a_planted_leak_is_found_first_and_to_the_byte(leak: int, steps: int) -> None:
    snapshot = planted("leak", leak=leak, steps=steps)
    found = leak_findings(snapshot, snapshot.timeline(0))
    assert [f.severity for f in found] == ["warning"]
    assert "log_step" in frames_text(snapshot, found[0].stack)
    assert found[0].evidence["bytes_per_step"] == leak
    assert found[0].bytes == leak * steps
    assert found[0].evidence["live_count"] == steps


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("leak", {"leak": 0}),
        ("leak", {"leak": 0, "cache_steps": 5}),
        ("leak", {"leak": 0, "cache_steps": 3, "steps": 20}),
        ("training", {"steps": 10}),
        ("churn", {}),
        ("serving", {"events": 12_000}),
        ("expandable", {"steps": 8}),
        ("checkpointing", {"steps": 6}),
        ("oom", {}),
        ("truncated", {}),
        ("pinned", {}),
    ],
    ids=str,
)
def test_no_leak_is_told_where_there_is_none(preset: str, changes: dict) -> None:
    """Not a cache that levels off, not the optimizer's state of the first step, not what a first pass builds up."""
    snapshot = planted(preset, **changes)
    assert [f.title for d in snapshot.devices for f in leak_findings(snapshot, snapshot.timeline(d))] == []


def test_no_leak_is_told_in_real_snapshots(real_path: Path) -> None:
    """None of them spans enough steps to show one."""
    snapshot = corpus.loaded(real_path)
    assert [
        f.title for d in snapshot.devices for f in leak_findings(snapshot, snapshot.timeline(d)) if f.severity != "info"
    ] == []


def test_the_staircase_is_what_a_plain_replay_gives() -> None:
    snapshot = planted("leak", **corpus.GENERATED["leak"][1])
    timeline = snapshot.timeline(0)
    finding = leak_findings(snapshot, timeline)[0]
    bounds = finding.evidence["bounds"]
    device = corpus.replayed(corpus.path_of("leak"))[0]
    rows = timeline.allocations.filter(pl.col("stack") == finding.stack)["id"].to_list()
    assert len(device.allocations) == len(timeline.allocations)
    for k, least in enumerate(finding.evidence["staircase"]):
        values = [
            sum(_live(timeline, row, position) for row in rows)
            for position in range(bounds[k] + 1, bounds[k + 1] + 1, 37)
        ]
        assert least <= min(values)
    assert finding.evidence["staircase"][-1] == (len(rows) - 1) * 3 * MIB


def _live(timeline: object, row: int, position: int) -> int:
    alloc, free, size = timeline.allocations.select("alloc_event", "free_event", "size").row(row)
    return size if alloc + 1 <= position and (free < 0 or position < free + 1) else 0


@given(st.data())
def test_lowest_live_equals_counting_at_every_position(data: st.DataObject) -> None:
    span = data.draw(st.integers(4, 30))
    lives = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, 3), st.integers(-1, span - 1), st.integers(1, span), st.integers(1, 9), st.booleans()
            ),
            min_size=1,
            max_size=12,
        )
    )
    rows = [
        (s, z, a, min(a + length, span - 1) if ends and a + length < span else -1) for s, a, length, z, ends in lives
    ]
    table = pl.DataFrame(rows, schema=["stack", "size", "alloc_event", "free_event"], orient="row")
    table = table.filter((pl.col("free_event") < 0) | (pl.col("free_event") > pl.col("alloc_event")))
    bounds = np.unique([0, *data.draw(st.lists(st.integers(1, span), max_size=4)), span + 1])
    stacks = np.array(sorted({s for s, *_ in rows}))
    result = lowest_live(table, stacks, bounds)
    for row, stack in enumerate(stacks):
        for k in range(len(bounds) - 1):
            expected = min(
                sum(z for s, z, a, f in table.rows() if s == stack and a + 1 <= p and (f < 0 or p < f + 1))
                for p in range(bounds[k], bounds[k + 1])
            )
            assert result[row, k] == expected


def test_reference_cycles_are_hinted_at() -> None:
    snapshot = planted("leak", leak=0, cycles=3)
    found = leak_findings(snapshot, snapshot.timeline(0))
    assert [f.severity for f in found] == ["info"]
    assert "on_batch" in frames_text(snapshot, found[0].stack)
    assert found[0].bytes == 3 * 8 * MIB


def test_a_leak_is_found_without_steps_from_what_the_curve_repeats() -> None:
    """No annotations, and no frame that identifies an optimizer's step."""

    def rename(frame: dict) -> None:
        frame["name"] = "advance" if frame["name"] == "step" else frame["name"]

    path = rewritten(path_of("leak", leak=3 * MIB, steps=12), "no-steps.pickle", rename)
    content = pickle.loads(path.read_bytes())
    content.pop("external_annotations", None)
    path.write_bytes(pickle.dumps(content, 2))
    snapshot = snapreport.load(path)
    timeline = snapshot.timeline(0)
    assert len(timeline.steps) == 0
    slices = repetitions(timeline)
    assert slices is not None
    assert slices.unit == "cycle"
    found = leak_findings(snapshot, timeline)
    assert "log_step" in frames_text(snapshot, found[0].stack)


def test_churn_is_found_with_who_empties_the_cache() -> None:
    snapshot = planted("churn")
    found = churn_findings(snapshot, snapshot.timeline(0))
    assert len(found) == 1
    assert "end_step" in frames_text(snapshot, found[0].stack)
    assert found[0].evidence["segments_again"] >= 8 * 4  # four buffers in each step after the first


@pytest.mark.parametrize(
    ("preset", "changes"),
    [("churn", {"churn": 0}), ("training", {}), ("leak", {}), ("serving", {"events": 8000}), ("expandable", {})],
    ids=str,
)
def test_no_churn_is_told_where_there_is_none(preset: str, changes: dict) -> None:
    snapshot = planted(preset, **changes)
    assert churn_findings(snapshot, snapshot.timeline(0)) == []


@pytest.mark.parametrize("name", ["churn", "pools", "expandable", "crowded.pickle.xz", "emptied.pickle.xz"])
def test_churn_counts_what_a_plain_walk_counts(name: str) -> None:
    snapshot = corpus.loaded(corpus.path_of(name))
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        found = churn(timeline)
        if found is None:
            continue
        reserved, most, again, bytes_again = int(timeline.reserved[0]), int(timeline.reserved[0]), 0, 0
        first_free = None
        for event, (action, size) in enumerate(timeline.events.select("action", "size").rows()):
            before = most
            if action in ("segment_alloc", "segment_map"):
                reserved += size
                late = first_free is not None and event > max(found.warm_event, first_free)
                if late and reserved <= before:
                    again, bytes_again = again + 1, bytes_again + size
            elif action in ("segment_free", "segment_unmap"):
                reserved -= size
                first_free = event if first_free is None else first_free
            most = max(most, reserved)
        assert (len(found.again), found.again_bytes) == (again, bytes_again)


def test_growth_needs_a_rise_not_only_survivors() -> None:
    """A working set replaced piece by piece lives to the end and does not grow."""
    snapshot = planted("training", steps=12)
    timeline = snapshot.timeline(0)
    slices = repetitions(timeline)
    assert slices is not None
    assert loop_memory(timeline, slices).growing == []
