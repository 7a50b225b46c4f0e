"""How often shapes that are inferred from sizes are right: programs recorded with the shapes of what their modules
return, which the inference does not see. It sees inferred categories, not recorded ones.
"""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import snapreport


def run_all(folder: Path, names: Sequence[str], stacks: str) -> list[dict[str, Any]]:
    """Prints a line for each program of ``tests/fakecuda/programs/pairs`` for which a shape is said, and returns all
    rows.
    """
    import fake_torch

    rows = []
    print(f"{'program':<30}{'known':>12}{'said':>9}{'right':>9}", flush=True)
    for environment in fake_torch.FOLDERS:
        torch = fake_torch.FakeTorch(environment)
        listing = fake_torch.PROGRAMS / "remedy_pairs.py"
        for program in sorted(json.loads(torch.run(listing, "--list").out)):
            run = folder / f"{torch.version} {program} {stacks} modules"
            if names and program not in names:
                continue
            if not run.exists():
                torch.record("-o", run, "--stacks", stacks, command=[listing, folder / "own.pickle", program])
            for path in run.glob("rank_*.pickle.gz"):
                rows.append({"program": program, "torch": torch.version, **measure(path, folder)})
                if rows[-1]["said"]:
                    print(line(f"{program} on {torch.version}", rows[-1]), flush=True)
    print(line("all", {key: sum(row[key] for row in rows) for key in ("known", "said", "right")}))
    return rows


def measure(path: Path, folder: Path) -> dict[str, int]:
    """Bytes of the allocations whose shape is ``known``; of these ``said``: with an inferred one; ``right``: whose last
    dimension it is.
    """
    raw = pickle.loads(gzip.decompress(path.read_bytes()))
    raw.pop("snapreport", None)
    bare = folder / "bare.pickle"
    bare.write_bytes(pickle.dumps(raw))
    inferred = snapreport.load(bare).timeline(0).allocations["shape"]
    truth = snapreport.load(path, inference=False).timeline(0).allocations
    table = truth.select("size", "shape", inferred=inferred).drop_nulls("shape")
    said = table.drop_nulls("inferred")
    last = pl.concat_str(pl.lit("*x"), pl.col("shape").str.extract(r"(\d+)$"))
    right = said.filter(pl.col("inferred") == last)
    return {"known": int(table["size"].sum()), "said": int(said["size"].sum()), "right": int(right["size"].sum())}


def line(name: str, row: dict[str, int]) -> str:
    said = f"{row['said'] / row['known']:.1%}" if row["known"] else "-"
    right = f"{row['right'] / row['said']:.2%}" if row["said"] else "-"
    return f"{name:<30}{row['known'] / 2**20:>8.0f} MiB{said:>9}{right:>9}"
