"""What-if against the real thing: programs are recorded under PyTorch's default settings, the replay says what they
would reserve under others, and PyTorch's own allocator, over a driver without a GPU, runs them under those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

import snapreport
from snapreport.allocator.settings import parse_settings
from snapreport.allocator.whatif import WhatIf

KINDS = (
    "training",
    "inference",
    "streams",
    "small",
    "large",
    "borders",
    "emptied",
    "network",
    "transformer",
    "generation",
    "checkpointed",
    "offloaded",
)
SETTINGS = (
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:200,max_non_split_rounding_mb:64",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[64:8,256:4,>:2]",
    "roundup_power2_divisions:[1:2,16:0,512:8,>:0]",
    "expandable_segments:True,roundup_power2_divisions:8",
    "roundup_power2_divisions:[>:4]",
    "roundup_power2_divisions:[1:16,4:8,32:4,128:2,>:1]",
    "max_split_size_mb:64,roundup_power2_divisions:16",
    "max_split_size_mb:96,max_non_split_rounding_mb:256",
    "expandable_segments:True,max_split_size_mb:48",
)
GIB = 16
"""Of the device: enough for every program under its default settings."""


def measure(programs: int, folder: Path, first: int) -> list[dict[str, Any]]:
    """A row per rerun, on each PyTorch of ``SNAPREPORT_FAKE_TORCH``: so many programs, each under three settings.

    first: the seed of the first program.
    """
    import fake_torch

    rows = []
    for environment in fake_torch.FOLDERS:
        torch = fake_torch.FakeTorch(environment)
        major, minor = torch.run("-c", "import torch; print(torch.__version__)").out.split(".")[:2]
        release = (int(major), int(minor))
        for seed in range(first, first + programs):
            kind = KINDS[seed % len(KINDS)]
            recorded = folder / f"{torch.version}-{kind}-{seed}.pickle"
            if _run(torch, recorded, kind, seed, "")[0] != "RESULT":
                continue
            whatif = WhatIf(snapreport.load(recorded).timeline(0))
            for text in (SETTINGS[(seed + turn) % len(SETTINGS)] for turn in (0, 4, 7)):
                outcome, *real = _run(torch, folder / "rerun.pickle", kind, seed, text)
                row = {"torch": torch.version, "kind": kind, "seed": seed, "settings": text, "real": real}
                rows.append(row | {"outcome": outcome} | _predicted(whatif, text, release))
    return rows


def _predicted(whatif: WhatIf, text: str, release: tuple[int, int]) -> dict[str, Any]:
    """With the version known, as it is where our recorder wrote the snapshot."""
    if not whatif.check.exact:
        return {"predicted": None, "refused": whatif.check.reason, "bar": None}
    own = replace(whatif.own, since_2_10=release >= (2, 10))
    run = whatif.run(parse_settings([text], own))
    bar = None if run.low is None else [run.low, run.high]
    return {"predicted": [run.peak_reserved, run.peak_allocated, run.retries], "refused": "", "bar": bar}


def _run(torch: Any, out: Path, kind: str, seed: int, settings: str) -> list[Any]:
    import fake_torch

    program = fake_torch.PROGRAMS / "mixes.py"
    done = torch.run(program, out, kind, seed, PYTORCH_CUDA_ALLOC_CONF=settings, FAKE_GPU_GIB=GIB)
    lines = [line.split() for line in done.out.splitlines() if line.startswith(("RESULT", "OOM"))]
    if not lines:
        raise RuntimeError(f"{kind} {seed} under {settings!r}: {done.err[-400:]}")
    return [lines[0][0], *map(int, lines[0][1:])]


def table(rows: list[dict[str, Any]]) -> str:
    """Counts by version, then a line for each rerun that was not foretold to the byte."""
    lines = [
        "| PyTorch | reruns | equal to the byte | within the error bar | others | not replayed |",
        "|---|---|---|---|---|---|",
    ]
    for version in dict.fromkeys(row["torch"] for row in rows):
        own = [_verdict(row) for row in rows if row["torch"] == version]
        counts = (own.count(verdict) for verdict in ("equal", "within", "other", "refused"))
        lines.append(f"| {version} | {len(own)} | {' | '.join(map(str, counts))} |")
    lines.append("")
    for row in rows:
        if (verdict := _verdict(row)) != "equal":
            said = row["refused"] or f"predicted {row['predicted']}, error bar {row['bar']}"
            lines.append(
                f"{verdict}: {row['torch']} {row['kind']} {row['seed']} under {row['settings']}: {said}; "
                f"{row['outcome']} {row['real']}"
            )
    return "\n".join(lines)


def _verdict(row: dict[str, Any]) -> str:
    """equal: peak reserved, peak allocated and retries are those of the rerun, or both run out of memory."""
    if row["predicted"] is None:
        return "refused"
    if row["predicted"][0] is None:
        return "equal" if row["outcome"] == "OOM" else "other"
    if row["predicted"] == row["real"] and row["outcome"] == "RESULT":
        return "equal"
    bar = row["bar"]
    return "within" if bar is not None and bar[0] <= row["real"][0] <= bar[1] and bar[0] < bar[1] else "other"
