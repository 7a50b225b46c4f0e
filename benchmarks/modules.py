"""How often the module, the name and the shape that a recording states of an allocation are right, and whether
recording changes a program: the programs of ``sized.py`` and ``wrapped.py`` in ``tests/fakecuda/programs``, each run
without recording, recorded, and with a truth of its own (``named.py`` there).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import snapreport
from benchmarks.inputs import ROOT
from benchmarks.recording import pythons

PROGRAM = ROOT / "tests" / "fakecuda" / "programs" / "named.py"
# The first 8 are noted, then one of 10; a report takes the modules of the others from those.
STEPS = 20
HEAD = f"{'program':<24}{'modules':>10}{'names':>10}{'shapes':>10}{'saved by':>10}  memory_stats"
KINDS = ("modules", "names", "shapes", "saved")
PROGRAMS = {
    "gpt_batch": 4, "scores_length": 64, "autocast_batch": 4, "checkpointed_batch": 4, "sgd_momentum_batch": 4,
    "fused_adam_batch": 4, "accumulated_batch": 4, "lora_batch": 4, "experts_batch": 4, "resnet_batch": 4,
    "densenet_batch": 4, "unet_batch": 4, "vit_batch": 4, "diffusion_batch": 2, "autoencoder_batch": 4,
    "detector_boxes": 8, "embeddings_batch": 16, "contrastive_batch": 8, "lstm_length": 8, "gan_batch": 4,
    "cached_decoding_batch": 2, "padded_batch": 4, "buffered_batch": 8,
}  # fmt: skip
WRAPPED = (
    "ddp", "ddp_views", "ddp_compiled", "fsdp1", "fsdp2", "fsdp2_checkpointed", "fsdp2_compiled", "compiled",
    "compiled_layers", "compiled_submodules", "reentrant", "checkpoint_wrappers", "nested", "shared", "repeated",
    "parametrized",
)  # fmt: skip


def run(python: str | Path, steps: int, *arguments: object, stacks: str = "python") -> Any:
    """What ``named.py`` prints. stacks: as in ``snapreport.record``."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FAKE_GPU_GIB": "8",
        "STEPS": str(steps),
        "STACKS": stacks,
        "FAKE_CUDA_SHADOW": "1",
    }
    command = [str(python), str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure(python: str | Path, program: str, value: int, steps: int = STEPS) -> dict[str, Any]:
    """Of the bytes that the truth knows, how many are said rightly: ``modules``, ``names``, ``shapes``, ``saved`` as
    (right, said wrongly, not at all) bytes; ``unchanged``: whether the program's memory_stats are the same with
    recording and without.
    """
    with tempfile.TemporaryDirectory() as folder:
        recorded = run(python, steps, "recorded", program, value, folder)
        (path,) = Path(folder).glob("*.pickle.gz")
        allocations = snapreport.load(path).allocations(0)
    told = allocations.filter(pl.col("alloc_event") >= 0).rows(named=True)
    truth = run(python, steps, "truth", program, value)
    same = recorded == run(python, steps, "plain", program, value)
    if [row["size"] for row in told] != [row["bytes"] for row in truth]:  # a dispatch mode takes another path
        return {"program": program, "unchanged": same, "wrong": [], **{kind: [0, 0, 0] for kind in KINDS}}
    counts = {kind: [0, 0, 0] for kind in KINDS}
    wrong: list[tuple[Any, ...]] = []
    for number, (one, true) in enumerate(zip(told, truth, strict=True)):
        shapes = ["x".join(map(str, shape)) or "scalar" for shape in true["shapes"]]
        noted = None if (one["shape"] or "").startswith("*") else one["shape"]  # others are inferred
        saved = (one["saved_by"] or "").split()
        # Hooks would compile code anew, and see no node of what a reentrant checkpoint saves.
        is_compared = one["category"] != "parameter" and not {"compiled", "reentrant"} & {*program.split("_")}
        for kind, known, said, right in (
            ("modules", bool(true["modules"]), one["module"], (one["module"] or "") in true["modules"]),
            ("names", bool(true["name"]), one["user_metadata"], one["user_metadata"] == true["name"]),
            ("shapes", bool(shapes) and noted is not None, noted, noted in shapes),
            ("saved", is_compared and bool(saved or true["saved"]), one["saved_by"], {*saved} == {*true["saved"]}),
        ):
            if known:
                counts[kind][0 if right else 1 if said else 2] += one["size"]
                if not right:
                    wrong.append((number, one["size"], kind, said, true))
    return {"program": program, "unchanged": same, "wrong": wrong, **counts}


def run_all(names: Sequence[str]) -> list[dict[str, Any]]:
    """Prints a line for each program and PyTorch, and returns the rows."""
    rows = []
    for python in pythons():
        print(f"\n{python}\n{HEAD}", flush=True)
        mine = []
        for program, value in {**PROGRAMS, **dict.fromkeys(WRAPPED, 4)}.items():
            if not names or program in names:
                mine.append({"python": python, **measure(python, program, value)})
                print(line(mine[-1]), flush=True)
        total = {kind: [sum(row[kind][part] for row in mine) for part in range(3)] for kind in KINDS}
        print(line({"program": "all", "unchanged": all(row["unchanged"] for row in mine), **total}))
        rows += mine
    return rows


def line(row: dict[str, Any]) -> str:
    shares = "".join(f"{row[kind][0] / sum(row[kind]):>10.2%}" if any(row[kind]) else f"{'?':>10}" for kind in KINDS)
    return f"{row['program']:<24}{shares}  {'equal' if row['unchanged'] else 'DIFFER'}"
