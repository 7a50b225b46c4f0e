"""Rows of a profiler's trace: what is merged, what the report holds, and what the page draws of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cli
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_time_costs import activity, by_hand

from snapreport import load, write_report
from snapreport.report.activity_columns import folded

rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40_000), st.integers(0, 9_000)), min_size=1, max_size=60)


@given(rows, st.integers(2, 40))
def test_folded_rows_keep_all_intervals(drawn: list[tuple[int, int, int]], most: int) -> None:
    """No more than asked for, none lost, in order and without overlap; with enough room nothing is merged."""
    frame = pl.DataFrame(
        [(row, f"{length % 3}", begin, begin + length) for row, begin, length in drawn],
        {"row": pl.UInt32, "name": pl.String, "begin": pl.Int64, "end": pl.Int64},
        orient="row",
    ).sort("row", "begin")
    parts = folded(frame, most)
    assert len(parts) <= max(most, frame["row"].n_unique()) and parts["count"].sum() == len(frame)
    for (row,), part in parts.partition_by("row", as_dict=True).items():
        own = frame.filter(pl.col("row") == row)
        assert part["count"].sum() == len(own)
        begin, end = part["begin"].to_numpy(), part["end"].to_numpy()
        assert (begin[1:] >= end[:-1]).all() and (end >= begin).all()
        assert begin[0] == own["begin"].min() and end.max() == own["end"].max()
    assert folded(frame, len(frame) + 1)["count"].max() == 1


def test_the_name_of_merged_ones_is_that_of_most_time() -> None:
    at = np.arange(1000) * 100
    name = np.where(np.arange(1000) % 4, "short", "long")
    frame = pl.DataFrame({"row": np.zeros(1000, np.uint32), "name": name, "begin": at, "end": at + 5})
    frame = frame.with_columns(end=pl.col("begin") + pl.when(pl.col("name") == "long").then(60).otherwise(10))
    parts = folded(frame, 100)
    assert set(parts["name"]) == {"long"} and parts["count"].min() >= 4


@pytest.fixture
def opened(tmp_path: Path, borrow_report: Callable[..., Any]) -> Any:
    """The trace of :func:`by_hand`, with a kernel and a thousand short ones between the events of the last step."""
    snapshot, trace = by_hand(tmp_path)
    document = json.loads(trace.read_text())
    document["traceEvents"] += [
        activity("kernel", "gemm<float, 128>", 3000, 500, tid=7, correlation=50, device=0, stream=7),
        *(activity("kernel", f"k{i % 2}", 4000 + i, 0.5, tid=7, device=0, stream=7) for i in range(1000)),
    ]
    trace.write_text(json.dumps(document))
    report = tmp_path / "report.html"
    assert cli.in_process(snapshot, "--profile", trace, "-o", report).code == 0
    return borrow_report(report)


def shown(opened: Any) -> dict[str, tuple[int, Any]]:
    """Row and contents by kind, the first of each."""
    opened.settle()
    found: dict[str, tuple[int, Any]] = {}
    for number, track in enumerate(opened.js("snapreport.debug.view().tracks.shown")):
        found.setdefault(track["kind"], (number, track))
    return found


def hovered(opened: Any, number: int, piece: dict[str, float]) -> str:
    box, plot = opened.page.locator(".tracks canvas").bounding_box(), opened.plot()
    opened.page.mouse.move(plot["left"] + (piece["x0"] + piece["x1"]) / 2, box["y"] + number * 15 + 7)
    opened.page.locator(".timeline > .tooltip").wait_for()
    text: str = opened.page.locator(".timeline > .tooltip").inner_text()
    return text


def test_rows_of_a_report(opened: Any) -> None:
    opened.page.wait_for_function(
        "snapreport.debug.view().tracks.shown.some(t => t.kind === 'kernel' && t.spans.length)"
    )
    found = shown(opened)
    assert list(found) == ["step", "cost", "operator", "kernel"]
    assert [span["name"] for span in found["cost"][1]["spans"]] == [
        "cudaMalloc", "recomputation of checkpoints", "writing a checkpoint", "copies to the host",
    ]  # fmt: skip
    # An allocation every step, at 10, 1010, 2010 and 6010 µs, is the second of two events: events are the axis.
    number, kernels = found["kernel"]
    gemm = kernels["pieces"][0]
    assert kernels["spans"][gemm["from"]]["name"] == "gemm<float, 128>"
    view, plot = opened.view(), opened.plot()
    place = 5 + (3000 - 2010) / 4000
    expected = (place - view["x"][0]) / (view["x"][1] - view["x"][0]) * plot["width"]
    assert math.isclose(gemm["x0"], expected, abs_tol=1)
    text = hovered(opened, number, gemm)
    assert "gemm<float, 128>" in text and "500 µs" in text and "kernels and copies of a stream" in text
    many = next(piece for piece in kernels["pieces"] if piece["to"] > piece["from"])
    text = hovered(opened, number, many)
    assert "1,000 kernels, too short to be told apart" in text and "k0" in text


def test_activities_are_left_out_to_fit(tmp_path: Path) -> None:
    """They are among the first parts to go; the costs in time stay in words."""
    snapshot, trace = by_hand(tmp_path)
    document = json.loads(trace.read_text())
    noise = np.random.default_rng(1).integers(1, 4000, (40_000, 2))
    ends = np.cumsum(noise.sum(axis=1)) / 50_000
    document["traceEvents"] += [
        activity("kernel", f"kernel {gap}", 2010 + at, took / 50_000, tid=9, device=0, stream=3)
        for at, (gap, took) in zip(ends.tolist(), noise.tolist(), strict=True)
    ]
    trace.write_text(json.dumps(document))
    loaded = load(snapshot, profile=trace)
    size = write_report([loaded], tmp_path / "whole.html")
    assert write_report([loaded], tmp_path / "small.html", max_size=size - 10_000) < size - 10_000
    text = (tmp_path / "small.html").read_text()
    assert "the profiler&#39;s trace" in text
    assert "recomputation of checkpoints" in text and "kernel 1234" not in text


def test_redacted_and_listed(tmp_path: Path) -> None:
    snapshot, trace = by_hand(tmp_path)
    document = json.loads(trace.read_text())
    document["traceEvents"].append(activity("cpu_op", "acme::secret_op", 3000, 10, tid=3))
    trace.write_text(json.dumps(document))
    listed = cli.in_process(snapshot, "--profile", trace, "--dry-run").out
    assert "profiler's trace" in listed and "acme::secret_op" in listed
    hidden = cli.in_process(snapshot, "--profile", trace, "--dry-run", "--redact-pattern", "acme").out
    assert "***::secret_op" in hidden and "acme" not in hidden
