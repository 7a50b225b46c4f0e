"""Leaks of programs that end: ``tests/fakecuda/programs/leaks.py``, recorded over the driver of tests/fakecuda by each
PyTorch that ``SNAPREPORT_FAKE_TORCH`` names, else the recordings in tests/recordings; what each keeps, and what
``check --fail-on leak`` says of it.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.inputs import ROOT
from snapreport.findings.gate import check_all
from snapreport.findings.gate_rules import Rules
from snapreport.snapshot import load

PROGRAM = ROOT / "tests" / "fakecuda" / "programs" / "leaks.py"
RECORDINGS = ROOT / "tests" / "recordings" / "leaks"
EXITS = {"passed": 0, "failed": 1, "unknown": 2}
FEWEST = 4
"""Growths from which on a leak must be found."""


def measure(pythons: list[Path]) -> list[dict[str, Any]]:
    """A row for each program and recording: ``planted``, ``growths``, ``said``, ``exit``, ``is_right``."""
    return [_row(version, name, program, path) for version, name, program, path in _recorded(pythons)]


def _recorded(pythons: list[Path]) -> Iterator[tuple[str, str, dict[str, Any], Path]]:
    """PyTorch's version, the program's name, what it does, its snapshot."""
    if not pythons:
        programs = json.loads((RECORDINGS / "programs.json").read_text())
        for path in sorted(RECORDINGS.glob("*.pickle.xz")):
            version, name = path.name.removesuffix(".pickle.xz").split("_", 1)
            yield version, name, programs[name], path
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.pickle"
        for python in pythons:
            programs = json.loads(subprocess.run([python, PROGRAM], check=True, capture_output=True, text=True).stdout)
            for name, program in programs.items():
                subprocess.run([python, PROGRAM, path, name], check=True, capture_output=True)
                yield python.parent.parent.name.removeprefix("torch-"), name, program, path


def _row(version: str, name: str, program: dict[str, Any], path: Path) -> dict[str, Any]:
    (result,) = check_all([load(path)], Rules(fail_on=("leak",)))
    code = EXITS[result.status]
    return {
        "torch": version, "program": name, "planted": program["leaks"], "growths": program["growths"],
        "end": program["end"], "said": result.message, "exit": code, "is_right": code in allowed_exits(program),
    }  # fmt: skip


def allowed_exits(program: dict[str, Any]) -> set[int]:
    """Exit codes of ``check`` that are right. ``program``: a row of ``programs.json``."""
    if program["end"] == "stopped":  # PyTorch drops the trace with the recording
        return {2}
    if not program["leaks"]:
        return {0}
    return {1} if program["growths"] >= FEWEST else {1, 2} if program["growths"] > 1 else {0, 1, 2}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'torch':7} {'program':22} {'planted':9} {'end':12} exit  said"]
    for row in rows:
        planted = f"{row['growths']} times" if row["planted"] else "none"
        mark = " " if row["is_right"] else "!"
        lines.append(
            f"{row['torch']:7} {row['program']:22} {planted:9} {row['end']:12} {row['exit']:3} {mark} {row['said']}"
        )
    many = [row for row in rows if row["planted"] and row["growths"] >= FEWEST and row["end"] != "stopped"]
    clean = [row for row in rows if not row["planted"]]
    exits = Counter(row["exit"] for row in rows)
    lines.append(
        f"{len(rows)} recordings: {sum(row['exit'] == 1 for row in many)} of {len(many)} leaks of {FEWEST} growths or "
        f"more found, {sum(row['exit'] == 1 for row in clean)} false alarms in {len(clean)} without, "
        f"{exits[2]} UNKNOWN, {sum(not row['is_right'] for row in rows)} wrong"
    )
    return "\n".join(lines)
