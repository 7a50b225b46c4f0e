"""The cost of the report over thousands of digests: seconds and memory of ``snapreport job``.

Each digest is that of a generated rank, with sizes, times and a host of its own: no two have the same content.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import generator
import numpy as np
from msgspec import structs

from benchmarks.process import cost
from snapreport.jobs.digest import digest_bytes, read_digest
from snapreport.jobs.digest_format import pack
from snapreport.jobs.digest_model import Digest, DigestCurve, plain_digest
from snapreport.snapshot import load

OPTIONS = {"hidden": 512, "layers": 6, "steps": 10, "micro_batches": 4}
KINDS = ("experts", "data")


def write_digests(folder: Path, count: int, distinct: int = 16, seed: int = 1) -> int:
    """Digests of so many ranks, made of ``distinct`` generated ones; the bytes of all."""
    folder.mkdir(parents=True)
    made = generator.write_job(folder.parent / f"{folder.name}-made", KINDS[0], ranks=distinct, seed=seed, **OPTIONS)
    originals = [read_digest(digest_bytes(load(path))) for path in made]
    dice = random.Random(seed)
    size = 0
    for rank in range(count):
        data = pack(plain_digest(_varied(originals[rank % distinct], rank, count, dice)))
        (folder / f"rank_{rank:05}.digest").write_bytes(data)
        size += len(data)
    return size


def _varied(digest: Digest, rank: int, ranks: int, dice: random.Random) -> Digest:
    """The digest of another rank of the same program, with up to 4% more or less in each stack."""
    factors = [1 + 0.04 * dice.uniform(-1, 1) for _ in digest.stacks]
    stacks = tuple(
        structs.replace(stack, bytes=int(stack.bytes * factor), most=int(stack.most * factor))
        for stack, factor in zip(digest.stacks, factors, strict=True)
    )
    peak = sum(stack.bytes for stack in stacks) + digest.rest
    scale = peak / max(digest.peak_allocated, 1)
    later = dice.randrange(1000)
    curves = {
        axis: _scaled(curve, scale, later if axis == "time" else 0, dice) for axis, curve in digest.curves.items()
    }
    return structs.replace(
        digest,
        rank=rank,
        world_size=ranks,
        host=f"node{rank // 8:04}",
        stacks=stacks,
        peak_allocated=peak,
        curves=curves,
        step_ends=tuple(None if end is None else end + later for end in digest.step_ends),
        categories=tuple((name, int(size * scale)) for name, size in digest.categories),
    )


def _scaled(curve: DigestCurve, scale: float, later: int, dice: random.Random) -> DigestCurve:
    noise = np.random.default_rng(dice.randrange(2**32)).uniform(0.99, 1.01, len(curve.first))
    values = {name: (column * scale * noise).astype(np.int64) for name, column in curve.values.items()}
    return DigestCurve(curve.first + later, curve.last + later, values)


def measure(folder: Path, counts: list[int]) -> list[dict[str, Any]]:
    """A row for each number of ranks."""
    rows = []
    for count in counts:
        digests = folder / f"digests{count}"
        size = write_digests(digests, count)
        report = folder / f"job{count}.html"
        spent = cost("-m", "snapreport", "job", digests, "-o", report, "--detail", "none")
        rows.append({"ranks": count, "digest_bytes": size, **vars(spent), "report_bytes": report.stat().st_size})
        print(line(rows[-1]), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['ranks']:,} digests of {row['digest_bytes'] / row['ranks'] / 1e3:.1f} KB: {row['seconds']:.1f} s, "
        f"{row['memory'] / 2**20:.0f} MiB, report {row['report_bytes'] / 1e6:.2f} MB"
    )
