"""Jobs with a planted rank or none: precision and recall of the ranks called outliers, of their stacks, and of the
causes named. Jobs are generated, and recorded over the driver of tests/fakecuda where ``SNAPREPORT_FAKE_TORCH`` names
an environment.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import generator

from snapreport.contracts import plain
from snapreport.jobs.build import job
from snapreport.jobs.job_json import job_json

SMALL = {"hidden": 256, "layers": 2, "steps": 3, "micro_batches": 2, "operations": 4, "vocabulary": 4000}
LEAK = {"leak": 24 << 20, "steps": 6}
RECORDED = {"job_dp": (5, "", "batch"), "job_pp": (6, "stash_for_debugging", "leak")}
"""Jobs of real PyTorch beside the checkout: the planted rank, the function of its stack, and the cause."""
PROGRAMS = {
    "net": ("none", "batch", "model", "leak"),
    "scores": ("none", "batch", "sequence", "model", "leak"),
    "fused": ("none", "batch", "sequence", "model", "leak"),
    "experts": ("none", "batch", "sequence", "expert", "model", "leak"),
    "stages": ("none", "batch", "sequence", "layer", "model", "leak"),
}
"""Models and causes of tests/fakecuda/programs/ranks.py."""
NAMED = {"layer": "layers", "expert": "experts"}


@dataclass(frozen=True)
class Case:
    """A job. rank, function: what is planted in it; None and "" where nothing is, or where no single stack is the
    cause. named: the causes that may be named for it; empty where the ratios prove none. folder: of a recorded job.
    """

    cause: str
    kind: str
    options: dict[str, Any]
    rank: int | None = None
    function: str = ""
    named: tuple[str, ...] = ()
    folder: Path | None = None


def cases(seeds: int = 3) -> Iterator[Case]:
    """Every kind of job: with a leak at several places, with a heavy rank, with one that runs out, and with nothing
    planted.
    """
    for kind, seed in itertools.product(generator.KINDS, range(seeds)):
        base = {"seed": seed, "ranks": 8 if kind != "experts" else 16, "layers": 8 if kind == "pipeline" else 2}
        for jitter in (0.0, 0.1):
            yield Case("none", kind, {**base, "jitter": jitter})
            # Nothing shows whether the last rank of a pipeline has an embedding, a head or a leak.
            for rank in (2, 4, 6) if kind == "pipeline" else (0, 3, 7):
                options = {**base, **LEAK, "jitter": jitter, "straggler": rank}
                yield Case("leak", kind, options, rank, "log_step", ("leak",))
        if kind != "pipeline":
            function = "dispatch" if kind == "experts" else ""
            # The expert's share of the tokens is larger, not the batch.
            named = () if kind == "experts" else ("batch", "batch or sequence")
            yield Case("heavy", kind, {**base, "heavy": 5, "factor": 3.5}, 5, function, named)
        # Memory for the plain program and half as much again.
        yield Case(
            "oom", kind, {**base, "oom": 4, "memory": 1 << 30 if kind != "pipeline" else 2 << 30}, 4, "pad_batch"
        )
        if kind == "pipeline":
            yield Case("none", kind, {**base, "ranks": 32, "replicas": 4})
            options = {**base, **LEAK, "ranks": 32, "replicas": 4, "straggler": 9}
            yield Case("leak", kind, options, 9, "log_step", ("leak",))
    for seed in range(2 * seeds):
        yield Case("none", "experts", {"seed": seed, "ranks": 32, "unevenness": 0.25 + 0.1 * seed})


def recorded_cases(folder: Path, seeds: int) -> Iterator[Case]:
    """Each program of ``PROGRAMS`` with each of its causes, recorded by the PyTorch versions that
    ``SNAPREPORT_FAKE_TORCH`` names, in turns.
    """
    import fake_torch

    environments = [fake_torch.FakeTorch(one) for one in fake_torch.FOLDERS]
    for seed in range(seeds if environments else 0):
        torch = environments[seed % len(environments)]
        for model, causes in PROGRAMS.items():
            for cause in causes:
                out = folder / f"{model}-{cause}-{seed}"
                rank, ranks = 2 + seed % 3, 8 if model == "stages" else 6
                if not out.is_dir():
                    out.mkdir(parents=True)
                    program = fake_torch.PROGRAMS / "ranks.py"
                    done = torch.run(program, out, model, cause, rank, ranks, seed, FAKE_GPU_GIB=16)
                    if done.code:
                        raise RuntimeError(f"{out.name}: {done.err[-400:]}")
                if cause == "none":
                    yield Case(cause, model, {"seed": seed}, folder=out)
                    continue
                named = (NAMED.get(cause, cause),)
                # Attention that keeps no scores grows with the length as with the batch.
                if model == "fused" and cause in ("batch", "sequence"):
                    named = ("batch or sequence",)
                yield Case(cause, model, {"seed": seed}, rank, "", named, out)


def measure(seeds: int, folder: Path, shared: Path | None = None) -> dict[str, Any]:
    """Precision and recall of the claimed ranks and of the causes named, recall of the stacks and of each cause.
    ``folder``: for recordings; those that it has are used again.
    """
    right = claimed = named = functions = 0
    causes_right = causes_named = causes_wanted = 0
    wanted: Counter[str] = Counter()
    found_of: Counter[str] = Counter()
    jobs = 0
    wrong: list[str] = []
    folders = [shared / name for name in RECORDED] if shared else []
    real = [
        Case("recorded", f.name, {}, rank, function, (cause,), f)
        for f in folders
        if f.is_dir()
        for rank, function, cause in [RECORDED[f.name]]
    ]
    for case in itertools.chain(cases(seeds), recorded_cases(folder, seeds), real):
        outliers = _outliers(case)
        ranks = [rank for rank, _, _ in outliers]
        jobs += 1
        claimed += len(ranks)
        cause = next((cause for rank, _, cause in outliers if rank == case.rank), "")
        causes_named += sum(bool(cause) for _, _, cause in outliers)
        if case.rank is not None:
            wanted[case.cause] += 1
            right += case.rank in ranks
            found_of[case.cause] += case.rank in ranks
            functions += bool(case.function)
            named += bool(case.function) and any(r == case.rank and case.function in f[:3] for r, f, _ in outliers)
            causes_right += bool(cause) and cause in case.named
            causes_wanted += bool(case.named)
        is_named = cause in case.named if case.named else not cause
        if ranks != ([] if case.rank is None else [case.rank]) or not is_named:
            wrong.append(f"{case.cause} {case.kind} {case.options}: {[(rank, cause) for rank, _, cause in outliers]}")
    return {
        "jobs": jobs,
        "balanced": jobs - sum(wanted.values()),
        "precision": right / max(claimed, 1),
        "recall": right / max(sum(wanted.values()), 1),
        "stacks_named": named / max(functions, 1),
        "cause_precision": causes_right / max(causes_named, 1),
        "cause_recall": causes_right / max(causes_wanted, 1),
        "causes_named": causes_named,
        "by_cause": {cause: [found_of[cause], count] for cause, count in sorted(wanted.items())},
        "wrong": wrong,
    }


def table(measured: dict[str, Any]) -> str:
    """The figures as text, with errors listed below."""
    causes = ", ".join(f"{cause} {found} of {count}" for cause, (found, count) in measured["by_cause"].items())
    return "\n".join([
        f"outliers: {measured['jobs']} jobs, {measured['balanced']} of them balanced; "
        f"precision {measured['precision']:.3f}, recall {measured['recall']:.3f} ({causes}); "
        f"planted stack among the first three: {measured['stacks_named']:.3f}",
        f"causes: {measured['causes_named']} named; precision {measured['cause_precision']:.3f}, "
        f"recall {measured['cause_recall']:.3f}",
        *(f"  {line}" for line in measured["wrong"]),
    ])  # fmt: skip


def _outliers(case: Case) -> list[tuple[int, list[str], str]]:
    """(rank, functions of its stacks, cause) of each outlier; the cause is "" where none is named."""
    with tempfile.TemporaryDirectory() as folder:
        if case.folder is None:
            generator.write_job(folder, case.kind, **{**SMALL, **case.options})
        document = plain(job_json(job(case.folder or folder, jobs=1)))
    return [
        (one["rank"], [stack["function"] for stack in one["stacks"]], (one["cause"] or {"kind": ""})["kind"])
        for one in document["outliers"]
    ]
