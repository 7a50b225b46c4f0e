"""Peaks foretold from one, two or three recordings against the runs, and the largest value on three cards: thirty
programs at five values, on every PyTorch that ``SNAPREPORT_FAKE_TORCH`` names. Nine more, whose shapes depend on the
data, are to be refused.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

import snapreport
from snapreport.allocator.whatif import WhatIf
from snapreport.forecast.largest_value import largest_range, largest_value
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
"""The recordings that are given, by index; the others are foretold. For the first and the last of them the largest
value on three cards is run as well."""
GIVEN_ALONE = ((0,), (1,), (2,))
"""Of programs whose number is a batch, one recording. From the middle one the largest value is foretold."""
ANY_WHOLE = ("batch", "length", "boxes")
"""Numbers that may be any whole one: a width is a multiple of the heads, a side of what a network halves."""
GIB = 24
DATA_DEPENDENT = [
    "padded_batch",
    *re.findall(r"^def (\w+_batch)\(", (PROGRAMS / "sized_data.py").read_text(), re.MULTILINE),
]


def measure(folder: Path) -> list[dict[str, Any]]:
    """A row for each program, PyTorch and choice of given recordings."""
    homes = [Path(home) for home in os.environ.get("SNAPREPORT_FAKE_TORCH", "").split(os.pathsep) if home]
    rows = []
    for home in homes:
        recordings = folder / home.name
        recordings.mkdir(exist_ok=True)
        ran = _record(home / "bin/python", recordings)
        programs = dict.fromkeys(name for name, _ in ran)
        found = [
            row
            for program in programs
            for row in _foretold(
                home.name, program, {v: ran[program, v] for v in VALUES[program.split("_")[-1]]}, recordings
            )
        ]
        _run_largest(home / "bin/python", [card for row in found for card in row.get("largest", ())])
        rows += found
    return rows


def _record(python: Path, folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """(program, value) → what it printed. What an earlier run left in the folder is used again."""
    notes = folder / "ran.json"
    if notes.exists():
        return {(program, value): ran for program, value, ran in json.loads(notes.read_text())}
    variables = {**os.environ, "FAKE_GPU_GIB": str(GIB), "SIZED_VALUES": json.dumps(VALUES)}
    variables.pop("PYTHONPATH", None)
    command = [str(python), str(PROGRAMS / "sized_all.py"), str(folder)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    found = {(program, int(value)): json.loads(text) for program, value, text in lines}
    notes.write_text(json.dumps([[*key, ran] for key, ran in found.items()]))
    return found


def _run_largest(python: Path, cards: list[dict[str, Any]]) -> None:
    """Runs the programs at the largest value foretold for each card, and one above: whether both do as foretold."""
    wanted = dict.fromkeys(
        (card["program"], value, card["memory"]) for card in cards for value in (card["value"], card["value"] + 1)
    )
    lines = [f"{program} {value} {memory / (1 << 30)!r}" for program, value, memory in wanted if value]
    variables = {**os.environ, "FAKE_GPU_CONTEXT_MIB": "0"}
    variables.pop("PYTHONPATH", None)
    command = [str(python), str(PROGRAMS / "sized_all.py"), "-"]
    done = subprocess.run(
        command, input="\n".join(lines), env=variables, capture_output=True, text=True, check=True
    ).stdout
    runs = [not json.loads(line.split(" ", 2)[2])["failed"] for line in done.splitlines()]
    ran = dict(zip([key for key in wanted if key[1]], runs, strict=True))
    for card in cards:
        program, value, memory = (card[key] for key in ("program", "value", "memory"))
        card["runs"], card["next runs"] = not value or ran[program, value, memory], ran[program, value + 1, memory]


def _foretold(version: str, program: str, ran: dict[int, dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    values = list(ran)
    # Between the peaks of the recordings, and above the last: the largest values lie between theirs.
    peaks = [ran[value]["reserved"] for value in values]
    cards = [(peaks[2] + peaks[3]) // 2, (peaks[3] + peaks[4]) // 2, peaks[4] * 6 // 5]
    whatifs = [WhatIf(snapreport.load(folder / f"{program}.{value}.pickle").timeline(0)) for value in values]
    rows = []
    for given in (*GIVEN, *(GIVEN_ALONE if program.endswith("_batch") else ())):
        began = time.process_time()
        fit = DeviceFit([values[at] for at in given], [whatifs[at] for at in given])
        reason = fit.reason()
        row = {"torch": version, "program": program, "given": [values[at] for at in given], "reason": reason}
        if not reason:
            errors = {}
            for value in (value for value in values if value not in row["given"]):
                found = fit.predict(value)
                assert found.peak_reserved_bytes is not None
                assert found.low_bytes is not None
                assert found.high_bytes is not None
                nearest, there = whatifs[given[fit.nearest(value)]].trace, whatifs[values.index(value)].trace
                errors[value] = {
                    "same": all(np.array_equal(getattr(nearest, one), getattr(there, one)) for one in ("kind", "item")),
                    "allocated": found.peak_allocated_bytes / ran[value]["allocated"] - 1,
                    "reserved": found.peak_reserved_bytes / ran[value]["reserved"] - 1,
                    "inside": bool(found.low_bytes <= ran[value]["reserved"] <= found.high_bytes),
                }
            row |= {"errors": errors, "is_exact": fit.is_exact, "seconds": time.process_time() - began}
            if given in (GIVEN[0], GIVEN[-1], GIVEN_ALONE[1]) and program.split("_")[-1] in ANY_WHOLE:
                row["largest"] = [_largest(fit, program, memory) for memory in cards]
        rows.append(row)
    return rows


def _largest(fit: DeviceFit, program: str, memory: int) -> dict[str, Any]:
    found = largest_value(fit, memory)
    least, most = largest_range(fit, found)
    return {
        "program": program,
        "memory": memory,
        "value": found.value,
        "least": least,
        "most": most,
        "is_sure": fit.confidence(found.value) != "estimate",
        "is_limit": found.is_limit,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Errors of allocated and of reserved, "=" where the byte is right; then the largest value on three cards: "="
    where it runs and the next one does not, or the search ended there, as it says; "<" where the next one runs, too;
    ">" where it does not run.
    """
    lines = [f"{'':<14}{'program':<24}{'given':<16}allocated/reserved at other values; largest on three cards"]
    for row in rows:
        cells = row["reason"] or "  ".join(
            [
                *(
                    f"{value}: {_error(error['allocated'])}/{_error(error['reserved'])}"
                    for value, error in row["errors"].items()
                ),
                *(f"{_verdict(card)}{card['value']}" for card in row.get("largest", ())),
            ]
        )
        lines.append(f"{row['torch']:<14}{row['program']:<24}{','.join(map(str, row['given'])):<16}{cells}")
    of_data = [row for row in rows if row["program"] in DATA_DEPENDENT]
    refused = sum(bool(row["reason"]) for row in of_data)
    fitted = [row for row in rows if len(row["given"]) > 1 and not row["reason"] and row not in of_data]
    single = [row for row in rows if len(row["given"]) == 1 and not row["reason"] and row not in of_data]
    return "\n".join(
        [
            *lines,
            *_summary(fitted),
            *_summary_of_one(single, fitted),
            f"shapes that depend on the data: {refused} of {len(of_data)} refused",
        ]
    )


def times(snapshots: list[Path]) -> list[dict[str, Any]]:
    """Seconds of the processor to load each snapshot, and to foretell a value from it given twice."""
    rows = []
    for path in snapshots:
        began = time.process_time()
        timeline = snapreport.load(path).timeline(0)
        loaded = time.process_time()
        fit = DeviceFit([8, 16], [WhatIf(timeline), WhatIf(timeline)])
        reason = fit.reason()
        prepared = time.process_time()
        fit.predict(24)
        seconds = {"load": loaded - began, "align": prepared - loaded, "value": time.process_time() - prepared}
        rows.append({"file": path.name, "events": len(timeline.events), "reason": reason, **seconds})
    return rows


def times_table(rows: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{row['events']:>9,} events: {row['reason'] or 'a value'} in {row['value']:.3f} s of the processor, "
        f"aligned before in {row['align']:.2f} s; {row['value'] / row['load']:.2f} of the load"
        for row in rows
    )


def _verdict(card: dict[str, Any]) -> str:
    return ">" if not card["runs"] else "<" if card["next runs"] and not card["is_limit"] else "="


def _summary(rows: list[dict[str, Any]]) -> list[str]:
    errors = [error for row in rows for error in row["errors"].values()]
    lines = []
    for name, some in (
        ("the same requests", [error for error in errors if error["same"]]),
        ("other requests", [error for error in errors if not error["same"]]),
    ):
        for key in ("allocated", "reserved"):
            exact = sum(error[key] == 0 for error in some)
            near = sum(abs(error[key]) <= 0.02 for error in some)
            lines.append(f"{name}, {key}: {exact} of {len(some)} to the byte, {near} within 2%")
    cards = [card for row in rows for card in row.get("largest", ())]
    above = [card for card in cards if not card["runs"]]
    silent = sum(card["is_sure"] for card in above)
    return [
        *lines,
        f"largest value: {sum(_verdict(card) == '=' for card in cards)} of {len(cards)} exact, "
        f"{len(above)} above the truth, {silent} of them without saying so",
    ]


def _summary_of_one(rows: list[dict[str, Any]], fitted: list[dict[str, Any]]) -> list[str]:
    """The truth about the largest value is what several recordings foretold, where that was run and is exact."""
    errors = [error for row in rows for error in row["errors"].values()]
    inside = sum(error["inside"] for error in errors)
    truth = {
        (row["torch"], card["program"], card["memory"]): card["value"]
        for row in fitted
        for card in row.get("largest", ())
        if _verdict(card) == "="
    }
    known = [
        (card, truth[key])
        for row in rows
        for card in row.get("largest", ())
        if (key := (row["torch"], card["program"], card["memory"])) in truth
    ]
    largest = sum(card["least"] <= value <= card["most"] for card, value in known)
    within = f"{inside} of {len(errors)} peaks reserved, and {largest} of {len(known)} largest values"
    return [f"one recording: {within}, within their range"]


def _error(error: float) -> str:
    return "=" if error == 0 else f"{error:+.2%}"
