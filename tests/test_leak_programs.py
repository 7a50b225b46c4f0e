"""Leaks of whole programs, as they end: recordings of PyTorch's own allocator over the driver of tests/fakecuda.

What a program keeps is known from the program (``fakecuda/programs/leaks.py``), which knows nothing of snapreport.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import corpus
import fake_torch
import pytest
from cli import in_process as run
from fake_torch import PROGRAMS, FakeTorch

import snapreport
from benchmarks.leaks import allowed_exits
from snapreport.findings.live_at_end import leaks_of
from snapreport.findings.run import findings
from snapreport.report.sentence_html import Links
from snapreport.report.verdict import chips

MIB = 1 << 20
RECORDINGS = Path(__file__).parent / "recordings" / "leaks"
PATHS = sorted(RECORDINGS.glob("*.pickle.xz"))
KNOWN: dict[str, dict[str, Any]] = json.loads((RECORDINGS / "programs.json").read_text())
RUNS = Path(corpus.ROOT).parent / "shared" / "runs"
AGAIN = ("ends_return", "ends_oom", "four_growths_3", "ring_4", "cache_3")


def name_of(path: Path) -> str:
    return path.name.removesuffix(".pickle.xz").split("_", 1)[1]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".pickle.xz"))
def test_the_gate_finds_what_a_program_keeps(path: Path) -> None:
    program = KNOWN[name_of(path)]
    assert run("check", str(path), "--fail-on", "leak").code in allowed_exits(program)


@pytest.mark.parametrize("name", ["ends_return", "ends_freed", "ends_exception", "period_2", "period_7", "late"])
def test_what_was_freed_at_the_end_is_counted_to_the_byte(name: str) -> None:
    snapshot = snapreport.load(RECORDINGS / f"2.15.0_{name}.pickle.xz")
    program, timeline = KNOWN[name], snapshot.timeline(0)
    (leak,) = (found for found in leaks_of(snapshot, timeline)[0] if found.severity == "warning")
    each = 256 * 4 * 256 * 2 * 4  # the output, four times along the batch and twice along the width
    assert leak.bytes == program["growths"] * each and leak.evidence["every"] == program["every"]
    assert "kept leaks.py:" in leak.title
    rows = snapshot.query(leak.evidence["saving"]["query"])
    assert int(rows["size"].sum()) == leak.bytes, "the query that the finding shows"
    at_end = timeline.allocations.filter(timeline.allocations["free_event"] < 0)["id"]
    freed = int(rows.filter(~rows["id"].is_in(at_end.implode()))["size"].sum())
    assert leak.evidence["freed_bytes"] == freed


def test_a_tensor_that_is_concatenated_is_no_output_and_no_mask() -> None:
    """The next one is computed from it, and its size is a multiple of what is added."""
    found = findings(snapreport.load(RECORDINGS / "2.15.0_concatenated.pickle.xz"))
    assert {finding.kind for finding in found} == {"leak", "live_at_end", "peak"}


def test_without_a_concatenated_tensor_its_copies_go_too() -> None:
    """The program with a tensor of 12 x 2 MiB from the start had a peak of 42.9 MiB: its first part was no copy."""
    (leak,) = (f for f in findings(snapreport.load(RECORDINGS / "2.15.0_concatenated.pickle.xz")) if f.kind == "leak")
    saving = leak.evidence["saving"]
    assert leak.evidence["needed_peak_bytes"] == saving["peak_bytes"] + 2 * MIB
    assert saving["peak_bytes"] + 24 * MIB == pytest.approx(44_973_064, rel=0.05)
    assert leak.detail[-1].startswith("Preallocate the tensor: peak 44.9 MiB (replayed). Or move ")


def test_a_peak_without_a_leak_is_told() -> None:
    for name, peak in (("concatenated", "22.9"), ("ends_alive", "20.9")):
        found = findings(snapreport.load(RECORDINGS / f"2.15.0_{name}.pickle.xz"))
        told = [chip.remedy for chip in chips(found, {0: 0}, 0, Links()) if chip.severity == "warning"]
        assert told[0].startswith(f"Without it the peak is {peak} MiB (replayed). "), name


def test_too_few_growths_are_unknown_and_say_how_many() -> None:
    done = run("check", str(RECORDINGS / "2.15.0_three_growths_2.pickle.xz"), "--fail-on", "leak")
    assert done.code == 2 and "grew 3 times in 6 steps" in done.out


@pytest.mark.skipif(not RUNS.is_dir(), reason="no recordings of programs that end")
@pytest.mark.parametrize(
    ("name", "code"),
    [("freed_p1_12", 1), ("freed_p3_30", 1), ("freed_accum4_p1", 1), ("alive_p2_8", 1), ("freed_ring_ok", 0)],
)
def test_programs_of_others(name: str, code: int) -> None:
    assert run("check", str(RUNS / f"{name}.pickle.xz"), "--fail-on", "leak").code == code


@pytest.mark.parametrize("torch", fake_torch.parameters())
@pytest.mark.parametrize("name", AGAIN)
def test_programs_recorded_now(torch: FakeTorch, name: str, tmp_path: Path) -> None:
    programs = json.loads(torch.run(PROGRAMS / "leaks.py").out)
    done = torch.run(PROGRAMS / "leaks.py", tmp_path / "now.pickle", name)
    assert done.code == 0, done.err
    assert run("check", str(tmp_path / "now.pickle"), "--fail-on", "leak").code in allowed_exits(programs[name])
