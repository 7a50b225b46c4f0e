"""What is said of each small recording in the repository, as text: ``python tests/answers.py`` writes it to
tests/recordings/answers after a change that is meant, and checksums of all numbers beside it (checksums.py). Read the
difference before it is committed: each line of it is what a user will read of such a program.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import checksums
import corpus
import less
import polars as pl

import snapreport
from snapreport.findings.diagnosis import headline
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot

RECORDINGS = Path(__file__).parent / "recordings"
SAMPLES = Path(snapreport.__file__).parent / "samples"
ANSWERS = RECORDINGS / "answers"
LESS = RECORDINGS / "less.txt"
HEAD = "== "


def paths() -> list[Path]:
    """Recordings by folder, with the samples; those of another version of PyTorch's allocator alone have tests of their
    own. Those in ``conditions`` were chosen because conditions decide there that do so in none of the others
    (``python -m benchmarks.conditions``).
    """
    recorded = sorted(path for path in RECORDINGS.glob("*/*.pickle.xz") if path.parent.name != "allocator")
    return recorded + sorted(SAMPLES.rglob("*.pickle.xz"))


def answer(path: Path) -> tuple[str, str]:
    """The text, and the checksums."""
    snapshot = corpus.loaded(path)
    found = findings(snapshot)
    lines = []
    for device in snapshot.devices:
        lines += [f"{device}: {sentence}" for sentence in headline(found, device)]
        lines += [f"  {line}" for line in _numbers(snapshot, device)]
    for finding in found:
        lines.append(f"- {finding.device}: {finding.title} [{finding.confidence}]")
        lines += [f"  {sentence}" for sentence in finding.detail]
    return "\n".join(lines) + "\n", checksums.of_recording(snapshot, found)


def _numbers(snapshot: Snapshot, device: int) -> Iterator[str]:
    """What the rules work with: bytes by category, and steps."""
    table = snapshot.allocations(device)
    shares = table.group_by(pl.col("category").cast(pl.String).fill_null("none")).agg(pl.col("size").sum(), pl.len())
    for category, size, count in shares.sort("category").rows():
        yield f"{category}: {size:,} bytes in {count:,}"
    steps = snapshot.steps(device)
    if len(steps):
        ends = " ".join(f"{first}-{last}" for first, last in steps.select("first_event", "last_event").rows()[:20])
        yield f"{len(steps)} steps: {ends}"


def of_less(name: str) -> str:
    """First sentences, titles and checksums of a recording that shows less: ``witnesses/stored, last 70%``."""
    recording, _, way = name.partition(", ")
    snapshot = snapreport.load(less.made(next(path for path in paths() if name_of(path) == recording), way))
    found = findings(snapshot)
    lines = [f"{device}: {' '.join(headline(found, device))}" for device in snapshot.devices]
    lines += [f"- {finding.device}: {finding.title} [{finding.confidence}]" for finding in found]
    return "\n".join([*lines, checksums.of_recording(snapshot, found)]) + "\n"


def accepted_of_less() -> dict[str, str]:
    """What is said of each recording that shows less, by name."""
    parts = LESS.read_text(encoding="utf-8").split(HEAD)[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.pickle.xz')}"


def accepted(path: Path) -> str:
    """The text of a recording that was read; "" where there is none."""
    file = ANSWERS / f"{path.parent.name}.txt"
    whole = file.read_text(encoding="utf-8") if file.exists() else ""
    return whole.partition(f"{HEAD}{path.name}\n")[2].partition(HEAD)[0]


def main() -> None:
    ANSWERS.mkdir(exist_ok=True)
    told: dict[str, str] = {}
    sums = {}
    for path in paths():
        text, sums[name_of(path)] = answer(path)
        told[path.parent.name] = told.get(path.parent.name, "") + f"{HEAD}{path.name}\n{text}"
    for folder, text in told.items():
        (ANSWERS / f"{folder}.txt").write_text(text, encoding="utf-8")
    checksums.write(sums)
    LESS.write_text("".join(f"{HEAD}{name}\n{of_less(name)}" for name in accepted_of_less()), encoding="utf-8")


if __name__ == "__main__":
    main()
