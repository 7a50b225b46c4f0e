"""The line that advice says to change, found by plain loops over the stack traces of what the advice is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import snapreport
from snapreport.findings.effort import AT_STEP
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = (
    "mistakes/neighbourhoods", "witnesses/adam", "witnesses/masks", "witnesses/retried", "witnesses/loaded",
    "witnesses/chat", "witnesses/tables", "witnesses/uneven",
)  # fmt: skip
LIBRARY = re.compile(r"(^|/)(torch|site-packages|dist-packages|lib/python[\d.]+)/")
CALLING = {"accumulation", "mixed-precision", "device-imbalance", "checkpointing"}
ELSEWHERE = {"exception-holds"}
Line = tuple[str, str]  # file:line, function


def stack_lines(snapshot: Snapshot) -> list[list[Line]]:
    """Of each stack trace, innermost first."""
    recording = snapshot.recording
    frames = [
        (f"{file}:{line}", name) for file, line, name in recording.frames.select("filename", "line", "name").rows()
    ]
    return [[frames[at] for at in recording.stack(stack)] for stack in range(len(recording.stack_offsets) - 1)]


def is_own(line: Line) -> bool:
    return not LIBRARY.search(line[0]) and line[0].partition(":")[0] not in ("", "??")


def advised(snapshot: Snapshot) -> Iterator[tuple[Finding, Counter[int]]]:
    """Each piece of advice, with the bytes at the peak that its query selects, by stack."""
    for finding in findings(snapshot):
        if finding.kind != "advice" or not finding.evidence.get("where"):
            continue
        at = snapshot.timeline(finding.device).peak_event
        rows = snapshot.query(finding.link.query, finding.device).filter(
            (pl.col("alloc_event") <= at) & ((pl.col("free_event") < 0) | (pl.col("free_event") > at))
        )
        sums = Counter[int]()
        for stack, size in rows.select("stack", "size").rows():
            sums[stack] += size
        yield finding, sums


@pytest.mark.parametrize("name", NAMES)
def test_the_line_to_change_is_of_what_it_changes(name: str) -> None:
    snapshot = snapreport.load(RECORDINGS / f"{name}.pickle.xz")
    traces, seen = stack_lines(snapshot), 0
    for finding, sums in advised(snapshot):
        where, rule = finding.evidence["where"], finding.evidence["rule"]
        own = {stack: [line for line in traces[stack] if is_own(line)] for stack in sums}
        calling = [trace for trace in traces if where in {line[0] for line in trace}]
        seen += 1
        if rule in CALLING:
            # One line, or lines of its function, call most of what has lines of the program.
            (function,) = {function for trace in calling for line, function in trace if line == where}
            whole = sum(size for stack, size in sums.items() if own[stack])
            called = sum(size for stack, size in sums.items() if function in {line[1] for line in own[stack]})
            assert called >= 0.8 * whole > 0, rule
        elif rule in AT_STEP:
            called_from = [trace[: [line[0] for line in trace].index(where)] for trace in calling]
            assert any("step" in {line[1] for line in inner} for inner in called_from), rule
        elif rule not in ELSEWHERE:
            of_lines = Counter[str]()
            for stack, size in sums.items():
                of_lines[own[stack][0][0] if own[stack] else ""] += size
            del of_lines[""]
            assert of_lines[where] == max(of_lines.values()), (rule, where, of_lines)
    assert seen
