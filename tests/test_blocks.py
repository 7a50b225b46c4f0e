"""Blocks, segments over time and fragmentation: against the final state, a simple replay, and the sample's own
allocator.
"""

from __future__ import annotations

import pickle
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import allocator_oracle
import breadth
import corpus
import generator
import numpy as np
import polars as pl
import pytest
from generator.allocator import Allocator, OutOfMemoryError
from generator.layout import entry_dicts, segment_dicts
from generator.memory import DeviceMemory
from generator.recorder import Recorder
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple
from scripted import Script

import snapreport
from snapreport.timeline.blocks import ASSUMED, KNOWN, SOURCES, blocks_of
from snapreport.timeline.fragmentation import Parts, parts_at
from snapreport.timeline.rounding import allocator_rules
from snapreport.timeline.state import state_at

MIB = 2**20
# Why a final state does not follow from its trace: one was trimmed by hand, one made up with overlapping addresses.
CONTRADICTORY = {"trimmed_inconsistent.pickle", "synthetic_overlapping.pickle"}


def timelines(path: Path) -> list[Any]:
    snapshot = corpus.loaded(path)
    return [snapshot.timeline(device) for device in snapshot.devices]


def worked_out(timeline: Any) -> Any:
    """Blocks that follow from the trace alone, without using the final state's sizes."""
    record = timeline.recording.devices[timeline.device]
    return blocks_of(record, timeline.recording.settings, timeline.allocations, trust_final=False)


def test_last_position_is_the_final_state(snapshot_path: Path) -> None:
    """Sizes from the replay alone: every block and hole, and every segment, as the allocator itself reported them."""
    if snapshot_path.name in CONTRADICTORY:
        pytest.skip("the final state contradicts the trace")
    snapshot = snapreport.load(snapshot_path)  # not shared: it is changed
    for timeline in map(snapshot.timeline, snapshot.devices):
        timeline.__dict__["blocks"] = worked_out(timeline)
        state = state_at(timeline, len(timeline.events) - 1)
        record = timeline.recording.devices[timeline.device]
        words = {"inactive": "free", "active_allocated": "allocated"}
        want = [
            (address, size, words.get(kind, "pending free"), 0 if kind == "inactive" else requested)
            for address, size, kind, requested in record.blocks.select(
                "address", "size", "state", "requested_size"
            ).rows()
        ]
        assert sorted(state.blocks.select("address", "size", "state", "requested").rows()) == sorted(want)
        assert state.segments.select("address", "size").rows() == sorted(
            record.segments.select("address", "total_size").rows()
        )
        assert (state.blocks["segment"] >= 0).all()


def test_contradictions_are_where_they_are_known_to_be(real_path: Path) -> None:
    """Which real files do not end as they say: the trimmed one has 24 blocks too many, the made-up one no segments
    under its addresses.
    """
    for timeline in timelines(real_path):
        state = state_at(timeline, len(timeline.events) - 1)
        record = timeline.recording.devices[timeline.device]
        active = {
            tuple(row) for row in record.blocks.filter(pl.col("state") != "inactive").select("address", "size").rows()
        }
        ours = {tuple(row) for row in state.blocks.filter(pl.col("state") != "free").select("address", "size").rows()}
        assert len(ours - active) == (24 if real_path.name == "trimmed_inconsistent.pickle" else 0)
        assert not active - ours
        outside = int((timeline.blocks.segment < 0).sum())
        assert outside == (520 if real_path.name == "synthetic_overlapping.pickle" else 0)


def test_parts_add_up_everywhere(snapshot_path: Path) -> None:
    """reserved - allocated = rounding + holes + unused segments, against the blocks themselves."""
    for timeline in timelines(snapshot_path):
        if snapshot_path.name == "synthetic_overlapping.pickle":
            continue
        chosen = random.Random(3)
        last = len(timeline.events) - 1
        for position in {-1, last, timeline.peak_event, *(chosen.randint(-1, last) for _ in range(25))}:
            segments = state_at(timeline, position).segments
            empty = segments.filter(pl.col("blocks") == 0)["size"].sum()
            split = segments.filter(pl.col("blocks") > 0)["free"].sum()
            rounding = (segments["used"] - segments["requested"]).sum()
            assert parts_at(timeline, position) == Parts(rounding, split, empty), position
            i = position + 1
            assert segments["size"].sum() == timeline.reserved[i]
            assert segments["requested"].sum() == timeline.allocated[i]


def assert_as_the_oracle(raw: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Every block size, and at every position every segment, block and hole, as in the simple replay."""
    replay, states, parts = allocator_oracle.states(events, raw.get("allocator_settings"))
    timeline = snapreport.load(io_path(raw)).timeline(0)
    timeline.__dict__["blocks"] = worked_out(timeline)
    traced = timeline.allocations.filter(pl.col("alloc_event") >= 0)
    sizes = timeline.blocks.size[len(timeline.allocations) - len(traced) :].tolist()
    assert list(zip(traced["alloc_event"], traced["addr"], sizes, strict=True)) == replay.born
    assert (timeline.blocks.source != ASSUMED).all()
    assert [astuple(parts_at(timeline, position)) for position in range(-1, len(events))] == parts
    step = max(1, len(states) // 60)
    for position in range(-1, len(events), step):
        state, want = state_at(timeline, position), states[position + 1]
        got = state.segments.select("address", "size", "stream", "expandable").rows()
        assert got == [(s.address, s.size, s.stream, s.expandable) for s in want]
        blocks = state.blocks.select("address", "size", "requested", "state").rows()
        assert blocks == [tuple(b) if b[3] != "free" else (b[0], b[1], 0, "free") for s in want for b in s.blocks]
        holes = [b[1] for s in want for b in s.blocks if b[3] == "free"]
        assert max(state.segments["largest_free"], default=0) == max(holes, default=0)


def io_path(raw: dict[str, Any]) -> Path:
    path = corpus.scratch() / "blocks.pickle"
    path.write_bytes(pickle.dumps(raw, 4))
    return path


SIZES = st.one_of(
    st.integers(1, 2 * MIB),
    st.integers(MIB - 600, MIB + 600),
    st.sampled_from(
        [
            1,
            511,
            512,
            513,
            MIB,
            MIB + 1,
            3 * MIB,
            10 * MIB - 1,
            10 * MIB,
            19 * MIB,
            19 * MIB + 5,
            20 * MIB + 1,
            45 * MIB,
        ]
    ),
    st.integers(MIB, 60 * MIB),
)
STEPS = st.lists(
    st.tuples(st.sampled_from("aaaaafffrec"), SIZES, st.integers(0, 2), st.integers(0, 10**6)), max_size=70
)


@settings(max_examples=breadth.examples(40))
# Cut so that the trace has a request but no completion, and the block is still pending in the final state.
@example([("a", 1, 0, 0)] * 3 + [("r", 1, 0, 0)], False, None, 2)
@given(STEPS, st.booleans(), st.sampled_from([None, None, 20 * MIB, 40 * MIB]), st.sampled_from([None, 2, 10]))
def test_random_programs(
    steps: list[tuple[str, int, int, int]], expandable: bool, max_split: int | None, late: int | None
) -> None:
    """A random program on the sample's allocator: the trace is read as what it did, also when recorded late."""
    recorder = Recorder(0, random.Random(1))
    allocator = Allocator(0, DeviceMemory(0, 700 * MIB, 0), recorder, expandable, max_split, stream_lag_us=40)
    allocator.free(
        allocator.malloc(1)
    )  # otherwise a trace may have no free_completed at all, which has a meaning of its own
    live = []
    for action, size, stream, pick in steps:
        if action == "a":
            with suppress(OutOfMemoryError):
                live.append(allocator.malloc(size, stream))
        elif live and action in "fr":
            block = live.pop(pick % len(live))
            if action == "r":
                allocator.record_stream(block, (block.stream + 1) % 3)
            allocator.free(block)
        elif action == "e" and pick % 3 == 0:
            allocator.empty_cache()
        elif action == "c":
            recorder.now_us += 100
    events = entry_dicts(recorder, "2.12", True, False)
    conf = {"expandable_segments": expandable, "max_split_size": max_split or -1}
    raw = {"segments": segment_dicts(allocator), "device_traces": [events], "allocator_settings": conf}
    assert_as_the_oracle(raw, events)
    if late is not None:
        assert_late_is_the_same(raw, len(events) // late)


def assert_late_is_the_same(raw: dict[str, Any], cut: int) -> None:
    """The same trace without its first ``cut`` events: what it still shows in full has the same blocks; the rest is
    reported as unknown.
    """
    whole = snapreport.load(io_path(raw)).timeline(0)
    cut_path = io_path({**raw, "device_traces": [raw["device_traces"][0][cut:]]})
    part = snapreport.load(cut_path).timeline(0)
    if part.reserved[0] != whole.reserved[cut]:
        raise AssertionError("reserved")
    known = {
        (addr, free - cut if free >= 0 else -1): size
        for addr, free, size in zip(
            whole.allocations["addr"], whole.allocations["free_event"], whole.blocks.size, strict=True
        )
    }
    for addr, free, size, source in zip(
        part.allocations["addr"], part.allocations["free_event"], part.blocks.size, part.blocks.source, strict=True
    ):
        if SOURCES[source] != "assumed":
            assert size == known[addr, free]
        else:
            assert 0 <= known[addr, free] - size <= MIB


@pytest.mark.parametrize(
    "name", ["small", "training", "serving", "expandable", "overlap", "fragmentation", "oom", "churn", "pools"]
)
def test_presets_as_the_oracle(name: str) -> None:
    """Each preset's first events on one device, cut where the simple replay gets slow."""
    changes: dict[str, Any] = {"serving": {"events": 1500}, "overlap": {"events": 1500}}.get(name, {"steps": 1})
    if name == "fragmentation":
        changes = {"layers": 2, "steps": 1}
    elif name in ("oom", "pools", "training", "expandable", "churn"):
        changes = {"steps": 2, "layers": 2}
    raw = generator.make(name, **changes)
    raw["device_traces"], events = raw["device_traces"][:1], raw["device_traces"][0]
    raw["segments"] = [s for s in raw["segments"] if s["device"] == 0]
    assert_as_the_oracle(raw, events)


@given(
    st.lists(st.integers(0, 2**40), min_size=1),
    st.dictionaries(st.sampled_from([str(2**n) for n in range(16)]), st.sampled_from([0, 1, 2, 4, 8, 256])),
)
def test_rounding(sizes: list[int], divisions: dict[str, int]) -> None:
    rules = allocator_rules({"roundup_power2_divisions": divisions})
    assert rules.rounded(np.array(sizes)).tolist() == [allocator_oracle.rounded(size, divisions) for size in sizes]


@pytest.mark.parametrize(
    "given_settings", [{}, {"max_split_size": "much", "roundup_power2_divisions": [1], "expandable_segments": 1}]
)
def test_settings_that_say_nothing(given_settings: dict[str, Any]) -> None:
    assert allocator_rules(given_settings) == allocator_rules({})


def test_known_sizes_win() -> None:
    """The final state is authoritative: a block is as large as it says."""
    raw = generator.make("small", steps=1)
    segment = next(
        s for s in raw["segments"] if s["segment_type"] == "large" and s["blocks"][0]["state"] == "active_allocated"
    )
    block = segment["blocks"][0]
    block["size"] += 512
    timeline = snapreport.load(io_path(raw)).timeline(0)
    row = timeline.allocations["addr"].to_list().index(block["address"])
    rows = np.flatnonzero(
        (timeline.allocations["addr"] == block["address"]).to_numpy()
        & (timeline.allocations["free_event"] < 0).to_numpy()
    )
    assert (
        row <= rows[-1]
        and timeline.blocks.size[rows[-1]] == block["size"]
        and timeline.blocks.source[rows[-1]] == KNOWN
    )


def test_pinned_memory_is_whole_segments() -> None:
    raw = generator.make("pinned", steps=2)
    timeline = snapreport.load(io_path(raw)).timeline(-1)
    sizes = {s["address"]: s["total_size"] for s in raw["host_segments"]}
    assert len(timeline.allocations)
    for address, size in zip(timeline.allocations["addr"], timeline.blocks.size, strict=True):
        assert size == sizes[address]


def test_no_such_position() -> None:
    timeline = snapreport.load(corpus.path_of("small")).timeline(0)
    for position in (-2, len(timeline.events)):
        with pytest.raises(ValueError, match=f"no position {position}"):
            state_at(timeline, position)


@pytest.mark.parametrize("has_own", [True, False])
def test_what_freed_a_block_from_before_the_trace_did_not_allocate_it(has_own: bool, tmp_path: Path) -> None:
    """Where frees have no stacks of their own, PyTorch gives them those of the allocations."""
    script, build, drop = Script(), ("/app/model.py", "build"), ("/app/model.py", "drop")
    old, new = script.alloc("old", 3 << 20, build), script.alloc("new", 5 << 20, build)
    script.free(new, drop if has_own else build)
    script.free(old, drop if has_own else build)
    raw = script.raw()
    del raw["device_traces"][0][0]
    path = tmp_path / "late.pickle"
    path.write_bytes(pickle.dumps(raw))
    rows = snapreport.load(path).allocations(0).sort("size").select("alloc_event", pl.col("stack") > 0).rows()
    assert rows == [(-1, not has_own), (0, True)]
