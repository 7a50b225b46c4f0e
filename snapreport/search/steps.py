"""Steps and other annotated spans of time. The page's twin is ``static/src/search/steps.ts``."""

from __future__ import annotations

import math
import re

import numpy as np
import polars as pl

from snapreport.search.fields import Range, Text, fold
from snapreport.search.texts import holds

_STEP = re.compile(r"ProfilerStep#([0-9]{1,15})")


def spans_of(annotations: pl.DataFrame, device: int, test: Range | Text) -> list[tuple[float, float]]:
    """(first µs, µs after the last) of the annotations that a test means: a range of profiler steps, or a part of a name.

    Those of the device count, and those of the whole file where the device has none of its own. A START belongs to the
    next END of its name that no later START takes. One without the other reaches to the end of the record on its side.
    """
    rows = annotations.filter(pl.col("time_us").is_not_null())
    own = rows.filter(pl.col("device") == device)
    open_starts: dict[str, list[float]] = {}
    spans = []
    for name, stage, us in (own if len(own) else rows).sort("time_us", maintain_order=True).select("name", "stage", "time_us").rows():
        if not _is_meant(name, test):
            continue
        starts = open_starts.setdefault(name, [])
        if stage == "START":
            starts.append(us)
        elif stage == "END":
            spans.append((starts.pop() if starts else -math.inf, us))
    return spans + [(start, math.inf) for starts in open_starts.values() for start in starts]


def within_spans(us: np.ndarray, spans: list[tuple[float, float]]) -> np.ndarray:
    """bool for each time: in one of the spans, their first µs included and their last not. NaN is in none."""
    inside = np.zeros(len(us), bool)
    joined: list[list[float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    if not joined:
        return inside
    starts = np.array([start for start, _ in joined])
    ends = np.array([end for _, end in joined])
    at = np.searchsorted(starts, us, "right") - 1
    return (at >= 0) & (us < ends[np.maximum(at, 0)])


def _is_meant(name: str, test: Range | Text) -> bool:
    if isinstance(test, Text):
        return holds(fold(name), test.parts)
    step = _STEP.fullmatch(name)
    return bool(step) and in_range(int(step[1]), test)


def in_range(number: int, test: Range) -> bool:
    return (test.low is None or number >= test.low) and (test.high is None or number <= test.high)
