"""Modules, names and shapes of a recording: those of the program, which recording does not change."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import polars as pl
import pytest
from fake_torch import FakeTorch

import snapreport
from snapreport.reading.recorder_metadata import read_metadata
from snapreport.timeline.repeated_steps import noted_before

sys.path.append(str(corpus.ROOT))
from benchmarks import modules

PROGRAMS_AND_STEPS = [
    ("unet_batch", 3), ("checkpointed_batch", 12), ("gan_batch", 12), ("ddp_compiled", 3), ("fsdp2_compiled", 3),
]  # fmt: skip


@pytest.mark.parametrize(("program", "steps"), PROGRAMS_AND_STEPS)
def test_programs(torch_cuda: FakeTorch, program: str, steps: int) -> None:
    """Against what each allocation belongs to by the program's own account (tests/fakecuda/programs/named.py)."""
    row = modules.measure(torch_cuda.python, program, 2, steps)
    assert row["unchanged"]
    for kind in modules.KINDS:
        right = row[kind][0]
        assert right >= 0.99 * sum(row[kind]), (kind, row["wrong"])
        assert right or (kind == "saved" and "compiled" in program)


def test_nothing_is_compiled_anew(torch_cuda: FakeTorch, tmp_path: Path) -> None:
    """Compiled code has PyTorch's hooks in it: what they read must not change with the steps that are noted."""
    command = [modules.PROGRAM, "recorded", "compiled_layers", 2, tmp_path / "run"]
    paths = {"PYTHONPATH": corpus.ROOT, "STEPS": 12}
    done = torch_cuda.run(*command, is_new=True, TORCH_LOGS="recompiles,graph_breaks", **paths)
    assert done.code == 0, done.err
    assert "ecompil" not in done.err and "raph break" not in done.err


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
# Of the second and the third allocation: one twice, of which one is a part, and one that no module returned.
SAVED = {"kinds": [[0, [5], "torch.float32", 4, "SinBackward0"], [0, [100], "torch.float32", 4, "MulBackward0"]],
         "times": [5200, 0, 0], "addresses": [512, 0, 512], "codes": [0, 1, 1]}  # fmt: skip


def test_each_allocation_has_the_module_that_ran(tmp_path: Path) -> None:
    """A mark holds until the next, a name overrides it, and a shape counts for a tensor that fills its allocation."""
    facts = {"paths": PATHS, "times": [500, 3000, 1000, 600], "codes": [3, 2, 1, 0], "outputs": OUTPUTS}
    tensors = [[0, 1024, "parameter", "layers.0.up.weight", [100], "torch.float32"]]
    loaded = recorded(tmp_path, facts, [{"time_us": 5500, "tensors": tensors}])
    table = loaded.allocations(0)
    assert table["module"].to_list() == ["layers.0.up", "layers.0", "layers.0.up", None]
    assert table["shape"].to_list() == ["10x10", "10x10", "100", None]
    assert table["dtype"].to_list() == ["float32", "float32", "float32", None]


def test_what_autograd_saved(tmp_path: Path) -> None:
    """Whatever part of it; a shape counts for a tensor that fills its allocation, where no module returned another."""
    facts = {"paths": PATHS, "times": [500], "codes": [3], "outputs": OUTPUTS, "saved": SAVED}
    loaded = recorded(tmp_path, facts, [])
    table = loaded.allocations(0)
    assert table["saved_by"].to_list() == [None, "SinBackward0 MulBackward0", "MulBackward0", None]
    assert table["shape"].to_list() == ["10x10", "10x10", "100", None]
    assert loaded.query("saved:sin", 0)["id"].to_list() == [1]
    assert loaded.query("saved:*", 0)["id"].to_list() == [1, 2]


QUERIES = [
    ("module:layers.0", [0, 1, 2]), ("module:layers", [0, 1, 2]), ("module:layers.0.up", [0, 2]),
    ("module:Layers.*.UP", [0, 2]), ('module:"layers.0"', [1]), ("module:*.up", [0, 2]), ("module:up", []),
    ("module:layer", []), ("module:*", [0, 1, 2]), ("-module:*", [3]), ("shape:10x10", [0, 1]),
    ("shape:*x10", [0, 1]), ("shape:1", []), ("shape:10", []), ("shape:10*", [0, 1, 2]), ("shape:10x*", [0, 1]),
    ("shape:100", [2]), ("dtype:float32", [0, 1, 2]),
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
        {"saved": {**SAVED, "codes": [0, 1, 2]}}, {"saved": {**SAVED, "kinds": OUTPUTS["kinds"]}}, {"saved": "no"},
        {"outputs": {**OUTPUTS, "codes": [0, 0, -1]}}, {"outputs": {**OUTPUTS, "addresses": [True, 2, 3]}},
    ],
)  # fmt: skip
def test_hostile_values_are_ignored(tmp_path: Path, change: dict[str, Any]) -> None:
    facts = {"paths": PATHS, "times": [500, 3000, 1000, 600], "codes": [3, 2, 1, 0], "outputs": OUTPUTS, **change}
    table = recorded(tmp_path, facts, []).allocations(0)
    assert len(table) == 4
    if "saved" in change:
        assert table["saved_by"].null_count() == 4
    elif "outputs" in change:
        assert table["shape"].null_count() == 4
    else:
        assert table["module"].null_count() == 4
    assert read_metadata({"schema": "snapreport-recording/1", "modules": 3}).running.is_empty()


# Of each step, (stack, size, module) of its requests; "?" was not noted. The third number of a result is expected:
# the place in the first step, which is noted, or None.
NOTED = [(1, 8, "a"), (2, 8, "b"), (0, 4, "b"), (2, 8, "c")]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ([(1, 8), (2, 8), (0, 4), (2, 8)], [0, 1, 2, 3]),  # the same
        ([(1, 9), (2, 9), (0, 5), (2, 9)], [0, 1, 2, 3]),  # another batch
        ([(1, 8), (2, 8)], [0, 1]),  # the program ends, or runs out of memory
        ([(0, 4), (2, 8)], [2, 3]),  # the trace begins within it
        ([(1, 8), (3, 1), (2, 8), (0, 4), (2, 8)], [0, None, 1, None, 3]),  # one more, by a line of its own
        ([(1, 8), (2, 8), (2, 8), (2, 8), (0, 4)], [0, None, None, None, None]),  # a line runs more often
        ([(7, 8)], [None]),
    ],
)
def test_steps_between_have_the_modules_of_a_noted_one(step: list[tuple[int, int]], expected: list[int | None]) -> None:
    rows = [*NOTED, *((stack, size, None) for stack, size in step)]
    table = pl.DataFrame(rows, ["stack", "size", "module"], orient="row").with_row_index("alloc_event")
    times = np.array([10] * len(NOTED) + [20] * len(step))
    facts = {"paths": [["", ""]], "pauses": [[15, 25]]}
    metadata = read_metadata({"schema": "snapreport-recording/1", "modules": facts, "steps": [[1, 15], [2, 25]]})
    assert metadata is not None
    found = noted_before(metadata, times, table)
    assert found.tolist() == [-1] * len(NOTED) + [-1 if row is None else row for row in expected]


def test_what_noted_steps_disagree_on_is_not_said() -> None:
    """Two experts of one class, of which each step calls another: their requests are equal."""
    other = [(stack, size, "d" if module == "c" else module) for stack, size, module in NOTED]
    rows = [*NOTED, *other, *((stack, size, None) for stack, size, _ in NOTED)]
    table = pl.DataFrame(rows, ["stack", "size", "module"], orient="row").with_row_index("alloc_event")
    facts = {"paths": [["", ""]], "pauses": [[25, 35]]}
    steps = [[1, 15], [2, 25], [3, 35]]
    metadata = read_metadata({"schema": "snapreport-recording/1", "modules": facts, "steps": steps})
    assert metadata is not None
    assert noted_before(metadata, np.repeat([10, 20, 30], 4), table)[8:].tolist() == [0, 1, 2, -1]


@pytest.mark.parametrize("pauses", [[[2, 1]], [["a", 1]], [[1]], 7, [[3, 4], [1, 2]]])
def test_hostile_pauses(pauses: object) -> None:
    metadata = read_metadata({"schema": "snapreport-recording/1", "modules": {"pauses": pauses}})
    assert metadata is not None
    assert metadata.pauses.is_empty()
