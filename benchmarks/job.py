"""Jobs: planted outliers found and claims in balanced jobs (precision, recall), and what a job of many ranks costs."""

from __future__ import annotations

import itertools
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from snapreport import samples
from snapreport.jobs.build import build_job, job
from snapreport.jobs.reduce import Job

SMALL = {"hidden": 256, "layers": 2, "steps": 3, "micro_batches": 2, "operations": 4, "vocabulary": 4000}
BIG = {"hidden": 512, "layers": 6, "steps": 5, "micro_batches": 4}
"""1.5 MB a rank."""


def cases() -> Iterator[tuple[str, dict[str, Any], int | None]]:
    """(kind, options, the planted rank): every kind with a leak at every position, a heavy rank, and none."""
    for kind, seed in itertools.product(samples.KINDS, range(3)):
        base = {"seed": seed, "ranks": 8 if kind != "experts" else 16, "layers": 8 if kind == "pipeline" else 2}
        for jitter in (0.0, 0.1):
            yield kind, {**base, "jitter": jitter}, None
            # Which of two jobs a pipeline's ends belong to, nothing says: embedding, head, or a leak.
            for rank in (2, 4, 6) if kind == "pipeline" else (0, 3, 7):
                yield kind, {**base, "jitter": jitter, "straggler": rank, "leak": 24 << 20}, rank
        if kind in ("data", "experts"):
            yield kind, {**base, "heavy": 5, "factor": 3.5}, 5
        if kind == "pipeline":
            yield kind, {**base, "ranks": 32, "replicas": 4}, None
            yield kind, {**base, "ranks": 32, "replicas": 4, "straggler": 9, "leak": 24 << 20}, 9


def planted() -> dict[str, float]:
    """Precision and recall of the claimed ranks over all cases, printed with what went wrong."""
    right = claimed = wanted = jobs = 0
    for kind, options, rank in cases():
        with tempfile.TemporaryDirectory() as folder:
            samples.write_job(folder, kind, **{**SMALL, **options})
            found = [int(reduced.ranks[o.row]) for reduced in [job(folder, jobs=1)] for o in reduced.outliers]
        right += rank in found
        claimed += len(found)
        wanted += rank is not None
        jobs += 1
        if found != ([] if rank is None else [rank]):
            print(f"  {kind} {options}: {found}")
    result = {"jobs": jobs, "precision": right / max(claimed, 1), "recall": right / max(wanted, 1)}
    print(f"planted: {jobs} jobs, precision {result['precision']:.3f}, recall {result['recall']:.3f}")
    return result


def many(folder: Path, ranks: int, distinct: int = 64, **options: Any) -> list[Path]:
    """Files of ``ranks`` ranks, of which ``distinct`` are made and the others linked."""
    folder.mkdir(parents=True, exist_ok=True)
    made = samples.write_job(
        folder / "made", "experts", **{**BIG, "ranks": min(distinct, ranks), "metadata": False, "seed": 1, **options}
    )
    paths = []
    for rank in range(ranks):
        path = folder / f"rank{rank}.pickle"
        path.unlink(missing_ok=True)
        path.hardlink_to(made[rank % len(made)])
        paths.append(path)
    return paths


def cost(ranks: int, workers: int, **options: Any) -> dict[str, float]:
    """Seconds, bytes and memory of one job."""
    folder = Path(tempfile.mkdtemp(prefix="snapreport-job."))
    try:
        paths = many(folder, ranks, **options)
        started = time.perf_counter()
        reduced: Job = job(paths, jobs=workers)
        digested = time.perf_counter()
        document = build_job(reduced, detail=("worst", "median"))
        written = time.perf_counter()
    finally:
        shutil.rmtree(folder)
    own, children = (
        resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    result = {
        "ranks": ranks,
        "workers": workers,
        "digests_s": digested - started,
        "report_s": written - digested,
        "report_bytes": len(document),
        "digest_bytes": max(len(row.packed) for row in reduced.rows),
        "reducer_mib": own,
        "worker_mib": children,
    }
    print(
        ", ".join(
            f"{key} {value:,.2f}" if isinstance(value, float) else f"{key} {value:,}" for key, value in result.items()
        )
    )
    return result


def run() -> dict[str, Any]:
    """All of it: planted cases, 64 ranks on one and two processes, 1,024 on two."""
    return {"planted": planted(), "cost": [cost(64, 1), cost(64, 2), cost(1024, 2)]}
