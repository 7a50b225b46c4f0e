"""Recordings of real PyTorch with their truth, where available: see ../shared/recorded/README.md."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest

import snapreport
from snapreport.snapshot import Snapshot

ROOT = Path(os.environ.get("SNAPREPORT_RECORDED", Path(__file__).resolve().parents[2] / "shared" / "recorded"))
NONE = "no recordings with truth at ../shared/recorded"


def names() -> list[str]:
    """Paths below the folder without the extension, in order."""
    return sorted(str(path.relative_to(ROOT))[: -len(".pickle")] for path in ROOT.rglob("*.pickle"))


def cases() -> list[Any]:
    """:func:`names` as parameters of a test, which is skipped where there are none."""
    return names() or [pytest.param("none", marks=pytest.mark.skip(reason=NONE))]


@functools.lru_cache(maxsize=1)
def load(name: str) -> Snapshot:
    """A recording; tests that name one are skipped where it is missing."""
    path = ROOT / f"{name}.pickle"
    if not path.exists():
        pytest.skip(NONE)
    return snapreport.load(path)


def truth(name: str) -> dict[str, Any]:
    """What the program itself knew; {} for a file dumped by an observer, which has none."""
    path = ROOT / f"{name}.truth.json"
    return json.loads(path.read_text()) if path.exists() else {}


def memory_stats(name: str, device: int) -> dict[str, int]:
    """``torch.cuda.memory_stats`` of a device just before the dump; {} where they were not saved."""
    stats = truth(name).get("stats") or {}
    return (stats.get(str(device)) if isinstance(stats, dict) else None) or {}
