"""Modules, names and shapes of a recording: those of the program, which recording does not change."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import corpus
import pytest
from fake_torch import FakeTorch

import snapreport
from snapreport.reading.recorder_metadata import read_metadata

sys.path.append(str(corpus.ROOT))
from benchmarks import modules


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


QUERIES = [
    ("module:layers.0", [0, 1, 2]), ("module:layers", [0, 1, 2]), ("module:layers.0.up", [0, 2]),
    ("module:Layers.*.UP", [0, 2]), ('module:"layers.0"', [1]), ("module:*.up", [0, 2]), ("module:up", []),
    ("module:layer", []), ("module:*", [0, 1, 2]), ("-module:*", [3]), ("shape:10x10", [0, 1]),
    ("shape:*x10", [0, 1]), ("shape:1", []), ("shape:100", [2]), ("dtype:float32", [0, 1, 2]),
    ("dtype:*32", [0, 1, 2]), ("dtype:float", []),
]  # fmt: skip


@pytest.mark.parametrize(("query", "rows"), QUERIES)
def test_queries(tmp_path: Path, query: str, rows: list[int]) -> None:
    facts = {"paths": PATHS, "times": [500, 3000, 1000, 600], "codes": [3, 2, 1, 0], "outputs": OUTPUTS}
    tensors = [[0, 1024, "parameter", "layers.0.up.weight", [100], "torch.float32"]]
    loaded = recorded(tmp_path, facts, [{"time_us": 5500, "tensors": tensors}])
    assert loaded.query(query, 0)["id"].to_list() == rows


def test_the_tree_has_the_memory_at_the_peak(tmp_path: Path) -> None:
    """Of three live allocations of 400 bytes; layers 1 and 2 are built alike, layer 0 has no parameter."""
    paths = [*PATHS, ["layers.1", "Block"], ["layers.1.up", "Linear"], ["layers.2", "Block"], ["layers.2.up", "Linear"]]
    facts = {"paths": paths, "times": [500], "codes": [3]}
    names = {512: "layers.1.up.weight", 1024: "layers.2.up.weight"}
    tensors = [[0, address, "parameter", name, [100], "torch.float32"] for address, name in names.items()]
    loaded = recorded(tmp_path, facts, [{"time_us": 5500, "tensors": tensors}])
    rows = {row["module"]: row for row in loaded.modules(0).rows(named=True)}
    assert list(rows) == ["layers", *(f"layers.{n}{part}" for n in range(3) for part in ("", ".up"))]
    assert {path: row["like"] for path, row in rows.items() if row["like"]} == {"layers.2": "layers.1"}
    top = rows["layers"]
    assert (top["allocations"], top["peak_bytes"], top["parameter_bytes"], top["kind"]) == (4, 1200, 800, None)
    assert (rows["layers.0.up"]["allocations"], rows["layers.0.up"]["peak_bytes"]) == (2, 400)
    assert loaded.stats()["devices"][0]["modules"] == list(rows.values())


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
