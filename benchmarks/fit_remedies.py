"""Two remedies that ``fit`` replays together beside the program run with both, over the driver of tests/fakecuda."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import snapreport
from snapreport.allocator.whatif import WhatIf
from snapreport.forecast.remedies import RemedySearch

RULES = {
    "half": ("accumulation",),
    "checkpoint": ("checkpointing",),
    "autocast": ("mixed-precision",),
    "chunks": ("chunked-loss",),
    "sdpa": ("sdpa-math-kernel", "fused-attention"),
    "none": ("keep-gradients",),
    "each": ("backward-each",),
    "del": ("loaded-checkpoint",),
}
"""Remedy of ``tests/fakecuda/programs/remedies.py`` → rules that advise it."""
PAIRS = {
    "words": [
        "half+checkpoint", "half+autocast", "half+chunks", "half+sdpa", "checkpoint+autocast", "checkpoint+chunks",
        "checkpoint+sdpa", "autocast+chunks", "autocast+sdpa", "chunks+sdpa",
    ],
    "images": ["half+checkpoint", "half+autocast", "checkpoint+autocast"],
    "zeroed": ["none+half", "none+checkpoint", "none+sdpa", "none+chunks", "none+autocast"],
    "passes": ["each+checkpoint", "each+chunks", "each+sdpa"],
    "resumed": ["del+half", "del+sdpa", "del+chunks", "del+checkpoint"],
}  # fmt: skip
CLOSE = 0.15


def measure(folder: Path) -> list[dict[str, Any]]:
    """A row for each pair and PyTorch."""
    import fake_torch

    rows = []
    for home in fake_torch.FOLDERS:
        torch = fake_torch.FakeTorch(home)

        def recorded(program: str, remedies: str, torch: fake_torch.FakeTorch = torch) -> snapreport.Snapshot:
            out = folder / f"{torch.version} {program} {remedies}.pickle"
            if not out.exists():
                done = torch.run(fake_torch.PROGRAMS / "remedies.py", out, program, remedies, FAKE_GPU_GIB=24)
                if done.code:
                    raise RuntimeError(f"{program} {remedies}: {done.err}")
            return snapreport.load(out)

        for program, pairs in PAIRS.items():
            snapshot = recorded(program, "")
            whatif = WhatIf(snapshot.timeline(0))
            search = RemedySearch(snapshot, whatif, whatif.own)
            for pair in pairs:
                rows.append({"torch": torch.version, "program": program, "remedies": pair})
                chosen = [
                    next((one for one in search.remedies if one.rule in RULES[remedy]), None)
                    for remedy in pair.split("+")
                ]
                ran = recorded(program, pair).timeline(0)
                if given := [one for one in chosen if one is not None]:
                    rows[-1] |= {
                        "advised": len(given) == 2,
                        "allocated": search.peak_allocated(given) / ran.peak_bytes - 1,
                        "reserved": search.peak_reserved(given) / int(ran.reserved.max()) - 1,
                    }
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The errors of the peaks allocated and reserved."""
    lines = []
    advised = [row for row in rows if row.get("advised")]
    for row in rows:
        errors = f"{row['allocated']:+7.1%} {row['reserved']:+7.1%}" if row.get("advised") else "not advised"
        lines.append(f"{row['torch']:<14}{row['program']:<10}{row['remedies']:<22}{errors}")
    for key in ("allocated", "reserved"):
        close = sum(abs(row[key]) <= CLOSE for row in advised)
        worst = min(row[key] for row in advised), max(row[key] for row in advised)
        lines.append(
            f"two remedies, peak {key}: {close} of {len(advised)} within {CLOSE:.0%}, from {worst[0]:+.0%} "
            f"to {worst[1]:+.0%}"
        )
    return "\n".join(lines)
