"""Many reports in one page, and one view driven for a while: no errors and no memory leak. ``python -m benchmarks
soak`` opens a hundred and drives for 20,000 steps.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import corpus
import pytest


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, which is beside the package, not in it."""
    monkeypatch.syspath_prepend(str(corpus.ROOT))
    return import_module("benchmarks.soak")


def test_reports_in_turn(soak: ModuleType, chromium: Any, tmp_path: Path) -> None:
    course = soak.open_in_turn(chromium, soak.FEWEST, tmp_path)
    assert course.steps == soak.FEWEST and not course.errors, course.errors
    assert len(course.heap) == soak.FEWEST and not course.grows(course.heap), course.line()


def test_one_report_driven(soak: ModuleType, chromium: Any, report_of: Callable[..., Path]) -> None:
    course = soak.drive(chromium, report_of(corpus.path_of("small")), 80)
    assert course.steps == 80 and not course.errors, course.errors
    assert len(course.heap) >= soak.FEWEST and not course.grows(course.heap), course.line()


def test_growth_is_seen(soak: ModuleType) -> None:
    steady, growing = soak.Course("x"), soak.Course("y")
    for n in range(20):
        steady.heap.append((30 + n % 3) << 20)
        growing.heap.append((30 + 2 * n) << 20)
    assert not steady.grows(steady.heap) and growing.grows(growing.heap)
    assert "GROWS" in growing.line() and "GROWS" not in steady.line()
