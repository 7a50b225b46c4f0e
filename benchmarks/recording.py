"""The cost of recording: time per step, host memory per million events, and dumps, streamed and by ``pickle.dump``."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import snapreport
from snapreport.recorder.module_marks import EVERY

STEPS, NAMED_STEPS, ROUNDS, EVENTS = 80, 400, 3, 300_000
PROGRAM = Path(__file__).with_name("recorded_program.py")


def pythons() -> list[str]:
    """Pythons with CUDA: those of tests/fakecuda where the environment names some, else this one."""
    folders = [folder for folder in os.environ.get("SNAPREPORT_FAKE_TORCH", "").split(os.pathsep) if folder]
    return [str(Path(folder) / "bin/python") for folder in folders] or [sys.executable]


def measured(python: str, *arguments: object) -> Any:
    variables = {**os.environ, "PYTHONPATH": str(Path(snapreport.__file__).parent.parent)}
    command = [python, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure() -> list[dict[str, Any]]:
    """For each Python: ``step_seconds`` and ``allocations`` of a step, ``ratios`` with recording; ``names``: seconds of
    recorded steps without names, with them, and with modules noted; ``dumps``.
    """
    return [_measure(python) for python in pythons()]


def _measure(python: str) -> dict[str, Any]:
    modes = ("off", "state", "all", "plain", "profile")
    # In turns, so that a machine that slows down slows all of them.
    rounds = [{mode: measured(python, "steps", mode, STEPS) for mode in modes} for _ in range(ROUNDS)]
    seconds = {mode: [_quartile(one[mode]["seconds"]) for one in rounds] for mode in modes}
    ratios = {
        mode: statistics.median(on / off for on, off in zip(seconds[mode], seconds["off"], strict=True))
        for mode in modes[1:]
    }
    named = [measured(python, "names", NAMED_STEPS) for _ in range(ROUNDS)]
    dumps = [
        {"name": kind, **measured(python, "dump", kind, EVENTS)} for kind in ("pickle.dump", "none", "gzip", "zstd")
    ]
    return {
        "name": python,
        "step_seconds": statistics.median(seconds["off"]),
        "allocations": rounds[0]["all"]["allocations"] / rounds[0]["all"]["steps"],
        "ratios": ratios,
        "names": [{kind: _quartile(taken) for kind, taken in one.items()} for one in named],
        "profile_step": statistics.median(one["profile"]["seconds"][-1] for one in rounds) / STEPS,
        "dumps": [row for row in dumps if "events" in row],
    }


def _quartile(seconds: list[float]) -> float:
    """The lower quartile: other programs on the machine only make steps slower."""
    return statistics.quantiles(seconds, n=4)[0]


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        step = f"{row['step_seconds'] * 1e3:.1f} ms and {row['allocations']:.0f} allocations a step without recording"
        lines += ["", row["name"], step]
        for one in row["names"]:
            each, noted = (one[kind] / one["without"] - 1 for kind in ("names", "noted"))
            mean = ((EVERY - 1) * each + noted) / EVERY
            lines.append(
                f"  names: {each:+.1%} of a recorded step of {one['without'] * 1e3:.1f} ms; {noted:+.1%} of one whose "
                f"modules are noted, as in one of {EVERY}: {mean:+.1%} on the average"
            )
        lines.append(
            f"  a profile: {row['ratios'].pop('profile') - row['ratios']['all']:+.0%} of a step that is profiled, and "
            f"{row['profile_step'] * 1e3:.1f} ms for each of them when it is written"
        )
        for mode, ratio in row["ratios"].items():
            each = (ratio - 1) * row["step_seconds"] / row["allocations"]
            lines.append(f"  recording {mode}: {ratio:.2f} times that, {each * 1e6:.1f} µs an allocation and its free")
        lines.append(
            f"{'dump':<12}{'events':>9}{'recording':>14}{'snapshot':>11}{'write':>9}{'file':>11}{'more memory':>13}"
        )
        for dump in row["dumps"]:
            million = dump["recorded"] / dump["events"] * 1e6 / 2**20
            lines.append(
                f"{dump['name']:<12}{dump['events']:>9,}{million:>8.0f} MiB/M{dump['snapshot_seconds']:>9.2f} s"
                f"{dump['write_seconds']:>7.2f} s{dump['bytes'] / 2**20:>7.1f} MiB"
                f"{dump['more_memory'] / 2**20:>9.0f} MiB"
            )
    return "\n".join(lines)
