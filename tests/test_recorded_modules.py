"""Modules, names and shapes of a recording: those of the program, which recording does not change."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from fake_torch import FakeTorch

import snapreport
from benchmarks import modules
from snapreport.reading.recorder_metadata import read_metadata


@pytest.mark.parametrize("program", ["checkpointed_batch", "gan_batch", "unet_batch"])
def test_programs(torch_cuda: FakeTorch, program: str) -> None:
    """Against what each allocation belongs to by the program's own account (tests/fakecuda/programs/named.py)."""
    row = modules.measure(torch_cuda.python, program, 2)
    assert row["unchanged"]
    for kind in modules.KINDS:
        right = row[kind][0]
        assert right >= 0.99 * sum(row[kind]) > 0, (kind, row["wrong"])


def recorded(folder: Path, facts: dict[str, Any], marks: list[dict[str, Any]]) -> snapreport.Snapshot:
    """Allocations of 400 bytes at 1,000 µs, 2,000 µs and so on; the second takes the address that the first leaves."""
    trace = []
    for number, (action, address) in enumerate(
        [
            ("alloc", 512),
            ("free_requested", 512),
            ("free_completed", 512),
            ("alloc", 512),
            ("alloc", 1024),
            ("alloc", 1536),
        ]
    ):
        trace.append(
            {"action": action, "addr": address, "size": 400, "stream": 0, "time_us": 1000 * (number + 1), "frames": []}
        )
    metadata = {"schema": "snapreport-recording/1", "modules": facts, "marks": marks, "dumped_us": 7000}
    path = folder / "recorded.pickle"
    path.write_bytes(pickle.dumps({"snapreport": metadata, "segments": [], "device_traces": [trace]}))
    return snapreport.load(path)


PATHS = [["", ""], ["Net", "Net"], ["layers.0", "Block"], ["layers.0.up", "Linear"]]
OUTPUTS = {"kinds": [[0, [10, 10], "torch.float32", 4], [0, [7], "torch.int8", 1]], "times": [1500, 3000, 1500],
           "addresses": [512, 0, 512], "codes": [0, 0, 1]}  # fmt: skip


def test_each_allocation_has_the_module_that_ran(tmp_path: Path) -> None:
    """A mark holds until the next, a name overrides it, and a shape counts for a tensor that fills its allocation."""
    facts = {"paths": PATHS, "times": [500, 3000, 1000, 600], "codes": [3, 2, 1, 0], "outputs": OUTPUTS}
    tensors = [[0, 1024, "parameter", "layers.0.up.weight", [100], "torch.float32"]]
    loaded = recorded(tmp_path, facts, [{"time_us": 5500, "tensors": tensors}])
    table = loaded.allocations(0)
    assert table["module"].to_list() == ["layers.0.up", "layers.0", "layers.0.up", None]
    assert table["shape"].to_list() == ["10x10", "10x10", "100", None]
    assert table["dtype"].to_list() == ["float32", "float32", "float32", None]


@pytest.mark.parametrize(
    "change",
    [
        {"codes": [3, 2, 1, 9]}, {"codes": [3]}, {"codes": "no"}, {"times": [2**70, 1, 1, 1]}, {"times": None},
        {"paths": []}, {"paths": [["a"], 3]}, {"outputs": {**OUTPUTS, "kinds": [[0, [-1], "x", 4]]}}, {"outputs": []},
        {"outputs": {**OUTPUTS, "codes": [0, 0, -1]}}, {"outputs": {**OUTPUTS, "addresses": [True, 2, 3]}},
    ],
)  # fmt: skip
def test_hostile_values_are_ignored(tmp_path: Path, change: dict[str, Any]) -> None:
    facts = {"paths": PATHS, "times": [500, 3000, 1000, 600], "codes": [3, 2, 1, 0], "outputs": OUTPUTS, **change}
    table = recorded(tmp_path, facts, []).allocations(0)
    assert len(table) == 4
    if "outputs" in change:
        assert table["shape"].null_count() == 4
    else:
        assert table["module"].null_count() == 4
    assert read_metadata({"schema": "snapreport-recording/1", "modules": 3}).running.is_empty()
