"""Programs that run out of memory, and how much they need with each remedy where there is enough.

The programs of ``benchmarks remedies`` run on a device that is too small, over the driver of tests/fakecuda: what
advice says then must be a lower bound of the peak that the program has with the remedy on a device that is large
enough, and the memory said to be missing one of what it needs without.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import snapreport
from benchmarks.remedies import Pair, recorded
from snapreport.findings.run import findings

SHARES = (0.95, 0.8, 0.5)
"""Of the memory that a program reserves: devices on which it dies late, and early."""
CONTEXT = 500 << 20
"""Bytes that CUDA's context takes of a device."""
ROUNDING = 0.01
"""Of a bound: replays move bytes by the rounding of shares, and a peak by temporaries of an operator."""


@dataclass(frozen=True)
class Row:
    """bound: bytes that the program needs at least with the remedy, as advice says. measured: its peak with it."""

    source: str
    program: str
    share: float
    rule: str
    rank: int
    place: str
    bound: int
    measured: int

    @property
    def holds(self) -> bool:
        return self.bound <= (1 + ROUNDING) * self.measured


def measure(folder: Path, names: list[str]) -> list[Row]:
    """folder: where recordings are, or will be. names: programs, all where there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [pair for pair in recorded(folder) if not names or pair.program in names]
    return [row for pair in pairs if "remedy_pairs" in pair.without.name for row in rows(folder, pair)]


def rows(folder: Path, pair: Pair) -> Iterator[Row]:
    enough = snapreport.load(pair.without).timeline(0)
    measured = snapreport.load(pair.with_remedy).timeline(0).peak_bytes
    for share in SHARES:
        path = _failed(folder, pair, share, int(enough.reserved.max()))
        if path is None:
            continue
        snapshot = snapreport.load(path)
        oom, *rest = findings(snapshot)
        assert oom.kind == "oom", path
        place = f"{oom.evidence['phase']} {oom.evidence['layer'] or '?'}/{oom.evidence['layers'] or '?'}"
        # What a program asks for that no device has is not missing.
        if (missing := oom.evidence["missing_bytes"]) and not enough.oom_events:
            needed = snapshot.timeline(0).allocated[oom.event + 1] + (oom.evidence["device_free_bytes"] or 0)
            needed += oom.evidence["usable_free_bytes"] + oom.evidence["other_size_bytes"] + missing
            yield Row(pair.source, pair.program, share, "missing", 0, place, int(needed), enough.peak_bytes)
        advised = [finding for finding in rest if finding.kind == "advice"]
        for rank, finding in enumerate(advised, 1):
            saving = finding.evidence["saving"]
            if saving and finding.evidence["rule"] in pair.rules.split():
                assert saving["is_lower_bound"], path
                rule = finding.evidence["rule"]
                yield Row(pair.source, pair.program, share, rule, rank, place, saving["peak_bytes"], measured)


def _failed(folder: Path, pair: Pair, share: float, reserved: int) -> Path | None:
    """A snapshot of the program on a device with a ``share`` of what it reserves; None where it does not die there."""
    import fake_torch

    path = folder / f"{pair.source} failed {pair.program} {share}.pickle"
    fits = path.with_suffix(".none")
    if not path.exists() and not fits.exists():
        environment = next(one for one in fake_torch.FOLDERS if one.name.endswith(pair.source))
        size = (CONTEXT + share * reserved) / 2**30
        script = fake_torch.PROGRAMS / "remedy_pairs.py"
        running = path.with_suffix(".part")
        done = fake_torch.FakeTorch(environment).run(script, running, pair.program, FAKE_GPU_GIB=size)
        if done.code not in (0, 3):
            raise RuntimeError(f"{pair.program}: {done.err}")
        running.rename(path if done.code == 3 else fits)
    return path if path.exists() else None


def table(measured: list[Row]) -> Iterator[str]:
    names = f"{'rule':18} {'rank':>4} {'fails in':24} {'bound':>8} {'measured':>8}"
    yield f"{'':7} {'program':18} {'share':>5} {names}  (MiB)"
    for row in dict.fromkeys(measured):
        yield (
            f"{row.source:7} {row.program:18} {row.share:5} {row.rule:18} {row.rank or '':>4} {row.place:24} "
            f"{row.bound >> 20:8,} {row.measured >> 20:8,}{'' if row.holds else '  above'}"
        )
    every = list(dict.fromkeys(measured))
    yield f"all: {len(every)} bounds, {sum(row.holds for row in every)} hold"


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    print(*table(measure(Path(folder), names)), sep="\n")
