"""Pinned host memory as PyTorch writes it: segments with blocks, and flat ones."""

from __future__ import annotations

import pickle
from pathlib import Path

import snapreport
from snapreport.reading.recording import HOST

FRAME = {"filename": "loader.py", "line": 3, "name": "pin"}
FLAT = {"device": -1, "address": 4096, "total_size": 1024, "stream": 0, "frames": [FRAME]}


def test_a_flat_segment_is_one_block(tmp_path: Path) -> None:
    """The host allocator never splits: a segment without blocks is in use as a whole, pending, or free."""
    segments = [
        FLAT | {"allocated_size": 1024, "active_size": 1024, "requested_size": 1000},
        FLAT | {"address": 8192, "allocated_size": 0, "active_size": 1024, "requested_size": 1000},
        FLAT | {"address": 16384, "allocated_size": 0, "active_size": 0, "requested_size": 0},
    ]
    path = tmp_path / "snap.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [], "host_segments": segments, "host_traces": []}))
    loaded = snapreport.load(path)
    blocks = loaded.recording.devices[HOST].blocks
    assert blocks.select("address", "size", "requested_size", "state").rows() == [
        (4096, 1024, 1000, "active_allocated"),
        (8192, 1024, 1000, "active_pending_free"),
        (16384, 1024, 0, "inactive"),
    ]
    assert loaded.timeline(HOST).reserved.tolist() == [3072]
    assert loaded.timeline(HOST).allocated.tolist() == [2000]
    stack = loaded.recording.stack(loaded.allocations(HOST)["stack"][0])
    assert loaded.recording.frames["filename"][stack[0]] == "loader.py"
