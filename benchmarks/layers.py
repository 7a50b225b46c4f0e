"""How often layers that are counted in stack traces are right: programs of ``tests/fakecuda/programs/sized.py``,
recorded with their modules, which the inference does not see.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import snapreport
from benchmarks.modules import PROGRAMS, run
from benchmarks.recording import pythons
from snapreport.timeline.inferred_layers import layer_paths

STEPS = 3
KEYS = ("forward", "said", "layer", "module")
HEAD = f"{'program':<24}{'forward':>12}{'said':>9}{'layer':>9}{'module':>9}"


def measure(python: str | Path, program: str, value: int, stacks: str = "python") -> dict[str, Any]:
    """Bytes of forward passes in modules, ``forward``; of these ``said``: with the number of a layer; of these
    ``layer``: the module's path has that number; ``module``: in the module that most of the bytes of a path are in.

    A module without a number, which is what a loop's own lines are in, has that of the last one that ran before.
    """
    with tempfile.TemporaryDirectory() as folder:
        run(python, STEPS, "recorded", program, value, folder, stacks=stacks)
        (path,) = Path(folder).glob("*.pickle.gz")
        snapshot = snapreport.load(path)
        timeline = snapshot.timeline(0)
    path = layer_paths(timeline.recording, timeline.allocations)
    layers = pl.col("module").str.extract_all(r"(?:^|\.)\d+").list.eval(pl.element().str.strip_chars_start("."))
    table = timeline.allocations.select("size", "stack", "alloc_event", truth="module", path=path, layers=layers)
    is_last = pl.col("layers").list.len() > 0
    table = table.with_columns(layers=pl.when(is_last).then("layers").forward_fill().fill_null([]))
    table = table.filter(pl.col("truth").is_not_null() & pl.col("path").is_not_null() & (pl.col("alloc_event") >= 0))
    # The last number of "dit:249.3.dit:125"; of a layer in a layer, that of the inner one.
    sums = (
        table.group_by("path", "truth", "layers")
        .agg(pl.col("size").sum())
        .with_columns(layer=pl.col("path").str.extract(r"^.*\.(\d+)(?:\.|$)"))
    )
    said = sums.drop_nulls("layer")
    right = said.filter(pl.col("layers").list.contains(pl.col("layer")))
    return {
        "program": program,
        "forward": int(table["size"].sum()),
        "said": int(said["size"].sum()),
        "layer": int(right["size"].sum()),
        "module": int(said.group_by("path").agg(pl.col("size").max())["size"].sum()),
        "wrong": said.join(right, on=["path", "truth", "layers"], how="anti").rows(),
    }


def run_all(names: Sequence[str], stacks: str) -> list[dict[str, Any]]:
    """Prints a line for each program and PyTorch, and returns the rows."""
    rows = []
    for python in pythons():
        print(f"\n{python}\n{HEAD}", flush=True)
        mine = []
        for program, value in PROGRAMS.items():
            if not names or program in names:
                mine.append({"python": python, **measure(python, program, value, stacks)})
                print(line(mine[-1]), flush=True)
        print(line({"program": "all", **{key: sum(row[key] for row in mine) for key in KEYS}}))
        rows += mine
    return rows


def line(row: dict[str, Any]) -> str:
    def share(part: str, whole: str) -> str:
        return f"{row[part] / row[whole]:>9.2%}" if row[whole] else f"{'-':>9}"

    shares = share("said", "forward") + share("layer", "said") + share("module", "said")
    return f"{row['program']:<24}{row['forward'] / 2**20:>8.0f} MiB{shares}"
