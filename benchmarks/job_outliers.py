"""Jobs with a planted rank or none: precision and recall of the ranks called outliers, and of their stacks."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snapreport import samples
from snapreport.contracts import plain
from snapreport.jobs.build import job
from snapreport.jobs.job_json import job_json

SMALL = {"hidden": 256, "layers": 2, "steps": 3, "micro_batches": 2, "operations": 4, "vocabulary": 4000}
LEAK = {"leak": 24 << 20}
RECORDED = {"job_dp": (5, ""), "job_pp": (6, "stash_for_debugging")}
"""Jobs of real PyTorch beside the checkout: the planted rank and the function of its stack."""


@dataclass(frozen=True)
class Case:
    """A job. rank, function: what is planted in it; None and "" where nothing is, or where no single stack is the
    cause.
    """

    cause: str
    kind: str
    options: dict[str, Any]
    rank: int | None = None
    function: str = ""


def cases(seeds: int = 3) -> Iterator[Case]:
    """Every kind of job: with a leak at several places, with a heavy rank, with one that runs out, and with nothing
    planted.
    """
    for kind, seed in itertools.product(samples.KINDS, range(seeds)):
        base = {"seed": seed, "ranks": 8 if kind != "experts" else 16, "layers": 8 if kind == "pipeline" else 2}
        for jitter in (0.0, 0.1):
            yield Case("none", kind, {**base, "jitter": jitter})
            # Nothing shows whether the last rank of a pipeline has an embedding, a head or a leak.
            for rank in (2, 4, 6) if kind == "pipeline" else (0, 3, 7):
                yield Case("leak", kind, {**base, **LEAK, "jitter": jitter, "straggler": rank}, rank, "log_step")
        if kind != "pipeline":
            function = "dispatch" if kind == "experts" else ""
            yield Case("heavy", kind, {**base, "heavy": 5, "factor": 3.5}, 5, function)
        # Memory for the plain program and half as much again.
        yield Case(
            "oom", kind, {**base, "oom": 4, "memory": 1 << 30 if kind != "pipeline" else 2 << 30}, 4, "pad_batch"
        )
        if kind == "pipeline":
            yield Case("none", kind, {**base, "ranks": 32, "replicas": 4})
            options = {**base, **LEAK, "ranks": 32, "replicas": 4, "straggler": 9}
            yield Case("leak", kind, options, 9, "log_step")
    for seed in range(2 * seeds):
        yield Case("none", "experts", {"seed": seed, "ranks": 32, "unevenness": 0.25 + 0.1 * seed})


def measure(seeds: int = 3, recorded: Path | None = None) -> dict[str, Any]:
    """Precision and recall of the claimed ranks, recall of the stacks, and the recall of each cause."""
    right = claimed = named = functions = 0
    wanted: Counter[str] = Counter()
    found_of: Counter[str] = Counter()
    jobs = 0
    wrong: list[str] = []
    folders = [recorded / name for name in RECORDED] if recorded else []
    real = [Case("recorded", str(f), {}, *RECORDED[f.name]) for f in folders if f.is_dir()]
    for case in itertools.chain(cases(seeds), real):
        outliers = _outliers(case)
        ranks = [rank for rank, _ in outliers]
        jobs += 1
        claimed += len(ranks)
        if case.rank is not None:
            wanted[case.cause] += 1
            right += case.rank in ranks
            found_of[case.cause] += case.rank in ranks
            functions += bool(case.function)
            named += bool(case.function) and any(r == case.rank and case.function in f[:3] for r, f in outliers)
        if ranks != ([] if case.rank is None else [case.rank]):
            wrong.append(f"{case.cause} {case.kind} {case.options}: {ranks}")
    return {
        "jobs": jobs,
        "balanced": jobs - sum(wanted.values()),
        "precision": right / max(claimed, 1),
        "recall": right / max(sum(wanted.values()), 1),
        "stacks_named": named / max(functions, 1),
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
        *(f"  {line}" for line in measured["wrong"]),
    ])  # fmt: skip


def _outliers(case: Case) -> list[tuple[int, list[str]]]:
    """(rank, functions of its stacks) of each outlier."""
    with tempfile.TemporaryDirectory() as folder:
        where = case.kind
        if case.cause != "recorded":
            samples.write_job(folder, case.kind, **{**SMALL, **case.options})
            where = folder
        document = plain(job_json(job(where, jobs=1)))
    return [(o["rank"], [stack["function"] for stack in o["stacks"]]) for o in document["outliers"]]
