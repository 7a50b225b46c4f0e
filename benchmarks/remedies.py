"""What advice promises beside what programs take with the remedy: both recorded with PyTorch's own allocator.

Three sets of pairs: ``../shared/remedies`` where there is one, ``tests/fakecuda/programs/remedies.py`` and the programs
of ``tests/fakecuda/programs/pairs``, the last two recorded over the driver of tests/fakecuda with every PyTorch of
``SNAPREPORT_FAKE_TORCH``. A promise is the peak that advice names; its error is relative to the peak measured.
"""

from __future__ import annotations

import json
import lzma
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import snapreport
from benchmarks.inputs import ROOT
from snapreport.findings.run import findings

CLOSE = 0.15
"""A promise is kept where the peak is so much off at most."""
SHARED = ROOT / ".." / "shared" / "remedies"
SDPA = "fused-attention sdpa-math-kernel"
RULES = {
    "cpu": "collected-outputs",
    "bf16": "frozen-base",
    "index": "one-hot",
    "detach": "retained-graphs",
    "sdpa": SDPA,
}
"""Of the remedies of ``../shared/remedies`` that have another name than their rule."""
GENERAL = {"accumulation", "mixed-precision", "checkpointing", "chunked-loss"}
"""Rules that lower the peak of almost any training: right where the program has no mistake of its own."""
UNSEEN = {
    *("video", "waves", "points", "mixer", "captions", "folding", "bootstrapped", "curves"),
    *("windows", "latents", "inpainting", "sessions"),
    *("alignment", "tumours", "flow", "graphs", "samples", "dispatched"),
}
"""Programs of pairs/unseen.py and pairs/laboratory.py, recorded when the models of remedies were done; their docstrings
have the first figures.
"""


@dataclass(frozen=True)
class Pair:
    """A program without and with its remedy. rules: apart by a space, those that name it."""

    source: str
    program: str
    remedy: str
    rules: str
    without: Path
    with_remedy: Path


@dataclass(frozen=True)
class Row:
    """rank: of the advice among all, from 1, 0 where it is not given. promised: a peak, 0 where there is none.
    low, high: where the advice is an estimate.
    """

    source: str
    program: str
    remedy: str
    rule: str
    rank: int
    peak: int
    promised: int
    measured: int
    low: int
    high: int

    @property
    def error(self) -> float:
        return self.promised / self.measured - 1

    @property
    def factor(self) -> float:
        return max(self.promised / self.measured, self.measured / self.promised)


def shared(folder: Path) -> Iterator[Pair]:
    if not SHARED.is_dir():
        return
    for row in json.loads((SHARED / "remedies.json").read_text()):
        names = [row["program"], f"{row['program']}__{row['remedy']}"]
        paths = [folder / f"shared {name}.pickle" for name in names]
        for name, path in zip(names, paths, strict=True):
            if not path.exists():
                path.write_bytes(lzma.decompress((SHARED / f"{name}.pickle.xz").read_bytes()))
        yield Pair("shared", *names[:1], row["remedy"], RULES.get(row["remedy"], row["remedy"]), *paths)


def recorded(folder: Path) -> Iterator[Pair]:
    """Pairs of the tests' programs, recorded where ``folder`` does not have them yet."""
    import fake_torch
    import test_remedies

    known = [(program, remedy, rule) for program, remedy, rule, *_ in test_remedies.CASES]
    for environment in fake_torch.FOLDERS:
        torch = fake_torch.FakeTorch(environment)
        listing = fake_torch.PROGRAMS / "remedy_pairs.py"
        listed = json.loads(torch.run(listing, "--list").out)
        pairs = [(name, remedy, rule) for name, remedies in listed.items() for remedy, rule in remedies.items()]
        for script, cases in ((fake_torch.PROGRAMS / "remedies.py", known), (listing, pairs)):
            for program, remedy, rule in cases:
                paths = [folder / f"{torch.version} {script.stem} {program} {name}.pickle" for name in ("", remedy)]
                for path, name in zip(paths, ("", remedy), strict=True):
                    if not path.exists():
                        done = torch.run(script, path, program, name, FAKE_GPU_GIB=24, FAKE_GPU_COUNT=2)
                        if done.code:
                            raise RuntimeError(f"{program} {name}: {done.err}")
                yield Pair(torch.version, program, remedy, rule, *paths)


def measure(folder: Path, names: list[str]) -> list[Row]:
    """folder: where recordings are, or will be. names: programs, all where there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    return list(rows(folder, names))


def rows(folder: Path, names: list[str]) -> Iterator[Row]:
    advised: dict[Path, tuple[int, list[snapreport.Finding]]] = {}
    for pairs in (shared(folder), recorded(folder)):
        for pair in pairs:
            if names and pair.program not in names:
                continue
            if pair.without not in advised:
                snapshot = snapreport.load(pair.without)
                given = [f for f in findings(snapshot) if f.device == 0 and (f.kind == "advice" or _is_leak(f))]
                advised[pair.without] = snapshot.timeline(0).peak_bytes, given
            measured = snapreport.load(pair.with_remedy).timeline(0).peak_bytes
            yield _row(pair, *advised[pair.without], measured)


def _is_leak(finding: snapreport.Finding) -> bool:
    return finding.kind == "leak" and finding.severity == "warning"


def _row(pair: Pair, peak: int, given: list[snapreport.Finding], measured: int) -> Row:
    accepted = pair.rules.split()
    # A leak is the diagnosis: it says what has to go, and the peak if each iteration needs its part.
    if "leak" in accepted and (leaks := [finding for finding in given if _is_leak(finding)]):
        promised = int(leaks[0].evidence["needed_peak_bytes"])
        return Row(pair.source, pair.program, pair.remedy, "leak", 1, peak, promised, measured, 0, 0)
    for rank, finding in enumerate((finding for finding in given if not _is_leak(finding)), 1):
        if finding.evidence["rule"] in accepted:
            saving = finding.evidence["saving"] or {}
            promised = saving.get("peak_bytes", 0)
            low, high = (saving.get(name) or 0 for name in ("low_bytes", "high_bytes"))
            rule = finding.evidence["rule"]
            return Row(pair.source, pair.program, pair.remedy, rule, rank, peak, promised, measured, low, high)
    return Row(pair.source, pair.program, pair.remedy, pair.rules, 0, peak, 0, measured, 0, 0)


def table(measured: list[Row]) -> Iterator[str]:
    yield f"{'':7} {'program':18} {'remedy':15} {'rank':>4} {'peak':>7} {'promised':>8} {'measured':>8}  error  (MiB)"
    for row in measured:
        promised = f"{row.promised >> 20:8,} {row.measured >> 20:8,} {row.error:+7.1%}" if row.promised else ""
        between = f"  {row.low >> 20:,} to {row.high >> 20:,}" if row.high else ""
        unknown = promised or f"{'–':>8} {row.measured >> 20:8,}"
        yield (
            f"{row.source:7} {row.program:18} {row.remedy:15} {row.rank or '–':>4} {row.peak >> 20:7,} "
            f"{unknown}{between}"
        )
    for source in dict.fromkeys(row.source for row in measured):
        yield summary(source, [row for row in measured if row.source == source])
    if unseen := [row for row in measured if row.program in UNSEEN]:
        yield summary("unseen", unseen)
    yield summary("all", measured)


def summary(name: str, measured: list[Row]) -> str:
    promises = [row for row in measured if row.promised]
    ranges = [row for row in promises if row.high]
    parts = [f"{len(measured)} pairs", f"{sum(0 < row.rank <= 2 for row in measured)} named first or second"]
    by_program: dict[tuple[str, str], list[Row]] = {}
    for row in measured:
        by_program.setdefault((row.source, row.program), []).append(row)
    right = [[row for row in rows if row.rule not in GENERAL] or rows for rows in by_program.values()]
    named = sum(any(0 < row.rank <= 2 for row in rows) for rows in right)
    parts.append(f"the right remedy first or second in {named} of {len(right)} programs")
    if harmful := sum(not row.rank and row.measured >= row.peak for row in measured):
        parts.append(f"{harmful} rightly not given: the remedy raises the peak")
    if promises:
        kept = sum(abs(row.error) <= CLOSE for row in promises)
        worst = max(promises, key=lambda row: row.factor)
        parts += [
            f"{kept} of {len(promises)} promises within {CLOSE:.0%}",
            f"median error {statistics.median(abs(row.error) for row in promises):.1%}",
            f"worst {worst.factor:.2f} times ({worst.program}, {worst.remedy})",
        ]
    if ranges:
        parts.append(f"{sum(row.low <= row.measured <= row.high for row in ranges)} of {len(ranges)} ranges hold")
    return f"{name}: {', '.join(parts)}"
