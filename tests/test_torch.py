"""Where PyTorch's own ``_memory_viz`` computes the same thing, the results agree.

Its numbers are printed with two digits, and it knows nothing of allocations from before the trace; what can be compared
is what it prints of segments, of final blocks and of single events.
"""

from __future__ import annotations

import collections
import re
import warnings
from pathlib import Path
from typing import Any

import corpus
import pytest


@pytest.fixture(scope="module")
def viz() -> Any:
    """torch.cuda._memory_viz, or a skip that says what was not compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what is missing on a machine without a GPU
        pytest.importorskip("torch", reason="torch is not installed: nothing was compared with its _memory_viz")
        import torch.cuda._memory_viz as module
    return module


def snapshot_of(path: Path) -> Any:
    snapshot = corpus.raw(path)
    return snapshot if isinstance(snapshot, dict) else {"segments": snapshot, "device_traces": []}


def test_segment_summary(viz: Any, snapshot_path: Path) -> None:
    raw = snapshot_of(snapshot_path)
    try:
        text = viz.segsum(raw)
    except AssertionError as error:
        pytest.skip(f"_memory_viz refuses this file: {str(error)[:80]}")
    stats = corpus.loaded(snapshot_path).stats()["devices"]
    lines = dict(line.split(": ") for line in text.splitlines() if re.match(r"(segments|total_\w+): ", line))
    assert int(lines["segments"]) == sum(d["segments"] for d in stats)
    assert lines["total_reserved"] == str(viz.Bytes(sum(d["end_reserved_bytes"] for d in stats)))
    pending = sum(
        b["requested_size"]
        for s in raw["segments"]
        for b in s["blocks"]
        if b["state"] in ("active_pending_free", "active_awaiting_free")
    )
    final = sum(d["end_allocated_bytes"] - d["reconciliation_bytes"] for d in stats)
    assert lines["total_allocated"] == str(viz.Bytes(final - pending))


def test_final_blocks(viz: Any, snapshot_path: Path) -> None:
    """The active blocks that ``memory`` folds for a flame graph are the sizes live at the end, stream by stream."""
    raw = snapshot_of(snapshot_path)
    loaded = corpus.loaded(snapshot_path)
    if any(d["reconciliation_bytes"] for d in loaded.stats()["devices"]):
        pytest.skip("the final blocks of this file contradict its trace")
    folded = viz.memory(raw, format_flamegraph=lambda text: text)
    theirs: collections.Counter[tuple[int, int]] = collections.Counter()
    for line in folded.splitlines():
        head, _, size = line.rpartition(" ")
        stream, state, *frames = head.split(";")
        if state.startswith("active") and frames != ["<gaps>"]:
            theirs[int(stream.removeprefix("stream_")), int(size)] += 1
    ours: collections.Counter[tuple[int, int]] = collections.Counter()
    for device in loaded.devices:
        table = loaded.allocations(device)
        ours.update(table.filter(table["free_event"] == -1).select("stream", "size").rows())
    # Flame graph lines of one stack are separate blocks; bytes are compared, which folding preserves.
    assert bytes_by_stream(theirs) == bytes_by_stream(ours) and theirs == ours


def bytes_by_stream(counted: collections.Counter[tuple[int, int]]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for (stream, size), count in counted.items():
        sums[stream] = sums.get(stream, 0) + size * count
    return sums


def test_trace(viz: Any, snapshot_path: Path) -> None:
    """``trace`` prints every event in words: as many allocs, frees, segments and ooms, of the same sizes, in order."""
    raw = snapshot_of(snapshot_path)
    text = viz.trace(raw)
    loaded = corpus.loaded(snapshot_path)
    for block in text.split("Device ")[1:]:
        device = int(block.split(" ", 1)[0])
        events = loaded.events(device)
        assert f"\n{len(events)} entries\n" in block
        allocs = events.filter(events["action"].cast(str) == "alloc")
        theirs = re.findall(r"^\S+ = \S+\[\d+:([\d.]+\w+)\]$", block, re.M)
        assert theirs == [str(viz.Bytes(size)) for size in allocs["size"].to_list()]
        assert block.count("\nraise OutOfMemoryError") == len(loaded.timeline(device).oom_events)
        assert block.count("\n# free completed for ") == (events["action"].cast(str) == "free_completed").sum()
