"""Tests wait for conditions: none for a fixed time, and none asserts how long something takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import waiting

TESTS = Path(__file__).resolve().parent
# A clock or a pause outside of waiting.py; setTimeout(done, 600) in a script; a guard that a busy machine may reach.
CLOCKS = re.compile(
    r"time\.sleep\(|wait_for_timeout\((?!20\))|perf_counter|process_time|monotonic\(\)"
    r"|setTimeout\([^()]*(\(\))?[^()]*, \d|timeout=\d"
)
ALLOWED = {
    "waiting.py": "the one place that waits",
    "fakecuda/build.py": "prints how long a build took",
    "fakecuda/programs/categories.py": "keeps what it notes apart from what it does next by some microseconds",
    "fakecuda/programs/clocks.py": "lets the time of day go on between its readings",
    "fakecuda/programs/device_memory.py": "looks once a millisecond whether the recorder has taken a sample",
    "fakecuda/programs/profiled_checkpoints.py": "notes how long what a checkpoint runs again took",
    "test_recorder_dump.py": "gives the dump a limit that is over",
    "test_recorder_ends.py": "programs that wait for each other, and for a process to have been left blocked",
    "test_recorder_profiler.py": "a program that is recorded until a limit",
    "test_waiting.py": "this file",
}


def test_no_test_waits_for_a_fixed_time() -> None:
    found = {
        path.relative_to(folder).as_posix(): match[0]
        for folder, ending in ((TESTS, "*.py"), (TESTS.parent / "static" / "test", "*.ts"))
        for path in folder.rglob(ending)
        for match in CLOCKS.finditer(path.read_text(encoding="utf-8"))
    }
    assert {name: text for name, text in found.items() if name not in ALLOWED} == {}


def test_what_never_comes_true_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GUARD_SECONDS", 0.0)
    with pytest.raises(AssertionError, match="never came true: the moon"):
        waiting.wait_until(lambda: 0, "the moon")
    values = iter([0, "", "it"])
    monkeypatch.undo()
    assert waiting.wait_until(lambda: next(values), "a value") == "it"
