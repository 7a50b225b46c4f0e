"""How often operators that are read from stack traces are right: programs of ``tests/fakecuda/programs/pairs``, with a
profile, whose operators at the moment of an allocation are the truth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import snapreport
from snapreport.reading.activity_trace import OPERATOR
from snapreport.timeline.operators import called_operators

# Functions and files of torch.nn that stand for several operators.
FAMILIES = {
    "interpolate": ("upsample",),
    "multi_head_attention_forward": (
        "linear", "contiguous", "scaled_dot_product_attention", "softmax", "baddbmm", "bmm", "reshape", "transpose",
    ),
    "activation function": ("gelu", "relu", "silu", "clamp_min", "tanh", "sigmoid", "softmax"),
    "rnn": ("gru", "lstm"),
    "pooling": ("max_pool", "avg_pool", "adaptive"),
    "normalize": ("div", "linalg_vector_norm", "clamp_min"),
    "normalization": ("layer_norm", "group_norm", "rms_norm"),
}  # fmt: skip


def run_all(folder: Path, names: Sequence[str], stacks: str) -> list[dict[str, Any]]:
    """Prints a line for each program, and returns the rows."""
    import fake_torch

    rows = []
    print(f"{'program':<30}{'allocated':>12}{'said':>9}{'right':>9}", flush=True)
    for environment in fake_torch.FOLDERS:
        torch = fake_torch.FakeTorch(environment)
        listing = fake_torch.PROGRAMS / "remedy_pairs.py"
        for program in sorted(json.loads(torch.run(listing, "--list").out)):
            if not names or program in names:
                run = folder / f"{torch.version} {program} {stacks}"
                if not run.exists():
                    command = [listing, folder / "own.pickle", program]
                    torch.record("-o", run, "--no-modules", "--stacks", stacks, "--profile", "0:3", command=command)
                if row := measure(run):
                    rows.append({"program": program, "torch": torch.version, **row})
                    print(_line(f"{program} on {torch.version}", row), flush=True)
    total = {key: sum(row[key] for row in rows) for key in ("allocated", "said", "right")}
    print(_line("all", total))
    return rows


def measure(run: Path) -> dict[str, int] | None:
    """Bytes that were ``allocated`` in the profile; ``said``: with an operator; ``right``: that ran then. Lines of
    an optimizer, which are said instead of operators, do not count. None where the program wrote no profile.
    """
    files = list(run.glob("rank_*.pickle.gz"))
    snapshot = snapreport.load(files[0]) if files else None
    profile = snapshot.recording.profile if snapshot else None
    if snapshot is None or profile is None or profile.activities is None:
        return None
    timeline = snapshot.timeline(0)
    operators = profile.activities.intervals.filter(pl.col("kind") == OPERATOR).sort("begin")
    begin, end = operators["begin"].to_numpy(), operators["end"].to_numpy()
    short = operators["name"].str.replace(r"^.*::", "").str.strip_chars("_").to_list()
    said = called_operators(snapshot.recording).to_list()
    times = timeline.events["time_us"].to_numpy() * 1000
    counts = {"allocated": 0, "said": 0, "right": 0}
    for event, stack, size in timeline.allocations.select("alloc_event", "stack", "size").iter_rows():
        if event < 0 or not begin[0] <= times[event] <= end[-1]:
            continue
        counts["allocated"] += size
        name = said[stack].strip("_")
        if name and not name.startswith(("torch.optim.", "compiled code")):
            last = int(np.searchsorted(begin, times[event] + 1000, "right"))
            running = [short[at] for at in np.flatnonzero(end[:last] >= times[event])]
            counts["said"] += size
            counts["right"] += size * any(_names(name, one) for one in running)
    return counts


def _names(said: str, operator: str) -> bool:
    """``conv`` names ``conv2d``, and ``cross_entropy`` names ``cross_entropy_loss``."""
    return bool(re.match(rf"{re.escape(said)}(_|\d|$)", operator)) or operator.startswith(FAMILIES.get(said, ("\0",)))


def _line(name: str, row: dict[str, int]) -> str:
    said = f"{row['said'] / row['allocated']:.1%}" if row["allocated"] else "-"
    right = f"{row['right'] / row['said']:.2%}" if row["said"] else "-"
    return f"{name:<30}{row['allocated'] / 2**20:>8.0f} MiB{said:>9}{right:>9}"
