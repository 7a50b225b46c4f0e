"""The columns and figures of a loaded snapshot, against sums over plain events."""

from __future__ import annotations

import pickle
from typing import Any

import corpus
import polars as pl
import pytest

import snapreport

NAMES = ["small", "oom", "pools", "truncated", "no-stacks"]


@pytest.mark.parametrize("name", NAMES)
def test_the_curve_and_its_peaks(name: str) -> None:
    path = corpus.path_of(name)
    snapshot = snapreport.load(path)
    for device, replay in corpus.replayed(path).items():
        curve = snapshot.curve(device)
        assert curve.schema == {"position": pl.Int32, "allocated": pl.Int64, "reserved": pl.Int64}
        assert curve["position"].to_list() == list(range(-1, len(replay.events)))
        live = [
            sum(a.size for a in replay.allocations if a.lives_at(event))
            for event in range(-1, min(150, len(curve) - 1))
        ]
        assert curve["allocated"].to_list()[: len(live)] == live
        peak = snapshot.peak(device)
        assert (peak["position"], peak["allocated"]) == (replay.peak_event, curve["allocated"].max())
        assert (peak["reserved"], peak["max_reserved"]) == (
            curve["reserved"][peak["position"] + 1], curve["reserved"].max(),
        )  # fmt: skip
        for step, first, last in snapshot.steps(device).select("step", "first_event", "last_event").iter_rows():
            rows = curve.filter(pl.col("position").is_between(first, last))
            assert snapshot.peak(device, step)["allocated"] == rows["allocated"].max()
        with pytest.raises(KeyError, match="no step 987654"):
            snapshot.peak(device, 987654)


@pytest.mark.parametrize("name", NAMES)
def test_frames_and_joined_columns(name: str) -> None:
    path = corpus.path_of(name)
    snapshot = snapreport.load(path)
    for device, replay in corpus.replayed(path).items():
        table = snapshot.allocations(device, with_stacks=True)
        plain = snapshot.allocations(device)
        assert table.select(plain.columns).equals(plain)
        added = {column: dtype for column, dtype in table.schema.items() if column not in plain.columns}
        assert added == {
            "function": pl.String, "file": pl.String, "line": pl.Int64, "forward_stack": pl.Int32,
            "forward_lines": pl.String, "forward_source": pl.Enum(["stack", "forward", "none"]),
        }  # fmt: skip
        for a, row in list(zip(replay.allocations, table.iter_rows(named=True), strict=True))[::7]:
            assert snapshot.frames(row["stack"]).rows() == list(a.stack)
            place = (row["file"], row["line"], row["function"])
            assert place in a.stack if a.stack else place == (None, None, None)
            assert (row["forward_lines"] is None) == (row["forward_source"] == "none")
    assert not len(snapshot.frames(0))
    with pytest.raises(KeyError, match="no stack -1"):
        snapshot.frames(-1)


def test_a_gradient_without_a_stack_has_the_module_of_its_forward() -> None:
    machinery = {"filename": "/x/torch/nn/modules/module.py", "line": 9, "name": "_call_impl"}
    inner = {"filename": "/w/block.py", "line": 5, "name": "forward"}
    outer = {"filename": "/w/net.py", "line": 7, "name": "forward"}
    main = {"filename": "/w/train.py", "line": 3, "name": "main"}
    engine = {"filename": "", "line": 0, "name": "torch::autograd::Engine::thread_main(std::shared_ptr)"}
    forward = [inner, machinery, outer, machinery, main]

    def alloc(at: int, frames: list[Any], **more: Any) -> dict[str, Any]:
        return {"action": "alloc", "addr": at << 12, "size": 512, "stream": 0, "frames": frames, **more}

    trace = [
        alloc(1, forward), alloc(2, [], forward_frames=forward), alloc(3, [engine], forward_frames=forward),
        alloc(4, [engine]), alloc(5, [inner, machinery, main], forward_frames=forward), alloc(6, [main]),
    ]  # fmt: skip
    path = corpus.scratch() / "forward.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, 4))
    table = snapreport.load(path).allocations(0, with_stacks=True)
    both, one = "net.py:7 › block.py:5", "block.py:5"
    assert table["forward_lines"].to_list() == [both, both, both, None, one, None]
    assert table["forward_source"].to_list() == ["stack", "forward", "forward", "none", "stack", "none"]
    assert [number > 0 for number in table["forward_stack"].to_list()] == [False, True, True, False, True, False]
