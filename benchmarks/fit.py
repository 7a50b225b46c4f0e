"""Peaks foretold from two or three recordings against the runs: thirty programs at five values, on every PyTorch that
``SNAPREPORT_FAKE_TORCH`` names.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import snapreport
from snapreport.allocator.whatif import WhatIf
from snapreport.forecast.largest_value import largest_value
from snapreport.forecast.prediction import DeviceFit

PROGRAMS = Path(__file__).parents[1] / "tests/fakecuda/programs"
VALUES = {
    "batch": (4, 8, 16, 24, 32),
    "length": (64, 128, 192, 256, 384),
    "side": (32, 64, 96, 128, 192),
    "width": (128, 256, 384, 512, 768),
    "boxes": (8, 16, 32, 64, 128),
}
GIVEN = ((0, 1), (1, 2), (0, 1, 2))
"""The recordings that are given, by index; the others are foretold."""
GIB = 24


def measure(folder: Path) -> list[dict[str, Any]]:
    """A row for each program, PyTorch and choice of given recordings."""
    homes = [Path(home) for home in os.environ.get("SNAPREPORT_FAKE_TORCH", "").split(os.pathsep) if home]
    rows = []
    for home in homes:
        recordings = folder / home.name
        recordings.mkdir(exist_ok=True)
        ran = _record(home / "bin/python", recordings)
        programs = dict.fromkeys(name for name, _ in ran)
        for program in programs:
            rows += _foretold(
                home.name, program, {v: ran[program, v] for v in VALUES[program.split("_")[-1]]}, recordings
            )
    return rows


def _record(python: Path, folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """(program, value) → what it printed."""
    variables = {**os.environ, "FAKE_GPU_GIB": str(GIB), "SIZED_VALUES": json.dumps(VALUES)}
    variables.pop("PYTHONPATH", None)
    command = [str(python), str(PROGRAMS / "sized_all.py"), str(folder)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    return {(program, int(value)): json.loads(text) for program, value, text in lines}


def _foretold(version: str, program: str, ran: dict[int, dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    values = list(ran)
    whatifs = [WhatIf(snapreport.load(folder / f"{program}.{value}.pickle").timeline(0)) for value in values]
    rows = []
    for given in GIVEN:
        began = time.process_time()
        fit = DeviceFit([values[at] for at in given], [whatifs[at] for at in given])
        reason = fit.reason()
        row = {"torch": version, "program": program, "given": [values[at] for at in given], "reason": reason}
        if not reason:
            peaks = {}
            for value in (value for value in values if value not in row["given"]):
                found = fit.predict(value)
                assert found.peak_reserved is not None
                peaks[value] = {
                    "allocated": found.peak_allocated / ran[value]["allocated"] - 1,
                    "reserved": found.peak_reserved / ran[value]["reserved"] - 1,
                }
            row |= {"errors": peaks, "is_exact": fit.is_exact, "seconds": time.process_time() - began}
            row["largest"] = largest_value(fit, ran[values[-2]]["reserved"]).value
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Errors of allocated and of reserved, "=" where the byte is right."""
    lines = [f"{'':<14}{'program':<24}{'given':<16}allocated/reserved at other values"]
    errors = [error for row in rows for error in row.get("errors", {}).values()]
    for row in rows:
        cells = row["reason"] or "  ".join(
            f"{value}: {_error(error['allocated'])}/{_error(error['reserved'])}"
            for value, error in row["errors"].items()
        )
        lines.append(f"{row['torch']:<14}{row['program']:<24}{','.join(map(str, row['given'])):<16}{cells}")
    for key in ("allocated", "reserved"):
        exact = sum(error[key] == 0 for error in errors)
        near = sum(abs(error[key]) <= 0.02 for error in errors)
        lines.append(f"{key}: {exact} of {len(errors)} to the byte, {near} within 2%")
    return "\n".join(lines)


def _error(error: float) -> str:
    return "=" if error == 0 else f"{error:+.2%}"
