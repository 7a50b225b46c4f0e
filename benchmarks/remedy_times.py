"""What activation checkpointing is said to cost, against the steps of programs that run without and with it."""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import snapreport
from snapreport.findings.run import findings
from snapreport.timeline.time_costs import run_costs

PROGRAM = Path(__file__).with_name("timed_layers.py")
KINDS = ("mlp", "convolutions", "resnet", "transformer", "recurrent", "mixer", "small")


REMEDY = "checkpoint"
NODE = "autograd::engine::evaluate_function"
PRODUCTS = ("mm", "conv", "attention")
VIEWS = {
    "view", "reshape", "t", "transpose", "expand", "as_strided", "unsqueeze", "squeeze", "chunk", "split", "permute",
    "select", "slice", "detach", "empty", "empty_like", "empty_strided", "resize_", "unflatten", "flatten", "narrow",
    "alias", "item", "_local_scalar_dense", "is_nonzero", "set_", "lift_fresh", "_unsafe_view", "unbind", "expand_as",
    "result_type",
}  # fmt: skip


def run_all(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Prints a line for each program, on the CPU and over the driver of tests/fakecuda, and returns the rows."""
    import fake_torch

    rows: list[dict[str, Any]] = []

    def add(row: dict[str, Any]) -> None:
        rows.append(row)
        print(_line(row), flush=True)

    print(f"{'program':<30}{'said':>11}{'measured':>12}{'ratio':>8}")
    for kind in KINDS:
        if not names or kind in names:
            add(measure(folder, kind))
    listing = fake_torch.PROGRAMS / "remedy_pairs.py"
    for environment in fake_torch.FOLDERS:
        torch = fake_torch.FakeTorch(environment)
        pairs = {name for name, remedies in json.loads(torch.run(listing, "--list").out).items() if REMEDY in remedies}
        scripts = {"remedies.py": ("words", "images", "passes", "zeroed"), listing.name: sorted(pairs)}
        for script, programs in scripts.items():
            for program in programs:
                if not names or program in names:
                    add(measure_kernels(folder, torch, fake_torch.PROGRAMS / script, program))
    return rows


def measure(folder: Path, kind: str) -> dict[str, Any]:
    """``said_us`` of the advice (None: nothing is said) in a profiled step of ``step_us``; ``measured_us``:
    what a checkpointed step takes longer than one of ``plain_us``, without a profiler.
    """
    trace = folder / f"{kind}.json.gz"
    command = [sys.executable, str(PROGRAM), kind, str(trace)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    # Lower quartiles: other programs on the machine only make steps slower.
    plain, checkpointed = (statistics.quantiles(one, n=4)[0] for one in json.loads(done.stdout.splitlines()[-1]))
    evidence = _said(snapreport.load(trace, profile=trace))
    return {
        "name": f"{kind} on the CPU",
        "said_us": evidence.get("cost_us"),
        "step_us": evidence.get("step_us"),
        "measured_us": (checkpointed - plain) * 1e6,
        "plain_us": plain * 1e6,
    }


def measure_kernels(folder: Path, torch: Any, script: Path, program: str) -> dict[str, Any]:
    """The same of kernels that are added by hand: ``measured_us`` of those that the backward pass of the checkpointed
    program runs again.
    """
    snapshots = []
    for remedy in ("", REMEDY):
        run = folder / f"{torch.version} {program} {remedy}".strip()
        if not run.exists():
            command = [script, folder / "own.pickle", program, *filter(None, [remedy])]
            torch.record("-o", run, "--no-modules", "--profile", "1:4", command=command)
            add_kernels(run / "profile_rank_00000.json.gz")
        snapshots += [snapreport.load(path) for path in run.glob("rank_*.pickle.gz")]
    plain, checkpointed = snapshots
    costs = run_costs([checkpointed.timeline(0)])
    steps = costs.steps if costs else []
    again = [sum(one.device_us or 0 for one in step.costs if one.cause == "recomputation") for step in steps]
    evidence = _said(plain)
    return {
        "name": f"{program} on {torch.version}",
        "said_us": evidence.get("cost_us"),
        "step_us": None,
        "measured_us": statistics.median(again) if again else None,
        "plain_us": None,
    }


def _said(snapshot: snapreport.Snapshot) -> Any:
    return next((one.evidence for one in findings(snapshot) if one.evidence.get("rule") == "checkpointing"), {})


def _line(row: dict[str, Any]) -> str:
    """Costs on the CPU as shares of their steps, since a profiler makes all slower."""
    said, measured, step = row["said_us"], row["measured_us"], row["step_us"]
    figures = [f"{value / 1e3:.1f} ms" if value is not None else "nothing" for value in (said, measured)]
    if step and row["plain_us"]:
        said, measured = said / step, measured / row["plain_us"]
        figures = [f"{said:.1%}", f"{measured:.1%}"]
    ratio = f"{said / measured:.2f}" if said and measured else ""
    return f"{row['name']:<30}{figures[0]:>11}{figures[1]:>12}{ratio:>8}"


def add_kernels(path: Path) -> None:
    """Adds what the fake device has none of: a kernel for each operator that computes something, of 1 ms where it
    multiplies matrices and 0.1 ms where not.
    """
    document = json.loads(gzip.decompress(path.read_bytes()))
    events: list[dict[str, Any]] = document["traceEvents"]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    operators.sort(key=lambda event: (event["tid"], event["ts"], -event["dur"]))
    allocated: dict[int, list[float]] = {}
    for event in events:
        if event.get("name") == "[memory]" and event["args"].get("Bytes", 0) > 0:
            allocated.setdefault(event["tid"], []).append(event["ts"])
    around: list[dict[str, Any]] = []
    inner, again = (
        set[int](),
        dict[int, dict[str, Any]](),
    )  # ids: with an operator in them; last forward one by its node
    for event in operators:
        while around and not _encloses(around[-1], event):
            around.pop()
        if _computes(event["name"]):
            inner.update(map(id, around))
        if event["args"].get("Sequence number", -1) >= 0 and not event["args"].get("Fwd thread id", 0):
            again.update((id(node), event) for node in around if node["name"].startswith(NODE))
        around.append(event)
    # A checkpoint stops in the last operator that it runs again, before that allocates or starts anything.
    inner.update(
        id(event)
        for event in again.values()
        if not any(event["ts"] <= at <= event["ts"] + event["dur"] for at in allocated.get(event["tid"], ()))
    )
    for number, event in enumerate(operators):
        if _computes(event["name"]) and id(event) not in inner:
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": event["pid"], "dur": 0.1}
            length = 1000 if any(part in event["name"] for part in PRODUCTS) else 100
            own = {"correlation": number, "device": 0, "stream": 7}
            events += [
                {**call, "tid": event["tid"], "ts": event["ts"] + event["dur"] / 2, "args": {"correlation": number}},
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": event["name"],
                    "pid": 0,
                    "tid": 7,
                    "ts": event["ts"],
                    "dur": length,
                    "args": own,
                },
            ]
    path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))


def _encloses(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    return bool(outer["tid"] == inner["tid"] and outer["ts"] + outer["dur"] > inner["ts"])


def _computes(name: str) -> bool:
    return name.startswith("aten::") and name.removeprefix("aten::") not in VIEWS
