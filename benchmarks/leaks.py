"""Leaks of programs that end: ``tests/fakecuda/programs/leaks.py``, recorded over the driver of tests/fakecuda by each
PyTorch that ``SNAPREPORT_FAKE_TORCH`` names, else the recordings in tests/recordings; what each keeps, and what
``check --fail-on leak`` says of it.
"""

from __future__ import annotations

import json
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


def measure(folder: Path) -> list[dict[str, Any]]:
    """A row for each program and recording: ``planted``, ``growths``, ``said``, ``exit``, ``is_right``. ``folder``: for
    recordings; those that it has are used again.
    """
    return [_row(version, name, program, path) for version, name, program, path in _recorded(folder)]


def _recorded(folder: Path) -> Iterator[tuple[str, str, dict[str, Any], Path]]:
    """PyTorch's version, the program's name, what it does, its snapshot."""
    import fake_torch

    if not fake_torch.FOLDERS:
        programs = json.loads((RECORDINGS / "programs.json").read_text())
        for path in sorted(RECORDINGS.glob("*.pickle.xz")):
            version, name = path.name.removesuffix(".pickle.xz").split("_", 1)
            yield version, name, programs[name], path
    for torch in map(fake_torch.FakeTorch, fake_torch.FOLDERS):
        for name, program in json.loads(torch.run(PROGRAM).out).items():
            path = folder / f"{torch.version}_{name}.pickle"
            if not path.exists():
                done = torch.run(PROGRAM, path, name)
                if done.code:
                    raise RuntimeError(f"{path.name}: {done.err[-400:]}")
            yield torch.version, name, program, path


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
    if program["leaks"]:
        return {1} if program["growths"] >= FEWEST else {1, 2}
    # What is made once in the later half of a trace may be what a leak of that period keeps.
    period = program["every"] * (program["evaluate"] or 1)
    return {0, 2} if program["growths"] == 1 and 2 * period > program["steps"] else {0}


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
