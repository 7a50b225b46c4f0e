"""Findings compared with what was planted: 200 generated runs, each with one cause or none, the same everywhere by
seed.

A unit is one device of one run. For each kind: precision (of what was reported, how much was planted), recall (of what
was planted, how much was reported), and, of what was found, how often the right stack comes first and the bytes are
exact. What is planted is counted in the raw trace, event by event, not by the code that is measured.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator import make

from snapreport import load
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot

RUNS = 200
SEED = 20
MIB = 1 << 20
GIB = 1 << 30
CYCLE_BYTES = 8 * MIB
KINDS = ("leak", "oom demand", "oom fragmentation", "churn", "cycles")
# Planted per 200 runs; the rest are look-alikes.
SHARES = {"leak": 45, "oom demand": 25, "oom fragmentation": 25, "churn": 30, "cycles": 30, "none": 45}
LOOK_ALIKES = ("cache", "optimizer", "truncated", "serving", "checkpointing", "late", "pools", "vary")


@dataclass(frozen=True)
class Run:
    """``planted``: one of ``KINDS`` or "none"; ``form``: which look-alike; ``options``: the generator's."""

    planted: str
    form: str
    options: dict[str, Any]


def runs(count: int = RUNS, seed: int = SEED) -> Iterator[Run]:
    """The runs, kinds mixed; a shorter list is a prefix of a longer one."""
    dice = random.Random(seed)
    kinds: list[str] = []
    while len(kinds) < count:
        block = [kind for kind, number in SHARES.items() for _ in range(number)]
        dice.shuffle(block)
        kinds += block
    for kind in kinds[:count]:
        form = dice.choice(LOOK_ALIKES) if kind == "none" else ""
        yield Run(kind, form, _model(dice) | _cause(dice, kind, form))


def _model(dice: random.Random) -> dict[str, Any]:
    """A program: its size, its length, and how it was recorded."""
    heads = dice.choice((2, 4, 8))
    return {
        "seed": dice.randrange(10_000),
        "layers": dice.randint(1, 5),
        "hidden": heads * dice.choice((16, 32, 48)),
        "heads": heads,
        "sequence": dice.choice((32, 64, 128, 256)),
        "batch": dice.choice((1, 2, 4, 8)),
        "vocabulary": dice.choice((512, 4096, 16_384)),
        "steps": dice.randint(6, 20),
        "vary": dice.choice((0.0, 0.0, 0.2, 0.5)),
        "attention": dice.choice(("flash", "eager")),
        "optimizer": dice.choice(("foreach", "loop")),
        "checkpointing": dice.random() < 0.3,
        "devices": dice.choice((1, 1, 1, 2)),
        "streams": dice.choice((1, 1, 2)),
        "expandable": dice.random() < 0.3,
        "metadata": dice.random() < 0.3,
        "times": dice.random() < 0.8,
        "layout": dice.choice(("2.5", "2.8", "2.12", "2.12")),
        "stacks": dice.choice(("python", "python", "all")),
    }


def _cause(dice: random.Random, kind: str, form: str) -> dict[str, Any]:
    """The options that plant a cause, or that only resemble one.

    Who collects cycles or empties the cache appears only in the stacks of frees; where these are not needed, some runs
    omit them.
    """
    context = {"context": dice.choice(("all", "all", "alloc"))}
    if kind == "leak":
        return context | {"leak": 512 * round(2 ** dice.uniform(9, 16)), "record_from": dice.choice((0, 0, 0, 2))}
    if kind == "oom demand":
        return context | {"oom": "demand", "memory": dice.choice((1, 2, 4)) * GIB}
    if kind == "oom fragmentation":
        return context | {"oom": "fragmentation", "memory": dice.choice((2, 3, 4)) * GIB, "expandable": False}
    if kind == "churn":
        return {"churn": dice.randint(1, 5), "expandable": False}
    if kind == "cycles":
        return {"cycles": dice.randint(3, 5), "steps": dice.randint(16, 26)}
    return (
        context
        | {
            "cache": {"cache_steps": dice.randint(2, 5), "steps": dice.randint(12, 20)},
            "optimizer": {},
            "truncated": {"max_entries": dice.randint(1500, 6000)},
            "serving": {"workload": "serving", "events": dice.randint(3000, 12_000), "steps": None},
            "checkpointing": {"checkpointing": True},
            "late": {"record_from": dice.randint(1, 4)},
            "pools": {"private_pools": 2, "streams": 3},
            "vary": {"vary": 0.8},
        }[form]
    )


def measure(folder: Path, count: int = RUNS, seed: int = SEED) -> dict[str, Any]:
    """Makes the runs and reads them: ``kinds`` (a row for each kind), ``wrong`` (a line for each unit that differs from
    what was planted).
    """
    planted, told, right, first, exact = (Counter[str]() for _ in range(5))
    wrong: list[str] = []
    path = folder / "run.pickle"
    units = events = 0
    for number, run in enumerate(runs(count, seed)):
        raw = make(None, **run.options)
        path.write_bytes(pickle.dumps(raw, 4))
        snapshot = load(path)
        found = findings(snapshot)
        for device, trace in enumerate(raw["device_traces"]):
            units, events = units + 1, events + len(trace)
            here = [finding for finding in found if finding.device == device]
            truth = {run.planted} & set(KINDS)
            if run.planted.startswith("oom") and not any(event["action"] == "oom" for event in trace):
                truth = set()  # another device of the run
            said = {kind: [f for f in here if IS[kind](f)] for kind in KINDS}
            for kind in KINDS:
                planted[kind] += kind in truth
                told[kind] += bool(said[kind])
                if kind in truth and said[kind]:
                    right[kind] += 1
                    names = _frames(snapshot, said[kind][0])
                    good = (any(SOURCE[kind](name) for name in names), EXACT[kind](said[kind][0], trace, run.options))
                    first[kind] += good[0]
                    exact[kind] += good[1]
                    if not all(good):
                        wrong.append(
                            f"run {number} device {device}: {kind}: {'bytes' if good[0] else 'stack'}: "
                            f"{said[kind][0].title}"
                        )
            extra = {kind for kind in KINDS if said[kind]} - truth
            for kind, what in [
                *((kind, "not found") for kind in truth if not said[kind]),
                *((kind, "false") for kind in extra),
            ]:
                title = said[kind][0].title if said[kind] else ""
                wrong.append(
                    f"run {number} device {device}: {run.planted} {run.form}: {kind} {what} {title}".replace("  ", " ")
                )
    rows = [
        {
            "name": kind,
            "planted": planted[kind],
            "told": told[kind],
            "precision": right[kind] / told[kind] if told[kind] else None,
            "recall": right[kind] / planted[kind] if planted[kind] else None,
            "first": first[kind] / right[kind] if right[kind] else None,
            "exact": exact[kind] / right[kind] if right[kind] else None,
        }
        for kind in KINDS
    ]
    return {"seed": seed, "runs": count, "units": units, "events": events, "kinds": rows, "wrong": wrong}


IS: dict[str, Callable[[Finding], bool]] = {
    "leak": lambda f: f.kind == "leak" and f.severity == "warning",
    "oom demand": lambda f: f.kind == "oom" and f.evidence.get("verdict") == "demand",
    "oom fragmentation": lambda f: f.kind == "oom" and f.evidence.get("verdict") == "fragmentation",
    "churn": lambda f: f.kind == "churn",
    "cycles": lambda f: f.kind == "leak" and "bursts" in f.evidence,
}

# By the name of a frame of the stack that a finding puts first; for fragmentation, of the stack that pins most.
SOURCE: dict[str, Callable[[str], bool]] = {
    "leak": lambda name: name == "log_step",
    "oom demand": lambda name: name in ("train", "serve_forever"),
    "oom fragmentation": lambda name: name == "keep_prediction",
    "churn": lambda name: name == "end_step",
    "cycles": lambda name: name == "on_batch",
}


def _frames(snapshot: Snapshot, finding: Finding) -> list[str]:
    pins = finding.evidence.get("pinning_stacks")
    stack = pins[0]["stack"] if pins else finding.stack
    recording = snapshot.recording
    return [] if stack is None else recording.frames["name"].gather(recording.stack(stack)).to_list()


def _leak_is_exact(finding: Finding, trace: list[dict[str, Any]], options: dict[str, Any]) -> bool:
    kept = sum(event["size"] for event in trace if event["action"] == "alloc" and _is_in(event, "log_step"))
    return finding.bytes == kept and finding.evidence["bytes_per_step"] == options["leak"]


def _oom_is_exact(finding: Finding, trace: list[dict[str, Any]], options: dict[str, Any]) -> bool:
    """The request, what was free on the device, and the holes that the request could have used."""
    (oom,) = [event for event in trace if event["action"] == "oom"]
    reserved = allocated = 0
    for event in trace:  # recorded from the start, so both begin empty
        sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}.get(event["action"], 0)
        reserved += sign * event["size"]
        allocated += {"alloc": 1, "free_completed": -1}.get(event["action"], 0) * event["size"]
    e = finding.evidence
    return (e["requested_bytes"], e["device_free_bytes"], e["reserved_bytes"], e["allocated_bytes"]) == (
        oom["size"], oom["device_free"] if "device_free" in oom else oom["addr"], reserved, allocated,
    )  # fmt: skip


def _churn_is_exact(finding: Finding, trace: list[dict[str, Any]], options: dict[str, Any]) -> bool:
    reserved = most = again = 0
    freed = None
    for number, event in enumerate(trace):
        if event["action"] in ("segment_alloc", "segment_map"):
            reserved += event["size"]
            if freed is not None and number > max(freed, finding.evidence["warm_event"]) and reserved <= most:
                again += event["size"]
        elif event["action"] in ("segment_free", "segment_unmap"):
            reserved -= event["size"]
            freed = number if freed is None else freed
        most = max(most, reserved)
    return finding.bytes == again


def _cycles_are_exact(finding: Finding, trace: list[dict[str, Any]], options: dict[str, Any]) -> bool:
    return finding.bytes == options["cycles"] * CYCLE_BYTES


EXACT = {
    "leak": _leak_is_exact,
    "oom demand": _oom_is_exact,
    "oom fragmentation": _oom_is_exact,
    "churn": _churn_is_exact,
    "cycles": _cycles_are_exact,
}


def _is_in(event: dict[str, Any], name: str) -> bool:
    return any(frame["name"] == name for frame in event.get("frames", ()))


def table(document: dict[str, Any]) -> str:
    lines = [f"{'planted':18} {'units':>6} {'told':>5} {'precision':>10} {'recall':>7} {'stack':>6} {'bytes':>6}"]
    for row in document["kinds"]:
        shares = [
            f"{row[key]:.1%}" if row[key] is not None else "-" for key in ("precision", "recall", "first", "exact")
        ]
        lines.append(
            f"{row['name']:18} {row['planted']:6} {row['told']:5} {shares[0]:>10} {shares[1]:>7} {shares[2]:>6} "
            f"{shares[3]:>6}"
        )
    lines.append(f"{document['runs']} runs, {document['units']} devices, {document['events']:,} events")
    return "\n".join([*lines, *document["wrong"]])
