"""Memory by step, category and private pool: against a walk over the allocations, and the segments of the file."""

from __future__ import annotations

import importlib.util
import itertools
import json
import pickle
from pathlib import Path

import corpus
import polars as pl
import pytest
from click.testing import CliRunner
from planted_trace import Recording
from test_module_lines import RECORDING

import snapreport
from snapreport.cli import main
from snapreport.contracts.stats import StepMemory
from snapreport.exporting.tables import tables
from snapreport.number_format import bytes_text
from snapreport.report.step_lines import steps_text

MIB = 1 << 20


def live_bytes(rows: list[dict[str, object]], event: int) -> int:
    """Of allocations that are live after an event."""
    return sum(r["size"] for r in rows if r["alloc_event"] <= event and (r["freed"] < 0 or r["freed"] > event))  # type: ignore[misc, operator]


def plain_rows(snapshot: snapreport.Snapshot) -> list[dict[str, object]]:
    columns = ("size", "alloc_event", pl.col("free_event").alias("freed"), pl.col("category").cast(pl.String))
    return snapshot.allocations(0).select(*columns).to_dicts()


@pytest.mark.parametrize("name", ["recorded", "training", "leak"])
def test_steps_of_stats(name: str) -> None:
    path = RECORDING if name == "recorded" else corpus.path_of(name)
    snapshot = corpus.loaded(path)
    rows, times = plain_rows(snapshot), snapshot.events(0)["time_us"]
    steps = snapshot.stats()["devices"][0]["steps"]
    assert [(step["step"], step["first_event"], step["last_event"]) for step in steps] == snapshot.steps(0).select(
        "step", "first_event", "last_event"
    ).rows()
    ends = []
    for step in steps[:3]:
        first, last = step["first_event"], step["last_event"]
        moments = sorted({*range(first, last + 1, max(1, (last - first) // 20)), last})
        assert step["peak_allocated_bytes"] >= max(live_bytes(rows, event) for event in moments)
        peak_at = max(range(first, last + 1), key=lambda event: int(snapshot.timeline(0).allocated[event + 1]))
        assert step["peak_allocated_bytes"] == live_bytes(rows, peak_at)
        ends.append(live_bytes(rows, last))
        assert step["duration_us"] == times[last] - times[first]
    assert [step["growth_bytes"] for step in steps[:3]] == [
        None,
        *(b - a for a, b in itertools.pairwise(ends)),
    ]


def test_categories_add_up_at_every_event() -> None:
    snapshot = corpus.loaded(RECORDING)
    rows, curve = plain_rows(snapshot), snapshot.category_curve(0)
    names = curve.columns[1:]
    assert set(names) == {row["category"] for row in rows}
    assert (curve.select(pl.sum_horizontal(names)).to_series() == snapshot.curve(0)["allocated"]).all()
    for event in (-1, 0, 400, 970, 2568):
        at = curve.row(event + 1, named=True)
        for name in names:
            assert at[name] == live_bytes([row for row in rows if row["category"] == name], event)
    changes = dict(tables(snapshot))["category_curve"]
    for position in (-1, 17, 970, 2568):
        last = changes.filter(pl.col("position") <= position).group_by("category").last()
        shown = dict(last.select("category", "allocated").iter_rows())
        assert shown == {name: curve[name][position + 1] for name in names}
    assert len(changes) < 2 * len(curve)
    times = snapshot.events(0)["time_us"]
    assert changes.filter(pl.col("position") < 0)["time_us"].null_count() == len(names)
    traced = changes.filter(pl.col("position") >= 0)
    assert traced["time_us"].to_list() == times.gather(traced["position"]).to_list()


PROFILER = ("PARAMETER", "OPTIMIZER_STATE", "INPUT", "TEMPORARY", "ACTIVATION", "GRADIENT", "AUTOGRAD_DETAIL", None)


def test_a_memory_timeline_is_the_profilers(tmp_path: Path) -> None:
    """Its columns in PyTorch's order, where it is installed; a row for each time, by slow sums."""
    arguments = ["export", str(RECORDING), "--to", "memory-timeline", "-o", str(tmp_path / "t.json"), "--device", "0"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    times, sizes = json.loads((tmp_path / "t.json").read_text())
    snapshot = corpus.loaded(RECORDING)
    rows, events = plain_rows(snapshot), snapshot.events(0)["time_us"].to_list()
    assert times == [min(events), *sorted(set(events))]
    assert {len(one) for one in sizes} == {9} and {one[0] for one in sizes} == {0}
    known = [name and name.lower().replace("_", " ") for name in PROFILER]
    for at in (0, 1, 17, 300, len(times) - 1):
        last = max(event for event, time in enumerate(events) if time <= times[at]) if at else -1
        bytes_of = [live_bytes([row for row in rows if row["category"] == name], last) for name in known[:-1]]
        assert sizes[at][1:] == [*bytes_of, live_bytes(rows, last) - sum(bytes_of)]
    if importlib.util.find_spec("torch"):
        from torch.profiler import _memory_profiler

        assert tuple(one and one.name for one in _memory_profiler._CATEGORY_TO_COLORS) == PROFILER


def step(number: int, peak: int, growth: int | None, duration: int | None) -> StepMemory:
    return StepMemory(number, f"step {number}", 0, 1, peak * MIB, None if growth is None else growth * MIB, duration)


def test_gaps_are_named() -> None:
    """Of a step that takes longer than others, and between two: where most of it passes without an event."""
    steps = [step(number, 10, 0, duration) for number, duration in enumerate((90_000, 2000, 9000, 2000, 2000, 2000))]
    steps[0].longest_gap_us, steps[0].gap_event = 40_000, 3
    steps[2].longest_gap_us, steps[2].gap_event = 6500, 1234
    steps[3].until_next_us, steps[3].last_event = 3000, 1777
    said = steps_text(steps, lambda event: {1234: "forward model.py:9"}.get(event, ""))
    assert said.endswith(
        "2.0 ms each (median); step 0 took 90.0 ms; step 2 took 9.0 ms, 6.5 ms of it without an event after event "
        "1,234 in forward model.py:9; 3.0 ms without an event between step 3 and step 4, after event 1,777."
    )
    steps[3].until_next_us = 900
    assert "between" not in steps_text(steps)


@pytest.mark.parametrize("is_ours", [False, True])
def test_gaps_of_a_trace(is_ours: bool, tmp_path: Path) -> None:
    """Steps of four events each, in which one waits 5 ms and another begins 3 ms late. is_ours: for most of that time
    our recorder writes files, which the program alone would not wait for.
    """
    device, time = Recording(), 0
    steps, writing = [], []
    for number in range(6):
        if number == 4:
            writing.append([time + 100, time + 2500])
        time += 3000 if number == 4 else 10
        for event in range(4):
            if (number, event) == (2, 3):
                writing.append([time + 1, time + 4901])
            time += 5000 if (number, event) == (2, 3) else 100
            device.request(512)
            for one in device.trace:
                one.setdefault("time_us", time)
        steps.append([number + 1, time])
    snapshot = device.snapshot()
    snapshot["snapreport"] = {"schema": "snapreport-recording/1", "steps": steps}
    if is_ours:
        snapshot["snapreport"]["writing"] = writing
    path = tmp_path / "gaps.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    found = snapreport.load(path).file_stats().devices[0].steps
    events = snapreport.load(path).timeline(0).events
    assert [one.longest_gap_us for one in found][:4] == [100, 100, 100 if is_ours else 5000, 100]
    assert is_ours or events["time_us"][found[2].gap_event + 1] - events["time_us"][found[2].gap_event] == 5000
    assert [one.until_next_us for one in found] == [110, 110, 110, 700 if is_ours else 3100, 110, None]
    assert [one.duration_us for one in found] == [300, 300, 300 if is_ours else 5200, 300, 300, 300]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([(10, None, 5)], ""),
        ([(10, None, 5000), (10, 0, 5000)], "2 steps: peak 10.0 MiB in each; 5.0 ms each (median)."),
        (
            [(90, None, 2000), (110, 40, 2000), (110, 2, 9000), (110, 2, 2000), (110, -50, 2000)],
            "5 steps: peaks 90.0 MiB to 110 MiB (±10%), highest in step 1; +2.00 MiB from step to step (median); "
            "2.0 ms each (median); step 2 took 9.0 ms.",
        ),
        ([(10, None, 7), (10, 0, 5), (10, 0, 60)], "3 steps: peak 10.0 MiB in each."),
        ([(10, None, 7), (10, 0, 5), (10, 0, 900)], "3 steps: peak 10.0 MiB in each; step 2 took 0.9 ms."),
        ([(2004, None, None), (2007, 0, None)], "2 steps: peak 1.96 GiB in each."),
        (
            [
                (9, None, None),
                (9, 0, None),
                *[(10, at == 0, None) for at in range(3)],
                *[(11, at == 0, None) for at in range(3)],
            ],
            "8 steps: peaks 9.00 MiB to 11.0 MiB (±10%), highest in step 5; +2.00 MiB in some of them.",
        ),
        (
            [(9, None, None), (9, 0, None), (10, 1, None), (11, -9, None)],
            "4 steps: peaks 9.00 MiB to 11.0 MiB (±10%), highest in step 3; +512 KiB from step to step (median).",
        ),
        ([(9, None, None), (9, 0, None), (9, 0, None), (9, 0, None)], "4 steps: peak 9.00 MiB in each; no growth."),
    ],
)
def test_a_sentence_on_steps(steps: list[tuple[int, int | None, int | None]], text: str) -> None:
    assert steps_text([step(number, *values) for number, values in enumerate(steps)]) == text


def test_text_and_markdown_have_it() -> None:
    for options in ([], ["--markdown"]):
        output = CliRunner().invoke(main, ["stats", *options, str(RECORDING)], catch_exceptions=False).output
        assert "3 steps: peaks 108 MiB to 125 MiB" in output


@pytest.mark.parametrize("name", ["pools", "small"])
def test_private_pools_are_those_of_the_segments(name: str) -> None:
    path = corpus.path_of(name)
    pools: dict[str, list[int]] = {}
    for segment in pickle.loads(path.read_bytes())["segments"]:
        if segment["segment_pool_id"] != (0, 0):
            of_pool = pools.setdefault(str(segment["segment_pool_id"]), [0, 0, 0])
            for i, value in enumerate((1, segment["total_size"], segment["allocated_size"])):
                of_pool[i] += value
    assert bool(pools) == (name == "pools")
    shown = corpus.loaded(path).stats()["devices"][0].get("private_pools", [])
    assert {p["pool"]: [p["segments"], p["reserved_bytes"], p["allocated_bytes"]] for p in shown} == pools
    text = " ".join(CliRunner().invoke(main, ["stats", str(path)], catch_exceptions=False).output.split())
    assert ("At the end private pools" in text) == bool(pools)
    assert all(f"of {bytes_text(reserved)} in {pool}" in text for pool, (_, reserved, _) in pools.items())


def test_private_pools_are_sorted_by_bytes_then_name(tmp_path: Path) -> None:
    segments = []
    pools = [((0, 7), 2 * MIB), ((0, 1), 2 * MIB), ((0, 9), 4 * MIB)]
    for i, (pool, size) in enumerate(pools):
        address = 0x7F00_0000_0000 + (i << 30)
        block = {"address": address, "size": size, "requested_size": size, "state": "inactive", "frames": []}
        totals = {"total_size": size, "allocated_size": 0, "active_size": 0, "requested_size": 0}
        segments.append(
            {"device": 0, "address": address, **totals, "stream": 0, "segment_type": "small",
             "segment_pool_id": pool, "is_expandable": False, "frames": [], "blocks": [block]}
        )  # fmt: skip
    path = tmp_path / "pools.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [[]]}))
    shown = snapreport.load(path).stats()["devices"][0]["private_pools"]
    assert [pool["pool"] for pool in shown] == ["(0, 9)", "(0, 1)", "(0, 7)"]


def test_a_step_that_ends_without_a_time_has_no_duration(tmp_path: Path) -> None:
    raw = pickle.loads(corpus.path_of("training").read_bytes())
    trace = raw["device_traces"][0]
    for entry in trace[len(trace) // 2 :]:
        del entry["time_us"]
    path = tmp_path / "half.pickle"
    path.write_bytes(pickle.dumps(raw))
    snapshot = snapreport.load(path)
    known = snapshot.events(0)["time_us"].is_not_null()
    steps = snapshot.stats()["devices"][0]["steps"]
    assert [(known[step["first_event"]], known[step["last_event"]]) for step in steps] == [(True, True), (True, False)]
    assert [step["duration_us"] is None for step in steps] == [False, True]
